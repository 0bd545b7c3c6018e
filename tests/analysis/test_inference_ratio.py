"""What a recipe costs at inference beside its baseline: it is slower by the interval of the ratio, or not at all."""

import datetime
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from explorer.analysis.ask import ask
from explorer.analysis.equal_quality import SLOWER_INFERENCE, EqualQuality, equal_quality
from explorer.analysis.limits import Limits, Standing
from explorer.analysis.sentences import inference_words
from explorer.analysis.side_by_side import duel
from explorer.analysis.verdict import sweep_verdicts
from explorer.views.explorer.tabs.ask_words import finding_words, notes
from tests.analysis.tables import rows, table
from tests.analysis.test_ask import NO_FORECAST, recipe
from tests.analysis.test_ask import log_curve as curve

ROUNDS = 7
QUIET = np.array([1.0, 0.99, 1.01, 1.02, 0.98, 1.0, 1.01])


def timed(made, windows_W, measured_with="pass"):
    """The rows with the inference time of each round, as a profile keeps them; the ratio is that of the medians."""
    more = {"inference_windows": list(windows_W), "profile_pass": measured_with}
    return [row | more | {"inference_ratio": float(np.median(windows_W))} for row in made]


def beside(windows, *, measured_with=("pass", "pass"), make=rows):
    """A baseline and another recipe with the same curve."""
    both = zip(("baseline", "other"), windows, measured_with, strict=True)
    return table(*(timed(make(name, curve), each, where) for name, each, where in both))


def span(found: EqualQuality) -> float:
    assert found.inference_low is not None and found.inference_high is not None
    return found.inference_high - found.inference_low


def with_windows(frame: pd.DataFrame, windows: Sequence[Sequence[float] | None]) -> pd.DataFrame:
    return frame.assign(inference_windows=pd.Series(list(windows), index=frame.index, dtype=object))


def one(frame: pd.DataFrame):
    (found,) = equal_quality(frame, resamples=50)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("drift", "own"), [(0.0, 0.03), (0.1, 0.03), (0.03, 0.01)])
def test_models_that_are_the_same_are_not_said_to_be_slower(drift, own) -> None:
    """Of 100 sweeps with two twins of the baseline each, in 5 at most; by the ratio alone it was said in many."""
    random = np.random.default_rng(3)
    said = bare = 0
    for _ in range(100):
        windows = np.exp(random.normal(0, drift, (ROUNDS, 1)) + random.normal(0, own, (ROUNDS, 3)))
        names = ("baseline", "twin", "other")
        made = [timed(rows(name, curve, budgets=(0.5, 1.0)), windows[:, k]) for k, name in enumerate(names)]
        found = equal_quality(table(*made), resamples=20)
        said += any(each.slower_inference for each in found)
        bare += any((each.inference_ratio or 0.0) > SLOWER_INFERENCE for each in found)
    assert said <= 5
    if own >= 0.03:
        assert bare >= 20  # the control: the rule before


def test_a_slower_model_is_said_to_be_with_its_interval() -> None:
    found = one(beside((QUIET, 1.31 * QUIET[::-1])))
    assert found.slower_inference and found.inference_ratio == pytest.approx(1.31)
    low, high = found.inference_low, found.inference_high
    assert low is not None and high is not None and 1.2 < low < 1.31 < high < 1.42
    assert inference_words(found) == f"1.31x the baseline's ({low:.2f} to {high:.2f})"
    assert not one(beside((1.31 * QUIET, QUIET))).slower_inference


def test_the_same_drift_hides_less_where_both_were_measured_in_turn() -> None:
    drift = np.array([1.0, 1.2, 0.9, 1.1, 0.8, 1.3, 1.05])
    windows = drift, 1.31 * drift * QUIET
    assert one(beside(windows)).slower_inference
    assert not one(beside(windows, measured_with=("pass", "another"))).slower_inference


@pytest.mark.parametrize(
    "lost", [("baseline",), ("other",), ("baseline", "other")], ids=["the baseline", "the recipe", "both"]
)
def test_without_the_times_of_rounds_nothing_is_said_of_slower(lost) -> None:
    """Profiles of an older version: the ratio is there, and no interval."""
    frame = beside((QUIET, 1.5 * QUIET))
    both = zip(frame["recipe"].tolist(), frame["inference_windows"].tolist(), strict=True)
    kept = [None if name in lost else windows_W for name, windows_W in both]
    old = with_windows(frame, kept)
    for each in (one(old), one(frame.drop(columns=["inference_windows", "profile_pass"]))):
        assert each.inference_ratio == pytest.approx(1.5) and each.inference_low is None
        assert not each.slower_inference and inference_words(each).endswith("(no interval)")
    one_round = with_windows(frame, [[1.0]] * len(frame))
    assert one(one_round).inference_low is None
    assert one(frame).slower_inference  # the control


