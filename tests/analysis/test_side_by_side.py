"""Two recipes side by side: what is known of each, the differences, and that picking a pair is no test."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from explorer.analysis.equal_budget import equal_budget
from explorer.analysis.equal_quality import Call, Outcome, equal_quality
from explorer.analysis.side_by_side import PICKED, Duel, duel, sentence
from explorer.errors import AnalysisError
from tests.analysis.tables import rows as rows_of
from tests.analysis.tables import table

SEEDS = {0: -0.01, 1: 0.002, 2: 0.008}
EXTRA = {"methods": "", "inference_seconds": 0.001, "deletion_level": None, "deletion_seconds": math.nan}


def rows(recipe, quality, **changes):
    return rows_of(recipe, quality, **{**EXTRA, **changes})


def curve(gain, shift=0, scale=1.0):
    return lambda ssr, seed: gain + 0.8 + 0.05 * math.log(ssr) + scale * SEEDS[(seed + shift) % 3]


def noise(recipe, draws):
    """A recipe of which the seeds alone decide."""
    drawn = dict(zip(range(3), draws.normal(0, 0.01, 3), strict=True))
    return rows(recipe, lambda ssr, seed: 0.8 + 0.05 * math.log(ssr) + drawn[seed])


@pytest.fixture
def frame() -> pd.DataFrame:
    return table(
        rows("baseline", curve(0.0)),
        rows("fast", curve(0.03, shift=1, scale=0.5), step=0.8, methods="ema+mixup", inference_seconds=0.002),
        rows("slow", curve(0.01, shift=2), step=1.5, methods="ema", deletion_level="G3", deletion_seconds=60.0),
    )


def test_neither_need_be_the_baseline_and_the_estimates_are_those_of_all_comparisons(frame: pd.DataFrame) -> None:
    found = duel(frame, "slow", "fast")
    two = frame[frame["recipe"] != "baseline"]
    (quality,) = equal_quality(two, baseline="slow")
    (budget,) = equal_budget(two, baseline="slow")
    assert (found.equal_quality, found.equal_x) == (quality, budget)
    assert (found.equal_quality.family, found.equal_quality.p_adjusted) == (1, found.equal_quality.p_value)
    assert found.equal_x.budget == 150  # what slow takes for its full budget


def test_the_ratio_at_equal_quality_is_that_of_the_two_curves(frame: pd.DataFrame) -> None:
    """fast is 0.8 + 0.03 + 0.05 ln ssr, slow 0.8 + 0.01 + 0.05 ln ssr: equal where ln ssr differs by 0.4."""
    found = duel(frame, "slow", "fast").equal_quality
    assert found.outcome == Outcome.REACHED
    assert found.target == pytest.approx(0.81)
    assert found.ratio == pytest.approx(0.8 * math.exp(-0.4) / 1.5, rel=0.01)  # a curve between budgets is piecewise
    assert found.reach_rate == 1.0


def test_the_difference_at_a_budget_is_that_of_a_paired_t_test(frame: pd.DataFrame) -> None:
    found = duel(frame, "baseline", "fast")
    assert [at.ssr for at in found.budgets] == [0.125, 0.25, 0.5, 1.0, 1.5]
    for at in found.budgets:
        mine, base = ([of(at.ssr, seed) for seed in range(3)] for of in (curve(0.03, 1, 0.5), curve(0.0)))
        interval = stats.ttest_rel(mine, base).confidence_interval(0.95)
        assert (at.first.quality, at.second.quality) == (pytest.approx(np.mean(base)), pytest.approx(np.mean(mine)))
        assert (at.first.n, at.second.n, at.difference.n) == (3, 3, 3)
        assert (at.first.x, at.second.x) == (pytest.approx(100 * at.ssr), pytest.approx(80 * at.ssr))
        assert at.difference.value == pytest.approx(0.03)
        assert (at.difference.low, at.difference.high) == (pytest.approx(interval.low), pytest.approx(interval.high))


def test_what_is_known_of_each_stands_beside(frame: pd.DataFrame) -> None:
    found = duel(frame, "slow", "fast")
    assert (found.first.methods, found.first.only) == (("ema",), ())
    assert (found.second.methods, found.second.only) == (("ema", "mixup"), ("mixup",))
    assert (found.first.deletion_level, found.first.deletion_seconds) == ("G3", 60.0)
    assert (found.second.deletion_level, found.second.deletion_seconds) == (None, None)
    assert (found.first.inference_seconds, found.second.inference_seconds) == (0.001, 0.002)


def test_two_that_differ_by_chance_alone_have_intervals_that_hold_0_and_1() -> None:
    draws = np.random.default_rng(11)
    found = duel(table(noise("a", draws), noise("b", draws)), "a", "b")
    for at in found.budgets:
        assert at.difference.low is not None and at.difference.high is not None
        assert at.difference.low < 0 < at.difference.high
    assert found.equal_x.better is None
    assert found.equal_quality.call is Call.INCONCLUSIVE


@pytest.mark.slow
def test_noise_is_called_a_difference_no_more_often_than_it_may_be() -> None:
    """80 pairs of equal recipes: about one in twenty is called different, which is why a picked pair is no test."""
    draws = np.random.default_rng(3)
    called = 0
    for _ in range(80):
        both = table(noise("a", draws), noise("b", draws))
        at = duel(both[both["ssr"] == 1.0], "a", "b", x="steps", resamples=27).budgets[0]
        called += at.difference.differs
    assert 1 <= called <= 10


def test_a_pair_is_said_to_be_picked(frame: pd.DataFrame) -> None:
    words = sentence(duel(frame, "slow", "fast"))
    assert words.startswith("fast reaches slow's accuracy 2.80x faster")
    assert words.endswith(PICKED)
    assert "not tuned" not in sentence(duel(frame.assign(tuning=None), "slow", "fast"))
    assert "baseline is not tuned" in sentence(duel(frame.assign(tuning=None), "baseline", "fast"))


def test_recipes_without_a_common_seed_are_compared_without_pairs() -> None:
    found = duel(
        table(rows("a", curve(0.0)), rows("b", lambda ssr, seed: curve(0.02)(ssr, seed - 3), seeds=(3, 4, 5))), "a", "b"
    )
    assert {at.difference.reason for at in found.budgets} == {"they share no seed"}
    assert all(at.difference.value is None for at in found.budgets)
    assert found.equal_quality.ratio_low is not None  # resampled each on its own


def test_recipes_without_a_common_budget_say_so() -> None:
    found = duel(
        table(rows("a", curve(0.0), budgets=(0.5, 1.0)), rows("b", curve(0.0), budgets=(0.25, 0.75))), "a", "b"
    )
    assert found.budgets == ()
    assert found.reason == "a and b share no budget"


def test_one_seed_has_a_difference_and_no_interval() -> None:
    found = duel(table(rows("a", curve(0.0), seeds=(0,)), rows("b", curve(0.02), seeds=(0,))), "a", "b")
    at = found.budgets[0].difference
    assert (at.value, at.low, at.reason) == (pytest.approx(0.02), None, "one seed")
    assert "no interval" in sentence(found)


def test_a_control_may_be_one_of_the_two(frame: pd.DataFrame) -> None:
    twin = table(rows("fast-random", curve(0.0), control="random-subset", control_of="fast"))
    found = duel(pd.concat([frame, twin]), "fast-random", "fast")
    assert isinstance(found, Duel) and len(found.budgets) == 5


def test_what_cannot_be_put_side_by_side_is_refused(frame: pd.DataFrame) -> None:
    with pytest.raises(AnalysisError, match="did you mean 'fast'"):
        duel(frame, "baseline", "fastt")
    with pytest.raises(AnalysisError, match="found 'fast' twice"):
        duel(frame, "fast", "fast")
    with pytest.raises(AnalysisError, match="unknown column 'methods'"):
        duel(frame.drop(columns="methods"), "slow", "fast")


def test_the_setting_is_the_one_that_both_have(frame: pd.DataFrame) -> None:
    slow = frame["recipe"] == "slow"
    elsewhere = frame[~slow].assign(hardware="NVIDIA H200", threads=8)
    assert duel(pd.concat([frame, elsewhere]), "slow", "fast") == duel(frame, "slow", "fast")
    with pytest.raises(AnalysisError, match="more than one: digits on AMD EPYC 7B13, 1 threads, digits on NVIDIA H200"):
        duel(pd.concat([frame, elsewhere]), "baseline", "fast")
    with pytest.raises(AnalysisError, match="where both were run; found none"):
        duel(pd.concat([frame[slow], elsewhere[elsewhere["recipe"] == "fast"]]), "slow", "fast")


def test_two_recipes_of_one_name_are_told_apart_by_their_labels(frame: pd.DataFrame) -> None:
    again = frame[frame["recipe"] == "fast"].assign(recipe_digest="f" * 64, quality=0.5)
    both = pd.concat([frame, again])
    labels = ("fast (ffffff)", f"fast ({b'fast'.hex()[:6]})")
    found = duel(both, *labels)
    assert (found.first.recipe, found.second.recipe) == labels
    assert found.budgets[0].first.quality == 0.5
    with pytest.raises(AnalysisError, match="unknown recipe 'fast'"):
        duel(both, "slow", "fast")
