"""The files of a ledger, compared with what they have to be: the part of verification that reads every file.

`rebuild` derives the tree from the entries and compares every stored hash with it. The entries are read once, a bundle
at a time, and only the right edge of the tree is kept, so that memory does not grow with the log. `take_inventory`
examines every other file: whether it may be there, and whether a blob has the digest in its name. Both add faults to
`Findings`: where, what was expected, what was found.
"""

import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from explorer import merkle
from explorer.errors import LedgerError
from explorer.ledger.signed_checkpoint import Checkpoint
from explorer.ledger.storage import MAX_BLOB, UNSIGNED, LedgerDirectory, blob_path, list_names, read_file
from explorer.ledger.tiles import (
    HEIGHT,
    MAX_BUNDLE,
    TILE,
    Bundle,
    Tile,
    belongs,
    bundles,
    encode_bundle,
    parse_path,
    slots,
    tile_of,
)
from explorer.merkle import EMPTY_ROOT, HASH_BYTES, Place

MAX_FINDINGS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One fault."""

    path: str  # below the ledger's directory
    message: str
    expected: str | None = None
    found: str | None = None


class Findings:
    """The first faults, and the number of the others."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.more = 0

    def add(self, path: str, message: str, *, expected: str | None = None, found: str | None = None) -> None:
        """Keep a fault, or only count it if enough are kept."""
        if len(self.kept) < MAX_FINDINGS:
            self.conclude(path, message, expected=expected, found=found)
        else:
            self.more += 1

    def conclude(self, path: str, message: str, *, expected: str | None = None, found: str | None = None) -> None:
        """Keep a fault of the ledger as a whole, however many there are of single files."""
        self.kept.append(Finding(path=printable(path), message=message, expected=expected, found=found))


def printable(path: str) -> str:
    """Return a path that is safe to show: file names come from outside."""
    return path if path.isprintable() else ascii(path)


# ---------------------------------------------------------------- tiles and bundles: the tree, derived from the entries

MAX_HOLES = 5  # unreadable bundles after which the search ends: a checkpoint with a forged size is cheap to make

Content = TypeVar("Content")


class _Difference(NamedTuple):
    """A tile that differs from the one that the entries give: the first slot that does, and how many more do."""

    tile: Tile
    slot: int
    rebuilt: bytes
    stored: bytes
    more: int


def rebuild(directory: Path, checkpoint: Checkpoint, *, sizes: Collection[int], findings: Findings) -> dict[int, bytes]:
    """Return the roots that the entries give at the checkpoint's size and at `sizes`, none of which is larger.

    Every tile and bundle of the tree is compared on the way, and every partial one that a wider one has superseded;
    faults are added to `findings`. Sizes beyond a bundle that cannot be read get no root.
    """
    tree = _Tree(directory, checkpoint, sizes={*sizes, checkpoint.size}, findings=findings)
    for bundle in bundles(checkpoint.size):
        tree.add(bundle)
        if tree.holes > MAX_HOLES:
            findings.conclude("tile/entries", f"more than {MAX_HOLES} bundles cannot be read; no more was looked for")
            break
    else:
        tree.close()
    tree.explain()
    return tree.roots


