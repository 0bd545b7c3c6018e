"""The index of sharded data: what its shards hold, and the digest of every one.

    PLACE/index.json             this index, canonical JSON; its SHA-256 names the data in the identity of a run
    PLACE/train/000000.parquet   shards: Parquet files of one row group each
    PLACE/test/000000.parquet

A shard (shard_table.py) has the columns `input` (binary), `label`, `slot` (int64: the number of the example in the data
that the shards were made from, or of the document in which a block of tokens begins) and `tag` (text: its provenance
class, empty without one). All rows of a shard have the same tag, so the class of every example is known from the index,
and the rows of a class can be left out by not opening its shards. Next to the index of tokens is the file of their
tokeniser.

Shapes: N examples on a side.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from explorer import canonical
from explorer.data.dataset import Modality, TaskName
from explorer.errors import DataError, PlaceError
from explorer.objects import Missing, Objects
from explorer.provenance.spellings import ClassPath
from explorer.schema import from_json, parse_json, record, to_json

FILE = "index.json"
TOKENISER = "tokeniser.json"
FORMAT = "explorer-shards/1"
MAX_BYTES = 2**28  # of an index: more than a million shards
MAX_SHARD = 2**30  # bytes of a file
MAX_ROWS = 2**22  # of a shard

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", max_length=64)]
SideName = Literal["train", "test"]
Encoding = Literal["array", "image", "tokens"]


@record
class Shard:
    """A file with one row group."""

    name: Annotated[str, Field(pattern=r"^(train|test)/[0-9]{6,8}\.parquet$", max_length=40)]
    rows: Annotated[int, Field(ge=1, le=MAX_ROWS)]
    bytes: Annotated[int, Field(ge=1, le=MAX_SHARD)]
    sha256: Digest  # of the whole file
    root: Digest  # over its rows, which stays when rows are erased
    tag: ClassPath | None = None  # the provenance class of all its rows


@record
class Side:
    """The shards of one side of the split, in the order of their slots."""

    shards: Annotated[tuple[Shard, ...], Field(min_length=1)]
    labels: tuple[int, ...] = ()  # how many examples, or pixels where each has a class, have each label


@record
class Inputs:
    """How the column `input` is written.

    array: the bytes of a tensor of this type and shape, in C order, little-endian
    image: PNG, JPEG or WebP of any size
    tokens: numbers of tokens of this type, `shape[0]` of them, followed by the one after the last
    """

    encoding: Encoding
    dtype: Literal["uint8", "uint16", "uint32", "float32", "int64"] = "uint8"
    shape: Annotated[tuple[Annotated[int, Field(ge=1, le=2**20)], ...], Field(max_length=4)] = ()

    @property
    def bytes(self) -> int:
        """Return the size of an array; 1 where sizes differ."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize if self.encoding == "array" else 1


@record
class Labels:
    """How the column `label` is written: as a number, or else as the bytes of a tensor of this type and shape. Tokens
    have no column of labels, for each of them is the label of the one before."""

    dtype: Literal["int64", "float32", "uint8"] = "int64"
    shape: Annotated[tuple[Annotated[int, Field(ge=1, le=2**20)], ...], Field(max_length=3)] = ()


@record
class Tokeniser:
    """The numbering of a text. The file of a tokeniser is `tokeniser.json` next to the index."""

    sha256: Digest  # of the file
    trained: bool  # on the training side; if not, it came from a file
    separator: Annotated[int, Field(ge=0, lt=2**24)]  # the token behind every document
    train_bytes: Annotated[int, Field(ge=1)]  # of text that the labels of the side stand for
    test_bytes: Annotated[int, Field(ge=1)]


@record
class Passed:
    """Rows of the source that are in no shard, for the same reason."""

    reason: Annotated[str, Field(max_length=200)]
    count: Annotated[int, Field(ge=1)]
    names: Annotated[tuple[Annotated[str, Field(max_length=4_000)], ...], Field(max_length=5)]  # of the first few


@record
class Origin:
    """Where the examples come from, as the writer of the shards found them."""

    dataset: Annotated[str, Field(max_length=2_000)]  # the source, as a recipe writes it
    digest: Digest  # of the source
    licence: Annotated[str, Field(max_length=2_000)]


