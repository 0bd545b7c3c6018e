"""The slots of steps: bytes as documented, the root over slots and tags, and what does not fit."""

import hashlib

import numpy as np
import pytest

from explorer import merkle
from explorer.entries.slots import decode_slots, encode_slots, slots_root
from explorer.errors import LedgerError

LEAVES = np.arange(6 * 32, dtype=np.uint8).reshape(6, 32)
ROWS = np.array([5, 3])


def test_bytes_as_documented() -> None:
    assert encode_slots([ROWS]).hex() == "020000000500000003000000"
    steps = [ROWS, np.array([], np.int64), np.array([2**32 - 1])]
    found = decode_slots(encode_slots(steps), counts=[2, 0, 1])
    assert [rows.tolist() for rows in found] == [[5, 3], [], [2**32 - 1]]


def test_the_root_depends_on_every_slot_and_tag() -> None:
    leaves = [
        hashlib.sha256(b"\x00" + slot.to_bytes(8, "big") + bytes(LEAVES[row])).digest() for slot, row in enumerate(ROWS)
    ]
    assert slots_root(ROWS, LEAVES) == merkle.node_hash(*leaves)
    assert slots_root(ROWS[::-1], LEAVES) != slots_root(ROWS, LEAVES)
    assert slots_root(np.array([5, 4]), LEAVES) != slots_root(ROWS, LEAVES)


@pytest.mark.parametrize("rows", [[6], [-1], [0, 4000]])
def test_rows_that_the_table_does_not_have(rows: list[int]) -> None:
    with pytest.raises(LedgerError, match="of a tag table of 6"):
        slots_root(np.array(rows), LEAVES)


@pytest.mark.parametrize(
    ("counts", "message"), [([2, 1], "found 12 bytes, expected 20"), ([3], "12 bytes, expected 16"), ([], "expected 0")]
)
def test_other_counts_than_the_entries_say(counts: list[int], message: str) -> None:
    with pytest.raises(LedgerError, match=message):
        decode_slots(encode_slots([ROWS]), counts=counts)
    with pytest.raises(LedgerError, match="found a step of 2 slots, its entry counts 1"):
        decode_slots(encode_slots([ROWS, np.array([1])]), counts=[1, 2])
