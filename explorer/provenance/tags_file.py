"""Tag tables as Parquet files: their form, writing them, and reading them in bounded batches.

Four columns, in this order, no nulls and no compression, so that a small file cannot grow when it is read:

    commitment  fixed_size_binary[32]   SHA-256(salt || content), commitments.py
    class       string                  a class path of the taxonomy
    source      string                  where the example came from, at most 500 bytes; may be empty
    authority   string                  the authority that vouches for the row, by its name in the trust file

A table cannot forget: text in `source` stays for good. It should name a supplier, a file or a site, but never a person.
"""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from explorer.errors import ProvenanceError, RunError
from explorer.rundir import write_bytes

MAX_BYTES = 2**31
MAX_ROWS = 2**24  # a larger dataset has several tables
MAX_TEXT = 500  # bytes of a class, a source or an authority
BATCH = 2**16  # rows held at a time
_BUFFER = 2**20  # bytes of a column read at a time
_GROUP = 2**18  # rows written at a time

_TEXT = ("class", "source", "authority")
SCHEMA = pa.schema(
    [
        pa.field("commitment", pa.binary(32), nullable=False),
        *(pa.field(name, pa.string(), nullable=False) for name in _TEXT),
    ]
)
_EXPECTED = [(field.name, str(field.type)) for field in SCHEMA]
_FAULTS = (pa.ArrowException, OSError, ValueError, KeyError, MemoryError, OverflowError)


