"""Sequences cut into pieces, against slicing each by itself."""

import pytest
import torch

from explorer.data.batches import Batch
from explorer.data.pieces import cut, cut_rows

TOKENS = 12
ROWS = torch.arange(3 * TOKENS).reshape(3, TOKENS)


@pytest.mark.parametrize("length", [1, 4, 5, 12])
def test_rows_are_cut_in_order(length: int) -> None:
    expected = [row[i * length : (i + 1) * length] for row in ROWS.tolist() for i in range(TOKENS // length)]
    assert cut(ROWS, length=length).tolist() == expected
    assert cut(ROWS[..., None], length=length)[..., 0].tolist() == expected


def test_pieces_weigh_together_what_their_row_did() -> None:
    slots = torch.tensor([1, 4, 6])
    whole = Batch(inputs=ROWS, targets=ROWS + 1, labels=ROWS + 2, slots=slots, codes=slots * 0 + 7, weight=0.5)
    found = cut_rows(whole, length=5)
    assert len(found) == 6 and found.weight == 0.25
    assert found.slots.tolist() == [1, 1, 4, 4, 6, 6] and found.codes.tolist() == [7] * 6
    assert torch.equal(found.targets, found.inputs + 1) and torch.equal(found.labels, found.inputs + 2)
