"""The published snapshot of a directory of runs: where it is, its version, and how a reader opens it.

A reader opens the snapshot, asks, and closes it. While a connection is open, DuckDB hands out the same open database to
every later one in the process, so a connection that is kept would show the old snapshot after a new one has replaced
it. `snapshot_tables` describes the tables; this module is all that a reader needs.
"""

from pathlib import Path

import duckdb

from explorer.errors import StoreError
from explorer.store.connect import connect_to_file

DATABASE = "explorer.duckdb"
VERSION = 9  # of the schema; a snapshot of another version is rebuilt, never migrated


def database(runs: Path) -> Path:
    """Return the path of the published snapshot of a directory of runs."""
    return runs / DATABASE


def opened(database: Path) -> duckdb.DuckDBPyConnection:
    """Open the snapshot for reading; the caller closes it at once after use.

    Raises `StoreError` if there is none, or if it is damaged or of another schema.
    """
    if not database.exists():
        raise StoreError(f"there is no database {database}; `explorer store ingest` makes it from the run directories")
    try:
        connection = connect_to_file(database)
    except duckdb.Error as error:
        raise damaged(database, error) from error
    try:
        found = connection.execute("SELECT version FROM schema_version").fetchall()
    except duckdb.Error as error:
        connection.close()
        raise damaged(database, error) from error
    if found != [(VERSION,)]:
        connection.close()
        raise StoreError(f"{database}: of another version of explorer; `explorer store rebuild` makes it anew")
    return connection


def damaged(database: Path, error: duckdb.Error) -> StoreError:
    """The error for a snapshot that cannot be read."""
    return StoreError(
        f"{database}: cannot be read ({str(error).splitlines()[0]:.200}); `explorer store rebuild` makes it anew"
    )
