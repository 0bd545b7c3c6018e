"""Merkle trees as RFC 6962 defines them: hashes, roots and proofs. Arithmetic only; nothing here reads a file.

    leaf = SHA-256(0x00 || entry)        node = SHA-256(0x01 || left || right)        no entries: SHA-256("")

A tree of n > 1 leaves splits at the largest power of two below n. The roots of the first three trees of RFC 6962's
test vectors:

    no entries                  e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
    one entry, empty            6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d
    two entries, empty and 00   fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125

A holder of the tree proves, through a reader of stored hashes; a holder of a root checks, with nothing else. A
hash is named by its level and its number in the level: (0, i) is the hash of leaf i, (l, i) the root of the complete
subtree over leaves [i * 2**l, (i + 1) * 2**l). All hashes are 32 bytes.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from explorer.errors import LedgerError

HASH_BYTES = 32
MAX_SIZE = 2**63 - 1
MAX_PATH = 64  # hashes of a proof; more would need a tree beyond MAX_SIZE
MAX_RANGE = 4 * MAX_PATH  # hashes of a range proof: at most two per level at its beginning and two at its end
EMPTY_ROOT = hashlib.sha256(b"").digest()


class Place(NamedTuple):
    """Place of a stored hash: the root of the complete subtree over leaves [number * 2**level, ...)."""

    level: int
    number: int


ReadHashes = Callable[[Sequence[Place]], Sequence[bytes]]
"""Gives the stored hashes at these places, in their order. Only complete subtrees are asked for."""


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of an entry as a leaf."""
    return hashlib.sha256(b"\x00" + entry).digest()


def leaf_hashes(entries: Iterable[bytes]) -> bytes:
    """Return the hashes of entries as leaves, in one string."""
    sha256 = hashlib.sha256
    return b"".join([sha256(b"\x00" + entry).digest() for entry in entries])


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of two subtrees under one node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def parents(hashes: bytes) -> bytes:
    """Return the hashes of the level above; `hashes` is an even number of neighbouring hashes in one string."""
    sha256 = hashlib.sha256
    return b"".join([sha256(b"\x01" + hashes[at : at + 64]).digest() for at in range(0, len(hashes), 64)])


def subtree(hashes: bytes) -> bytes:
    """Return the root of a complete subtree over a power of two of neighbouring hashes in one string."""
    while len(hashes) > HASH_BYTES:
        hashes = parents(hashes)
    return hashes


def root_of(leaves: Iterable[bytes]) -> bytes:
    """Return the root over these leaf hashes, in memory that grows with the logarithm of their number."""
    peaks: list[bytes] = []  # roots of complete subtrees, largest first, one for each set bit of `size`
    for size, leaf in enumerate(leaves):
        hash_ = leaf
        while size & 1:
            hash_ = node_hash(peaks.pop(), hash_)
            size >>= 1
        peaks.append(hash_)
    return _fold(peaks) if peaks else EMPTY_ROOT


def root(size: int, read: ReadHashes) -> bytes:
    """Return the root of the tree over the first `size` leaves."""
    return _fold(read(_cover(0, size))) if size else EMPTY_ROOT


def prove_inclusion(size: int, index: int, read: ReadHashes) -> tuple[bytes, ...]:
    """Prove that leaf `index` is in the tree of `size` leaves: PATH(index, D[size]), leaf to root.

    Raises `LedgerError` if there is no such leaf.
    """
    if not 0 <= index < size:
        raise LedgerError(f"no entry {index} in a tree of {size}")
    # Walk down to the leaf, and collect the sibling of each subtree on the way.
    ranges: list[tuple[int, int]] = []
    low, high = 0, size
    while high - low > 1:
        middle = low + _split(high - low)
        if index < middle:
            ranges.append((middle, high))
            high = middle
        else:
            ranges.append((low, middle))
            low = middle
    return _roots(list(reversed(ranges)), read)


