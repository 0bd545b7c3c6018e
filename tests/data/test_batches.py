"""The order of the data and the way of an image into a batch, against loops in numpy."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from explorer.data.batches import IGNORED, Batch, check_labels, dense
from explorer.data.streams import stream
from explorer.errors import DataError
from tests.data_for_tests import noise, noise_batches

SLOTS = np.arange(8)


@pytest.mark.parametrize("batch_size", [1, 6, 7, 20, 33, 50])
def test_every_epoch_is_a_permutation(batch_size: int) -> None:
    """Twenty examples, also in batches that straddle epochs or are larger than one."""
    batches = noise_batches(batch_size=batch_size)
    epochs = 5
    steps = -(-20 * epochs // batch_size)
    order = np.concatenate([batches.indices(step) for step in range(steps)])[: 20 * epochs].reshape(epochs, 20)
    assert (np.sort(order) == np.arange(20)).all()
    assert len({tuple(epoch) for epoch in order}) == epochs, "every epoch is shuffled anew"


def test_the_order_is_a_pure_function_of_the_step() -> None:
    forwards, backwards = noise_batches(), noise_batches()
    expected = [forwards.indices(step) for step in range(12)]
    for step in reversed(range(12)):
        assert (backwards.indices(step) == expected[step]).all()


def test_the_order_depends_on_the_seed() -> None:
    assert (noise_batches(seed=0).indices(0) != noise_batches(seed=1).indices(0)).any()


def test_reading_gives_the_examples_of_those_numbers() -> None:
    batches = noise_batches()
    images, labels = batches.read(batches.indices(4))
    for row, index in enumerate(batches.indices(4)):
        assert torch.equal(images[row], batches.dataset.train.inputs[index])
        assert labels[row] == batches.dataset.train.labels[index]


def test_without_augmentation_images_stay_as_they_are() -> None:
    batches = noise_batches()
    images, _ = batches.read(batches.indices(0))
    assert torch.equal(batches.augment(images, 0, SLOTS), images)


def test_crops_and_mirrors_against_loops() -> None:
    """Every image is a window of itself, padded by reflection, mirrored or not, as its slot has drawn."""
    pad = 2
    batches = noise_batches(replace(noise(), crop=pad, flip=True), batch_size=16)
    images, _ = batches.read(batches.indices(3))
    found = batches.augment(images, 3, np.arange(16)).numpy()
    draws = stream(0, "augment", 3)
    corners = draws.integers(0, 2 * pad + 1, (2, 16))
    mirrored = draws.random(16) < 0.5
    assert mirrored.any() and not mirrored.all()
    _, height, width = images.shape[1:]
    for row in range(16):
        padded = np.pad(images[row].numpy(), ((0, 0), (pad, pad), (pad, pad)), mode="reflect")
        top, left = corners[:, row]
        window = padded[:, top : top + height, left : left + width]
        assert (found[row] == (window[:, :, ::-1] if mirrored[row] else window)).all()


def test_augmentation_is_keyed_by_step() -> None:
    batches = noise_batches(replace(noise(), crop=2, flip=True))
    images, _ = batches.read(batches.indices(0))
    assert torch.equal(batches.augment(images, 1, SLOTS), batches.augment(images, 1, SLOTS))
    assert not torch.equal(batches.augment(images, 1, SLOTS), batches.augment(images, 2, SLOTS))


def test_normalised_images_in_float64() -> None:
    dataset = replace(noise(), mean=(0.4, 0.6), std=(0.2, 0.3))
    images = dataset.train.inputs
    found = noise_batches(dataset).prepare(images).numpy()
    mean = np.array([0.4, 0.6]).reshape(1, 2, 1, 1)
    std = np.array([0.2, 0.3]).reshape(1, 2, 1, 1)
    np.testing.assert_allclose(found, (images.numpy() / 255.0 - mean) / std, rtol=0, atol=1e-6)
    assert found.dtype == np.float32


def test_a_batch_knows_its_slots_and_rows() -> None:
    batches = noise_batches()
    batch: Batch = batches.transfer(*batches.read(batches.indices(0)), slots=SLOTS, code=3)
    assert len(batch) == 8
    assert batch.slots.tolist() == list(range(8))
    assert batch.codes.tolist() == [3] * 8
    assert batch.targets is batch.labels
    rows = batch.rows(torch.tensor([5, 2]))
    assert rows.slots.tolist() == [5, 2]
    assert torch.equal(rows.inputs, batch.inputs[[5, 2]])
    assert torch.equal(rows.labels, batch.labels[[5, 2]])


def test_dense_targets() -> None:
    found = dense(torch.tensor([2, 0]), classes=3)
    assert found.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert found.dtype == torch.float32
    assert dense(found, classes=3) is found


def test_ignored_labels_become_rows_of_zeros_that_have_no_loss() -> None:
    """For one label an example, for padding of text and for the void class of pixels."""
    outputs = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 6, 3)).astype(np.float32))
    for labels in (torch.tensor([0, -100, 2, 1]), torch.tensor([[0, -100, 2, 1, -100, -100]] * 4)):
        rows = dense(labels, classes=3)
        assert torch.equal(rows.sum(-1), (labels != IGNORED).float())
        flat = outputs[:, 0] if labels.ndim == 1 else outputs.flatten(0, 1)
        found = F.cross_entropy(flat, rows.flatten(0, -2), reduction="none")
        expected = F.cross_entropy(flat, labels.flatten(), reduction="none")
        torch.testing.assert_close(found, expected)
        assert not found[labels.flatten() == IGNORED].any()


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 1, 3], "mixup: example 12 has label 3: expected 0 to 2, for the model has 3 outputs, or -100"),
        ([0, -1, 1], "mixup: example 11 has label -1"),
        ([[0, 0], [1, 1], [2, 999]], "mixup: example 12 has label 999"),
    ],
)
def test_labels_that_are_no_class_are_named_with_their_example(labels: list, words: str) -> None:
    numbers = np.arange(10, 13)
    with pytest.raises(DataError, match=words):
        check_labels(torch.tensor(labels), numbers, classes=3, method="mixup")
    check_labels(torch.tensor(labels).clamp(0, 2), numbers, classes=3, method="mixup")
    check_labels(torch.tensor([0, -100, 2]), numbers, classes=3, method="mixup")
    check_labels(torch.rand(3, 3), numbers, classes=3, method="mixup")  # distributions are as they are
