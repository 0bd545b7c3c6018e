"""Rows into a table at once: by way of Arrow, a hundred times faster than row by row."""

from typing import Any

import duckdb
import pyarrow as pa

_MAPS = {
    "phases": pa.map_(pa.string(), pa.int64()),
    "split": pa.map_(pa.string(), pa.float64()),
    "parameters": pa.map_(pa.string(), pa.float64()),
}
_LISTS = {
    "subjects": pa.list_(pa.string()),
    "layers": pa.list_(pa.string()),
    "evidence": pa.list_(pa.string()),
    "rounds": pa.list_(pa.float64()),
}


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: list[tuple[Any, ...]], *, once: str = "") -> None:
    """Append rows, whose values stand in the order of the table's columns. Maps are given as dicts, lists as lists.

    Rows whose columns `once` are in the table already are left out.
    """
    if not rows:
        return
    names = [name for name, *_ in connection.execute(f"DESCRIBE {table}").fetchall()]
    columns = zip(names, zip(*rows, strict=True), strict=True)
    arrays = {name: _array(name, values) for name, values in columns}
    connection.register("incoming", pa.table(arrays))
    new = f"ANTI JOIN {table} USING ({once})" if once else ""
    connection.execute(f"INSERT INTO {table} SELECT * FROM incoming {new}")
    connection.unregister("incoming")


def _array(name: str, values: tuple[Any, ...]) -> pa.Array:
    if name in _MAPS:
        return pa.array([list(value.items()) for value in values], type=_MAPS[name])
    return pa.array(values, type=_LISTS.get(name))