def check_inclusion(proof: Sequence[bytes], *, size: int, index: int, leaf: bytes, root: bytes) -> None:
    """Check that `leaf`, a leaf hash, is number `index` of the `size` leaves under `root` (RFC 9162, 2.1.3.2).

    Raises `LedgerError` that says what the proof leads to.
    """
    if not 0 <= index < size <= MAX_SIZE:
        raise LedgerError(f"an inclusion proof for entry {index} of {size}: there is no such entry")
    # Bits of `position` say on which side the sibling is; `last` is the last node of the level, which may have none.
    position, last, hash_ = index, size - 1, leaf
    for step in _hashes(proof):
        if last == 0:
            raise LedgerError(f"the inclusion proof of entry {index} is too long: {len(proof)} hashes for size {size}")
        if position & 1 or position == last:
            hash_ = node_hash(step, hash_)
            while position and not position & 1:
                position, last = position >> 1, last >> 1
        else:
            hash_ = node_hash(hash_, step)
        position, last = position >> 1, last >> 1
    if last != 0:
        raise LedgerError(f"the inclusion proof of entry {index} is too short: {len(proof)} hashes for size {size}")
    if hash_ != root:
        raise LedgerError(
            f"the inclusion proof of entry {index} fails: it leads to root {hash_.hex()}, expected {root.hex()}"
        )


def prove_consistency(old_size: int, new_size: int, read: ReadHashes) -> tuple[bytes, ...]:
    """Prove that the tree of `new_size` leaves extends the one of `old_size`: PROOF(old_size, D[new_size]).

    Empty for `old_size` 0 and for equal sizes. Raises `LedgerError` if the old tree is the larger one.
    """
    if not 0 <= old_size <= new_size:
        raise LedgerError(f"a tree of {new_size} entries cannot extend one of {old_size}")
    if old_size in (0, new_size):
        return ()
    # Walk down to the right edge of the old tree; subtrees to the left of the path are old, those to the right new.
    ranges: list[tuple[int, int]] = []
    low, high = 0, new_size
    while old_size != high:
        middle = low + _split(high - low)
        if old_size <= middle:
            ranges.append((middle, high))
            high = middle
        else:
            ranges.append((low, middle))
            low = middle
    if low:  # otherwise the old tree is this very subtree, and the checker knows its root
        ranges.append((low, high))
    return _roots(list(reversed(ranges)), read)


def check_consistency(
    proof: Sequence[bytes], *, old_size: int, old_root: bytes, new_size: int, new_root: bytes
) -> None:
    """Check that the tree under `new_root` extends the tree under `old_root` (RFC 9162, 2.1.4.2).

    Every tree extends the empty one, by an empty proof; equal sizes need equal roots and an empty proof. Raises
    `LedgerError` that says at which hash the proof fails.
    """
    if not 0 <= old_size <= new_size <= MAX_SIZE:
        raise LedgerError(f"a tree of {new_size} entries cannot extend one of {old_size}")
    if old_size in (0, new_size):
        if proof:
            raise LedgerError(f"the consistency proof from {old_size} to {new_size} has to be empty")
        if old_size == 0 and old_root != EMPTY_ROOT:
            raise LedgerError(f"root {old_root.hex()} at size 0, expected {EMPTY_ROOT.hex()}")
        if old_size == new_size and old_root != new_root:
            raise LedgerError(
                f"two roots at size {new_size}: {old_root.hex()} and {new_root.hex()}; one of them is of another log"
            )
        return
    # RFC 9162 leaves the old root out of the proof where it is a complete subtree, a power of two.
    path = _hashes(proof)
    if not path:
        raise LedgerError(f"the consistency proof from {old_size} to {new_size} is empty")
    if old_size & (old_size - 1) == 0:
        path = [old_root, *path]
    # Walk up from the last leaf of the old tree: first past the levels on which it is a right child; the proof begins
    # with the subtree there.
    position, last = old_size - 1, new_size - 1
    while position & 1:
        position, last = position >> 1, last >> 1
    # Hashes to the left belong to both trees, those to the right to the new one only.
    old = new = path[0]
    for step in path[1:]:
        if last == 0:
            raise LedgerError(f"the consistency proof from {old_size} to {new_size} is too long: {len(proof)} hashes")
        if position & 1 or position == last:
            old, new = node_hash(step, old), node_hash(step, new)
            while position and not position & 1:
                position, last = position >> 1, last >> 1
        else:
            new = node_hash(new, step)
        position, last = position >> 1, last >> 1
    if last != 0:
        raise LedgerError(f"the consistency proof from {old_size} to {new_size} is too short: {len(proof)} hashes")
    for size, reached, expected in ((old_size, old, old_root), (new_size, new, new_root)):
        if reached != expected:
            raise LedgerError(
                f"the consistency proof from {old_size} to {new_size} fails: "
                f"it leads to root {reached.hex()} at size {size}, expected {expected.hex()}"
            )


