"""Shards in the format MDS of MosaicML Streaming, version 2, read by what it publishes.

    DIR/index.json           {"version": 2, "shards": [{"format": "mds", "column_names": [...], ...}, ...]}
    DIR/shard.00000.mds      count (uint32), count + 1 offsets (uint32), the shard's settings as JSON, samples
    DIR/shard.00000.mds.zstd the same file, compressed

A sample is the sizes of those columns that have no fixed one (uint32 each), and then the bytes of all columns. Numbers
are little-endian.

Files may be hostile: every size and offset is checked before it is used, names do not lead out of the directory, and
the digests in the index are compared where Python has their algorithm. Pickles run code when they are read, so they
are not.
"""

import hashlib
import io
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from PIL import Image
from pydantic import Field

from explorer.data.labelled import MAX_PIXELS
from explorer.data.local import Fault, LocalFile, below, shown
from explorer.errors import DataError, unknown
from explorer.rundir import read_bytes
from explorer.schema import from_json, parse_json, record

INDEX = "index.json"
MAX_INDEX = 2**28  # bytes
MAX_SHARD = 2**31  # bytes of a file, also unpacked
MAX_SAMPLES = 2**26  # of a shard
CODECS = {"zstd": "zstd", "gz": "gzip", "bz2": "bz2", "br": "brotli"}  # the format's names, and pyarrow's
NUMBER = r"(u?int(8|16|32|64)|float(16|32|64))"
TYPES = {8: "u1", 9: "i1", 16: "u2", 17: "i2", 18: "f2", 32: "u4", 33: "i4", 34: "f4", 64: "u8", 65: "i8", 66: "f8"}
ENCODED = ("jpeg", "jpeg_array", "jpegarray", "png", "bytes")  # whose bytes are those of a file of an image
PICTURES = (*ENCODED, "pil", "ndarray")
VALUES = re.compile(rf"int|str|json|ndarray|str_(int|float|decimal)|{NUMBER}")
MODES = {"L": 1, "RGB": 3, "RGBA": 4}  # of raw images, with bytes a pixel
PICKLE = "pkl"

Text = Annotated[str, Field(max_length=1_000)]
Size = Annotated[int, Field(ge=0, le=MAX_SHARD)]


# --- the index -------------------------------------------------------------------------------------------------------


@record
class MdsFile:
    """A file of the index."""

    basename: Annotated[str, Field(min_length=1, max_length=1_000)]
    bytes: Size
    hashes: dict[Text, Text]


@record
class MdsShard:
    """A shard of the index."""

    version: Literal[2]
    format: Literal["mds"]
    column_names: tuple[Text, ...]
    column_encodings: tuple[Text, ...]
    column_sizes: tuple[Size | None, ...]
    compression: Text | None
    hashes: tuple[Text, ...]
    raw_data: MdsFile
    zip_data: MdsFile | None
    samples: Annotated[int, Field(ge=0, le=MAX_SAMPLES)]
    size_limit: int | None


@record
class MdsIndex:
    """The index of a directory."""

    version: Literal[2]
    shards: Annotated[tuple[MdsShard, ...], Field(min_length=1)]


def is_mds(place: Path) -> bool:
    """Return whether a directory has an index and a shard of this format."""
    shards = (path for pattern in ("*.mds*", "*/*.mds*") for path in place.glob(pattern))
    return (place / INDEX).is_file() and next(shards, None) is not None


def read_index(place: Path) -> MdsIndex:
    """Return the index of a directory. Raises `DataError` for one that is damaged or names other columns in a shard
    than in the first."""
    path = place / INDEX
    if not path.is_file():
        raise DataError(f"{path}: no such file: expected a directory with shards of the format MDS")
    content = read_bytes(path, max_bytes=MAX_INDEX, error=DataError)
    value = parse_json(content, where=str(path), error=DataError, max_bytes=MAX_INDEX)
    index = from_json(MdsIndex, value, where=str(path), error=DataError)
    first = index.shards[0]
    for number, shard in enumerate(index.shards):
        where = f"{path}: shards[{number}]"
        if not len(shard.column_names) == len(shard.column_encodings) == len(shard.column_sizes):
            raise DataError(f"{where}: expected a name, an encoding and a size for each column")
        if (shard.column_names, shard.column_encodings) != (first.column_names, first.column_encodings):
            raise DataError(f"{where}: has other columns than the first shard: expected the same in all")
        codec = (shard.compression or "").partition(":")[0]
        if shard.compression and codec not in CODECS:
            raise DataError(f"{where}: {unknown('compression', codec, CODECS)}")
        if bool(shard.compression) != (shard.zip_data is not None):
            raise DataError(f"{where}: compression {shard.compression!r}, and zip_data {shard.zip_data}: expected both")
    return index


