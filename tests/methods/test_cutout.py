"""Cutout against holes cut by hand, pixel by pixel."""

import numpy as np
import pytest
import torch

from explorer.data.streams import stream
from explorer.methods.cutout import Cutout, cut_out
from tests.data_for_tests import noise, typed
from tests.loop_for_tests import noise_loop
from tests.scenes_for_tests import read, scene_loop


def by_hand(image: np.ndarray, centres: np.ndarray, side: int) -> np.ndarray:
    """Every pixel asked whether it lies in a hole: from side // 2 before the centre, `side` pixels long."""
    cut = image.copy()
    for place in np.ndindex(image.shape[1:]):
        if any(all(0 <= p - c + side // 2 < side for p, c in zip(place, centre, strict=True)) for centre in centres):
            cut[(slice(None), *place)] = 0
    return cut


@pytest.mark.parametrize("size", [(9, 14), (5, 4, 7)])
@pytest.mark.parametrize("side", [1, 4, 5])
def test_holes_pixel_by_pixel(size: tuple[int, ...], side: int) -> None:
    draws = np.random.default_rng(0)
    images = draws.normal(size=(3, 2, *size))
    centres = draws.integers(np.array(size), size=(3, 2, len(size)))
    found = cut_out(torch.from_numpy(images), centres=torch.from_numpy(centres), side=side)
    np.testing.assert_array_equal(found, [by_hand(i, c, side) for i, c in zip(images, centres, strict=True)])


@pytest.mark.parametrize("side", range(1, 10))
def test_a_hole_has_its_side_whether_odd_or_even(side: int) -> None:
    found = cut_out(torch.ones(1, 1, 21, 23), centres=torch.tensor([[[10, 11]]]), side=side)
    assert int((found == 0).sum()) == side**2
    assert int((found == 0).any(3).sum()) == int((found == 0).any(2).sum()) == side


def test_a_hole_is_clipped_at_the_border() -> None:
    found = cut_out(torch.ones(1, 1, 9, 9), centres=torch.tensor([[[0, 8]]]), side=5)
    assert int((found == 0).sum()) == 9
    assert (found[0, 0, :3, 6:] == 0).all()


@pytest.mark.parametrize("length, side", [(0.5, 2), (1.0, 4), (0.6, 2), (0.63, 3), (0.01, 1)])
def test_a_step_cuts_each_image_by_its_own_draw(length: float, side: int) -> None:
    """The side is a share of the shorter one, 4 of 6 x 4, to the nearest pixel."""
    loop, plain = noise_loop([Cutout(length=length, holes=2)]), noise_loop()
    cut, whole = read(loop, step=3), read(plain, step=3)
    centres = stream(0, "cutout", 3).integers(np.array([6, 4]), size=(8, 2, 2))
    expected = [by_hand(i, c, side) for i, c in zip(whole.inputs.numpy(), centres, strict=True)]
    np.testing.assert_array_equal(cut.inputs, expected)
    assert torch.equal(cut.targets, whole.targets)
    holes = cut.inputs[:, 0] == 0
    assert len({tuple(hole.flatten().tolist()) for hole in holes}) > 1, "every image has holes of its own"


def test_draws_belong_to_slots() -> None:
    """The second class of a step is cut as if the first were absent: by the numbers of its own slots."""
    loop = noise_loop([Cutout()], typing=typed())
    loop.prepare_step()
    loop.read_share(loop.state.shares[1])
    batch = loop.state.batch
    assert batch is not None and batch.slots.tolist() != list(range(len(batch)))
    centres = stream(0, "cutout", 0).integers(np.array([6, 4]), size=(8, 1, 2))
    for row, slot in enumerate(batch.slots.tolist()):
        hole = by_hand(np.ones((1, 6, 4)), centres[slot], 2)[0] == 0
        np.testing.assert_array_equal((batch.inputs[row] == 0).all(0), hole)


def test_classes_of_pixels_are_not_cut() -> None:
    for shape in ((6, 4), (4, 6, 4)):
        cut, whole = read(scene_loop([Cutout()], shape=shape)), read(scene_loop(shape=shape))
        assert (cut.inputs == 0).any() and torch.equal(cut.targets, whole.targets)


def test_the_examples_that_were_read_stay_as_they_are() -> None:
    dataset = noise()
    before = dataset.train.inputs.clone()
    noise_loop([Cutout(length=1.0)], dataset=dataset).step()
    assert torch.equal(dataset.train.inputs, before)


def test_zero_is_the_mean_of_the_images() -> None:
    """What a hole is filled with is what an image of the mean brightness has."""
    batches = noise_loop().setting.batches
    darker, brighter = (batches.prepare(torch.full((1, 2, 1, 1), level)) for level in (127, 128))
    assert float((darker + brighter).abs().max()) < 1e-6