@record
class Index:
    """The index."""

    format: Literal["explorer-shards/1"]
    modality: Modality
    task: TaskName
    inputs: Inputs
    labels: Labels
    classes: Annotated[int, Field(ge=1, le=2**24)]
    names: tuple[Annotated[str, Field(max_length=1_000)], ...] = ()
    train: Side
    test: Side
    origin: Origin
    simulated: bool = False  # the provenance of the examples
    centre: float = 0.0  # of a number that is predicted: labels are (number - centre) / scale
    scale: float = 1.0
    tokeniser: Tokeniser | None = None
    skipped: tuple[Passed, ...] = ()

    def side(self, name: SideName) -> Side:
        return self.train if name == "train" else self.test


def content_of(index: Index) -> bytes:
    """Return the bytes of the file."""
    return canonical.canonical(to_json(index))


def digest_of(content: bytes) -> str:
    """Return the digest that names the data: of the bytes of the index."""
    return hashlib.sha256(content).hexdigest()


def read_content(objects: Objects) -> bytes:
    """Return the bytes of the index at a place. Raises `DataError`."""
    try:
        return objects.read(FILE, max_bytes=MAX_BYTES)
    except Missing as error:
        raise DataError(
            f"{objects.url}: no {FILE}: expected a directory that `explorer data shard` has made"
        ) from error
    except PlaceError as error:
        raise DataError(str(error)) from error


def parse(content: bytes, *, where: str) -> Index:
    """Return the index in these bytes. Raises `DataError` that begins with `where`."""
    value = parse_json(content, where=where, error=DataError, max_bytes=MAX_BYTES)
    if isinstance(value, Mapping) and value.get("format") != FORMAT:
        raise DataError(f"{where}: found the format {value.get('format')!r:.40}, expected {FORMAT!r}")
    index = from_json(Index, value, where=where, error=DataError)
    for side in ("train", "test"):
        shards = index.side(side).shards
        if [shard.name for shard in shards] != [name_of(side, number) for number in range(len(shards))]:
            raise DataError(f"{where}: {side}: expected shards with the names {name_of(side, 0)} and so on, in order")
    tagged = {shard.tag is not None for shard in index.train.shards}
    if len(tagged) > 1:
        raise DataError(f"{where}: some training shards have a tag and some have none: expected all or none")
    if index.inputs.encoding == "tokens" and len(index.inputs.shape) != 1:
        raise DataError(f"{where}: tokens of shape {index.inputs.shape}: expected their number")
    if index.tokeniser is not None and index.tokeniser.separator >= index.classes:
        raise DataError(f"{where}: separator {index.tokeniser.separator}: expected a token, 0 to {index.classes - 1}")
    if index.names and len(index.names) != index.classes:
        raise DataError(f"{where}: {len(index.names)} names for {index.classes} classes, expected one for each")
    return index


def name_of(side: SideName, number: int) -> str:
    """Return the name of a shard."""
    return f"{side}/{number:06d}.parquet"


class Layout:
    """Where the examples of a side are: which shard, and which row of it."""

    def __init__(self, side: Side) -> None:
        self.shards = side.shards
        self.rows = np.array([shard.rows for shard in side.shards], np.int64)
        self.ends = np.cumsum(self.rows)
        self.starts = self.ends - self.rows

    def __len__(self) -> int:
        return int(self.ends[-1])

    def shards_of(self, numbers: np.ndarray) -> np.ndarray:
        """Return the number of the shard of each of these examples, int64."""
        return np.searchsorted(self.ends, numbers, side="right")

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """The provenance classes, sorted; none without tags."""
        return tuple(sorted({shard.tag for shard in self.shards if shard.tag is not None}))

    @cached_property
    def codes(self) -> np.ndarray:
        """The index of each example's class among `tags`: N, int64."""
        places = {tag: place for place, tag in enumerate(self.tags)}
        return np.repeat([places[shard.tag] for shard in self.shards if shard.tag is not None], self.rows)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """How many examples each class has."""
        counts: Counter[str] = Counter()
        for shard in self.shards:
            if shard.tag is not None:
                counts[shard.tag] += shard.rows
        return counts
