"""ColOut against choosing lines by hand."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

from explorer.data.batches import dense
from explorer.data.images import resize
from explorer.engine.method import Moment, ordered
from explorer.errors import RecipeError
from explorer.methods import METHODS
from explorer.methods.colout import ColOut, draw_kept, keep_lines
from explorer.methods.mixup import MixUp
from explorer.methods.progressive_resizing import ProgressiveResizing
from explorer.recipes.choice import choose
from tests.data_for_tests import noise, typed
from tests.loop_for_tests import noise_loop
from tests.scenes_for_tests import classes_of, read, scene_loop

PLANE = torch.arange(9 * 14.0).reshape(1, 1, 9, 14)


def test_as_many_lines_as_the_definition_says() -> None:
    """Rounded down in exact arithmetic: 0.8 of 10 leaves 2, though 1 - 0.8 is a little less than 0.2."""
    draws = np.random.default_rng(0)
    for tenth in range(10):
        for size in (1, 7, 10, 20, 32):
            kept = draw_kept(draws, size=size, drop=tenth / 10)
            assert len(kept) == max(1, int((1 - Fraction(tenth, 10)) * size))
            assert kept.tolist() == sorted(set(kept.tolist())) and set(kept.tolist()) <= set(range(size))


def test_the_published_share_of_pixels() -> None:
    kept = len(draw_kept(np.random.default_rng(0), size=32, drop=0.15))
    assert kept == 27 and kept**2 / 32**2 == pytest.approx(0.71, abs=0.01)


def test_every_line_is_kept_as_often() -> None:
    draws = np.random.default_rng(0)
    kept = np.concatenate([draw_kept(draws, size=10, drop=0.3).numpy() for _ in range(2000)])
    counts = np.bincount(kept)
    assert (abs(counts - 1400) < 5 * np.sqrt(2000 * 0.7 * 0.3)).all()


def test_lines_stay_in_order() -> None:
    rows, columns = torch.tensor([0, 3, 7]), torch.tensor([2, 5, 6, 13])
    expected = PLANE.numpy()[:, :, rows.numpy()[:, None], columns.numpy()]
    np.testing.assert_array_equal(keep_lines(PLANE, rows=rows, columns=columns), expected)


def test_a_step_leaves_the_same_lines_out_of_every_image_and_class() -> None:
    """Images that say in each pixel where it was; two provenance classes in a batch."""
    places = torch.arange(12 * 6, dtype=torch.uint8).reshape(1, 1, 12, 6).expand(20, 2, 12, 6)
    dataset = noise(shape=(2, 12, 6))
    dataset = replace(dataset, train=replace(dataset.train, inputs=places), mean=(0.0, 0.0), std=(1 / 255, 1 / 255))
    loop = noise_loop([ColOut(p_row=0.25, p_col=0.5)], dataset=dataset, typing=typed())
    seen = set()
    for step in range(3):
        loop.state.step = step
        loop.prepare_step()
        kept = set()
        for share in loop.state.shares:
            loop.read_share(share)
            assert loop.state.batch is not None
            for image in loop.state.batch.inputs.flatten(0, 1).round().long():
                rows, columns = image[:, 0] // 6, image[0] % 6
                assert image.shape == (9, 3) and torch.equal(image, rows[:, None] * 6 + columns)
                assert (rows.diff() > 0).all() and (columns.diff() > 0).all()
                kept.add((*rows.tolist(), *columns.tolist()))
        assert len(kept) == 1
        seen |= kept
    assert len(seen) == 3, "other lines at every step"


@pytest.mark.parametrize("shape", [(12, 8), (3, 12, 8)])
def test_classes_of_pixels_go_with_their_pixels(shape: tuple[int, ...]) -> None:
    """As indices, and as distributions once they were made so; planes of volumes all stay."""
    small = read(scene_loop([ColOut(p_row=0.25, p_col=0.5)], shape=shape))
    assert small.inputs.shape[2:] == (*shape[:-2], 9, 4)
    assert torch.equal(small.targets, classes_of(small.inputs))
    loop = scene_loop([ColOut(p_row=0.25, p_col=0.5)], shape=shape)
    whole = read(scene_loop(shape=shape))
    loop.state.batch = replace(whole, targets=dense(whole.targets, classes=3))
    loop.call("change_batch")
    assert torch.equal(loop.state.batch.targets.argmax(-1), classes_of(loop.state.batch.inputs))
    loop.step()


def test_training_ends_on_whole_images() -> None:
    loop = noise_loop([ColOut(p_row=0.5, p_col=0.5, finetune=0.3)])
    sizes = [tuple(read(loop, step=step).inputs.shape[2:]) for step in range(10)]
    assert sizes == [(3, 2)] * 7 + [(6, 4)] * 3


def test_phases_are_as_the_sizes() -> None:
    def phases(method: ColOut) -> list[str]:
        return [method.phase(Moment(step=step, total_steps=5, example_shape=(3, 32, 32))) for step in range(5)]

    assert phases(ColOut()) == ["0.85x0.85 of the sides"] * 4 + ["1x1 of the sides"]
    assert phases(ColOut(p_row=0.0, finetune=0.0)) == ["1x0.85 of the sides"] * 5
    assert phases(ColOut().neutral()) == phases(ColOut(finetune=1.0)) == [""] * 5


def test_images_are_resized_first() -> None:
    methods = [ColOut(), MixUp(), ProgressiveResizing()]
    assert [method.name for method in ordered(methods)] == ["progressive_resizing", "colout", "mixup"]
    loop = noise_loop(
        [ColOut(p_row=0.5, p_col=0.25), ProgressiveResizing(increment=1)], dataset=noise(shape=(2, 12, 8))
    )
    found = read(loop).inputs
    half = resize(read(noise_loop(dataset=noise(shape=(2, 12, 8)))).inputs, size=(6, 4))
    assert found.shape[2:] == (3, 3)
    assert all((half[0, 0] == value).any() for value in found[0, 0].flatten())


@pytest.mark.parametrize("name", ["p_row", "p_col"])
def test_nothing_left_is_refused(name: str) -> None:
    with pytest.raises(RecipeError, match=f"colout: {name}: found float 1.0: .* less than 1"):
        choose(METHODS, {"colout": {name: 1.0}}, kind="method", where="recipe")
    assert len(draw_kept(np.random.default_rng(0), size=8, drop=0.99)) == 1
