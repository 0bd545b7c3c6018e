"""RandAugment against applying its operations to one image after the other."""

import numpy as np
import pytest
import torch

from explorer.data.image_operations import OPERATIONS, SETS, draw_levels
from explorer.data.streams import stream
from explorer.engine.method import Planned
from explorer.engine.optimizer import Constant, SGDSpec
from explorer.errors import RecipeError
from explorer.methods.augmix import AugMix
from explorer.methods.randaugment import RandAugment, augment
from tests.data_for_tests import noise, typed
from tests.loop_for_tests import noise_loop, small_net

PLANNED = {
    "classes": 3,
    "steps": 10,
    "batch_size": 4,
    "optimizer": SGDSpec(lr=0.1),
    "schedule": Constant(),
    "precision": "fp32",
    "microbatch_size": None,
}


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("channels", [1, 3])
def test_one_operation_after_the_other(channels: int, depth: int) -> None:
    draws = np.random.default_rng(0)
    images = torch.from_numpy(draws.integers(0, 256, (9, channels, 8, 11), dtype=np.uint8))
    choices = draws.integers(9, size=(9, depth))
    levels = draw_levels(draws, severity=9.0, shape=(9, depth))
    found = augment(images, choices=choices, levels=levels, operations="safe")
    for row in range(9):
        alone = images[row : row + 1]
        for choice, level in zip(choices[row], levels[row], strict=True):
            alone = OPERATIONS[SETS["safe"][choice]](alone, torch.tensor([level], dtype=torch.float64))
        assert torch.equal(found[row], alone[0])


def test_a_step_changes_each_image_by_the_draws_of_its_slot() -> None:
    """Two provenance classes: what one gets does not depend on whether the other is there."""
    dataset = noise(shape=(3, 8, 8))
    before = dataset.train.inputs.clone()
    loop = noise_loop([RandAugment()], dataset=dataset, typing=typed(), model=small_net(channels=3))
    loop.prepare_step()
    draws = stream(0, "randaugment", 0)
    choices = draws.integers(13, size=(8, 2))
    levels = draw_levels(draws, severity=9.0, shape=(8, 2))
    for share in loop.state.shares:
        loop.read_share(share)
        raw = before[loop.state.examples[share.slots]]
        expected = augment(raw, choices=choices[share.slots], levels=levels[share.slots])
        assert loop.state.raw is not None and torch.equal(loop.state.raw, expected) and (expected != raw).any()
        others = augment(raw, choices=choices[: len(raw)], levels=levels[: len(raw)])
        assert not torch.equal(expected, others), "the control: draws by row instead of by slot"
    assert torch.equal(dataset.train.inputs, before)


@pytest.mark.parametrize("method", [AugMix(), RandAugment()], ids=lambda method: method.name)
def test_what_it_cannot_serve_is_refused_before_training(method: AugMix | RandAugment) -> None:
    method.check(Planned(task="classification", example_shape=(1, 8, 8), **PLANNED))
    with pytest.raises(RecipeError, match="found images of 4 channels"):
        method.check(Planned(task="classification", example_shape=(4, 8, 8), **PLANNED))
    with pytest.raises(RecipeError, match="found a class for each pixel"):
        method.check(Planned(task="segmentation", example_shape=(1, 8, 8), **PLANNED))