class Row(NamedTuple):
    """One row of a table."""

    commitment: bytes  # 32 bytes
    class_path: str
    source: str
    authority: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column of text in a batch: its different values, and the index of each row's value."""

    values: tuple[str, ...]
    index: npt.NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Some consecutive rows of a table."""

    first: int  # the slot of the first one
    commitments: bytes  # 32 bytes a row
    classes: Column
    sources: Column
    authorities: Column


def write_table(path: Path, rows: Iterable[Row]) -> int:
    """Write a table whole or not at all; return the number of rows. Raises `ProvenanceError` for invalid rows."""
    # In memory first, since the number of rows is known only at the end.
    sink = pa.BufferOutputStream()
    number, left = 0, iter(rows)
    options = {"compression": "none", "use_dictionary": list(_TEXT), "write_statistics": False, "store_schema": False}
    try:
        with pq.ParquetWriter(sink, SCHEMA, **options) as writer:
            while chunk := list(islice(left, _GROUP)):
                number += len(chunk)
                if number > MAX_ROWS:
                    raise ProvenanceError(f"{path}: more than {MAX_ROWS} rows; a larger dataset has several tables")
                writer.write_batch(_arrow(chunk, number - len(chunk)))
    except _FAULTS as error:
        raise ProvenanceError(f"{path}: not rows of a tag table: {error}") from error
    if not number:
        raise ProvenanceError(f"{path}: a tag table without rows")
    try:
        write_bytes(path, memoryview(sink.getvalue()).cast("B").tobytes())
    except RunError as error:
        raise ProvenanceError(str(error)) from error
    return number


def _arrow(rows: list[Row], first: int) -> pa.RecordBatch:
    """Return the rows as an Arrow batch."""
    # Made from buffers, because `pa.array` would import pandas.
    commitments, *texts = zip(*rows, strict=True)
    for at, commitment in enumerate(commitments):
        if len(commitment) != 32:
            raise ValueError(f"slot {first + at}: a commitment of {len(commitment)} bytes, expected 32")
    fixed = pa.Array.from_buffers(pa.binary(32), len(rows), [None, pa.py_buffer(b"".join(commitments))])
    columns = [_strings(name, column) for name, column in zip(_TEXT, texts, strict=True)]
    return pa.RecordBatch.from_arrays([fixed, *columns], schema=SCHEMA)


def _strings(name: str, column: Sequence[str]) -> pa.Array:
    for value in set(column):
        _check_text(name, value)
    encoded = [value.encode() for value in column]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(column), pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(encoded)))


class TagFile:
    """An open table on disk. Its rows are checked for their form, not for their truth."""

    def __init__(self, path: Path) -> None:
        """Open a table. Raises `ProvenanceError` if there is no such file or it is too large."""
        self.path = path
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise ProvenanceError(f"cannot read {path}: {error.strerror or error}") from error
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            os.close(descriptor)
            fault = "too large" if stat.S_ISREG(status.st_mode) else "not a regular file"
            raise ProvenanceError(f"{path}: {fault}; a tag table is a Parquet file of at most {MAX_BYTES} bytes")
        self._file = os.fdopen(descriptor, "rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def sha256(self) -> str:
        """Return the digest of the file's bytes, in hexadecimal."""
        self._file.seek(0)
        return hashlib.file_digest(self._file, "sha256").hexdigest()

    def rows(self) -> int:
        """Return the number of rows in the file's footer."""
        return self._parquet().metadata.num_rows

    def batches(self) -> Iterator[Batch]:
        """Yield the rows in order. Raises `ProvenanceError` that names the file and the fault."""
        parquet = self._parquet()
        arrow_batches = parquet.iter_batches(batch_size=BATCH, use_threads=False)
        first = 0
        # The footer's number sizes the arrays of readers, so more or fewer rows are an error.
        said = parquet.metadata.num_rows
        while (batch := self._next(arrow_batches, first)) is not None:
            first += len(batch.classes.index)
            if first > said:
                break
            yield batch
        if first != said:
            raise ProvenanceError(f"{self.path}: not a tag table: its footer says {said} rows, and it has others")

    def rows_at(self, numbers: Iterable[int]) -> Iterator[tuple[int, Row]]:
        """Yield these rows with their numbers, ascending, in one pass; none for a number that the table lacks."""
        wanted = np.array(sorted(set(numbers)), np.int64)
        for batch in self.batches():
            places = wanted - batch.first
            for at in places[(places >= 0) & (places < len(batch.classes.index))].tolist():
                texts = (
                    column.values[column.index[at]] for column in (batch.classes, batch.sources, batch.authorities)
                )
                yield batch.first + at, Row(batch.commitments[32 * at : 32 * (at + 1)], *texts)

    def _parquet(self) -> pq.ParquetFile:
        self._refuse_compressed()
        limits: dict[str, Any] = {"thrift_string_size_limit": MAX_FOOTER, "thrift_container_size_limit": MAX_FOOTER}
        try:
            self._file.seek(0)
            _check_shape(pq.ParquetFile(self._file, **limits), self.path)
            return pq.ParquetFile(self._file, read_dictionary=list(_TEXT), buffer_size=_BUFFER, **limits)
        except _FAULTS as error:
            raise self._damaged(error) from error

    def _refuse_compressed(self) -> None:
        """Raise `ProvenanceError` for a compressed file."""
        # Without pyarrow, which aborts the process at a codec that it does not know.
        try:
            used = codecs(self._file)
        except (ProvenanceError, OSError) as error:
            raise self._damaged(error) from error
        if used - {UNCOMPRESSED}:
            raise ProvenanceError(f"{self.path}: compressed (codec {max(used)}); a tag table is not")

    def _next(self, batches: Iterator[pa.RecordBatch], first: int) -> Batch | None:
        try:
            rows = next(batches, None)
            if rows is None:
                return None
            rows.validate(full=True)  # offsets within bounds, valid UTF-8: below, buffers are read directly
            return Batch(
                first=first,
                commitments=_commitments(rows.column(0)),
                classes=_column(rows.column(1), "class"),
                sources=_column(rows.column(2), "source"),
                authorities=_column(rows.column(3), "authority"),
            )
        except _FAULTS as error:
            raise self._damaged(error) from error

    def _damaged(self, error: BaseException) -> ProvenanceError:
        return ProvenanceError(f"{self.path}: not a tag table: {' '.join(str(error).split())[:300]}")


def _check_shape(parquet: pq.ParquetFile, path: Path) -> None:
    """Check columns and sizes in the footer. Raises `ProvenanceError`."""
    metadata, schema = parquet.metadata, parquet.schema_arrow
    stored = [(field.name, str(field.type)) for field in schema]
    if stored != _EXPECTED:
        names = (", ".join(f"{name} {kind}" for name, kind in columns) for columns in (stored[:20], _EXPECTED))
        raise ProvenanceError(f"{path}: not a tag table: found columns {next(names):.500}, expected {next(names)}")
    if not 0 < metadata.num_rows <= MAX_ROWS:
        raise ProvenanceError(f"{path}: {metadata.num_rows} rows; a tag table has 1 to {MAX_ROWS}")


