"""What cannot be trained is refused before anything is."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from explorer.data.digits import Digits
from explorer.engine.method import Moment
from explorer.engine.state import State
from explorer.errors import RecipeError
from explorer.methods.progressive_resizing import ProgressiveResizing
from explorer.models.resnet import ResNetSpec
from explorer.recipes import machine
from explorer.recipes.recipe import Recipe
from explorer.run_files import FAST
from explorer.training import run_plan
from explorer.training.run_plan import _of_one, pace_of, rehearse, telling_steps, total_steps
from tests.engine.test_nondeterministic import Scattering
from tests.governance import desk
from tests.recipes_for_tests import tiny_recipe
from tests.training.recorded_runs import EVERY, METHODS, documents_for_digits


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
    assert tried == [4, 8]  # the first and the last step


def test_a_batch_may_be_too_small_for_what_normalises_it() -> None:
    resizing = {"progressive_resizing": {"delay": 0.3, "finetune": 0.3}}  # at 4 pixels the last layers see one place
    with pytest.raises(RecipeError, match=r"step 1 \(batch 1, 4x4 px\).*: Expected more than 1 value per"):
        rehearse(tiny_recipe([resizing, {"batch_size_warmup": {"initial": 0.01}}]), data=None)


EIGHT = [
    {"progressive_resizing": {"initial_scale": 0.25}},
    {"batch_size_warmup": {"initial": 0.125}},
    {"layer_freezing": {"start": 0.2}},
    {"sam": {"interval": 3}},
    {"ema": {"every": 2}},
    {"selective_backprop": {"start": 0.1}},
    {"colout": {"finetune": 0.3}},
    "label_smoothing",
]


def steps_of(recipe: Recipe) -> tuple[dict[int, str], list[tuple[str, ...]]]:
    """The steps that are tried, and the phases of the methods at every step."""
    dataset = Digits().load(None)
    nominal = total_steps(recipe, examples=len(dataset.train), ssr=1.0)
    pace = pace_of(recipe, steps=nominal)
    total = pace.steps(nominal * recipe.numbers.batch_size)
    phases = [
        tuple(method.phase(moment) for method in recipe.methods)
        for moment in (
            Moment(step=step, total_steps=total, example_shape=(1, 8, 8), pace=pace) for step in range(total)
        )
    ]
    return telling_steps(recipe, dataset, pace, total), phases


def test_eight_methods_are_tried_in_a_few_steps_that_show_each_of_them() -> None:
    recipe = tiny_recipe(EIGHT, epochs=8)
    steps, phases = steps_of(recipe)
    assert len(set(phases)) > 40, "the control: so many joint phases would have been tried"
    assert len(steps) <= 8 and {0, len(phases) - 1} <= steps.keys() and list(steps) == sorted(steps)
    for place in range(len(recipe.methods)):
        every = [phase[place] for phase in phases]
        seen = {every[step] for step in steps}
        assert {every[0], every[-1]} <= seen and len(seen) >= min(2, len(set(every)))


def test_of_many_lengths_the_first_the_last_and_the_largest_are_tried() -> None:
    """The only method, on a model of text of 1,024 places: 128 lengths."""
    lengths = [f"{length} tokens" for length in range(8, 1032, 8)]
    assert _of_one([*lengths, "512 tokens"]) == {"8 tokens", "1024 tokens", "512 tokens"}
    assert _of_one(["one pass", "two passes", "one pass"]) == {"one pass", "two passes"}
    assert _of_one(["", "4x4 px", "2x10 px", "8x8 px", "6x6 px"]) == {"", "8x8 px", "6x6 px"}


def test_a_fault_of_the_largest_size_is_found_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """More sizes than are tried; what breaks is the last one."""
    whole = ProgressiveResizing.change_batch

    def large(self: ProgressiveResizing, state: State) -> None:
        whole(self, state)
        assert state.batch is not None
        if state.batch.inputs.shape[-1] == 8:
            state.batch.inputs.view(3, 5)

    monkeypatch.setattr(ProgressiveResizing, "change_batch", large)
    resizing = {"progressive_resizing": {"initial_scale": 0.25, "increment": 1}}
    with pytest.raises(RecipeError, match=r"\(8x8 px\) cannot be made"):
        rehearse(tiny_recipe([resizing], epochs=4), data=None)


def test_steps_are_made_on_the_device_that_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[torch.device] = []
    device = machine.device

    def watched() -> torch.device:
        asked.append(device())
        return asked[-1]

    monkeypatch.setattr("explorer.training.run_plan.machine.device", watched)
    rehearse(tiny_recipe(), data=None)
    assert {*asked} == {device()}


def test_a_layer_without_a_deterministic_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run would stop in its first step. Neither fast kernels nor another layer are refused."""
    build = ResNetSpec.build

    def scattering(self: ResNetSpec, **shape: Any) -> nn.Module:
        model = build(self, **shape)
        model.add_module("pool", Scattering())
        forward = model.forward
        model.forward = lambda inputs: model.get_submodule("pool")(forward(inputs))  # pyright: ignore
        return model

    rehearse(tiny_recipe(), data=None)
    monkeypatch.setattr(ResNetSpec, "build", scattering)
    with pytest.raises(RecipeError) as caught:
        rehearse(tiny_recipe(), data=None)
    assert str(caught.value).startswith(
        "recipe 'tiny': step 1 (all steps): pool (Scattering) has no deterministic kernel on cpu, torch's put_:"
        " expected another layer, such as "
    )
    rehearse(tiny_recipe(deterministic="fast"), data=None)


