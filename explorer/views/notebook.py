"""What every notebook is built on: the directory of its runs, and charts that are as wide as their place."""

import os
from pathlib import Path
from typing import Any

import altair as alt
import anywidget

from explorer.page import theme


def runs_directory(runs: str | Path | None) -> Path:
    """The directory of runs that a notebook means: `runs`, else $EXPLORER_RUNS, else `runs/` beside its folder."""
    return Path(runs or os.environ.get("EXPLORER_RUNS") or Path.cwd().parent / "runs")


class Fit(anywidget.AnyWidget):
    """Put it beside a chart whose width is "container"."""

    _esm = """
    export default {
      render({ el }) {
        el.style.height = "0";
        const observer = new ResizeObserver(() => window.dispatchEvent(new Event("resize")));
        observer.observe(el);
        return () => observer.disconnect();
      },
    };
    """


def empty_chart(**options: Any) -> alt.JupyterChart:
    """A chart widget that shows nothing until its `chart` is set. Needs no network."""
    alt.JupyterChart.enable_offline()
    return alt.JupyterChart(None, embed_options=theme.EMBED, **options)  # pyright: ignore[reportArgumentType]
