"""The published snapshot of a directory of runs: where it is, its version, and how a reader opens it.

`snapshot_tables` describes the tables; this module is all that a reader needs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from explorer.errors import StoreError
from explorer.store.connect import reading

DATABASE = "explorer.duckdb"
COPY = "copy_of.json"  # next to a snapshot that is a copy of one at a place; `place_copy` says what is in it
VERSION = 16  # of the schema; a snapshot of another version is rebuilt, never migrated


def database(runs: Path) -> Path:
    """Return the path of the published snapshot of a directory of runs."""
    return runs / DATABASE


def is_copy(runs: Path) -> bool:
    """Return whether a directory of runs has no runs, but only a copy of the snapshot at a place."""
    return (runs / COPY).exists()


@contextmanager
def opened(database: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the snapshot for reading.

    Raises `StoreError` if there is none, if it is damaged or of another schema, and for every `duckdb.Error` inside.
    """
    if not database.exists():
        raise StoreError(f"there is no database {database}; `explorer store ingest` makes it from the run directories")
    try:
        with reading(database) as connection:
            if connection.execute("SELECT version FROM schema_version").fetchall() != [(VERSION,)]:
                raise StoreError(f"{database}: of another version of explorer; {_again(database)}")
            yield connection
    except duckdb.Error as error:
        first, *_ = str(error).splitlines()
        raise StoreError(f"{database}: cannot be read ({first:.200}); {_again(database)}") from error


def _again(database: Path) -> str:
    if is_copy(database.parent):
        return "`explorer sweep run SPEC --at PLACE` publishes it again, where the runs are"
    return "`explorer store rebuild` makes it again"
