"""Common parts of the notebooks: the directory of runs, charts as wide as their container, names as text."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import altair as alt
import anywidget

from explorer.page import theme
from explorer.page.document import Span, Text


def runs_directory(runs: str | Path | None) -> Path:
    """Return the directory of runs of a notebook: `runs`, else $EXPLORER_RUNS, else `runs/` next to its folder."""
    return Path(runs or os.environ.get("EXPLORER_RUNS") or Path.cwd().parent / "runs")


class Fit(anywidget.AnyWidget):
    """Invisible widget that makes Vega resize the charts next to it to their container.

    Vega measures a container of the width "container" once, and again only when the window changes its size.
    """

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
    """Return a chart widget that is empty until its `chart` is set. It needs no network."""
    # Altair loads Vega from a CDN by default; notebooks must work on machines without a network.
    alt.JupyterChart.enable_offline()
    return alt.JupyterChart(None, embed_options=theme.EMBED, **options)  # pyright: ignore[reportArgumentType]


def named(name: str) -> tuple[Span, ...]:
    """Return a name from outside as text that a widget clips and isolates."""
    return (Span(name, "name"),)


def swatch(recipe: str, look: theme.Look) -> tuple[Span, ...]:
    """Return a recipe's name after its mark in the chart; the mark is left out for a recipe that is not drawn."""
    return (Span(recipe, "name", mark=look.mark(recipe)),)


def joined(texts: Iterable[Text], separator: str = ", ") -> tuple[Span, ...]:
    """Return texts as one, with a separator between them."""
    spans: list[Span] = []
    for text in texts:
        spans += [Span(separator)] if spans else []
        spans += [Span(text)] if isinstance(text, str) else text
    return tuple(spans)


class Quiet:
    """Context in which a view sets its own fields. It is true inside, so that observers ignore the change."""

    def __init__(self) -> None:
        self._inside = False

    def __enter__(self) -> None:
        self._inside = True

    def __exit__(self, *_: object) -> None:
        self._inside = False

    def __bool__(self) -> bool:
        return self._inside
