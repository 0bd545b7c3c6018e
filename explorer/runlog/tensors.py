"""The tensors of a state, one by one: the leaves below the roots in an `end` or `state` entry.

The blob `tensors` of the entry, and of the genesis for the state before step 0, is canonical JSON (RFC 8785), names to
leaves in hexadecimal; `entries.kinds.TrainingState` defines leaves and roots.

    {"buffers":{"1.running_mean":"5f..."},"optimizer":{"optimizer/shared/0/0.weight/exp_avg":"91..."},
     "parameters":{"0.weight":"e3..."}}

(without the line break). Two models can thus be compared tensor by tensor without the tensors and without torch: the
roots of each follow from its list, and the lists can be compared.

With `"chunk":4194304` the values of a tensor of more bytes are hashed by chunks of so many, the last one shorter. Each
chunk can be hashed where it is, so the leaf does not depend on how a tensor is shared out. Earlier lists have none.

    SHA-256(0x00 || name | type | shape in brackets \\n || the Merkle root (RFC 6962) over the chunks)
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated

from pydantic import Field

from explorer import rundir
from explorer.canonical import canonical
from explorer.entries.fields import Digest
from explorer.entries.kinds import End, Genesis, TrainingState
from explorer.errors import LedgerError
from explorer.ledger.storage import blob_path
from explorer.merkle import root_of
from explorer.provenance.regions import ADAPTER, SealedRegion, region_of
from explorer.runlog.run_ledger import Placed, RunLedger
from explorer.schema import from_json, parse_json, record, to_json

BLOB = "tensors"
OWNERS = "owners"  # blob of the genesis: tensor -> layer, where the tensor's name does not tell
MAX_BYTES = 2**27  # a million tensors
OPTIMIZER = "optimizer"  # first part of the names of an optimiser's memory; a method's memory has the method's name

CHUNK = 2**22  # bytes, of new ledgers

Leaves = Mapping[str, str]  # name of a tensor -> its leaf, hexadecimal


@record
class Tensors:
    """The leaf of every tensor, by name."""

    parameters: dict[str, Digest]
    buffers: dict[str, Digest]
    optimizer: dict[str, Digest]  # what optimisers and methods remember
    chunk: Annotated[int, Field(ge=1, le=2**40)] | None = None  # bytes that a leaf hashes at a time; None: all

    @property
    def content(self) -> bytes:
        """Return the content of the blob."""
        return canonical({name: value for name, value in to_json(self).items() if value is not None})

    @property
    def roots(self) -> tuple[str, str, str]:
        """Return the roots over parameters, buffers and optimiser."""
        return root(self.parameters), root(self.buffers), root(self.optimizer)

    def kept(self, keep: Callable[[str], bool]) -> "Tensors":
        """Return the tensors for whose names `keep` is true."""
        return replace(
            self,
            parameters={name: leaf for name, leaf in self.parameters.items() if keep(name)},
            buffers={name: leaf for name, leaf in self.buffers.items() if keep(name)},
            optimizer={name: leaf for name, leaf in self.optimizer.items() if keep(name)},
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """The end of a run and its tensors, checked against its roots."""

    end: Placed[End]
    tensors: Tensors


def tensor_leaf(
    name: str,
    *,
    dtype: str,
    shape: Sequence[int],
    values: Iterable[bytes | memoryview],
    chunk: int | None = CHUNK,
) -> str:
    """Return the leaf of one tensor. `dtype` is torch's name; `values` come in pieces, little-endian, in row order, and
    are hashed by chunks of so many bytes; None: as a whole."""
    total = hashlib.sha256(b"\x00" + f"{name}|{dtype}|{tuple(shape)}\n".encode())
    if chunk is None:
        for piece in values:
            total.update(piece)
        return total.hexdigest()
    chunks = _chunks(values, chunk)
    first = next(chunks, b"")
    if (second := next(chunks, None)) is None:
        total.update(first)
    else:
        total.update(root_of(map(_chunk_hash, chain((first, second), chunks))))
    return total.hexdigest()


def _chunk_hash(content: bytes | memoryview) -> bytes:
    leaf = hashlib.sha256(b"\x00")  # a leaf of RFC 6962; `merkle.leaf_hash` would copy the content
    leaf.update(content)
    return leaf.digest()


def _chunks(values: Iterable[bytes | memoryview], size: int) -> Iterator[bytes | memoryview]:
    """Yield the values again, in pieces of exactly `size` bytes; the last one may be shorter."""
    left = bytearray()
    for piece in values:
        view, start = memoryview(piece).cast("B"), 0
        if left:
            start = min(size - len(left), len(view))
            left += view[:start]
            if len(left) == size:
                yield bytes(left)
                left.clear()
        while len(view) - start >= size:
            yield view[start : start + size]
            start += size
        left += view[start:]
    if left:
        yield bytes(left)


def root(leaves: Leaves) -> str:
    """Return the Merkle root over leaves, sorted by name, in hexadecimal."""
    return root_of(bytes.fromhex(leaves[name]) for name in sorted(leaves)).hex()


def parse_tensors(content: bytes, *, where: str) -> Tensors:
    """Read the blob. Raises `LedgerError` for a damaged one."""
    value = parse_json(content, where=where, error=LedgerError, max_bytes=MAX_BYTES)
    tensors = from_json(Tensors, value, where=where, error=LedgerError)
    if tensors.content != content:
        raise LedgerError(f"{where}: not in canonical form (RFC 8785)")
    return tensors


def chunk_of(genesis: Genesis, ledger: Path) -> int | None:
    """Return the chunks by which the tensors of the ledger in a directory are hashed, as its first list of them says;
    None: whole tensors, as in ledgers that have no such list. Raises `LedgerError` for a damaged list."""
    if BLOB not in genesis.blobs:
        return None
    path = ledger / blob_path(genesis.blobs[BLOB].sha256)
    if not path.exists():
        return CHUNK
    return parse_tensors(rundir.read_bytes(path, max_bytes=MAX_BYTES, error=LedgerError), where=str(path)).chunk


def read_ended(run: RunLedger) -> Ended:
    """Read the end of a run. Raises `LedgerError` for a run without an end, and for tensors that do not lead to its
    roots."""
    if run.outline.end is None:
        raise LedgerError(f"{run.run}: unfinished: its ledger has no end")
    (end,) = run.read([run.outline.end], End)
    content = run.blob(end, BLOB, max_bytes=MAX_BYTES)
    if content is None:
        raise LedgerError(f"{run.run}: the list of tensors at its end is missing: blob {BLOB!r} of entry {end.index}")
    where = f"{run.run}: entry {end.index}: {BLOB}"
    tensors = parse_tensors(content, where=where)
    check_roots(tensors, end.entry.state, where=where)
    return Ended(end=end, tensors=tensors)


def read_owners(run: RunLedger) -> dict[str, str]:
    """Read the layers of tensors whose names do not tell them, as the genesis lists them. Raises `LedgerError` for a
    damaged table."""
    (genesis,) = run.read([0], Genesis)
    if OWNERS not in genesis.entry.blobs:
        return {}
    content = run.blob(genesis, OWNERS, max_bytes=MAX_BYTES)
    value = parse_json(content or b"", where=f"entry 0: {OWNERS}", error=LedgerError, max_bytes=MAX_BYTES)
    owners: dict[str, object] = value if isinstance(value, dict) else {"": None}
    known = {name: layer for name, layer in owners.items() if isinstance(layer, str) and layer in genesis.entry.layers}
    if len(known) < len(owners):
        raise LedgerError(f"entry 0: {OWNERS}: expected tensors, each with one of the run's layers")
    return known


def check_roots(tensors: Tensors, state: TrainingState, *, where: str) -> None:
    """Raise `LedgerError` unless these tensors lead to the roots of this state."""
    roots = state.parameters, state.buffers, state.optimizer
    for name, expected, actual in zip(("parameters", "buffers", "optimizer"), roots, tensors.roots, strict=True):
        if expected != actual:
            raise LedgerError(f"{where}: the {name} lead to the root {actual}; recorded is {expected}")


def parameter_of(name: str) -> str:
    """Return the parameter or buffer that a tensor belongs to: itself, or the one that an optimiser remembers it for.

    >>> parameter_of("optimizer/shared/0/body.0.weight/exp_avg"), parameter_of("body.0.weight")
    ('body.0.weight', 'body.0.weight')
    """
    parts = name.split("/")
    return "/".join(parts[3:-1]) if parts[0] == OPTIMIZER and len(parts) > 4 else name


def layer_of(name: str, layers: Collection[str]) -> str | None:
    """Return the layer of a tensor, by its name: the layer with the longest name that it begins with. None: it is of no
    layer. The adapter `conv@news` of a layer is the module `conv.@news`.

    >>> layer_of("body.0.weight", ["body", "body.0"]), layer_of("token", ["token"])
    ('body.0', 'token')
    >>> layer_of("optimizer/news/0/conv.@news.up.weight/step", ["conv", "conv@news"]), layer_of("ema/weight", ["conv"])
    ('conv@news', None)
    """
    place = parameter_of(name)
    while place:
        if (layer := place.replace(f".{ADAPTER}", ADAPTER)) in layers:
            return layer
        place = place.rpartition(".")[0]
    return None


def moved(before: Tensors, after: Tensors) -> set[str]:
    """Return the names of the tensors that differ between two states, or are in only one of them."""
    names: set[str] = set()
    for one, other in (
        (before.parameters, after.parameters),
        (before.buffers, after.buffers),
        (before.optimizer, after.optimizer),
    ):
        names |= {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}
    return names


def owner_of(name: str, regions: Sequence[SealedRegion]) -> str | None:
    """Return the sealed region that a tensor belongs to, by its name; None: it is shared.

    >>> region = SealedRegion(name="news", branch="licensed/news", layers=("head*",), rank=2)
    >>> owner_of("head.@news.up.weight", [region]), owner_of("ema/average/head.@news.up.weight", [region])
    ('news', 'news')
    >>> owner_of("optimizer/news/0/head.@news.up.weight/exp_avg", [region]), owner_of("head.weight", [region])
    ('news', None)
    """
    # There is one optimiser for each region, and its name is the second part of a tensor's name.
    first, _, rest = name.partition("/")
    if first == OPTIMIZER and rest:
        of = rest.partition("/")[0]
        return of if any(region.name == of for region in regions) else None
    tensor = name.rpartition("/")[2]
    module, adapter, inner = tensor.partition(f".{ADAPTER}")
    region = region_of(regions, f"{module}{ADAPTER}{inner.partition('.')[0]}" if adapter else module)
    return None if region is None else region.name


def without_bookkeeping(tensors: Tensors, genesis: Genesis) -> Tensors:
    """Leave out what methods remember about the classes. It is not part of training's state, and about an absent class
    it differs from run to run.

    Raises `LedgerError` for a ledger that does not state which methods remember classes.
    """
    if genesis.methods is None:
        raise LedgerError(
            f"run {genesis.run}: its ledger does not state the traits of its methods, so what they remember about the"
            " classes cannot be told from the state of training: expected `methods` in the genesis"
        )
    books = {name for name, traits in genesis.methods.items() if traits.remembers == "classes"}
    return tensors.kept(lambda name: "/" not in name or name.partition("/")[0] not in books)
