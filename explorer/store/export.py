"""Exactly the rows of `results`, as a file for other tools: CSV, Parquet, Markdown.

Names in it come from outside, and do no harm where they are opened. A spreadsheet takes a cell that begins like a
formula for one, and a formula can fetch addresses and start programs (OWASP, "CSV Injection"). So a text that begins
like one gets an apostrophe in front; numbers, and all other texts, stay as they are. Parquet has types, and therefore
the very texts.
"""

import csv
import io
import re
from pathlib import Path

import duckdb
import pyarrow.parquet

from explorer import rundir
from explorer.errors import StoreError, unknown
from explorer.store import queries
from explorer.store.queries import Table

FORMATS = ("csv", "md", "parquet")


def export(
    database: Path,
    path: Path,
    *,
    sweep: str | None = None,
    metric: str | None = None,
    format: str | None = None,
    every: bool = False,
) -> int:
    """Write the results to `path`, whole or not at all, and return how many rows they are. With `every` also the runs
    that are superseded.

    The format is a name in `FORMATS`; by default it is the path's ending. Raises `StoreError` for
    any other, and `RunError` if the disk refuses.
    """
    chosen = format or path.suffix.removeprefix(".")
    if chosen not in FORMATS:
        raise StoreError(f"cannot export to {path}: {unknown('format', chosen, FORMATS)}")
    if chosen == "parquet":
        return _parquet(database, path, sweep=sweep, metric=metric, every=every)
    table = queries.results(database, sweep=sweep, metric=metric, every=every)
    rundir.write_bytes(path, (csv_text(table) if chosen == "csv" else markdown_text(table)).encode())
    return len(table.rows)


def _parquet(database: Path, path: Path, *, sweep: str | None, metric: str | None, every: bool) -> int:
    asked = queries.results_question(sweep=sweep, metric=metric, every=every)
    with queries.opened(database) as connection:
        try:
            table = connection.sql(asked.sql, params=list(asked.parameters)).to_arrow_table()
        except duckdb.Error as error:
            raise queries.damaged(database, error) from error
    if not table.num_rows:
        queries.check_names(database, sweep=sweep, metric=metric)
    content = io.BytesIO()
    pyarrow.parquet.write_table(table, content)
    rundir.write_bytes(path, content.getvalue())
    return table.num_rows


# ---- a table as text

RULE = "texts that begin like a formula have an apostrophe in front"

_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")  # or its full-width form
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_MARKUP = str.maketrans({char: f"\\{char}" for char in "\\`*[]|~"} | {"&": "&amp;", "<": "&lt;"})


def csv_text(table: Table) -> str:
    """The table as CSV with a header. Unknown values are empty; a number reads back as the same number."""
    text = _Lines()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(map(neutral, table.columns))
    writer.writerows([_plain(cell) for cell in row] for row in table.rows)
    return text.getvalue()


def markdown_text(table: Table) -> str:
    """The table in GitHub's Markdown, numbers shortened to six digits; no text becomes markup, or a line of its own."""
    lines = [
        [_short(name) for name in table.columns],
        ["---"] * len(table.columns),
        *([_short(cell) for cell in row] for row in table.rows),
    ]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def neutral(text: str) -> str:
    """The text of a CSV cell, in a form that no spreadsheet calculates.

    >>> neutral("=1+1"), neutral("-"), neutral("a=1")
    ("'=1+1", "'-", 'a=1')
    """
    return f"'{text}" if _FORMULA.match(text) else text


class _Lines(io.StringIO):
    """Rows that end in a newline alone. The writer is told of both characters, because it quotes only cells that hold
    what ends a row, and a bare carriage return inside one ends a row for many who read the file."""

    def write(self, row: str) -> int:
        return super().write(row.removesuffix("\r\n") + "\n")


def _plain(cell: object) -> object:
    if isinstance(cell, str):
        return neutral(cell)
    return str(cell).lower() if isinstance(cell, bool) else cell


def _short(cell: object) -> str:
    if cell is None:
        return ""
    text = f"{cell:.6g}" if isinstance(cell, float) else str(cell).lower() if isinstance(cell, bool) else str(cell)
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", " ".join(text.split())).translate(_MARKUP)
