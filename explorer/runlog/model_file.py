"""A model's file, read without torch: safetensors (github.com/huggingface/safetensors), and how to build the model.

    u64, little-endian: length of the header || header: JSON, {name: {"dtype", "shape", "data_offsets"}} || values

The file's tensors are parameters and buffers under their names in the ledger, so that their leaves can be compared
with those that a run ended with (tensors.py). Values are read in pieces: a model need not fit into memory.
"""

import hashlib
import json
import math
import os
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import Field

from explorer import rundir
from explorer.errors import RunError
from explorer.provenance.regions import SealedRegion
from explorer.runlog.tensors import CHUNK, Leaves, tensor_leaf
from explorer.schema import from_json, record, to_json

MODEL = "model.safetensors"
CARD = "model.json"
MAX_HEADER = 2**26
MAX_TENSORS = 1_000_000
MAX_AXES = 64  # of a tensor, as in torch
_LENGTH = struct.Struct("<Q")
_PIECE = 2**20
# Type in the file: bytes of a value, and its name in torch.
TYPES = {
    "F64": (8, "torch.float64"),
    "F32": (4, "torch.float32"),
    "F16": (2, "torch.float16"),
    "BF16": (2, "torch.bfloat16"),
    "I64": (8, "torch.int64"),
    "I32": (4, "torch.int32"),
    "I16": (2, "torch.int16"),
    "I8": (1, "torch.int8"),
    "U8": (1, "torch.uint8"),
    "BOOL": (1, "torch.bool"),
    "U16": (2, "torch.uint16"),
    "U32": (4, "torch.uint32"),
    "U64": (8, "torch.uint64"),
    "F8_E4M3": (1, "torch.float8_e4m3fn"),
    "F8_E5M2": (1, "torch.float8_e5m2"),
    "C64": (8, "torch.complex64"),
}
OWN = "own"  # the model of a card whose module its owner's code builds: {"own": {"class": "package.Class"}}


@record
class ModelCard:
    """`model.json`: how to build the module that the file's tensors belong to. Nothing in it is code, but `model` and
    `methods` may name code of other packages."""

    format: Literal["explorer/model/v1"]
    run: str
    model: dict[str, Any]  # {name: parameters}, as in a recipe; or OWN
    methods: tuple[
        dict[str, Any], ...
    ]  # those of the recipe that change a model, in their order; routing is in `sealed`
    example_shape: tuple[int, ...]  # of one input
    classes: int  # of an output; 0 of OWN, where that is the owner's business
    dataset: str
    sealed: tuple[SealedRegion, ...]  # whose parameters are in the file
    absent: tuple[SealedRegion, ...] = ()  # modules of the model that were deleted: they are not in the file
    code: dict[str, Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]] = field(default_factory=dict)
    """Source digests of the code of other packages that builds the model, by top-level name; none where all is ours."""

    @property
    def own(self) -> str | None:
        """Return the class of a model that its owner's code builds, for people; None: the package builds it."""
        given = self.model.get(OWN)
        return str(given.get("class", "")) if isinstance(given, dict) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A tensor in the file."""

    name: str
    type: str  # a key of TYPES
    shape: tuple[int, ...]
    start: int  # of its values, in the file
    stop: int


class ModelFile:
    """The header of a safetensors file, checked, and its values on request."""

    def __init__(self, path: Path) -> None:
        """Read the header. Raises `RunError` for a file that is not a sound safetensors file."""
        self.path = path
        try:
            with path.open("rb") as file:
                self.entries = {entry.name: entry for entry in _header(file, path)}
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror or error}") from error

    def leaves(self, named: Mapping[str, str] | None = None, *, chunk: int | None = CHUNK) -> dict[str, str]:
        """Return the leaf of every tensor, by name, for comparison with tensors of this `Tensors.chunk`. With `named`,
        take only its tensors, and compute their leaves as if they had the names that it gives: a leaf covers the
        name."""
        wanted = {name: name for name in self.entries} if named is None else named
        with self.path.open("rb") as file:
            return {
                name: tensor_leaf(
                    wanted[name],
                    dtype=TYPES[entry.type][1],
                    shape=entry.shape,
                    values=_pieces(file, entry, self.path),
                    chunk=chunk,
                )
                for name, entry in self.entries.items()
                if name in wanted
            }

    @property
    def sha256(self) -> str:
        """Return the digest of the file."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def write_without(self, names: Collection[str], to: Path) -> None:
        """Write a file of the other tensors, byte for byte, whole or not at all."""
        # Sorted by name, so that the file's digest depends on nothing but its tensors.
        kept = [entry for name, entry in sorted(self.entries.items()) if name not in names]
        temporary = to.with_name(f".{to.name}.{os.getpid()}.tmp")
        try:
            to.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("rb") as source, temporary.open("wb") as file:
                file.write(_written(kept))
                for entry in kept:
                    file.writelines(_pieces(source, entry, self.path))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(to)
            rundir.flush_directory(to.parent)
        except BaseException as error:
            temporary.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise RunError(f"cannot write {to}: {error.strerror or error}") from error
            raise