def test_governed_recipes_are_tried_in_steps_and_nothing_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under their policy, class by class. What breaks in the second half of the schedule is found."""
    documents = desk.read(documents_for_digits(tmp_path), "late")
    recipe = tiny_recipe([*METHODS, {"recorder": {"every": EVERY}}, "progressive_resizing"])
    files, shares = {*tmp_path.rglob("*")}, []
    whole = ProgressiveResizing.change_batch

    def watched(self: ProgressiveResizing, state: State) -> None:
        whole(self, state)
        assert state.batch is not None and state.share is not None
        shares.append((state.progress > 0.5, state.share.name))

    monkeypatch.setattr(ProgressiveResizing, "change_batch", watched)
    rehearse(recipe, data=None, documents=documents)
    assert (True, "licensed/news") in shares and (False, "licensed/news") not in shares
    assert (False, "open/mit") in shares
    assert {*tmp_path.rglob("*")} == files

    def late(self: ProgressiveResizing, state: State) -> None:
        watched(self, state)
        if state.progress > 0.5:
            state.batch.inputs.view(3, 5)  # pyright: ignore

    monkeypatch.setattr(ProgressiveResizing, "change_batch", late)
    with pytest.raises(
        RecipeError, match=r"'tiny': step \d+ \(8x8 px, entropy profile\) cannot be made: shape '\[3, 5\]' is invalid"
    ):
        rehearse(recipe, data=None, documents=documents)


def test_a_class_with_one_row_by_chance_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BatchNorm needs two. With a batch that is small itself the run would fail, and so does the rehearsal."""
    documents = desk.read(documents_for_digits(tmp_path), "late")
    tried: list[int] = []
    whole = run_plan._try_steps

    def watched(*given: Any, rows: int) -> nn.Module:
        tried.append(rows)
        return whole(*given, rows=rows)

    monkeypatch.setattr(run_plan, "_try_steps", watched)
    monkeypatch.setattr(run_plan, "ROWS", 1)
    small = {"progressive_resizing": {"delay": 0.3, "finetune": 0.3}}  # at 4 pixels the last layers see one place
    rehearse(tiny_recipe([*METHODS, small]), data=None, documents=documents)
    assert tried == [3, 64]
    with pytest.raises(RecipeError, match="Expected more than 1 value per channel"):
        rehearse(tiny_recipe([*METHODS, small], batch_size=3), data=None, documents=documents)


def test_settings_that_gain_nothing_or_give_something_up_are_said() -> None:
    """On a CPU tf32 changes nothing. The control: the defaults, of which nothing is said."""
    (words,) = rehearse(tiny_recipe(precision="tf32"), data=None)
    assert words.startswith("tf32 changes nothing on ") and machine.hardware(threads=1).name in words
    assert rehearse(tiny_recipe(deterministic="fast"), data=None) == (FAST,)
    assert rehearse(tiny_recipe(), data=None) == ()


def test_methods_warn_of_what_they_meet_and_of_nothing_else() -> None:
    """Batch normalisation under weight standardisation; chunks of microbatches. The controls: neither by itself."""
    assert rehearse(tiny_recipe(["weight_standardization"]), data=None) == (
        "weight_standardization: The model has batch normalisation (9 layers), which already removes the mean and scale"
        " of every filter's output, so expect little gain. The method was made for group normalisation.",
    )
    grouped = {"resnet8": {"width": 0.5, "norm": "group"}}
    assert rehearse(tiny_recipe(["weight_standardization"], model=grouped), data=None) == ()
    ghost = {"ghost_batchnorm": {"size": 8}}
    (words,) = rehearse(tiny_recipe([ghost], microbatch_size=32), data=None)
    assert words.startswith("ghost_batchnorm: Microbatches of 32 rows are already normalised separately")
    assert rehearse(tiny_recipe([ghost]), data=None) == ()
