"""The one door to DuckDB: a connection reads and writes the files it was opened for, and no others.

A database is a file from somebody, and the views in it are programs: they run with the rights of whoever asks them, and
without these settings one of them reads a private key with `read_text` or lists a home directory with `glob`. Here a
connection is opened for one file, or for one directory. Everything else is shut and locked before the first statement
that such a file could bring: other files and databases, the network, extensions, secrets that the user has stored for
DuckDB, and the variables of this Python process, which a query may otherwise name as tables.

DuckDB gives an open file out again within one process, and only under the same settings; so whoever reads a snapshot
opens it here, and closes it at once.
"""

from collections.abc import Mapping
from pathlib import Path

import duckdb

Setting = str | bool | int | float | list[str]

# None of these can be turned back by a statement: the last one sees to that.
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
    """A connection to one database file, which it can reach alone. Raises `duckdb.Error`."""
    return duckdb.connect(path, read_only=read_only, config={**_NO_EXTENSIONS, **_SHUT})


def connect_in_memory(directory: Path, *, limits: Mapping[str, Setting] | None = None) -> duckdb.DuckDBPyConnection:
    """A new database in memory, which can read, write and attach the files of one directory: name them below
    `directory.resolve()`, for a link that leads out of it is refused. `limits` are settings of DuckDB.

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
