"""Exactly the rows of `results`, as a file for other tools: CSV, Parquet, Markdown."""

import io
from pathlib import Path

import duckdb
import pyarrow.parquet

from explorer import rundir
from explorer.errors import StoreError, unknown
from explorer.store import queries
from explorer.store.text import csv_text, markdown_text

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