# --- samples ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class MdsDirectory:
    """The shards of a directory."""

    place: Path
    index: MdsIndex

    @classmethod
    def at(cls, place: Path) -> "MdsDirectory":
        return cls(place=place, index=read_index(place))

    def __len__(self) -> int:
        return sum(shard.samples for shard in self.index.shards)

    @property
    def encodings(self) -> dict[str, str]:
        """The encoding of each column."""
        first = self.index.shards[0]
        return dict(zip(first.column_names, first.column_encodings, strict=True))

    @property
    def files(self) -> list[LocalFile]:
        """The index and the files of the shards."""
        names = [INDEX, *((shard.zip_data or shard.raw_data).basename for shard in self.index.shards)]
        return [LocalFile(name=shown(name), path=self._path(name)) for name in names]

    def encoding(self, column: str) -> str:
        """Return the encoding of a column. Raises `DataError` for pickles, and for a column that is not there."""
        if column not in self.encodings:
            raise DataError(f"{self.place}: {unknown('column', column, self.encodings)}")
        if self.encodings[column].partition(":")[0] == PICKLE:
            raise DataError(
                f"{self.place}: column {column!r} has the encoding 'pkl': pickles run code when they are read, and are"
                " not read here: expected another column, or shards written with another encoding"
            )
        return self.encodings[column]

    def samples(self, columns: Sequence[str]) -> Iterator[tuple[str, list[memoryview]]]:
        """Yield the name of each sample, and the bytes of these columns. Raises `DataError` for a damaged shard."""
        for column in columns:
            self.encoding(column)
        for shard in self.index.shards:
            name = shown(shard.raw_data.basename)
            for row, values in enumerate(_rows(shard, self._content(shard), columns, f"{self.place}/{name}")):
                yield f"{name}, sample {row}", values

    def _path(self, name: str) -> Path:
        """Return the path of a file in the index. Raises `DataError` for one that leads out of the directory."""
        path = below(self.place, name, dataset="mds")
        if not path.resolve().is_relative_to(self.place.resolve()):
            raise DataError(f"{self.place}: {shown(name)!r:.200} is a link out of the directory: expected a file in it")
        return path

    def _content(self, shard: MdsShard) -> bytes:
        """Return the bytes of a shard, verified and unpacked."""
        packed = shard.zip_data or shard.raw_data
        content = LocalFile(name=packed.basename, path=self._path(packed.basename)).read(max_bytes=packed.bytes)
        where = f"{self.place}/{shown(packed.basename)}"
        if isinstance(content, Fault):
            raise DataError(f"{where}: {content}: expected a file of {packed.bytes} bytes")
        _verify(content, packed, where)
        if shard.zip_data is not None:
            assert shard.compression is not None
            content = _unpacked(content, shard.raw_data.bytes, CODECS[shard.compression.partition(":")[0]], where)
            _verify(content, shard.raw_data, f"{where}, unpacked")
        return content


def _verify(content: bytes, file: MdsFile, where: str) -> None:
    if len(content) != file.bytes:
        raise DataError(f"{where}: damaged: {len(content)} bytes, the index says {file.bytes}")
    for name, expected in file.hashes.items():
        if name not in hashlib.algorithms_available:
            continue  # such as xxh64, which protects from accidents only
        if (digest := hashlib.new(name, content)).digest_size and digest.hexdigest() != expected:
            raise DataError(f"{where}: damaged: {name} {digest.hexdigest()[:16]}..., the index says {expected[:16]}...")


def _unpacked(content: bytes, size: int, codec: str, where: str) -> bytes:
    """Return unpacked bytes: `size` of them, or one more where there are more."""
    if not pa.Codec.is_available(codec):
        raise DataError(
            f"{where}: compressed by {codec}, which pyarrow lacks here: expected shards without compression"
        )
    try:
        with pa.CompressedInputStream(pa.BufferReader(content), codec) as stream:
            return stream.read(size + 1)  # one more than there may be, whatever it would unpack to
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{where}: damaged: {error}") from error


