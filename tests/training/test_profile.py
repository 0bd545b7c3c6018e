"""Profiles: a step time for every phase of every recipe, and the split of a step."""

import itertools
import statistics

import pytest
import torch

from explorer import run_files
from explorer.engine import task as engine_task
from explorer.engine.stepping import Window
from explorer.models.unet import UNet
from explorer.recipes.recipe import build_recipe
from explorer.training import profile as module
from explorer.training.profile import profile
from tests.recipes_for_tests import machine_with, tiny_recipe, tiny_run


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW_SECONDS", 0.005)


@pytest.mark.slow
def test_every_phase_of_every_recipe() -> None:
    resizing = tiny_recipe(["progressive_resizing"], epochs=2)
    runs = [tiny_run(resizing, ssr=ssr, seed=seed) for ssr in (0.5, 1.0) for seed in (0, 1)]
    runs.append(tiny_run(tiny_recipe()))
    heard: list[tuple[int, int]] = []
    found = profile(runs, data=None, on_progress=lambda done, total: heard.append((done, total)))
    assert [record.recipe_digest for record in found] == [runs[0].recipe_digest, runs[-1].recipe_digest]
    assert [record.effective for record in found] == [runs[0].effective_digest, runs[-1].effective_digest]
    for record, group in zip(found, (runs[:4], runs[4:]), strict=True):
        assert record.phases.keys() == {name for run in group for name in run.phases}
        assert record.inference_seconds > 0 and record.evaluation_seconds is None
        for phase in record.phases.values():
            assert 0 < phase.low <= phase.seconds <= phase.high
            assert phase.windows == module.WINDOWS
            assert phase.split["forward"] > 0 and phase.split["backward"] > 0
    assert heard == [(done, module.WINDOWS) for done in range(1, module.WINDOWS + 1)]


@pytest.mark.slow
def test_inference_takes_no_more_at_once_than_an_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """All test volumes together would not fit into the memory of any device."""
    task = {
        "dataset": {"clutter3d": {"size": 16, "depth": 8, "examples": 64}},
        "model": {"unet3d": {"width": 8, "levels": 2}},
    }
    monkeypatch.setattr(engine_task, "EVALUATION_PIXELS", 3 * 16 * 16 * 8)
    sizes: list[int] = []
    forward = UNet.forward

    def noted(self: UNet, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            sizes.append(len(x))
        return forward(self, x)

    monkeypatch.setattr(UNet, "forward", noted)
    train = {"epochs": 1, "batch_size": 16, "optimizer": {"sgd": {"lr": 0.1}}}
    recipe = build_recipe("volumes", task=task, train=train, methods=[], where="test")
    profile([tiny_run(recipe)], data=None, besides=True)
    assert set(sizes) <= {1, 2, 3} and 3 in sizes


@pytest.mark.slow
def test_profiling_is_no_training() -> None:
    """The same step again and again, whatever the model has become meanwhile; random generators do not move."""
    before = torch.get_rng_state()
    profile([tiny_run(tiny_recipe([{"sam": {"interval": 2}}]))], data=None)
    assert torch.equal(torch.get_rng_state(), before)


def test_one_disturbed_window_moves_no_part() -> None:
    """The negative control is the mean, which it would move."""
    quiet = {"forward": 0.01, "backward": 0.02}
    splits = [*([quiet] * 6), {"forward": 0.01, "backward": 0.02, "other": 0.5}]
    assert module._median_by_part(splits) == quiet
    assert sum(split.get("other", 0.0) for split in splits) / len(splits) > 0.07


@pytest.mark.slow
def test_every_window_is_recorded_with_its_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_disturbed", lambda ratio, *, best: False)  # whatever else runs on the machine
    runs = [tiny_run(tiny_recipe()), tiny_run(tiny_recipe(["progressive_resizing"], epochs=2))]
    first, second = profile(runs, data=None, read=machine_with())
    assert first.profile_pass == second.profile_pass != ""
    for record in (first, second):
        assert run_files.check_profile(record, where="x") == record
        assert (record.busy, record.builds) == (False, module.WINDOWS)
        assert len(record.inference_rounds) == module.WINDOWS
        assert record.inference_seconds == statistics.median(record.inference_rounds)
        for phase in record.phases.values():
            assert len(phase.rounds) == len(phase.ratios) == phase.windows == module.WINDOWS
            assert phase.seconds == statistics.median(phase.rounds)
            assert all(ratio > 0 for ratio in phase.ratios)
    (again,) = profile(runs[:1], data=None, read=machine_with())
    assert again.profile_pass != first.profile_pass


def test_what_takes_long_to_build_is_built_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUILD_SECONDS", 0.0)
    built: list[str] = []
    real = module.rehearsed
    monkeypatch.setattr(module, "rehearsed", lambda run, **rest: built.append(run.recipe) or real(run, **rest))
    (record,) = profile([tiny_run(tiny_recipe())], data=None, read=machine_with())
    assert record.builds == len(built) == 2
    assert record.phases["all steps"].windows == module.WINDOWS


def test_a_busy_machine_is_recorded_after_a_bounded_number_of_repeats() -> None:
    (record,) = profile([tiny_run(tiny_recipe())], data=None, read=machine_with(others=0.4), reasons=["said before"])
    assert record.watch is not None and record.busy
    assert record.watch.repeated >= module.ROUND_REPEATS  # one window a round, and those that really lost it
    assert record.watch.reasons[0] == "said before"
    assert record.watch.reasons[1].startswith("other processes took 40% of its")
    assert record.phases["all steps"].windows == module.WINDOWS


def test_a_window_that_lost_the_processor_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kept one is the least disturbed, not the fastest."""
    ratios = iter([1.0, 0.5, 1.0, 1.0, 0.5, 0.6, 0.55, *[1.0] * 4])
    seconds = itertools.count(1)
    monkeypatch.setattr(module, "time_window", lambda *_, **__: Window(float(next(seconds)), next(ratios)))
    (record,) = profile([tiny_run(tiny_recipe())], data=None, read=machine_with())
    (phase,) = record.phases.values()
    assert phase.ratios == (1.0, 1.0, 1.0, 0.6, 1.0, 1.0, 1.0)
    assert phase.rounds == (1.0, 3.0, 4.0, 6.0, 8.0, 9.0, 10.0)
    assert record.watch is not None
    assert (record.watch.repeated, record.watch.disturbed) == (3, 1)
    assert record.watch.reasons == ("1 of 7 windows lost the processor each time they were taken",)
