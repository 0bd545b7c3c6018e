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
VERSION = 14  # of the schema; a snapshot of another version is rebuilt, never migrated


def database(runs: Path) -> Path:
    """Return the path of the published snapshot of a directory of runs."""
    return runs / DATABASE


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
                raise StoreError(f"{database}: of another version of explorer; `explorer store rebuild` makes it again")
            yield connection
    except duckdb.Error as error:
        first, *_ = str(error).splitlines()
        raise StoreError(
            f"{database}: cannot be read ({first:.200}); `explorer store rebuild` makes it again"
        ) from error
