"""Streams in blocks: every byte but the first is predicted exactly once, up to the end that is left out."""

import pytest

from explorer.data.blocks import cut


@pytest.mark.parametrize("size", [0, 1, 8, 9, 16, 17, 18, 100])
def test_blocks_overlap_by_the_byte_that_is_predicted_and_then_read(size: int) -> None:
    stream = bytes(range(size))
    blocks = cut(stream, context=8)
    assert blocks.shape == (max(0, size - 1) // 8, 9)
    assert blocks[:, 1:].flatten().tolist() == list(stream[1 : 1 + 8 * len(blocks)])
    assert blocks[:, :-1].flatten().tolist() == list(stream[: 8 * len(blocks)])
    blocks.fill_(0)  # its own memory
    assert stream == bytes(range(size))