def _rows(shard: MdsShard, content: bytes, columns: Sequence[str], where: str) -> Iterator[list[memoryview]]:
    """Yield the bytes of some columns of each sample."""
    count = int.from_bytes(content[:4], "little")
    begin = 4 * (count + 2)
    if count != shard.samples or begin > len(content):
        raise DataError(f"{where}: damaged: {count} samples in {len(content)} bytes, the index says {shard.samples}")
    offsets = np.frombuffer(content, "<u4", count + 1, 4).astype(np.int64)
    if offsets[0] < begin or (np.diff(offsets) < 0).any() or offsets[-1] > len(content):
        raise DataError(
            f"{where}: damaged: offsets from {offsets.min()} to {offsets.max()}: expected ascending ones, {begin} to"
            f" {len(content)}"
        )
    # A size of 0 means that there is none, as for the format's own reader.
    open_ = [place for place, size in enumerate(shard.column_sizes) if not size]
    chosen = [shard.column_names.index(column) for column in columns]
    view = memoryview(content)
    for row, (start, stop) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        sizes = [size or 0 for size in shard.column_sizes]
        head = start + 4 * len(open_)
        if head <= stop:
            for place, size in zip(open_, np.frombuffer(content, "<u4", len(open_), start).tolist(), strict=True):
                sizes[place] = size
        if head + sum(sizes) != stop:
            raise DataError(
                f"{where}, sample {row}: damaged: columns of {sizes} bytes in {stop - start} bytes: expected a sample"
                " that is as long as its columns"
            )
        ends = np.cumsum(sizes) + head
        yield [view[ends[place] - sizes[place] : ends[place]] for place in chosen]


# --- values ----------------------------------------------------------------------------------------------------------


def value_of(content: memoryview, encoding: str, *, where: str) -> Any:
    """Return a number, a text, a list of numbers or labels, as the encoding has it. Raises `DataError`."""
    kind, _, setting = encoding.partition(":")
    try:
        if kind == "int":
            return int(np.frombuffer(content, "<i8", 1)[0])
        if re.fullmatch(NUMBER, kind):
            (number,) = np.frombuffer(content, np.dtype(kind).newbyteorder("<"))
            return number.item()
        if kind in ("str_int", "str_float", "str_decimal"):
            text = bytes(content[:100]).decode()
            return int(text) if kind == "str_int" else float(text)
        if kind == "str":
            return bytes(content).decode()
        if kind == "json":
            return parse_json(bytes(content), where=where, error=DataError, max_bytes=2**24)
        if kind == "ndarray":
            return array_of(content, setting).tolist()
    except (ValueError, KeyError, IndexError, OverflowError) as error:
        raise DataError(f"{where}: damaged: no value of the encoding {encoding!r:.40}: {error}") from error
    raise DataError(f"{where}: found the encoding {encoding!r:.40}: expected a number, a text, json or ndarray")


def image_of(content: memoryview, encoding: str) -> bytes | Fault:
    """Return an encoded image: as it is kept, or PNG of raw pixels."""
    kind, _, setting = encoding.partition(":")
    if kind in ENCODED:
        return bytes(content)
    try:
        if kind == "pil":
            width, height, length = np.frombuffer(content, "<u4", 3).tolist()
            mode = bytes(content[12 : 12 + length]).decode()
            if width * height > MAX_PIXELS:
                return Fault.TOO_MANY_PIXELS
            if mode not in MODES or len(content) != 12 + length + width * height * MODES[mode]:
                return Fault.DAMAGED
            image = Image.frombytes(mode, (width, height), bytes(content[12 + length :]))
        else:
            pixels = array_of(content, setting)
            if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
                return Fault.NO_IMAGE
            image = Image.fromarray(pixels)
    except (ValueError, KeyError, IndexError):
        return Fault.DAMAGED
    encoded = io.BytesIO()
    image.save(encoded, "PNG")
    return encoded.getvalue()


def array_of(content: memoryview, setting: str) -> np.ndarray:
    """Return an array. Its type and shape are in the column's setting, or in front of its values.

    Raises ValueError, KeyError or IndexError for a damaged one.
    """
    given, _, sides = setting.partition(":")
    place = 0
    if given:
        if not re.fullmatch(NUMBER, given):
            raise ValueError(f"values of {given!r:.40}")
        dtype = np.dtype(given).newbyteorder("<")
    else:
        dtype, place = np.dtype(f"<{TYPES[content[0]]}"), 1
    if sides:
        shape = [int(side) for side in sides.split(",")]
    else:
        dimensions, width = content[place] >> 2, 1 << (content[place] & 3)
        place += 1
        shape = np.frombuffer(content, f"<u{width}", dimensions, place).tolist()
        place += dimensions * width
    values = content[place:]
    if math.prod(shape) * dtype.itemsize != len(values) or not shape:
        raise ValueError(f"{len(values)} bytes for {dtype.name} of shape {shape}")
    return np.frombuffer(values, dtype).reshape(shape)
