"""Common parts of the notebooks: the directory of runs, names as text."""

import os
from collections.abc import Iterable
from pathlib import Path

from explorer.page import theme
from explorer.page.document import Span, Text


def runs_directory(runs: str | Path | None) -> Path:
    """Return a notebook's directory of runs: `runs`, else $EXPLORER_RUNS, else `runs/` next to it or to its folder."""
    near = Path.cwd() / "runs"
    return Path(runs or os.environ.get("EXPLORER_RUNS") or (near if near.is_dir() else Path.cwd().parent / "runs"))


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
