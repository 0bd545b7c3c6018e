"""Provenance for data that has none, and text in memory."""

import numpy as np
import torch

from explorer.data.dataset import simulated
from explorer.data.digits import Digits
from explorer.data.sequences import Text


def test_classes_are_equal_pieces_in_the_order_of_the_labels() -> None:
    labels = torch.tensor([3, 0, 1, 0, 2, 3, 1])
    found = simulated(labels, classes=3, name="x")
    assert found is not None and found.simulated
    assert found.classes == ("simulated/class-00", "simulated/class-01", "simulated/class-02")
    assert np.bincount(found.codes).tolist() == [3, 2, 2]
    assert all(labels[found.codes == a].max() <= labels[found.codes == b].min() for a, b in ((0, 1), (1, 2)))
    assert found.sources[4] == "x, example 4"


def test_no_classes_no_provenance() -> None:
    assert simulated(torch.tensor([0]), classes=0, name="x") is None
    assert Digits().load(None).provenance is None


def test_digits_with_simulated_provenance() -> None:
    found = Digits(simulated_classes=4).load(None).provenance
    assert found is not None and len(found.codes) == 899 and set(found.codes) == {0, 1, 2, 3}


def test_text_predicts_the_next_byte() -> None:
    blocks = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]], dtype=torch.uint8)
    text = Text.of(blocks, blocks[:1])
    assert text.example_shape == (3,) and text.classes == 256 and len(text.train) == 2
    assert text.train.inputs.tolist() == [[1, 2, 3], [5, 6, 7]]
    assert text.train.labels.tolist() == [[2, 3, 4], [6, 7, 8]]
    assert text.train.content(1) == bytes([5, 6, 7, 6, 7, 8])
    assert text.preparation(torch.device("cpu"))(text.train.inputs).dtype == torch.int64
