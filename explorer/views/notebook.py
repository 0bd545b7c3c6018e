"""What every notebook is built on: the directory of its runs, and charts that are as wide as their place."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import altair as alt
import anywidget

from explorer.page import theme
from explorer.page.document import Span, Text


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


def named(name: str) -> tuple[Span, ...]:
    """Return a name from outside, which a widget clips and isolates."""
    return (Span(name, "name"),)


def swatch(recipe: str, look: theme.Look) -> tuple[Span, ...]:
    """Return a recipe's name after its shape in its colour, as in the chart; without one if the chart lacks it."""
    return (Span(recipe, "name", mark=look.mark(recipe)),)


def joined(texts: Iterable[Text], separator: str = ", ") -> tuple[Span, ...]:
    """Return texts as one, with a separator between them."""
    spans: list[Span] = []
    for text in texts:
        spans += [Span(separator)] if spans else []
        spans += [Span(text)] if isinstance(text, str) else text
    return tuple(spans)


class Quiet:
    """Context in which a view sets its own fields; it is true meanwhile, so that observers ignore the change."""

    def __init__(self) -> None:
        self._inside = False

    def __enter__(self) -> None:
        self._inside = True

    def __exit__(self, *_: object) -> None:
        self._inside = False

    def __bool__(self) -> bool:
        return self._inside
