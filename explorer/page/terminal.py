"""Blocks as text in a terminal, and the answer of a verb: blocks for people, JSON for programs, an exit status.

No text steers the terminal: `visible` writes out every character that a terminal would obey.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from explorer.page.document import (
    Block,
    Bullets,
    Code,
    Column,
    Facts,
    Fold,
    Heading,
    Paragraph,
    Picture,
    Row,
    Table,
    Text,
)

GAP = 2  # spaces between columns


# ---- the answer of a verb


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The answer of a verb. Page and record are made only on demand, because either may be expensive."""

    page: Callable[[], Iterable[Block | str]]  # for people
    record: Callable[[], Any]  # a JSON value, for programs
    holds: bool = True  # the answer is yes: the exit status is 0, else 1
    status: int | None = None  # another exit status than these
    faults_to_stderr: bool = False  # the page of an answer that does not hold goes to standard error
    remark: str = ""  # for standard error, after the page or the record
    then: Callable[[], Iterable[str]] = tuple  # lines with the next command, for standard error, if the answer holds


def deliver(answer: Answer, *, as_json: bool) -> int:
    """Print an answer and return the exit status."""
    if as_json:
        print_json(answer.record())
    else:
        show(answer.page(), file=sys.stderr if answer.faults_to_stderr and not answer.holds else None)
    if answer.remark:
        print(visible(answer.remark), file=sys.stderr)
    return (0 if answer.holds else 1) if answer.status is None else answer.status


def print_json(value: Any) -> None:
    """Print JSON on standard output, indented and in ASCII, so that no text steers the terminal; keys stay in order."""
    print(json.dumps(value, indent=1, allow_nan=False, default=str))


# ---- blocks


def show(blocks: Iterable[Block | str], *, file: TextIO | None = None) -> None:
    """Print blocks from top to bottom. A string is a line, or several; an alert always goes to standard error."""
    # Every branch goes through `visible`: names come from outside.
    for block in blocks:
        match block:
            case str():
                print(visible(block), file=file)
            case Paragraph(text, "alert"):
                print(visible(line(text)), file=sys.stderr)
            case Paragraph(text) | Code(text):
                print(visible(line(text)), file=file)
            case Heading(_, text):
                print(visible(f"\n{line(text)}"), file=file)
            case Bullets(items, _, numbered):
                for at, item in enumerate(items):
                    print(visible(f"{f'{at}.' if numbered else '-'} {line(item)}"), file=file)
            case Facts(pairs):
                width = max((len(name) for name, _ in pairs), default=0)
                for name, value in pairs:
                    print(visible(f"  {name.ljust(width)}  {line(value)}"), file=file)
            case Table(columns, rows, caption):
                if caption:
                    print(visible(line(caption)), file=file)
                right = [line(column.title) for column in columns if column.number]
                titles = [line(column.title) for column in columns]
                print_table(titles, [[line(cell) for cell in row.cells] for row in rows], right=right, file=file)
            case Picture():
                print(visible(f"picture: {block.description}"), file=file)
            case Fold(title, inner):
                show((title, *inner), file=file)


def line(text: Text) -> str:
    """Return a text as one line, with remarks in brackets."""
    if isinstance(text, str):
        return text
    return "".join(f" ({line(span.text)})" if span.kind == "small" else line(span.text) for span in text)


def visible(text: str) -> str:
    """Return the text with every character written out that a terminal would obey, except newlines.

    >>> visible("a\\x1b[31mb\\n")
    'a\\\\x1b[31mb\\n'
    """
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


def from_here(path: Path) -> Path:
    """Return a path as a user would type it: relative if it is below the working directory."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


# ---- tables

KERNEL = "JPY_PARENT_PID"  # set by Jupyter in the processes of its kernels


def is_terminal(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that obeys: `!explorer ...` has one whose codes its cell would show."""
    return stream.isatty() and KERNEL not in os.environ


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> Table | str:
    """Return a table of values; `right` names the columns of numbers, and None is shown as a dash."""
    cells = [Row(["-" if cell is None else str(cell) for cell in row]) for row in rows]
    if not cells:  # a document has no table without rows: only its head is shown
        return "\n".join(("  ".join(columns), "  ".join("\u2500" * len(title) for title in columns), ""))
    return Table([Column(title, number=title in right) for title in columns], cells)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
    file: TextIO | None = None,
) -> None:
    """Print a table that fits the terminal; in a pipe, a file or a string, one of whole lines.

    `right` names the columns of numbers; None is shown as a dash.
    """
    cells = [["-" if cell is None else visible(str(cell)).replace("\n", "\\n") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    # 0: not on a terminal that obeys, and COLUMNS is not set. A string has no width, though its process may have one:
    # the kernel of a notebook has the one that Jupyter was started from.
    sized = "COLUMNS" in os.environ or KERNEL not in os.environ
    room = shutil.get_terminal_size(fallback=(0, 0)).columns if sized and (file is None or file.isatty()) else 0
    if not room or sum(widths) + GAP * len(widths) <= room:
        _print_plain(columns, cells, widths=widths, right=right, file=file)
    else:
        _print_wrapped(columns, cells, right=right, file=file)


def _print_plain(
    columns: Sequence[str],
    cells: list[list[str]],
    *,
    widths: list[int],
    right: Sequence[str],
    file: TextIO | None,
) -> None:
    # Rich would draw the same, but importing it takes a fifth of a second.
    rule = ["\u2500" * width for width in widths]
    for row in (columns, rule, *cells):
        padded = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, cell, width in zip(columns, row, widths, strict=True)
        )
        print((" " * GAP).join(padded).rstrip(), file=file)
    print(file=file)


def _print_wrapped(
    columns: Sequence[str], cells: list[list[str]], *, right: Sequence[str], file: TextIO | None
) -> None:
    """Print a table whose long cells are broken into lines, and words too if they must be: nothing is left out."""
    from rich.box import SIMPLE_HEAD  # for this table only: loading it takes a fifth of a second
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table as Grid

    table = Grid(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(escape(column), justify="right" if column in right else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(escape, row))
    # In a notebook rich would show the table as an output of its own, and leave it out of what is written here.
    Console(file=file, force_jupyter=False, force_terminal=is_terminal(file or sys.stdout)).print(table)
