"""CutMix against pasting by hand; the weight is the share of the image that is really covered."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from explorer.data.streams import stream
from explorer.methods.cutmix import CutMix, draw_box, kept_share, paste
from explorer.methods.mixup import MixUp
from tests.data_for_tests import noise
from tests.loop_for_tests import noise_loop
from tests.scenes_for_tests import classes_of, read, scene_loop


class Counting:
    """A generator that gives every number of a range in turn instead of a random one."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self.numbers = numbers
        self.range = (0, 0)

    def integers(self, low: int, high: int | None = None) -> int:
        self.range = (0, low) if high is None else (low, high)
        return next(self.numbers)


def covered_by_all_draws(size: int, *, edge: float, uniform: bool) -> np.ndarray:
    """How often each place of one axis is covered, over every number that could be drawn."""
    probe: Any = Counting(iter([0]))
    draw_box(probe, sizes=(size,), edge=edge, uniform=uniform)
    covered = np.zeros(size, int)
    for number in range(*probe.range):
        draws: Any = Counting(iter([number]))
        (place,) = draw_box(draws, sizes=(size,), edge=edge, uniform=uniform)
        covered[place] += 1
    return covered


@pytest.mark.parametrize("size, edge, side", [(8, 0.5, 4), (9, 0.55, 5), (7, 1.0, 7), (5, 0.2, 1)])
def test_uniform_sampling_covers_every_place_equally_often(size: int, edge: float, side: int) -> None:
    assert covered_by_all_draws(size, edge=edge, uniform=True).tolist() == [side] * size


def test_a_uniform_centre_covers_the_border_less() -> None:
    """The control: the paper's way."""
    assert covered_by_all_draws(8, edge=0.5, uniform=False).tolist() == [3, 4, 4, 4, 4, 4, 3, 2]


@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("sizes", [(8, 8), (9, 14), (4, 6, 5)])
def test_boxes(sizes: tuple[int, ...], uniform: bool) -> None:
    draws = np.random.default_rng(0)
    for edge in (0.0, 0.01, 0.3, 0.7, 1.0):
        for _ in range(30):
            box = draw_box(draws, sizes=sizes, edge=edge, uniform=uniform)
            mask = np.zeros(sizes, bool)
            mask[box] = True
            for axis, (place, size) in enumerate(zip(box, sizes, strict=True)):
                assert 0 <= place.start <= size and place.stop - place.start <= int(edge * size + 0.5), axis
            assert kept_share(box, sizes=sizes) == pytest.approx(1 - mask.mean(), abs=1e-15)


def test_pasting_by_hand() -> None:
    draws = np.random.default_rng(0)
    values, partners = draws.normal(size=(4, 2, 5, 7)), np.array([2, 0, 3, 1])
    expected = values.copy()
    for row, line, column in product(range(4), range(1, 4), range(2, 7)):
        expected[row, :, line, column] = values[partners[row], :, line, column]
    before = torch.from_numpy(values.copy())
    place = (slice(None), slice(None), slice(1, 4), slice(2, 7))
    found = paste(before, partners=torch.from_numpy(partners), place=place)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(before, values)


@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_a_step_weighs_targets_by_what_was_pasted(alpha: float, uniform: bool) -> None:
    """The weight is read off the pixels: the share of them that changed. Images that are not square."""
    loop = noise_loop([CutMix(alpha=alpha, uniform_sampling=uniform)], dataset=noise(shape=(2, 9, 5)))
    plain = noise_loop(dataset=noise(shape=(2, 9, 5)))
    weights = set()
    for step in range(12):
        mixed, raw = read(loop, step=step), read(plain, step=step)
        draws = stream(0, "cutmix", step)
        z = draws.beta(alpha, alpha)
        draws.integers([9, 5])  # whatever the range, one number an axis
        order = np.argsort(draws.random(8))
        partner = torch.empty(8, dtype=torch.int64)
        partner[torch.from_numpy(order)] = torch.from_numpy(np.roll(order, 1))
        pasted = (mixed.inputs != raw.inputs).any(1)
        pasted = pasted.any(0)  # one box for the whole batch
        rows, columns = np.flatnonzero(pasted.any(1)), np.flatnonzero(pasted.any(0))
        assert pasted.sum() == len(rows) * len(columns), "a box"
        assert len(rows) <= int(9 * np.sqrt(1 - z) + 0.5) and len(columns) <= int(5 * np.sqrt(1 - z) + 0.5)
        expected = torch.where(pasted, raw.inputs[partner], raw.inputs)
        assert torch.equal(mixed.inputs, expected)
        weight = 1 - float(pasted.double().mean())
        onehot = np.eye(3)[raw.labels]
        np.testing.assert_allclose(mixed.targets, weight * onehot + (1 - weight) * onehot[partner], atol=1e-6)
        assert torch.equal(mixed.labels, raw.labels)
        weights.add(weight)
    assert len(weights) > 4


