"""How verbs print: tables for people, JSON for programs."""

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

GAP = 2  # spaces between columns


def print_json(value: Any) -> None:
    """JSON on standard output, indented and in ASCII, so that no text steers the terminal; keys stay in order."""
    print(json.dumps(value, indent=1, allow_nan=False, default=str))


def visible(text: str) -> str:
    """The text with every character written out that a terminal would obey instead of showing it, but newlines.

    >>> visible("a\\x1b[31mb\\n")
    'a\\\\x1b[31mb\\n'
    """
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


def from_here(path: Path) -> Path:
    """A path as one would type it: relative where it lies below the working directory."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """A table that fits the terminal, or one of whole lines where there is none: in a pipe or a file. `right` names the
    columns of numbers; None is shown as a dash."""
    cells = [["-" if cell is None else visible(str(cell)).replace("\n", "\\n") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    room = shutil.get_terminal_size(fallback=(0, 0)).columns  # 0: no terminal, and nobody has set COLUMNS
    if not room or sum(widths) + GAP * len(widths) <= room:
        _print_plain(columns, cells, widths=widths, right=right)
    else:
        _print_wrapped(columns, cells, right=right)


def _print_plain(columns: Sequence[str], cells: list[list[str]], *, widths: list[int], right: Sequence[str]) -> None:
    """A table that fits as it is. Rich would draw the same, after a fifth of a second."""
    rule = ["\u2500" * width for width in widths]
    for row in (columns, rule, *cells):
        padded = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, cell, width in zip(columns, row, widths, strict=True)
        )
        print((" " * GAP).join(padded).rstrip())
    print()


def _print_wrapped(columns: Sequence[str], cells: list[list[str]], *, right: Sequence[str]) -> None:
    """A table whose long cells are broken into lines, words too where they must be: nothing is left out."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(escape(column), justify="right" if column in right else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(escape, row))
    Console().print(table)


def tell_upkeep(runs: Path) -> None:
    """Bring the database up to the run directories, and say on standard error what an answer lacks."""
    from explorer.store.upkeep import bring_up

    for words in bring_up(runs):
        print(visible(f"explorer: {words}"), file=sys.stderr)


def tell_left_out(where: Path, sweep: str | None) -> None:
    """Say on standard error how many runs of earlier specifications a database leaves out of its answers."""
    from explorer.planned import left_out_words
    from explorer.store import queries

    for name, count in queries.left_out(where, sweep=sweep).items():
        print(visible(f"explorer: {name}: {left_out_words(count, name)}"), file=sys.stderr)
