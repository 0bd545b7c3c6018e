"""The codecs that a Parquet file names, read without the library that reads the file.

A Parquet file ends in its metadata, their length as u32, little-endian, and "PAR1"; the metadata are a struct in the
compact protocol of Thrift (github.com/apache/thrift, thrift-compact-protocol.md; github.com/apache/parquet-format).
pyarrow ends the whole process when it is asked for a codec that it does not know, so codecs are looked at here first.
"""

from collections.abc import Iterator
from typing import BinaryIO

from explorer.errors import ProvenanceError

MAX_FOOTER = 2**24
MAX_DEPTH = 16
UNCOMPRESSED = 0

_MAGIC = b"PAR1"
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_CODEC = (4, 1, 3, 4)  # FileMetaData.row_groups[].columns[].meta_data.codec, by the numbers of the fields


def codecs(file: BinaryIO) -> set[int]:
    """The numbers of all codecs in the footer; 0 is none. Raises `ProvenanceError` for what is no Parquet footer."""
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
    """Walks over a struct and gives the numbers that stand where codecs stand."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def numbers(self) -> Iterator[int]:
        yield from self._struct(())

    def _struct(self, path: tuple[int, ...]) -> Iterator[int]:
        if len(path) > MAX_DEPTH:
            raise ProvenanceError("its footer is nested too deep")
        field = 0
        while header := self._byte():
            field = field + (header >> 4) if header >> 4 else _zigzag(self._varint())
            yield from self._value(header & 0x0F, (*path, field))

    def _value(self, kind: int, path: tuple[int, ...]) -> Iterator[int]:
        if kind in (_TRUE, _FALSE):  # the value of a field of truth stands in its header
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