def differences(actual: Leaves, expected: Leaves) -> Iterator[str]:
    """Yield the differences between a model's tensors and the expected ones, in words, by name."""
    for name in sorted(actual.keys() | expected.keys()):
        if name not in actual:
            yield f"{name}: missing"
        elif name not in expected:
            yield f"{name}: not one of the model's"
        elif actual[name] != expected[name]:
            yield f"{name}: found {actual[name]}, expected {expected[name]}"


def read_card(path: Path) -> ModelCard:
    """Read `model.json`. Raises `RunError` that names the fault."""
    return from_json(ModelCard, rundir.read_json(path), where=str(path), error=RunError)


def write_card(path: Path, card: ModelCard) -> None:
    """Write `model.json` whole or not at all."""
    content = to_json(card)
    # Left out where it says nothing: cards without such code have the bytes that they had before there was any.
    rundir.write_json(path, content if card.code else {key: value for key, value in content.items() if key != "code"})


def _header(file: BinaryIO, path: Path) -> list[Entry]:
    """Read the tensors in the order of their values, which fill the rest of the file without a gap."""
    # The file may come from a stranger: the length is bounded before anything of that length is read.
    size = os.fstat(file.fileno()).st_size
    head = file.read(_LENGTH.size)
    length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else -1
    if not 0 < length <= min(MAX_HEADER, size - _LENGTH.size):
        raise RunError(f"{path}: not a safetensors file: a header of {length} bytes in a file of {size}")
    try:
        value = json.loads(file.read(length), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path}: not a safetensors file: its header is no JSON ({error})") from error
    if not isinstance(value, dict) or len(value) > MAX_TENSORS:
        raise RunError(f"{path}: not a safetensors file: expected a header of at most {MAX_TENSORS} tensors")
    # Every byte belongs to exactly one tensor. A gap could hide content that no leaf covers; an overlap, two meanings.
    begins = _LENGTH.size + length
    entries = [_entry(name, described, begins, path) for name, described in value.items() if name != "__metadata__"]
    entries.sort(key=lambda entry: (entry.start, entry.stop))
    at = begins
    for entry in entries:
        if entry.start != at:
            raise RunError(f"{path}: {entry.name}: its values begin at byte {entry.start}; expected {at}")
        at = entry.stop
    if at != size:
        raise RunError(f"{path}: {size} bytes; by its header {at}")
    return entries


def _entry(name: str, value: Any, begins: int, path: Path) -> Entry:
    match value:
        case {"dtype": str(kind), "shape": list(shape), "data_offsets": [int(start), int(stop)]} if (
            kind in TYPES
            and name.isprintable()  # a lone surrogate has no bytes to compute a leaf from
            and len(shape) <= MAX_AXES
            and all(type(size) is int and 0 <= size < 2**63 for size in shape)
            and 0 <= start <= stop
        ):
            if stop - start == math.prod(shape) * TYPES[kind][0]:
                return Entry(name=name, type=kind, shape=tuple(shape), start=begins + start, stop=begins + stop)
    raise RunError(f"{path}: {name:.80}: not a tensor of a known type and shape: {value!r:.200}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Readers differ in which of two equal names they take, so such a header would mean two models.
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name occurs twice")
    return value


def _pieces(file: BinaryIO, entry: Entry, path: Path) -> Iterator[bytes]:
    file.seek(entry.start)
    left = entry.stop - entry.start
    while left:
        piece = file.read(min(left, _PIECE))
        if not piece:
            raise RunError(f"{path}: {entry.name}: cut short while it was read")
        left -= len(piece)
        yield piece


def _written(entries: list[Entry]) -> bytes:
    """Return the header of a file with these tensors one after the other, padded so that values are aligned."""
    header: dict[str, Any] = {}
    at = 0
    for entry in entries:
        size = entry.stop - entry.start
        header[entry.name] = {"dtype": entry.type, "shape": list(entry.shape), "data_offsets": [at, at + size]}
        at += size
    content = json.dumps(header, separators=(",", ":")).encode()
    content += b" " * (-len(content) % 8)
    return _LENGTH.pack(len(content)) + content
