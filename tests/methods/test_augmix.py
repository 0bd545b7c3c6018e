"""AugMix against its definition: one image at a time, in float64."""

import numpy as np
import pytest
import torch
from torch import Tensor

from explorer.data.image_operations import OPERATIONS, SETS
from explorer.data.streams import stream
from explorer.methods.augmix import AugMix, Chains, augment_and_mix, draw_chains
from tests.data_for_tests import noise, typed
from tests.loop_for_tests import noise_loop, small_net
from tests.scenes_for_tests import read

SETTINGS = {"operations": "all", "severity": 3.0, "depth": -1, "width": 3, "alpha": 1.0}
LEVELS = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)


def drawn(count: int, **changed: object) -> Chains:
    return draw_chains(np.random.default_rng(0), count=count, **(SETTINGS | changed))  # pyright: ignore


def by_definition(image: Tensor, choices: np.ndarray, levels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """`m x + (1 - m) sum_k v_k chain_k(x)`, not rounded."""
    mixed = weights[0] * image.double().numpy()
    for chain, weight in enumerate(weights[1:]):
        changed = image[None]
        for choice, level in zip(choices[chain], levels[chain], strict=True):
            if choice >= 0:
                changed = OPERATIONS[SETS["all"][choice]](changed, torch.tensor([level], dtype=torch.float64))
        mixed += weight * changed[0].double().numpy()
    return mixed


@pytest.mark.parametrize("depth, width", [(-1, 3), (1, 1), (4, 2)])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_nearest_level_to_the_definition(channels: int, depth: int, width: int) -> None:
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (6, channels, 9, 7), dtype=np.uint8))
    chains = drawn(6, depth=depth, width=width, severity=10.0)
    found = augment_and_mix(images, chains).double().numpy()
    for row, image in enumerate(images):
        exact = by_definition(image, chains.choices[row], chains.levels[row], chains.weights[row])
        assert abs(found[row] - exact).max() <= 0.5 + 1e-4


def test_the_shares_of_an_image_add_up_to_the_image() -> None:
    """Every level comes back; cutting fractions off instead of rounding would darken most of them."""
    chains = drawn(1, depth=1, width=3)
    chains.choices[:] = -1
    assert torch.equal(augment_and_mix(LEVELS, chains), LEVELS)
    parts = torch.from_numpy(chains.weights[0].astype(np.float32))
    cut = sum(((LEVELS * part).to(torch.uint8) for part in parts), start=torch.zeros_like(LEVELS))
    assert (cut != LEVELS).float().mean() > 0.5


def test_what_is_drawn() -> None:
    chains = drawn(3000)
    lengths = (chains.choices >= 0).sum(2)
    assert np.bincount(lengths.ravel()).tolist()[0] == 0
    assert (abs(np.bincount(lengths.ravel())[1:] - 3000) < 250).all(), "1, 2 or 3, equally likely"
    assert (np.diff((chains.choices >= 0).astype(int), axis=2) <= 0).all(), "none follows none"
    used = np.bincount(chains.choices[chains.choices >= 0])
    assert len(used) == 13 and used.min() > 0.9 * used.mean()
    assert abs(chains.levels).max() <= 0.3
    np.testing.assert_allclose(chains.weights.sum(1), 1, rtol=1e-12)
    own, parts = chains.weights[:, 0], chains.weights[:, 1:] / (1 - chains.weights[:, :1])
    assert abs(own.mean() - 1 / 2) < 0.03 and abs(own.var() - 1 / 12) < 0.01, "Beta(1, 1) is uniform"
    assert (abs(parts.mean(0) - 1 / 3) < 0.02).all() and abs(parts.var() - 1 / 18) < 0.01, "Dirichlet(1, 1, 1)"


def test_the_safe_set_and_a_fixed_depth() -> None:
    chains = drawn(200, operations="safe", depth=2)
    assert chains.choices.max() == 8 and chains.choices.min() == 0 and chains.choices.shape == (200, 3, 2)


@pytest.mark.parametrize("operations", ["all", "safe"])
def test_a_step_changes_each_image_by_the_draws_of_its_slot(operations: str) -> None:
    """Two provenance classes: what one gets does not depend on whether the other is there."""
    method = AugMix(severity=8.0, operations=operations)  # pyright: ignore[reportArgumentType]
    dataset = noise(shape=(3, 8, 8))
    before = dataset.train.inputs.clone()
    loop = noise_loop([method], dataset=dataset, typing=typed(), model=small_net(channels=3))
    loop.state.step = 2
    loop.prepare_step()
    settings = SETTINGS | {"severity": 8.0, "operations": operations}
    everybody = draw_chains(stream(0, "augmix", 2), count=8, **settings)  # pyright: ignore[reportArgumentType]
    for share in loop.state.shares:
        loop.read_share(share)
        raw = before[loop.state.examples[share.slots]]
        expected = augment_and_mix(raw, everybody.at(share.slots), operations=method.operations)
        assert loop.state.raw is not None and torch.equal(loop.state.raw, expected) and (expected != raw).any()
        others = augment_and_mix(raw, everybody.at(np.arange(len(raw))), operations=method.operations)
        assert not torch.equal(expected, others), "the control: draws by row instead of by slot"
    assert torch.equal(dataset.train.inputs, before)


def test_depth_zero_is_off() -> None:
    dataset = noise(shape=(3, 8, 8))
    off = read(noise_loop([AugMix().neutral()], dataset=dataset, model=small_net(channels=3)))
    assert torch.equal(off.inputs, read(noise_loop(dataset=dataset, model=small_net(channels=3))).inputs)
