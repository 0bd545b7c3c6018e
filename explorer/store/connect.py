"""The one door to DuckDB: a connection reads and writes the files it was opened for, and no others.

A database file may come from outside, and the views in it are programs: they run with the rights of the process that
queries them, and without these settings one of them could read a private key with `read_text` or list a home directory
with `glob`. Here a connection is opened for one file, or for one directory. Everything else is shut and locked before
the first statement from such a file could run: other files and databases, the network, extensions, secrets that the
user has stored for DuckDB, and the variables of this Python process, which a query could otherwise name as tables.

Opening a file takes DuckDB 16 ms of CPU, a cursor of an open one 0.01 ms, and one answer asks a dozen questions. So
`reading` keeps the file of the last question open for the next one, as long as its path names the same file. That has
to be watched: DuckDB gives out an open database again by its *path*, also after another file has taken its place.
"""

import atexit
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import duckdb

Setting = str | bool | int | float | list[str]

# No statement can undo these: the last one locks the others, so it has to stay last.
_SHUT: Mapping[str, Setting] = {
    "allow_persistent_secrets": False,
    "python_enable_replacements": False,
    "enable_external_access": False,
    "lock_configuration": True,
}
# The database needs no extension; without these settings DuckDB would look for one on the network.
_NO_EXTENSIONS: Mapping[str, Setting] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


def connect_to_file(path: Path, *, read_only: bool = True) -> duckdb.DuckDBPyConnection:
    """Connect to one database file, the only file that the connection can reach. Raises `duckdb.Error`."""
    return duckdb.connect(path, read_only=read_only, config={**_NO_EXTENSIONS, **_SHUT})


class _Kept:
    """The database file that was read last, open, with the number of its cursors in use."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connection: duckdb.DuckDBPyConnection | None = None
        self.file: tuple[object, ...] | None = None
        self.cursors = 0

    def cursor(self, path: Path) -> duckdb.DuckDBPyConnection | None:
        """Return a cursor of the kept file if `path` is that file, or can take its place; else None."""
        try:
            status = path.stat()
        except OSError:
            return None  # DuckDB says why
        file = (path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        with self.lock:
            if file != self.file:
                if self.cursors:  # another thread reads: it keeps its file
                    return None
                self._close()  # first, for else DuckDB gives out the old file under the new one's path
                self.connection = connect_to_file(path)
                self.file = file
            assert self.connection is not None
            self.cursors += 1
            return self.connection.cursor()

    def release(self, cursor: duckdb.DuckDBPyConnection) -> None:
        cursor.close()
        with self.lock:
            self.cursors -= 1

    def close(self) -> None:
        with self.lock:
            if not self.cursors:
                self._close()

    def _close(self) -> None:
        connection, self.connection, self.file = self.connection, None, None
        if connection is not None:
            connection.close()


_kept = _Kept()
atexit.register(_kept.close)
os.register_at_fork(before=_kept.close)  # a child has none of DuckDB's threads, and would wait for them for ever


@contextmanager
def reading(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Read one database file, which the connection can reach and nothing else. Raises `duckdb.Error`."""
    cursor = _kept.cursor(path)
    if cursor is None:
        with connect_to_file(path) as connection:
            yield connection
        return
    try:
        yield cursor
    finally:
        _kept.release(cursor)


def connect_in_memory(directory: Path, *, limits: Mapping[str, Setting] | None = None) -> duckdb.DuckDBPyConnection:
    """Make a database in memory that can read, write and attach the files of one directory.

    Name them below `directory.resolve()`: a link that leads out of it is refused. `limits` are settings of DuckDB.

    Raises `duckdb.Error`.
    """
    connection = duckdb.connect(config={**_NO_EXTENSIONS, **(limits or {})})
    try:
        connection.execute("SET allowed_directories = ?", [[str(directory.resolve())]])
        for name, value in _SHUT.items():  # one by one: the directory has to come before what shuts the rest
            connection.execute(f"SET {name} = {value}")
    except BaseException:
        connection.close()
        raise
    return connection
