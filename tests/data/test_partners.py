"""Partners: one circle in each provenance class, whoever else is there."""

import pytest
import torch

from explorer.data.partners import draw_partners
from explorer.data.streams import stream


def partners_of(slots: list[int], codes: list[int], *, batch_size: int = 16, step: int = 0) -> dict[int, int]:
    """For each slot, the slot of its partner."""
    found = draw_partners(
        stream(0, "mixup", step), slots=torch.tensor(slots), codes=torch.tensor(codes), batch_size=batch_size
    )
    return {slots[row]: slots[partner] for row, partner in enumerate(found.tolist())}


@pytest.mark.parametrize("size", [1, 2, 7, 16])
def test_partners_are_one_circle(size: int) -> None:
    pairs = partners_of(list(range(size)), [0] * size)
    seen, slot = [], 0
    while slot not in seen:
        seen.append(slot)
        slot = pairs[slot]
    assert sorted(seen) == list(range(size))


def test_nobody_is_left_alone_with_themselves() -> None:
    """A random permutation would pair an example with itself once a step; the circle never does."""
    for step in range(50):
        pairs = partners_of(list(range(8)), [0] * 8, step=step)
        assert all(slot != partner for slot, partner in pairs.items())


def test_circles_differ_from_step_to_step() -> None:
    circles = {tuple(partners_of(list(range(8)), [0] * 8, step=step).items()) for step in range(20)}
    assert len(circles) == 20


def test_partners_stay_within_their_class() -> None:
    codes = [2, 0, 1, 0, 0, 2, 1, 2, 0, 5, 1, 0, 2, 2, 0, 1]
    for step in range(20):
        for slot, partner in partners_of(list(range(16)), codes, step=step).items():
            assert codes[slot] == codes[partner]
    assert partners_of(list(range(16)), codes)[9] == 9, "a class of one mixes with itself"


@pytest.mark.parametrize("gone", [0, 1, 2, 5])
def test_leaving_a_class_out_changes_no_other_pair(gone: int) -> None:
    codes = [2, 0, 1, 0, 0, 2, 1, 2, 0, 5, 1, 0, 2, 2, 0, 1]
    everybody = partners_of(list(range(16)), codes)
    slots = [slot for slot in range(16) if codes[slot] != gone]
    without = partners_of(slots, [codes[slot] for slot in slots])
    assert without == {slot: everybody[slot] for slot in slots}


def test_renumbering_the_rows_instead_of_keeping_slots_would_change_pairs() -> None:
    """The control of the test above: with slots 0..n-1 of those present, the draws shift."""
    codes = [2, 0, 1, 0, 0, 2, 1, 2, 0, 5, 1, 0, 2, 2, 0, 1]
    everybody = partners_of(list(range(16)), codes)
    slots = [slot for slot in range(16) if codes[slot] != 0]
    shifted = partners_of(list(range(len(slots))), [codes[slot] for slot in slots])
    assert {slots[a]: slots[b] for a, b in shifted.items()} != {slot: everybody[slot] for slot in slots}