def test_two_profiles_of_one_recipe_tell_no_interval() -> None:
    frame = beside((QUIET, 1.5 * QUIET))
    mixed = frame.assign(profile_pass=np.where((frame["recipe"] == "other") & (frame["seed"] == 0), "a", "pass"))
    assert one(mixed).inference_low is None


def test_more_recipes_make_the_interval_wider() -> None:
    windows = QUIET, 1.31 * QUIET[::-1]
    alone = one(beside(windows))
    more = [timed(rows(f"r{k}", curve), QUIET[::-1]) for k in range(4)]
    found = equal_quality(pd.concat([beside(windows), table(*more)], ignore_index=True), resamples=50)
    among = next(each for each in found if each.recipe == "other")
    assert span(among) > span(alone)
    assert [each.recipe for each in found if each.slower_inference] == ["other"]


def test_it_is_relative_to_the_baseline_on_the_recipes_own_machine() -> None:
    """A baseline that is bound to one machine: its time there says nothing of inference on another."""
    here = beside((QUIET, 1.31 * QUIET[::-1]))
    there = with_windows(here, [[9.0, 1.0, 5.0]] * len(here)).assign(hardware="NVIDIA H200", profile_pass=None)
    (machine,) = {each.setting.machine for each in equal_quality(there, resamples=20)}
    found = equal_quality(pd.concat([here, there], ignore_index=True), machine=machine, resamples=20)
    said = {(each.recipe, each.setting.hardware): each.slower_inference for each in found}
    hardware = str(here["hardware"].iloc[0])
    assert said[("other", hardware)] and not said[("other", "NVIDIA H200")] and not said[("baseline", hardware)]


def test_the_question_and_the_duel_read_the_same_interval() -> None:
    frame = beside((QUIET, 1.31 * QUIET[::-1]), make=recipe)
    extra = {"methods": "", "deletion_level": None, "deletion_seconds": math.nan}
    both = duel(frame.assign(**extra), "baseline", "other").equal_quality
    (verdict,) = sweep_verdicts(frame)
    limits = Limits(quality=0.7, max_inference_ratio=1.35)
    asked = ask(frame, NO_FORECAST, limits, verdicts=[verdict])
    known = {each.recipe: each for each in asked.candidates}
    figures, result = known["other"].known, verdict.comparison
    numbers = (result.inference_ratio, result.inference_low, result.inference_high)
    assert (figures.inference_ratio, figures.inference_low, figures.inference_high) == numbers
    assert (both.inference_ratio, both.inference_low, both.inference_high) == numbers
    assert known["baseline"].known.inference_high == 1.0
    (said,) = (each for each in notes(asked, datetime.date(2026, 11, 22)) if each.startswith("Slower at inference"))
    assert inference_words(result) in said


def test_a_limit_on_inference_holds_by_the_interval() -> None:
    windows = QUIET, 1.31 * QUIET[::-1]
    standing = {}
    for name, most in (("far", 2.0), ("near", 1.33), ("below", 1.1)):
        asked = ask(beside(windows, make=recipe), NO_FORECAST, Limits(quality=0.7, max_inference_ratio=most))
        other = next(each for each in asked.candidates if each.recipe == "other")
        standing[name] = other.findings[-1].standing
        if name == "below":
            assert finding_words(asked, other.findings[-1]).startswith("inference takes 1.31x of the baseline's (1.2")
    assert standing == {"far": Standing.HOLDS, "near": Standing.UNCERTAIN, "below": Standing.FAILS}
    old = beside(windows, make=recipe).drop(columns="inference_windows")
    asked = ask(old, NO_FORECAST, Limits(quality=0.7, max_inference_ratio=2.0))
    by_name = {each.recipe: each.findings[-1] for each in asked.candidates}
    assert by_name["baseline"].standing is Standing.HOLDS
    assert by_name["other"].standing is Standing.UNCERTAIN and "no interval" in by_name["other"].reason


def test_a_result_is_slower_by_its_lower_limit_alone() -> None:
    found = one(beside((QUIET, QUIET)))
    at = [replace(found, inference_ratio=1.5, inference_low=low).slower_inference for low in (1.02, 1.03, None)]
    assert at == [False, True, False]
