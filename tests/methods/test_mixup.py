"""MixUp against its definition in float64."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from explorer.data.batches import dense
from explorer.data.streams import stream
from explorer.errors import TrainingError
from explorer.methods.mixup import MixUp, draw_weight, mix
from tests.data_for_tests import noise
from tests.loop_for_tests import noise_loop
from tests.scenes_for_tests import read, scene_loop


def test_the_mixture_in_float64() -> None:
    draws = np.random.default_rng(0)
    values, partners = draws.normal(size=(5, 2, 3, 7)), draws.permutation(5)
    for weight in (0.5, 0.75, 1.0):
        found = mix(torch.from_numpy(values), partners=torch.from_numpy(partners), weight=weight)
        np.testing.assert_allclose(found, weight * values + (1 - weight) * values[partners], rtol=1e-12)


def test_whole_weight_is_the_same_numbers() -> None:
    values = torch.randn(6, 3)
    assert torch.equal(mix(values, partners=torch.arange(6).roll(1), weight=1.0), values)


@pytest.mark.parametrize("alpha", [1e-6, 0.2, 1.0, 8.0])
def test_the_weight_is_the_larger_side_of_a_beta_draw(alpha: float) -> None:
    weights = np.array([draw_weight(stream(0, "w", step), alpha=alpha) for step in range(3000)])
    assert ((weights >= 0.5) & (weights <= 1)).all()
    # E max(z, 1 - z), by numerical integration over a fine grid of Beta quantiles.
    reference = np.random.default_rng(1).beta(alpha, alpha, 200_000)
    expected = np.maximum(reference, 1 - reference)
    assert abs(weights.mean() - expected.mean()) < 5 * expected.std() / np.sqrt(len(weights)) + 1e-9
    assert draw_weight(stream(0, "w", 0), alpha=0) == 1.0


@pytest.mark.parametrize("batch_size", [1, 8])
def test_a_step_mixes_images_and_targets_alike(batch_size: int) -> None:
    """Non-square images and two channels; the batch by hand, in float64."""
    loop = noise_loop([MixUp(alpha=1.0)], dataset=noise(), batch_size=batch_size)
    plain = noise_loop(batch_size=batch_size)
    loop.state.step = plain.state.step = 3
    for each in (loop, plain):
        each.prepare_step()
        each.read_share(each.state.shares[0])
    mixed, raw = loop.state.batch, plain.state.batch
    assert mixed is not None and raw is not None
    draws = stream(0, "mixup", 3)
    z = draws.beta(1.0, 1.0)
    weight = max(z, 1 - z)
    order = np.argsort(draws.random(batch_size))
    inputs, onehot = raw.inputs.double().numpy(), np.eye(3)[raw.labels.numpy()]
    for place, row in enumerate(order):
        partner = order[place - 1]
        np.testing.assert_allclose(mixed.inputs[row], weight * inputs[row] + (1 - weight) * inputs[partner], atol=1e-5)
        np.testing.assert_allclose(mixed.targets[row], weight * onehot[row] + (1 - weight) * onehot[partner], atol=1e-6)
    assert torch.equal(mixed.labels, raw.labels)


def test_mixing_keeps_the_raw_batch() -> None:
    """Nothing is written into the examples that were read."""
    loop = noise_loop([MixUp(alpha=1.0)])
    before: Tensor = loop.setting.batches.dataset.train.inputs.clone()
    loop.step()
    assert torch.equal(loop.setting.batches.dataset.train.inputs, before)


@pytest.mark.parametrize("shape", [(6, 4), (3, 6, 4)])
def test_classes_of_pixels_are_mixed_pixel_by_pixel(shape: tuple[int, ...]) -> None:
    loop = scene_loop([MixUp(alpha=1.0)], shape=shape)
    mixed, raw = read(loop), read(scene_loop(shape=shape))
    draws = stream(0, "mixup", 0)
    z = draws.beta(1.0, 1.0)
    weight, order = max(z, 1 - z), np.argsort(draws.random(4))
    onehot = np.eye(3)[raw.labels.numpy()]
    assert mixed.targets.shape == (4, *shape, 3)
    for place, row in enumerate(order):
        expected = weight * onehot[row] + (1 - weight) * onehot[order[place - 1]]
        np.testing.assert_allclose(mixed.targets[row], expected, atol=1e-6)
    loop.step()


def test_the_side_that_is_ignored_adds_nothing() -> None:
    """A loss linear in the target: the share of the other side, of its own loss."""
    outputs, labels = torch.randn(2, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([-100, 2])
    mixed = mix(dense(labels, classes=3), partners=torch.tensor([1, 0]), weight=0.7)
    found = F.cross_entropy(outputs, mixed, reduction="none")
    alone = F.cross_entropy(outputs, torch.tensor([2, 2]), reduction="none")
    torch.testing.assert_close(found, alone * torch.tensor([0.3, 0.7]))


def test_class_numbers_cannot_be_mixed() -> None:
    with pytest.raises(TrainingError, match=r"mix: found values of type torch.int64.*F.one_hot\(labels, K\).float\(\)"):
        mix(torch.tensor([1, 2]), partners=torch.tensor([1, 0]), weight=0.5)
