"""The rows of `results` as a file for other tools: CSV, Parquet, Markdown.

Texts in CSV and Markdown are made harmless (`plain_text`); Parquet has types, and therefore the texts as they are.
"""

import io
from pathlib import Path

import pyarrow.parquet

from explorer import rundir
from explorer.errors import StoreError, unknown
from explorer.store import queries
from explorer.store.plain_text import csv_text, markdown_text
from explorer.store.published import opened

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
    """Write the results to `path`, completely or not at all, and return the number of rows.

    Args:
        database: the published snapshot.
        path: the file to write.
        sweep: one sweep; by default all of them.
        metric: the metric to write in place of each run's quality.
        format: a name in `FORMATS`; by default the path's ending.
        every: include superseded runs.

    Raises `StoreError` for an unknown format, and `RunError` if the file cannot be written.
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
    question = queries.results_question(sweep=sweep, metric=metric, every=every)
    with opened(database) as connection:
        table = connection.sql(question.sql, params=list(question.parameters)).to_arrow_table()
    if not table.num_rows:
        queries.check_names(database, sweep=sweep, metric=metric)
    table = table.drop_columns([name for name in queries.LATER if table[name].null_count == len(table)])
    content = io.BytesIO()
    pyarrow.parquet.write_table(table, content)
    rundir.write_bytes(path, content.getvalue())
    return table.num_rows
