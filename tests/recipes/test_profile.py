"""Profiles: a step time for every phase of every recipe, and the split of a step."""

import pytest
import torch

from explorer.recipes import profile as module
from explorer.recipes.profile import profile
from tests.recipes_for_tests import tiny_recipe, tiny_run


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW_SECONDS", 0.005)


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


def test_profiling_is_no_training() -> None:
    """The same step again and again, whatever the model has become meanwhile; generators are left alone."""
    before = torch.get_rng_state()
    profile([tiny_run(tiny_recipe([{"sam": {"interval": 2}}]))], data=None)
    assert torch.equal(torch.get_rng_state(), before)


def test_one_disturbed_window_moves_no_part() -> None:
    """The negative control is the mean, which it would move."""
    quiet = {"forward": 0.01, "backward": 0.02}
    splits = [*([quiet] * 6), {"forward": 0.01, "backward": 0.02, "other": 0.5}]
    assert module._median_by_part(splits) == quiet
    assert sum(split.get("other", 0.0) for split in splits) / len(splits) > 0.07
