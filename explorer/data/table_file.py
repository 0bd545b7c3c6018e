"""Tables of the user's own: a CSV file with names in its first line, or a Parquet file.

The files may be hostile: sizes are bounded before anything is unpacked, and a fault is an error in one sentence.
"""

import csv
import io
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv as arrow_csv

from explorer import rundir
from explorer.data.local import is_class, named_classes, shown
from explorer.data.targets import Target
from explorer.errors import DataError, unknown
from explorer.provenance.description import PARQUET

COMMAS = (".csv", ".tsv")
COLUMNS = ".parquet"
SUFFIXES = (*COMMAS, COLUMNS)
CSV = "text/csv"
MAX_BYTES = 2**28
MAX_UNPACKED = 2**31  # bytes of a Parquet file's columns
MAX_COLUMNS = 10_000
MAX_ROWS = 10**7
SEPARATORS = ",;\t"
TARGETS = ("target", "label", "labels", "class", "y", "outcome", "species", "survived")  # usual names, in this order
TAGS = ("provenance", "source", "origin", "licence", "license", "tag")


def content_of(place: Path, *, dataset: str) -> bytes:
    """Return the bytes of the file. Raises `DataError` if there is none."""
    if not place.is_file():  # opening a pipe would block
        raise DataError(f"dataset {dataset!r}: no file {place}: expected it below the directory of --data")
    return rundir.read_bytes(place, max_bytes=MAX_BYTES, error=DataError)


def media_of(place: Path) -> str:
    """Return the media type of a table."""
    return PARQUET if place.suffix.lower() == COLUMNS else CSV


def read_table(place: Path, *, dataset: str, columns: Sequence[str | None] = ()) -> pa.Table:
    """Return the table: numbers, texts, dates and lists. Raises `DataError` for anything else, and for a missing one of
    `columns`."""
    content = content_of(place, dataset=dataset)
    table = _of_columns(content, str(place)) if place.suffix.lower() == COLUMNS else _of_commas(content, str(place))
    for name in columns:
        if name is not None and name not in table.column_names:
            raise DataError(f"{place}: {unknown('column', name, table.column_names)}")
    return table


def texts(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column, texts without spaces around them."""
    return [value.strip() if isinstance(value, str) else value for value in column.to_pylist()]


def named(names: Sequence[str], usual: Sequence[str]) -> str | None:
    """Return the first column with a usual name, in the order of `usual`, however it is spelt."""
    spelt = {name.lower(): name for name in reversed(names)}
    return next((spelt[name] for name in usual if name in spelt), None)


def tags_of(table: pa.Table, column: str | None, *, target: str, values: Target) -> Sequence[str | None]:
    """Return the provenance class of each row: what the column has, or, where it is the target's, made-up ones."""
    if column is None:
        return [None] * table.num_rows
    is_target = column == target
    if is_target and values.predict != "class":
        return values.simulated()
    cells = list(values.groups) if is_target else texts(table.column(column))
    for row, value in enumerate(cells, 1):
        if value in (None, ""):
            raise DataError(f"row {row}: found nothing in column {column!r}: expected a provenance class")
    paths = [str(value) for value in cells]
    if not is_target:
        return [*map(classes_in(paths, column).__getitem__, paths)]
    # Labels are no sources, so a division by them is simulated.
    return paths if all(map(is_class, paths)) and any("/" in path for path in paths) else values.simulated()


def classes_in(values: Collection[str], column: str) -> Mapping[str, str]:
    """Return the provenance class of each value of a column: the values where all are paths of classes; if not, the
    column is a branch of its own."""
    if all(map(is_class, values)):
        return {value: value for value in values}
    return named_classes(values, named_classes([column])[column].rpartition("/")[2])


# --- the two formats -------------------------------------------------------------------------------------------------


def _of_columns(content: bytes, where: str) -> pa.Table:
    try:
        # By the footer, before any column is read: its declared sizes bound the memory that reading takes.
        opened = pq.ParquetFile(pa.BufferReader(content))
        groups = [opened.metadata.row_group(place) for place in range(opened.metadata.num_row_groups)]
        if sum(group.total_byte_size for group in groups) > MAX_UNPACKED or opened.metadata.num_rows > MAX_ROWS:
            raise DataError(f"{where}: expected at most {MAX_ROWS:,} rows and {MAX_UNPACKED:,} bytes")
        table = opened.read(use_threads=False)
    except (pa.ArrowException, ValueError, OSError, KeyError, TypeError) as error:
        raise DataError(f"{where}: expected a Parquet file: {' '.join(str(error).split())[:200]}") from error
    _check_width(table.column_names, where)
    return pa.table({name: _plain(column) for name, column in zip(table.column_names, table.columns, strict=True)})


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of texts, or of numbers, in the type that CSV gives it."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.string())
    return column.cast(pa.float64()) if pa.types.is_decimal(kind) or pa.types.is_float16(kind) else column.cast(kind)


def _of_commas(content: bytes, where: str) -> pa.Table:
    separator = _check_names(content, where)
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(content),
            # One block, in one thread: the types of columns follow from all rows, not from the first megabyte.
            read_options=arrow_csv.ReadOptions(block_size=len(content) + 1, use_threads=False),
            parse_options=arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(null_values=[*arrow_csv.ConvertOptions().null_values, "?", " ?"]),
        )
    except (pa.ArrowException, ValueError, OSError) as error:
        raise DataError(f"{where}: expected a table (CSV) in UTF-8: {' '.join(str(error).split())[:200]}") from error
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        if pa.types.is_binary(kind):
            raise DataError(f"{where}: column {shown(name)!r:.80} is not UTF-8: expected a table (CSV) in UTF-8")
    return table.rename_columns([name.strip() for name in table.column_names])


def _check_names(content: bytes, where: str) -> str:
    """Return the separator, after a look at the first line: it has to name every column, each by another name."""
    try:
        first = content[: 2**20].decode("utf-8-sig", errors="replace").splitlines()[0]
    except IndexError:
        raise DataError(f"{where}: found an empty file, expected a table (CSV) with names in its first line") from None
    separator = max(SEPARATORS, key=first.count)
    names = [name.strip() for name in next(csv.reader(io.StringIO(first), delimiter=separator))]
    if all(map(_is_number, names)) and not _is_count(names):
        raise DataError(
            f"{where}: the first line looks like data, {first!r:.80}: expected the names of the columns there"
        )
    _check_width(names, where, " in line 1")
    for name in names:
        if "." in name and _is_number(name):
            raise DataError(f"{where}: found the number {name} in line 1: expected the names of the columns there")
    return separator


def _check_width(names: Sequence[str], where: str, line: str = "") -> None:
    if not 2 <= len(names) <= MAX_COLUMNS:
        raise DataError(f"{where}: found {len(names)} columns, expected 2 to {MAX_COLUMNS:,}, with names{line}")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{where}: two columns are called {twice[0]!r:.80}: expected different names{line}")


def _is_count(names: Sequence[str]) -> bool:
    """Return whether the names of columns are consecutive numbers, such as 0, 1, 2, or years."""
    return all(name.isdecimal() for name in names) and {int(b) - int(a) for a, b in pairwise(names)} <= {1}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
