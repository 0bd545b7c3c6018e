"""Streams in blocks, where every byte but the first is predicted once, and sequences cut into pieces."""

import pytest
import torch

from explorer.data.batches import Batch
from explorer.data.sequences import cut_blocks, cut_pieces, cut_rows


@pytest.mark.parametrize("size", [0, 1, 8, 9, 16, 17, 18, 100])
def test_blocks_overlap_by_the_byte_that_is_predicted_and_then_read(size: int) -> None:
    stream = bytes(range(size))
    blocks = cut_blocks(stream, context=8)
    assert blocks.shape == (max(0, size - 1) // 8, 9)
    assert blocks[:, 1:].flatten().tolist() == list(stream[1 : 1 + 8 * len(blocks)])
    assert blocks[:, :-1].flatten().tolist() == list(stream[: 8 * len(blocks)])
    blocks.fill_(0)  # its own memory
    assert stream == bytes(range(size))


TOKENS = 12
ROWS = torch.arange(3 * TOKENS).reshape(3, TOKENS)


@pytest.mark.parametrize("length", [1, 4, 5, 12])
def test_rows_are_cut_in_order(length: int) -> None:
    expected = [row[i * length : (i + 1) * length] for row in ROWS.tolist() for i in range(TOKENS // length)]
    assert cut_pieces(ROWS, length=length).tolist() == expected
    assert cut_pieces(ROWS[..., None], length=length)[..., 0].tolist() == expected


def test_pieces_weigh_together_what_their_row_did() -> None:
    slots = torch.tensor([1, 4, 6])
    whole = Batch(inputs=ROWS, targets=ROWS + 1, labels=ROWS + 2, slots=slots, codes=slots * 0 + 7, weight=0.5)
    found = cut_rows(whole, length=5)
    assert len(found) == 6 and found.weight == 0.25 and found.pieces == 2
    assert found.slots.tolist() == [1, 1, 4, 4, 6, 6] and found.codes.tolist() == [7] * 6
    assert torch.equal(found.targets, found.inputs + 1) and torch.equal(found.labels, found.inputs + 2)
