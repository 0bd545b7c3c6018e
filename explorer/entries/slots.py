"""Which examples a step was given, slot by slot: the blob `slots` of a segment, and the root in the entry of a step.

    blob    for each step: how many slots its batch has, and the row of the tag table in each of them, in their order;
            u32, little-endian
    root    RFC 6962, a leaf for each slot: SHA-256(0x00 || slot as u64, big-endian || leaf of its row in the tag table)

Two slots, rows 5 and 3:

    02000000 05000000 03000000

The class of an example is what the tag table says of its row, so that there is one word for it. The leaves of the tag
table are in `explorer.provenance.tags`.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from explorer import merkle
from explorer.errors import LedgerError

_WORD = np.dtype("<u4")


def encode_slots(batches: Iterable[NDArray[np.integer]]) -> bytes:
    """The content of a segment: of each step the rows in its slots."""
    return b"".join(np.array([len(rows), *rows], dtype=_WORD).tobytes() for rows in batches)


def decode_slots(content: bytes, *, counts: Sequence[int]) -> list[NDArray[np.int64]]:
    """The rows in the slots of each step; `counts` is how many slots the leaves say. Raises `LedgerError`."""
    size = sum(1 + count for count in counts) * _WORD.itemsize
    if len(content) != size:
        raise LedgerError(f"slots of a segment: found {len(content)} bytes, expected {size}")
    words = np.frombuffer(content, dtype=_WORD).astype(np.int64)
    found, at = [], 0
    for count in counts:
        if words[at] != count:
            raise LedgerError(f"slots of a segment: found a step of {words[at]} slots, its entry says {count}")
        found.append(words[at + 1 : at + 1 + count])
        at += 1 + count
    return found


def slots_root(rows: NDArray[np.integer], leaves: NDArray[np.uint8]) -> bytes:
    """The root over the slots of a step. `leaves`: the leaf hashes of the tag table, rows x 32.

    Raises `LedgerError` for a row that the table does not have.
    """
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(leaves):
        raise LedgerError(f"slots of a step: row {max(rows.max(), -rows.min())} of a tag table of {len(leaves)}")
    tags = leaves[rows]
    return merkle.root_of(merkle.leaf_hash(slot.to_bytes(8, "big") + tag.tobytes()) for slot, tag in enumerate(tags))
