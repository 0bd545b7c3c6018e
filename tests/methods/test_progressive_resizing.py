"""Progressive resizing: the schedule in exact arithmetic, sizes pixel by pixel."""

from fractions import Fraction

import pytest
import torch

from explorer.data.images import resize, resize_classes
from explorer.engine.method import Moment
from explorer.errors import RecipeError
from explorer.methods.progressive_resizing import ProgressiveResizing, scale_at, size_at
from tests.data_for_tests import noise
from tests.loop_for_tests import noise_loop
from tests.scenes_for_tests import classes_of, read, scene_loop


def exact_scale(step: int, total: int, *, initial: Fraction, delay: Fraction, finetune: Fraction) -> Fraction:
    """The definition with fractions: no rounding anywhere."""
    progress = Fraction(step, total)
    if progress >= 1 - finetune:
        return Fraction(1)
    if progress <= delay:
        return initial
    return initial + (1 - initial) * (progress - delay) / (1 - delay - finetune)


@pytest.mark.parametrize("delay, finetune", [("1/2", "1/5"), ("0", "0"), ("1/4", "0"), ("0", "1/4"), ("7/10", "3/10")])
def test_the_schedule_in_exact_arithmetic(delay: str, finetune: str) -> None:
    for total in (1, 7, 40):
        for step in range(total):
            exact = exact_scale(step, total, initial=Fraction(1, 2), delay=Fraction(delay), finetune=Fraction(finetune))
            found = scale_at(
                step / total, initial_scale=0.5, delay=float(Fraction(delay)), finetune=float(Fraction(finetune))
            )
            assert found == pytest.approx(float(exact), abs=1e-12), (step, total)


def test_delay_and_finetune_of_one_together_are_a_jump() -> None:
    scales = [scale_at(step / 10, initial_scale=0.5, delay=0.7, finetune=0.3) for step in range(10)]
    assert scales == [0.5] * 7 + [1.0] * 3


@pytest.mark.parametrize(
    "full, scale, increment, expected",
    [
        (32, 0.5, 4, 16),
        (32, 0.55, 4, 16),  # 17.6: 16 is nearer than 20
        (32, 0.57, 4, 20),  # 18.24: 20 is nearer
        (32, 0.5625, 4, 20),  # 18: half up
        (60, 0.99, 4, 60),
        (27, 0.5, 1, 14),  # 13.5: half up
        (30, 0.99, 4, 28),  # 29.7: 28 is the nearest multiple
        (30, 1.0, 4, 30),  # full is full, multiple or not
        (8, 0.1, 4, 4),  # never below the increment
        (6, 0.5, 16, 6),  # never above the image
    ],
)
def test_sides(full: int, scale: float, increment: int, expected: int) -> None:
    assert size_at(full, scale=scale, increment=increment) == expected


def test_a_default_run_grows_from_half_to_full() -> None:
    method = ProgressiveResizing()
    sizes = [method.size(Moment(step=s, total_steps=40, example_shape=(3, 32, 32))) for s in range(40)]
    assert sizes[0] == (16, 16) and sizes[-1] == (32, 32)
    assert sizes == sorted(sizes)
    assert {side for side, _ in sizes} == {16, 20, 24, 28, 32}
    assert sizes.count((32, 32)) >= 8, "the last fifth is at full size"
    assert {method.phase(Moment(step=s, total_steps=40, example_shape=(3, 32, 32))) for s in range(40)} == {
        f"{side}x{side} px" for side in (16, 20, 24, 28, 32)
    }


def test_a_step_trains_on_resized_images_that_are_not_square() -> None:
    loop = noise_loop([ProgressiveResizing(delay=0.5, increment=1)], dataset=noise(shape=(2, 12, 6)))
    plain = noise_loop(dataset=noise(shape=(2, 12, 6)))
    seen = []
    for _ in range(10):
        for each in (loop, plain):
            each.prepare_step()
            each.read_share(each.state.shares[0])
        mine, full = loop.state.batch, plain.state.batch
        assert mine is not None and full is not None
        size = (mine.inputs.size(2), mine.inputs.size(3))
        seen.append(size)
        assert (mine.inputs == resize(full.inputs, size=size)).all()
        loop.state.step += 1
        plain.state.step += 1
    assert seen[0] == (6, 3) and seen[-1] == (12, 6)


def test_evaluation_is_at_full_size() -> None:
    loop = noise_loop([ProgressiveResizing(increment=1)])
    sizes = []
    loop.setting.model.register_forward_pre_hook(lambda _, inputs: sizes.append(tuple(inputs[0].shape[2:])))
    loop.step()
    loop.evaluate()
    assert sizes == [(3, 2), (6, 4)]


def test_durations_that_exceed_training_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"found delay 0.8 and finetune 0.3: expected at most 1 together"):
        ProgressiveResizing(delay=0.8, finetune=0.3)
    for tenth in range(11):
        ProgressiveResizing(delay=tenth / 10, finetune=1 - tenth / 10)


def test_full_scale_has_no_phases() -> None:
    assert ProgressiveResizing().neutral().phase(Moment(step=0, total_steps=4, example_shape=(1, 8, 8))) == ""


def test_classes_of_pixels_have_exactly_the_size_of_the_images() -> None:
    """Where an antialiased image meets a class, the class is one that was there: nothing is averaged."""
    loop, plain = (scene_loop(m, shape=(13, 7)) for m in ([ProgressiveResizing(increment=1)], []))
    sizes = []
    for step in range(10):
        small, whole = read(loop, step=step), read(plain, step=step)
        sizes.append(tuple(small.inputs.shape[2:]))
        assert small.targets.shape == (4, *sizes[-1])
        assert torch.equal(small.targets, resize_classes(whole.targets, size=sizes[-1]))
        assert torch.equal(small.labels, whole.labels)
        loop.step()
    assert sizes[0] == (7, 4) and sizes[-1] == (13, 7)


def test_a_crop_is_one_window_of_every_image_and_of_its_classes() -> None:
    """Not resized: the window is found in the whole picture, at a place that differs from step to step."""
    method = ProgressiveResizing(increment=1, delay=1.0, finetune=0.0, mode="crop")
    loop, plain = scene_loop([method], shape=(12, 8)), scene_loop(shape=(12, 8))
    corners = set()
    for step in range(8):
        small, whole = read(loop, step=step), read(plain, step=step)
        assert small.inputs.shape == (4, 1, 6, 4)
        windows = whole.inputs.unfold(2, 6, 1).unfold(3, 4, 1)  # 4 1, corners, 6 4
        same = (windows == small.inputs[:, :, None, None]).flatten(4).all(4)
        assert same.sum((2, 3)).tolist() == [[1]] * 4 and bool(same.all(0).any()), "the same corner for all"
        corners.add(int(same[0, 0].flatten().int().argmax()))
        assert torch.equal(small.targets, classes_of(small.inputs))
        loop.step()
    assert len(corners) > 3
    assert corners <= set(range(7 * 5))
