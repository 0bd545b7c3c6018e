"""The examples of a step: the rows in its slots, and the passes that the examples of a class were in.

The rows in the slots of a step: the blob `slots` of a segment, and the root in the entry of a step.

    blob    for each step: how many slots its batch has, and the row of the tag table in each of them, in their order;
            u32, little-endian
    root    RFC 6962, a leaf for each slot: SHA-256(0x00 || slot as u64, big-endian || leaf of its row in the tag table)

Two slots, rows 5 and 3:

    02000000 05000000 03000000

Only the tag table states the class of a row, so that there is one source for it. The leaves of the tag table are in
`explorer.provenance.tags`.

The passes of a class's examples in a step: the evidence of a `selection` by the bands of a policy.

The rule of the decision is `by-example`. The content is committed to for the one class that it is about, and depends on
no other class's examples. Numbers are little-endian:

    u32                 n, the number of examples of the class that were read in the step, in the order of their slots
    u32                 number of scores that tell them apart, 1 or 2 (`explorer.provenance.regions.SCORES` in use)
    f32 x n             for each of the scores: that of every example
    u32                 p, the number of passes: each is a forward and backward pass of some of the examples
    u8 x L              for each pass: 1 for a layer, in the order of the genesis, that it might change, because it took
                        its gradients or had its buffers open; 0 for others
    u8 x n              for every example the pass that it was in; 255: none, because it was denied or dropped

Passes are recorded where they are made, after the fact, so that they can be checked against the scores, the policy and
the numbers of the step. Two examples, one score; the second example took part, in the first of two layers:

    02000000 01000000 0000003f 0000803f 01000000 01 00 ff 00
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from explorer import merkle
from explorer.errors import LedgerError

_WORD = np.dtype("<u4")


def encode_slots(batches: Iterable[NDArray[np.integer]]) -> bytes:
    """Return the content of a segment: the rows in the slots of each step."""
    return b"".join(np.array([len(rows), *rows], dtype=_WORD).tobytes() for rows in batches)


def decode_slots(content: bytes, *, counts: Sequence[int]) -> list[NDArray[np.int64]]:
    """Return the rows in the slots of each step; `counts` are the numbers of slots in the steps' entries. Raises
    `LedgerError` for content of other counts."""
    # The size is checked first, so that no count in the content is trusted for reading further.
    size = sum(1 + count for count in counts) * _WORD.itemsize
    if len(content) != size:
        raise LedgerError(f"slots of a segment: found {len(content)} bytes, expected {size}")
    words = np.frombuffer(content, dtype=_WORD).astype(np.int64)
    steps, at = [], 0
    for count in counts:
        if words[at] != count:
            raise LedgerError(f"slots of a segment: found a step of {words[at]} slots, its entry counts {count}")
        steps.append(words[at + 1 : at + 1 + count])
        at += 1 + count
    return steps


def slots_root(rows: NDArray[np.integer], leaves: NDArray[np.uint8]) -> bytes:
    """Return the root over the slots of a step. `leaves`: the leaf hashes of the tag table, rows x 32.

    Raises `LedgerError` for a row that the table does not have.
    """
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(leaves):
        raise LedgerError(f"slots of a step: row {max(rows.max(), -rows.min())} of a tag table of {len(leaves)}")
    # The slot's number is in its leaf: the same rows in another order have another root.
    tags = leaves[rows]
    return merkle.root_of(merkle.leaf_hash(slot.to_bytes(8, "big") + tag.tobytes()) for slot, tag in enumerate(tags))


# --- the passes of a class's examples ---

RULE = "by-example"
NONE = 255
MAX_PASSES = 255
_HEAD, _COUNT = struct.Struct("<II"), struct.Struct("<I")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Chosen:
    """The scores and the passes of a class's examples. Shapes: s scores, n examples, p passes, L layers."""

    scores: NDArray[np.float32]  # s n
    passes: NDArray[np.bool_]  # p L: whether the pass took gradients of the layer
    taken: NDArray[np.uint8]  # n: the pass that an example was in, or NONE

    def reached(self, layers: list[int] | None = None) -> NDArray[np.bool_]:
        """Return which examples were in a pass that took gradients of one of these layers, by default of any; n."""
        # Rows of False up to 255: the number NONE then indexes a pass that took no gradient.
        columns = self.passes if layers is None else self.passes[:, layers]
        took = np.append(columns.any(1), np.zeros(MAX_PASSES + 1 - len(columns), np.bool_))
        return took[self.taken]


def encode_chosen(chosen: Chosen) -> bytes:
    """Return the blob of the passes."""
    scores, taken = chosen.scores, chosen.taken
    assert scores.shape[1] == len(taken) and len(chosen.passes) <= MAX_PASSES
    return b"".join(
        (
            _HEAD.pack(len(taken), len(scores)),
            np.ascontiguousarray(scores, "<f4").tobytes(),
            _COUNT.pack(len(chosen.passes)),
            chosen.passes.astype(np.uint8).tobytes(),
            taken.astype(np.uint8).tobytes(),
        )
    )


def decode_chosen(content: bytes, *, layers: int) -> Chosen:
    """Read the blob of the passes. Raises `LedgerError` for one that is damaged."""
    # The counts come first and determine the size of everything else, which is checked before any of it is read.
    try:
        n, several = _HEAD.unpack_from(content)
        at = min(_HEAD.size + 4 * several * n, len(content))
        (p,) = _COUNT.unpack_from(content, at)
    except struct.error as error:
        raise LedgerError(f"a choice among examples: found {len(content)} bytes, cut off") from error
    size = at + _COUNT.size + p * layers + n
    if several not in (1, 2) or p > MAX_PASSES or len(content) != size:
        raise LedgerError(
            f"a choice among examples: found {len(content)} bytes, expected {size} of {n} examples, {several} scores of"
            f" at most 2 and {p} passes of at most {MAX_PASSES}"
        )
    scores = np.frombuffer(content, "<f4", count=several * n, offset=_HEAD.size).astype(np.float32)
    flags = np.frombuffer(content, np.uint8, count=p * layers, offset=at + _COUNT.size)
    taken = np.frombuffer(content, np.uint8, offset=size - n)
    if (flags > 1).any() or ((taken >= p) & (taken != NONE)).any():
        raise LedgerError("a choice among examples: a flag that is neither 0 nor 1, or a pass that is not there")
    return Chosen(scores=scores.reshape(several, n), passes=flags.reshape(p, layers).astype(np.bool_), taken=taken)