class _Tree:
    """The right edge of the tree over the entries that were read so far."""

    def __init__(self, directory: Path, checkpoint: Checkpoint, *, sizes: set[int], findings: Findings) -> None:
        self.roots: dict[int, bytes] = {0: EMPTY_ROOT}
        self.holes = 0
        self._directory = directory
        self._ledger = LedgerDirectory(directory)
        self._checkpoint = checkpoint
        self._sizes = sizes
        self._findings = findings
        self._rows: list[bytearray] = []  # by level: the hashes that are in no full tile yet
        self._doubtful: list[set[int]] = []  # by level: slots in these rows that depend on something known to be wrong
        self._differences: list[_Difference] = []

    def add(self, bundle: Bundle) -> None:
        """Add the next bundle."""
        tile = Tile(0, bundle.number, bundle.width)
        stored = self._stored_tile(tile)
        entries = self._read(bundle.path, lambda: self._ledger.bundle(bundle))
        # Without the entries the stored hashes take their place, so that later faults are still located.
        if entries is None:
            self.holes += 1
            leaves = stored or bytes(bundle.width * HASH_BYTES)
            self._set(0, leaves, set(range(bundle.width)))
        else:
            leaves = merkle.leaf_hashes(entries)
            self._set(0, leaves, set())
            self._check_superseded(bundle, lambda width: encode_bundle(entries[:width]), max_bytes=MAX_BUNDLE)
        self._compare(tile, leaves, stored, self._doubtful[0])
        self._rise_from_leaves(tile.number * TILE, tile.width)

    def close(self) -> None:
        """Compare the partial tiles above the lowest level."""
        for level in range(1, len(self._rows)):
            if row := bytes(self._rows[level]):
                number = (self._checkpoint.size >> HEIGHT * level) // TILE
                tile = Tile(level, number, len(row) // HASH_BYTES)
                self._compare(tile, row, self._stored_tile(tile), self._doubtful[level])

    def explain(self) -> None:
        """Report for each difference which side was altered, as far as the checkpoint shows it."""
        # If the entries lead to the signed root, they are right and the tile is wrong.
        sound = self.roots.get(self._checkpoint.size) == self._checkpoint.root
        for difference in self._differences:
            more = f" (and {difference.more} more in this file)" if difference.more else ""
            if not sound and difference.tile.level == 0:
                self._explain_entry(difference, more)
                continue
            why = "was altered: it is not what the entries give" if sound else "is not what the entries below it give"
            hashes = {"expected": difference.rebuilt.hex(), "found": difference.stored.hex()}
            self._findings.add(difference.tile.path, f"hash {difference.slot}{more} {why}", **hashes)

    def _explain_entry(self, difference: _Difference, more: str) -> None:
        """Report whether an entry or its hash in the tile was altered: the one that does not lead to the signed
        root."""
        index = difference.tile.number * TILE + difference.slot
        bundle = Bundle(difference.tile.number, difference.tile.width)
        why = f"does not agree with {difference.tile.path}, and neither fits the checkpoint"
        if self._fits(index, difference.stored):
            why = "was altered: its hash is not the one in the checkpoint's tree"
        hashes = {"expected": difference.stored.hex(), "found": difference.rebuilt.hex()}
        self._findings.add(bundle.path, f"entry {index}{more} {why}", **hashes)

    def _rise_from_leaves(self, start: int, width: int) -> None:
        """Propagate full tiles upwards, and keep the requested roots among those of the last `width` sizes."""
        # Roots of smaller sizes need the row of leaves as it is now. The root of the full size is kept last, when the
        # rows above have what they get from this bundle.
        size = start + width
        self._keep_roots(start + 1, size)
        level = 0
        while len(self._rows[level]) == TILE * HASH_BYTES:
            full = bytes(self._rows[level])
            if level > 0:
                tile = Tile(level, (size >> HEIGHT * level) // TILE - 1, TILE)
                self._compare(tile, full, self._stored_tile(tile), self._doubtful[level])
            self._rise(level, merkle.subtree(full))
            level += 1
        self._keep_roots(size, size + 1)

    def _set(self, level: int, row: bytes, doubtful: set[int]) -> None:
        if level == len(self._rows):
            self._rows.append(bytearray())
            self._doubtful.append(set())
        self._rows[level] = bytearray(row)
        self._doubtful[level] = doubtful

    def _rise(self, level: int, root: bytes) -> None:
        """Empty the row of a full tile and put its root into the row above."""
        above = level + 1
        if above == len(self._rows):
            self._set(above, b"", set())
        if self._doubtful[level]:
            self._doubtful[above].add(len(self._rows[above]) // HASH_BYTES)
        self._rows[above] += root
        self._set(level, b"", set())

    def _keep_roots(self, start: int, stop: int) -> None:
        """Keep the roots at the requested sizes in [start, stop), which the edge determines."""
        if not self.holes:  # after a hole, any root would only seem to contradict a checkpoint
            for size in self._sizes.intersection(range(start, stop)):
                self.roots[size] = merkle.root(size, lambda places, size=size: self._edge(places, size))

    def _edge(self, places: Sequence[Place], size: int) -> list[bytes]:
        wanted = [tile_of(place, size) for place in places]
        return [
            merkle.subtree(bytes(slots(bytes(self._rows[tile.level]), first, last))) for tile, first, last in wanted
        ]

    def _compare(self, tile: Tile, rebuilt: bytes, stored: bytes | None, doubtful: set[int]) -> None:
        """Compare a stored tile with the rebuilt one; a doubtful slot is not reported again, nor what follows from
        it."""
        self._check_superseded(tile, lambda width: rebuilt[: width * HASH_BYTES], max_bytes=TILE * HASH_BYTES)
        if stored is None or stored == rebuilt:
            return
        different = [
            slot
            for slot in range(tile.width)
            if slots(stored, slot, slot + 1) != slots(rebuilt, slot, slot + 1) and slot not in doubtful
        ]
        doubtful.update(different)
        if not different:
            return
        if len(self._differences) == MAX_FINDINGS:
            self._findings.more += 1
            return
        slot = different[0]
        hashes = slots(rebuilt, slot, slot + 1), slots(stored, slot, slot + 1)
        self._differences.append(_Difference(tile, slot, *hashes, more=len(different) - 1))

    def _check_superseded(self, file: Tile | Bundle, prefix: Callable[[int], bytes], *, max_bytes: int) -> None:
        """Compare the narrower partials of earlier checkpoints with the beginning of the file that replaced them."""
        parent = file._replace(width=1).path.rpartition("/")[0]
        if not os.path.lexists(self._directory / parent):
            return
        for name in self._read(parent, lambda: list_names(self._directory, parent)) or ():
            other = parse_path(f"{parent}/{name}")
            if other is None or other.width >= file.width:
                continue
            path = other.path
            content = self._read(path, lambda path=path: read_file(self._directory, path, max_bytes=max_bytes))
            if content is not None and content != prefix(other.width):
                self._findings.add(path, f"is not the beginning of {file.path}, which replaced it")

    def _fits(self, index: int, leaf: bytes) -> bool:
        """Return whether the stored tiles lead from this leaf to the root of the checkpoint."""
        size, root = self._checkpoint.size, self._checkpoint.root
        try:
            proof = merkle.prove_inclusion(size, index, self._ledger.hashes(size))
            merkle.check_inclusion(proof, size=size, index=index, leaf=leaf, root=root)
        except LedgerError:
            return False
        return True

    def _stored_tile(self, tile: Tile) -> bytes | None:
        return self._read(tile.path, lambda: self._ledger.tile(tile))

    def _read(self, path: str, reading: Callable[[], Content]) -> Content | None:
        """Return the result of the reading; None, and a finding, where it fails."""
        try:
            return reading()
        except LedgerError as error:
            self._findings.add(path, str(error).removeprefix(f"{self._directory / path}: "))
            return None


# ------------------------------------------------- every other file: of tiles and bundles, only the names matter here

DEEPEST = 10  # nested directories: tile, level, six groups of digits and .p make nine
CHUNK = 2**20

_KNOWN = re.compile(r"checkpoint|policy\.tlog-policy|witness/[^/]+\.note|\.lock|witness/\.lock")
_TEMPORARY = re.compile(r"\..+\.tmp")


@dataclass(kw_only=True, slots=True)
class Inventory:
    """Counts of the files outside the tree of the checkpoint."""

    blobs: int = 0  # that were hashed
    beyond: int = 0  # tiles and bundles beyond the checkpoint
    unfinished: int = 0  # temporary files of a writer
    set_aside: bool = False  # whether `unsigned/` has files beyond the checkpoint, which a writer moved there


def take_inventory(directory: Path, *, size: int, findings: Findings) -> Inventory:
    """Examine every file below the directory; unexpected files and damaged blobs are findings."""
    inventory = Inventory()
    for path in _files(directory, findings):
        if file := parse_path(path):
            inventory.beyond += not belongs(file, size)
        elif _TEMPORARY.fullmatch(path.rpartition("/")[2]):
            inventory.unfinished += 1
        elif path.startswith("blobs/"):
            inventory.blobs += 1
            _check_blob(directory, path, findings)
        elif path == UNSIGNED:
            inventory.set_aside = True
        elif not _KNOWN.fullmatch(path):
            findings.add(path, "unexpected: no such file belongs to a ledger")
    return inventory


def _files(directory: Path, findings: Findings) -> Iterator[str]:
    """Yield the paths of all regular files, and `unsigned` for its whole content; links and the like are findings."""
    # A stack in place of recursion: directories may be nested to any depth.
    levels = [("", os.scandir(directory))]
    while levels:
        prefix, entries = levels[-1]
        entry = next(entries, None)
        if entry is None:
            levels.pop()
            continue
        path = f"{prefix}{entry.name}"
        is_directory = entry.is_dir(follow_symlinks=False)
        if entry.is_file(follow_symlinks=False) or (path == UNSIGNED and is_directory):
            yield path
        elif not is_directory:
            findings.add(path, "a link" if entry.is_symlink() else "neither a file nor a directory")
        elif len(levels) == DEEPEST:
            findings.add(path, "unexpected: no directory of a ledger lies so deep")
        else:
            try:
                levels.append((f"{path}/", os.scandir(entry.path)))
            except FileNotFoundError:
                continue  # a writer at work removes directories of partials
            except OSError as error:
                findings.add(path, f"cannot be read: {error.strerror or error}")


def _check_blob(directory: Path, path: str, findings: Findings) -> None:
    name = path.rpartition("/")[2]
    try:
        if blob_path(name) != path:
            raise LedgerError(f"unexpected: the blob {name} belongs at {blob_path(name)}")
    except LedgerError as error:
        findings.add(path, str(error))
        return
    digest = hashlib.sha256()
    try:
        with os.fdopen(os.open(directory / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            if (size := os.fstat(file.fileno()).st_size) > MAX_BLOB:
                findings.add(path, f"a blob of {size} bytes; at most {MAX_BLOB} are read")
                return
            while chunk := file.read(CHUNK):
                digest.update(chunk)
    except OSError as error:
        findings.add(path, f"cannot be read: {error.strerror or error}")
        return
    if digest.hexdigest() != name:
        findings.add(path, "the blob was altered: its name is its digest", expected=name, found=digest.hexdigest())