def _commitments(column: pa.Array) -> bytes:
    if column.null_count:
        raise ValueError("commitment: a row without value")
    (_, buffer) = column.buffers()
    start = column.offset * 32
    return buffer.to_pybytes()[start : start + len(column) * 32]


def _column(column: pa.DictionaryArray, name: str) -> Column:
    if column.null_count or column.dictionary.null_count:
        raise ValueError(f"{name}: a row without value")
    values = tuple(column.dictionary.to_pylist())
    for value in values:
        _check_text(name, value)
    index = column.indices
    numbers = np.frombuffer(index.buffers()[1], np.int32, len(index), index.offset * 4)  # to_numpy() loads pandas
    return Column(values=values, index=numbers)


def _check_text(name: str, value: str) -> None:
    if len(value.encode()) > MAX_TEXT or not value.isprintable():
        raise ValueError(f"{name}: expected at most {MAX_TEXT} bytes of printable text, found {value!r:.80}")


# ----------------------------------- the codecs that a Parquet file names, read without the library that reads the file

MAX_FOOTER = 2**24
MAX_DEPTH = 16
UNCOMPRESSED = 0

_MAGIC = b"PAR1"
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_CODEC = (4, 1, 3, 4)  # FileMetaData.row_groups[].columns[].meta_data.codec, by the numbers of the fields


def codecs(file: BinaryIO) -> set[int]:
    """Return the numbers of all codecs in the footer; 0 is none. Raises `ProvenanceError` for anything else.

    A Parquet file ends in its metadata, their length as u32, little-endian, and "PAR1"; the metadata are a struct in
    the compact protocol of Thrift (github.com/apache/thrift, thrift-compact-protocol.md; github.com/apache/
    parquet-format).
    """
    # The length is bounded by the file and by a limit before anything is read with it.
    end = file.seek(0, 2)
    file.seek(max(0, end - 8))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if len(tail) < 8 or tail[4:] != _MAGIC or not 0 < length <= min(MAX_FOOTER, end - 12):
        raise ProvenanceError("not a Parquet file, or one with a footer that is too large")
    file.seek(end - 8 - length)
    try:
        return set(_Footer(file.read(length)).numbers())
    except IndexError as error:
        raise ProvenanceError("its footer is cut off") from error


class _Footer:
    """Walk over a struct of the compact protocol that finds the numbers of codecs."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def numbers(self) -> Iterator[int]:
        yield from self._struct(())

    def _struct(self, path: tuple[int, ...]) -> Iterator[int]:
        if len(path) > MAX_DEPTH:
            raise ProvenanceError("its footer is nested too deep")
        # A field's header has its type and the difference to the number of the field before, or 0 and the number
        # itself; a zero byte ends the struct.
        field = 0
        while header := self._byte():
            field = field + (header >> 4) if header >> 4 else _zigzag(self._varint())
            yield from self._value(header & 0x0F, (*path, field))

    def _value(self, kind: int, path: tuple[int, ...]) -> Iterator[int]:
        if kind in (_TRUE, _FALSE):  # the value of a boolean field is in its header
            return
        if kind in (_I16, _I32, _I64):
            number = _zigzag(self._varint())
            if path == _CODEC:
                yield number
        elif kind in (_LIST, _SET):
            header = self._byte()
            size = header >> 4 if header >> 4 < 15 else self._varint()
            for _ in range(size):
                yield from self._element(header & 0x0F, path)
        elif kind == _STRUCT:
            yield from self._struct(path)
        else:
            self._skip({_BYTE: 1, _DOUBLE: 8}.get(kind) or self._length(kind))

    def _element(self, kind: int, path: tuple[int, ...]) -> Iterator[int]:
        if kind in (_TRUE, _FALSE):
            self._skip(1)
        else:
            yield from self._value(kind, path)

    def _length(self, kind: int) -> int:
        if kind != _BINARY:
            raise ProvenanceError(f"its footer holds a value of type {kind}, which Parquet does not use")
        return self._varint()

    def _skip(self, count: int) -> None:
        self._at += count
        if self._at > len(self._content):
            raise IndexError

    def _byte(self) -> int:
        self._at += 1
        return self._content[self._at - 1]

    def _varint(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise ProvenanceError("its footer holds a number of more than 64 bits")


def _zigzag(number: int) -> int:
    return number >> 1 ^ -(number & 1)
