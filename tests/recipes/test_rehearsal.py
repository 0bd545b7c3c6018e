"""What cannot be trained is refused before anything is."""

import pytest

from explorer.engine.state import State
from explorer.errors import RecipeError
from explorer.methods.progressive_resizing import ProgressiveResizing
from explorer.recipes.rehearsal import rehearse
from tests.recipes_for_tests import tiny_recipe


def test_a_recipe_that_can_be_trained_passes() -> None:
    rehearse(tiny_recipe(["progressive_resizing", "mixup", {"layer_freezing": {"start": 0.3}}]), data=None)


def test_a_step_that_cannot_be_made_is_found_whenever_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The phase that breaks is the second half of the schedule; nothing is wrong with its first step."""
    whole = ProgressiveResizing.change_batch

    def late(self: ProgressiveResizing, state: State) -> None:
        whole(self, state)
        if state.progress > 0.5:
            state.batch.inputs.view(3, 5)  # pyright: ignore

    monkeypatch.setattr(ProgressiveResizing, "change_batch", late)
    with pytest.raises(RecipeError, match=r"'tiny': step \d+ \(8x8 px\) cannot be made: shape '\[3, 5\]' is invalid"):
        rehearse(tiny_recipe(["progressive_resizing"]), data=None)


def test_surgery_that_finds_nothing_is_refused() -> None:
    with pytest.raises(RecipeError, match="blurpool: found nothing to change in ResNet"):
        rehearse(tiny_recipe([{"blurpool": {"min_channels": 1024}}]), data=None)


def test_steps_are_tried_at_the_progress_that_growing_batches_have_there(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    whole = ProgressiveResizing.change_batch

    def watched(self: ProgressiveResizing, state: State) -> None:
        whole(self, state)
        assert state.batch is not None and len(state.batch) == 4
        tried.append(state.batch.inputs.shape[-1])

    monkeypatch.setattr(ProgressiveResizing, "change_batch", watched)
    resizing = {"progressive_resizing": {"delay": 0.3, "finetune": 0.3}}
    rehearse(tiny_recipe([resizing, {"batch_size_warmup": {"initial": 0.1, "duration": 0.5}}]), data=None)
    assert tried == [4, 4, 4, 8]


def test_a_batch_may_be_too_small_for_what_normalises_it() -> None:
    resizing = {"progressive_resizing": {"delay": 0.3, "finetune": 0.3}}  # at 4 pixels the last layers see one place
    with pytest.raises(RecipeError, match=r"step 1 \(batch 1, 4x4 px\) cannot be made: Expected more than 1 value per"):
        rehearse(tiny_recipe([resizing, {"batch_size_warmup": {"initial": 0.01}}]), data=None)
