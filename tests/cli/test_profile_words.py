"""The lines below the table of `explorer profile run`: examples a second, and the kind of work that binds a step."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from explorer.cli.profile import profile_blocks
from explorer.run_files import PhaseProfile, ProfileRecord, RunRecord
from explorer.training.profile import extrapolate
from tests.recipes_for_tests import tiny_recipe, tiny_run

RESIZING = tiny_run(tiny_recipe(["progressive_resizing"], epochs=2))


def profiled(run: RunRecord, splits: Sequence[dict[str, float]], seconds: float = 0.1) -> ProfileRecord:
    phases = {
        name: PhaseProfile(seconds=seconds, low=seconds, high=seconds, windows=7, split=split)
        for name, split in zip(run.phases, splits, strict=True)
    }
    return ProfileRecord(
        recipe_digest=run.recipe_digest,
        recipe=run.recipe,
        hardware=run.hardware,
        torch="2",
        phases=phases,
        inference_seconds=0.001,
        made_at="now",
        evaluation_seconds=1.0,
        checkpoint_seconds=0.0,
    )


def said(run: RunRecord, splits: Sequence[dict[str, float]], **made: Any) -> str:
    profile = profiled(run, splits, **made)
    return "\n".join(map(str, profile_blocks(profile, [extrapolate(run, profile)], (), None)))


def test_phases_count_with_their_time_and_parts_with_their_proportion() -> None:
    """The last phase was split by a clock that took ten times as long, which changes no share."""
    steps = list(RESIZING.phases.values())
    reading, computing = {"read": 1.0}, {"forward": 5.0, "backward": 5.0}
    words = said(RESIZING, [reading] * (len(steps) - 1) + [computing])
    share = steps[-1] / sum(steps)
    most, least = ("compute", share) if share > 0.5 else ("reading", 1 - share)
    assert f"Bound by {most}, {least:.0%} of a step: all else could gain {1 - least:.0%} at most" in words


def test_examples_a_second_follow_from_the_batch() -> None:
    run = tiny_run(tiny_recipe())
    assert f"{run.batch_size / 0.02:,.4g} examples a second" in said(run, [{"forward": 1.0}], seconds=0.02)


@pytest.mark.parametrize("split", [{}, {"other": 1.0}])
def test_without_a_split_there_is_no_verdict(split: dict[str, float]) -> None:
    run = tiny_run(tiny_recipe())
    words = said(run, [split])
    assert "Bound by" not in words and "examples a second" in words


def test_where_batch_sizes_vary_there_is_no_single_rate() -> None:
    run = tiny_run(tiny_recipe(["batch_size_warmup"], epochs=4))
    assert "examples a second" not in said(run, [{"forward": 1.0}] * len(run.phases))


def test_the_phase_that_takes_longest_says_whether_the_device_waits() -> None:
    run = tiny_run(tiny_recipe())
    profile = profiled(run, [{"forward": 1.0}])
    (name,) = profile.phases
    for issue, bound in ((0.99, "Bound by launch"), (0.4, "Bound by compute"), (None, "Bound by compute")):
        made = replace(profile, phases={name: replace(profile.phases[name], issue=issue)})
        words = "\n".join(map(str, profile_blocks(made, [extrapolate(run, made)], (), None)))
        assert bound in words