@pytest.mark.parametrize("length", [0.25, 0.5])
def test_a_length_is_the_side_of_the_box(length: float) -> None:
    """A quarter of 32 is 8, and where nothing sticks out the weight is 1 - length^2."""
    loop = noise_loop([CutMix(length=length)], dataset=noise(shape=(2, 32, 32)))
    plain = noise_loop(dataset=noise(shape=(2, 32, 32)))
    sides, weights = set(), set()
    for step in range(12):
        mixed, raw = read(loop, step=step), read(plain, step=step)
        pasted = (mixed.inputs != raw.inputs).any(1).any(0)
        sides |= {int(pasted.any(0).sum()), int(pasted.any(1).sum())}
        weights |= {round(float(weight), 5) for weight in mixed.targets.max(1).values}
    assert max(sides) == 32 * length
    assert round(1 - length**2, 5) in weights


def test_alpha_zero_is_off_and_not_everything_pasted() -> None:
    off, plain = read(noise_loop([CutMix(alpha=0.0, length=0.5)])), read(noise_loop())
    assert torch.equal(off.inputs, plain.inputs) and torch.equal(off.targets, plain.targets)


@pytest.mark.parametrize("shape", [(6, 9), (4, 6, 5)])
def test_classes_of_pixels_are_pasted_with_their_pixels(shape: tuple[int, ...]) -> None:
    loop, plain = scene_loop([CutMix()], shape=shape), scene_loop(shape=shape)
    changed = 0
    for step in range(4):
        mixed, raw = read(loop, step=step), read(plain, step=step)
        assert torch.equal(mixed.targets, classes_of(mixed.inputs))
        changed += int((mixed.targets != raw.targets).sum())
    assert changed
    loop.step()


def test_cutmix_and_mixup_take_turns() -> None:
    """Every step is that of one method, to the bit, by a draw that depends on seed and step alone; both get turns."""
    both, plain = noise_loop([CutMix(), MixUp(alpha=1.0)]), noise_loop()
    single = {"cutmix": noise_loop([CutMix()]), "mixup": noise_loop([MixUp(alpha=1.0)])}
    acted = []
    for step in range(24):
        batch, raw = read(both, step=step), read(plain, step=step)
        batches = {name: read(loop, step=step) for name, loop in single.items()}
        same = [name for name, other in batches.items() if torch.equal(batch.inputs, other.inputs)]
        assert len(same) == 1 or torch.equal(raw.inputs, batch.inputs)
        acted += same if len(same) == 1 else []
        assert all(torch.equal(batch.targets, batches[name].targets) for name in same)
    assert {6 <= acted.count(name) <= 18 for name in single} == {True}
    later = noise_loop([MixUp(alpha=1.0), CutMix()])
    assert torch.equal(read(later, step=17).inputs, read(both, step=17).inputs)


def test_a_method_at_strength_zero_takes_no_turn() -> None:
    for step in range(6):
        with_it, without = (
            read(noise_loop(methods), step=step) for methods in ([CutMix(), MixUp(alpha=0.0)], [CutMix()])
        )
        assert torch.equal(with_it.inputs, without.inputs) and torch.equal(with_it.targets, without.targets)