def prove_range(size: int, first: int, stop: int, read: ReadHashes) -> tuple[bytes, ...]:
    """Prove that a tree of `size` leaves has leaves [first, stop).

    The proof is the roots of the largest subtrees that lie inside or outside the range, from left to right. Raises
    `LedgerError` for a range that is empty or not there.
    """
    return _roots(list(_pieces(size, first, stop)), read)


def check_range(proof: Sequence[bytes], *, size: int, first: int, stop: int, root: bytes) -> None:
    """Check that the tree under `root` has leaves [first, stop), whose roots are in `proof`. Raises `LedgerError`."""
    pieces = list(_pieces(size, first, stop))
    if len(proof) != len(pieces):
        raise LedgerError(f"the proof of entries {first} to {stop - 1}: {len(proof)} hashes, expected {len(pieces)}")
    known = dict(zip(pieces, _hashes(proof, most=MAX_RANGE), strict=True))
    if (joined := _joined(0, size, known)) != root:
        raise LedgerError(
            f"the proof of entries {first} to {stop - 1} fails: it leads to root {joined.hex()}, expected {root.hex()}"
        )


def _pieces(size: int, first: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the largest subtrees of a tree that lie inside [first, stop) or outside of it, left to right."""
    if not 0 <= first < stop <= size <= MAX_SIZE:
        raise LedgerError(f"no entries {first} to {stop - 1} in a tree of {size}")
    # A stack with the left half on top yields the subtrees from left to right.
    todo = [(0, size)]
    while todo:
        low, high = todo.pop()
        if high <= first or low >= stop or first <= low <= high <= stop:
            yield low, high
        else:
            middle = low + _split(high - low)
            todo += [(middle, high), (low, middle)]


def _joined(low: int, high: int, known: Mapping[tuple[int, int], bytes]) -> bytes:
    """Return the root of a subtree, from those of subtrees that make it up."""
    if (low, high) in known:
        return known[low, high]
    middle = low + _split(high - low)
    return node_hash(_joined(low, middle, known), _joined(middle, high, known))


def _hashes(proof: Sequence[bytes], *, most: int = MAX_PATH) -> list[bytes]:
    if len(proof) > most:
        raise LedgerError(f"a proof of {len(proof)} hashes; at most {most} are possible")
    for number, hash_ in enumerate(proof):
        if len(hash_) != HASH_BYTES:
            raise LedgerError(f"hash {number} of the proof has {len(hash_)} bytes, expected {HASH_BYTES}")
    return list(proof)


def _split(size: int) -> int:
    """Return the largest power of two below `size`."""
    return 1 << ((size - 1).bit_length() - 1)


def _cover(low: int, high: int) -> list[Place]:
    """Return the complete subtrees that make up leaves [low, high), left to right.

    `low` is a multiple of the size of the first one.
    """
    # The largest subtree that fits comes first, because `low` is a multiple of its size; the rest are ever smaller.
    places = []
    while low < high:
        level = (high - low).bit_length() - 1
        places.append(Place(level, low >> level))
        low += 1 << level
    return places


def _fold(peaks: Sequence[bytes]) -> bytes:
    """Return the root over complete subtrees, largest first."""
    *rest, hash_ = peaks
    for peak in reversed(rest):
        hash_ = node_hash(peak, hash_)
    return hash_


def _roots(ranges: Sequence[tuple[int, int]], read: ReadHashes) -> tuple[bytes, ...]:
    """Return the roots of ranges of leaves, out of one reading."""
    covers = [_cover(low, high) for low, high in ranges]
    hashes = iter(read([place for cover in covers for place in cover]))
    return tuple(_fold([next(hashes) for _ in cover]) for cover in covers)
