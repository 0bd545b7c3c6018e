"""Ratios at equal quality: closed forms, every outcome, and what the interval may and may not say."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from explorer.analysis import equal_quality as module
from explorer.analysis.comparison import compared
from explorer.analysis.equal_budget import at_equal_budget, equal_budget
from explorer.analysis.equal_quality import Call, Outcome, at_equal_quality, equal_quality
from explorer.analysis.ladders import Machine
from explorer.errors import AnalysisError
from tests.analysis.tables import BUDGETS, SETTING, fixed, rows, table

WOBBLE = {0: -0.001, 1: 0.00025, 2: 0.00075}


def log_curve(ssr, seed):
    return 0.8 + 0.05 * math.log(ssr) + WOBBLE[seed % 3] * (1 + ssr)


def shifted(by, *, turn=0):
    """A curve that reaches a quality at `1 / by` of the budget, with its seeds' noise turned around."""
    return lambda ssr, seed: 0.8 + 0.05 * math.log(by * ssr) + WOBBLE[(seed + turn) % 3] * (1 + ssr)


def one(frame, **asked):
    (result,) = equal_quality(frame, **asked)
    return result


def test_a_recipe_that_learns_the_same_in_shorter_steps():
    result = one(table(rows("baseline", log_curve), rows("fast", log_curve, step=0.6)))
    assert result.outcome == Outcome.REACHED
    assert (result.baseline_x, result.recipe_x) == (pytest.approx(100), pytest.approx(60))
    assert result.ratio == pytest.approx(0.6)
    assert result.speedup == pytest.approx(1 / 0.6)
    assert result.target == pytest.approx(0.8)
    assert (result.n, result.reach_rate, result.own_target) == (3, 1.0, True)


def test_a_recipe_that_learns_more_in_the_same_steps():
    frame = table(rows("baseline", log_curve), rows("fast", shifted(1.25, turn=1)))
    for x in ("train_seconds", "cost_usd", "steps"):
        result = one(frame, x=x)
        assert result.ratio is not None and result.ratio_low is not None and result.ratio_high is not None
        assert result.ratio == pytest.approx(0.8, rel=0.01)
        assert 0.6 < result.ratio_low < 0.8 < result.ratio_high < 1.0
        assert result.call is Call.LESS


def test_the_interval_is_the_one_that_is_documented():
    """By a plain loop over all 27 resamples of three seeds."""
    noise = np.random.default_rng(3).normal(0, 0.004, (2, len(BUDGETS), 3))
    quality = [0.8 + 0.05 * np.log(np.array(BUDGETS))[:, None] + noise[k] for k in range(2)]
    x = 100 * np.array(BUDGETS)
    logs = []
    for a in range(3):
        for b in range(3):
            for c in range(3):
                base, mine = (np.maximum.accumulate(q[:, [a, b, c]].mean(axis=1)) for q in quality)
                at = [np.interp(base[3], curve, np.log(x)) for curve in (base, mine)]
                logs.append(at[1] - at[0])
    error = np.std(logs) * math.sqrt(3 / 2)
    half = stats.t.ppf(0.975, 2) * error
    result = one(
        table(
            rows("baseline", lambda ssr, seed: quality[0][BUDGETS.index(ssr), seed]),
            rows("fast", lambda ssr, seed: quality[1][BUDGETS.index(ssr), seed]),
        )
    )
    assert result.ratio is not None and result.ratio_low is not None and result.ratio_high is not None
    estimate = math.log(result.ratio)
    assert math.log(result.ratio_low) == pytest.approx(estimate - half)
    assert math.log(result.ratio_high) == pytest.approx(estimate + half)
    assert result.p_value == pytest.approx(2 * stats.t.sf(abs(estimate) / error, 2))


def test_lower_is_better():
    frame = table(
        rows("baseline", lambda ssr, seed: -log_curve(ssr, seed), higher_is_better=False),
        rows("fast", lambda ssr, seed: -shifted(1.25, turn=1)(ssr, seed), higher_is_better=False),
    )
    mirrored = table(rows("baseline", log_curve), rows("fast", shifted(1.25, turn=1)))
    found, expected = one(frame), one(mirrored)
    assert found.ratio == pytest.approx(expected.ratio)
    assert found.ratio_low == pytest.approx(expected.ratio_low)
    assert found.target == pytest.approx(-(expected.target or 0))
    assert one(frame.assign(higher_is_better=True)).ratio != pytest.approx(expected.ratio)


def test_not_reached_is_a_result_and_nothing_is_extrapolated():
    result = one(table(rows("baseline", log_curve), rows("slow", shifted(0.5))))
    assert result.outcome == Outcome.NOT_REACHED
    assert (result.ratio, result.ratio_low, result.recipe_x, result.reach_rate) == (None, None, None, 0.0)
    assert one(table(rows("baseline", log_curve), rows("slow", shifted(0.7)))).outcome == Outcome.REACHED


def test_below_the_lowest_budget_gives_a_limit_only():
    result = one(table(rows("baseline", log_curve), rows("great", shifted(20))))
    assert result.outcome == Outcome.BELOW
    assert result.ratio == pytest.approx(0.125)
    assert (result.ratio_low, result.p_value, result.call) == (None, None, Call.BELOW)


def test_nothing_is_faster_than_a_baseline_whose_time_is_only_an_upper_limit():
    """Every run is at 100% from the smallest budget on, so both times are those of that budget and say nothing. The
    controls: with a budget below it the same recipe is faster, and a recipe that misses the target still misses it."""

    def saturated(ssr, seed):
        return 1.0

    def missing(ssr, seed):
        return 0.9

    def exact(*recipes):
        frame = table(*recipes)
        return frame.assign(
            train_seconds_low=frame["train_seconds"] * 0.999, train_seconds_high=frame["train_seconds"] * 1.001
        )

    budgets = (0.5, 1.0)
    both = exact(rows("baseline", saturated, budgets=budgets), rows("fast", saturated, step=0.8, budgets=budgets))
    for target in (None, 1.0, 0.95):
        result = one(both, target=target)
        assert (result.outcome, result.call, result.reason) == (Outcome.UNKNOWN, Call.UNKNOWN, module.AT_LOWEST)
        assert (result.baseline_x, result.ratio, result.adjusted_low, result.p_value) == (None, None, None, None)
        assert result.reach_rate == 1.0
    missed = one(exact(rows("baseline", saturated, budgets=budgets), rows("bad", missing, budgets=budgets)))
    assert (missed.call, missed.reach_rate) == (Call.NOT_REACHED, 0.0)

    def rising(ssr, seed):
        return 1.0 if ssr > 0.25 else 0.8 + 0.01 * seed

    wider = (0.25, *budgets)
    found = one(exact(rows("baseline", rising, budgets=wider), rows("fast", rising, step=0.8, budgets=wider)))
    assert (found.call, found.ratio) == (Call.LESS, pytest.approx(0.8))
    assert (found.baseline_x, found.recipe_x) == (pytest.approx(50), pytest.approx(40))


def test_a_recipe_that_starts_level_at_the_target_has_a_limit_only():
    budgets = {0.25: (0.9, 0.91, 0.92), 0.5: (0.95, 0.96, 0.97), 1.0: (1.0, 1.0, 1.0)}
    always = rows("great", lambda ssr, seed: 1.0, step=0.8, budgets=budgets)
    result = one(table(rows("baseline", fixed(budgets), budgets=budgets), always))
    assert (result.call, result.ratio, result.adjusted_low) == (Call.BELOW, pytest.approx(0.2), None)


def test_runs_that_all_have_one_quality_are_not_the_same_training():
    """At a single budget nothing lies below it; 100% everywhere still gives no interval. The control: where runs
    differ, a recipe that repeats each of them has the noise of its times only."""

    def judged(quality):
        frame = table(rows("baseline", quality, budgets=(1.0,)), rows("fast", quality, step=0.8, budgets=(1.0,)))
        seconds = frame["train_seconds"]
        return one(frame.assign(train_seconds_low=seconds * 0.999, train_seconds_high=seconds * 1.001))

    assert judged(lambda ssr, seed: 1.0).call is Call.NO_INTERVAL
    assert judged(lambda ssr, seed: 0.9 + 0.01 * seed).call is Call.LESS


def test_the_reach_rate_counts_resamples_that_are_past_the_target_at_the_lowest_budget():
    """In one of three seeds the recipe is past the target at once: it reaches it in every resample, and has a ratio in
    some only."""
    base = {0.5: (0.70, 0.70, 0.70), 1.0: (0.80, 0.80, 0.80)}
    mine = {0.5: (0.70, 0.71, 0.95), 1.0: (0.82, 0.83, 0.96)}
    result = one(table(rows("baseline", fixed(base), budgets=base), rows("early", fixed(mine), budgets=mine)))
    assert (result.outcome, result.reach_rate, result.call) == (Outcome.REACHED, 1.0, Call.NO_INTERVAL)
    inside = sum(np.mean([mine[0.5][seed] for seed in seeds]) <= 0.8 for seeds in itertools.product(range(3), repeat=3))
    share = f"{inside / 27:.0%}"
    assert result.reason == f"only {share} of the resamples have the target between the tested budgets of both"


def test_a_given_target():
    frame = table(rows("baseline", log_curve), rows("fast", log_curve, step=0.6))
    result = one(frame, target=0.8 + 0.05 * math.log(0.5))
    assert (result.baseline_x, result.recipe_x) == (pytest.approx(50), pytest.approx(30))
    assert not result.own_target
    beyond = one(frame, target=0.9)
    assert (beyond.outcome, beyond.ratio) == (Outcome.NOT_REACHED, None)
    assert "baseline itself does not have this quality" in (beyond.reason or "")
    with pytest.raises(AnalysisError, match="finite"):
        equal_quality(frame, target=math.nan)


def test_a_recipe_that_reaches_what_the_baseline_does_not():
    result = one(table(rows("baseline", log_curve), rows("great", shifted(2))), target=0.85)
    assert (result.outcome, result.ratio) == (Outcome.REACHED, None)
    assert result.recipe_x == pytest.approx(50 * math.e, rel=0.05)
    assert result.reach_rate == 1.0  # every seed of it does


def test_the_same_recipe_shows_no_difference():
    result = one(table(rows("baseline", log_curve), rows("same", log_curve)))
    assert (result.ratio, result.ratio_low, result.ratio_high, result.p_value) == (1.0, 1.0, 1.0, 1.0)
    assert result.call is Call.EQUIVALENT


def test_one_seed_has_a_ratio_and_no_interval():
    result = one(table(rows("baseline", log_curve, seeds=(0,)), rows("fast", log_curve, step=0.6, seeds=(0,))))
    assert (result.n, result.ratio) == (1, pytest.approx(0.6))
    assert (result.ratio_low, result.p_value, result.reach_rate, result.call) == (None, None, None, Call.ONE_SEED)
    assert result.reason == "one seed"


def test_seeds_that_do_not_differ_tell_nothing_about_noise():
    def still(ssr, seed):
        return 0.8 + 0.05 * math.log(ssr)

    result = one(table(rows("baseline", still), rows("fast", still, step=0.6)))
    assert result.ratio == pytest.approx(0.6)
    assert result.ratio_low is None
    assert "do not differ" in (result.reason or "")


def test_no_interval_where_too_few_resamples_reach_the_target():
    low = {0: -0.03, 1: 0.0, 2: 0.04}
    frame = table(rows("baseline", log_curve), rows("noisy", lambda ssr, seed: shifted(0.7)(ssr, seed) + low[seed]))
    result = one(frame)
    assert result.outcome == Outcome.REACHED
    assert result.ratio is not None and result.ratio_low is None
    assert result.reach_rate is not None and 0 < result.reach_rate < 0.9
    assert f"only {result.reach_rate:.0%} of the resamples" in (result.reason or "")


def test_shared_seeds_are_resampled_jointly_and_others_are_not():
    shared = {0: -0.02, 1: 0.0, 2: 0.02}

    def lifted(curve):
        return lambda ssr, seed: curve(ssr, seed) + shared[seed % 3]

    base = rows("baseline", lifted(log_curve))
    paired = one(table(base, rows("fast", lifted(shifted(1.25, turn=1)))))
    apart = one(table(base, rows("fast", lifted(shifted(1.25, turn=1)), seeds=(3, 4, 5))))
    assert paired.ratio == pytest.approx(apart.ratio)
    assert paired.ratio_low is not None
    assert paired.call is Call.LESS
    assert apart.call is Call.INCONCLUSIVE  # what the seeds share no longer cancels


def test_a_budget_that_lacks_seeds_is_left_out_and_named():
    frame = table(
        rows("baseline", log_curve),
        rows("fast", log_curve, step=0.6, budgets=BUDGETS[:-1]),
        rows("fast", lambda ssr, seed: 0.0, step=0.6, budgets=(1.5,), seeds=(0,)),
    )
    result = one(frame)
    assert (result.left_out, result.n, result.ratio) == ((1.5,), 3, pytest.approx(0.6))


def test_a_baseline_whose_full_budget_is_not_done_gives_no_target():
    frame = table(
        rows("baseline", log_curve, budgets=(0.25, 0.5)),
        rows("baseline", log_curve, budgets=(1.0,), seeds=(0,)),
        rows("fast", log_curve, step=0.6),
    )
    result = one(frame)
    assert (result.outcome, result.ratio, result.left_out) == (Outcome.UNKNOWN, None, (1.0,))
    assert "has not finished its full budget" in (result.reason or "")


def test_no_price_and_no_time_are_results():
    frame = table(rows("baseline", log_curve), rows("fast", log_curve, step=0.6))
    unpriced = one(frame.assign(cost_usd=np.nan), x="cost_usd")
    assert unpriced.outcome == Outcome.UNKNOWN
    assert "has no cost: there is no price for its hardware" in (unpriced.reason or "")
    frame.loc[frame["recipe"] == "fast", "train_seconds"] = np.nan
    assert "fast has no time: its steps were not profiled" in (one(frame).reason or "")
    assert one(frame, x="steps").outcome == Outcome.REACHED


def test_the_baseline_can_be_chosen_and_must_be_there():
    frame = table(rows("baseline", log_curve), rows("fast", log_curve, step=0.6))
    result = one(frame, baseline="fast")
    assert (result.recipe, result.ratio) == ("baseline", pytest.approx(1 / 0.6))
    with pytest.raises(AnalysisError, match="unknown baseline 'fats'; did you mean 'fast'"):
        equal_quality(frame, baseline="fats")
    absent = one(table(rows("fast", log_curve)))
    assert (absent.outcome, absent.reason) == (Outcome.UNKNOWN, "the baseline baseline has no finished run here")


def test_two_recipes_of_the_baselines_name_are_no_baseline():
    frame = table(
        rows("baseline", log_curve),
        rows("baseline", log_curve, recipe_digest="f" * 64),
        rows("fast", log_curve),
    )
    assert "2 different recipes are called baseline" in (one(frame).reason or "")


def test_recipes_are_compared_on_their_own_hardware():
    frame = table(
        rows("baseline", log_curve),
        rows("fast", log_curve, step=0.6),
        rows("baseline", log_curve, step=0.1, hardware="NVIDIA H200"),
        rows("fast", log_curve, step=0.09, hardware="NVIDIA H200"),
    )
    found = {result.setting.hardware: result.ratio for result in equal_quality(frame)}
    assert found == {"AMD EPYC 7B13": pytest.approx(0.6), "NVIDIA H200": pytest.approx(0.9)}


def test_a_baseline_that_is_bound_to_a_machine_is_the_one_of_all():
    """The H200 is ten times as fast: there even the baseline needs a tenth of its time on the other machine."""
    frame = table(
        rows("baseline", log_curve),
        rows("fast", shifted(1.25, turn=1), step=0.6),
        rows("baseline", log_curve, step=0.1, hardware="NVIDIA H200"),
        rows("fast", shifted(1.25, turn=1), step=0.06, hardware="NVIDIA H200"),
        rows("fast", log_curve, step=0.06, hardware="NVIDIA H200", metric="nll"),
    )
    epyc = Machine(device="cpu", hardware="AMD EPYC 7B13", threads=1, world_size=1)
    found = equal_quality(frame, machine=epyc)
    ratios = {(each.recipe, each.setting.hardware, each.setting.metric): each.ratio for each in found}
    here, there = ("AMD EPYC 7B13", "accuracy"), ("NVIDIA H200", "accuracy")
    assert ratios == {
        ("fast", *here): pytest.approx(0.48, rel=0.01),
        ("baseline", *there): pytest.approx(0.1),
        ("fast", *there): pytest.approx(0.048, rel=0.01),
        ("fast", "NVIDIA H200", "nll"): None,
    }
    assert found[-1].reason == "the baseline baseline has no finished run on AMD EPYC 7B13, 1 thread"
    own = {each.setting.hardware: each for each in equal_quality(frame) if each.n}
    bound = [each for each in found if each.recipe == "fast" and each.n]
    assert [each.family for each in bound] == [2, 2]  # the baseline elsewhere has no noise of its own: no p-value
    assert {each.family for each in own.values()} == {1}
    for each in bound:  # seeds stay paired: the interval is as wide as that of one machine
        ours = own[each.setting.hardware]
        widths = [(result.ratio_high or 0.0) / (result.ratio_low or 1.0) for result in (each, ours)]
        assert widths[0] == pytest.approx(widths[1])
        assert each.baseline_setting.machine == epyc
    assert [each.baseline_setting for each in own.values()] == [each.setting for each in own.values()]
    flat = module.table(found)
    assert set(flat["baseline_hardware"]) == {"AMD EPYC 7B13"} and set(flat["baseline_threads"]) == {1}
    with pytest.raises(AnalysisError, match="unknown machine 'AMD EPYC 7B13, 2 threads'; did you mean 'AMD EPYC 7B13"):
        equal_quality(frame, machine=replace(epyc, threads=2))


def test_what_a_view_hides_is_still_paid_for():
    """Results of a whole table, left out afterwards, keep their family; a table of the shown alone would not."""
    recipes = [rows(f"r{k}", shifted(1.4, turn=1)) for k in range(8)]
    whole = equal_quality(table(rows("baseline", log_curve), *recipes))
    shown = [result for result in whole if result.recipe in ("r0", "r1")]
    cut = equal_quality(table(rows("baseline", log_curve), *recipes[:2]))
    assert [result.family for result in shown] == [8, 8] and [result.family for result in cut] == [2, 2]
    assert [result.p_value for result in shown] == pytest.approx([result.p_value for result in cut])
    assert {result.call for result in shown} == {Call.INCONCLUSIVE} and {result.call for result in cut} == {Call.LESS}


def test_both_questions_are_read_from_the_same_curves():
    frame = table(rows("baseline", log_curve), rows("fast", shifted(1.25, turn=1)), rows("slow", shifted(0.5)))
    found = compared(frame, x="train_seconds")
    assert at_equal_quality(found, target=0.79) == equal_quality(frame, target=0.79)
    assert at_equal_budget(found, budget=60.0) == equal_budget(frame, budget=60.0)


def test_many_comparisons_are_corrected_as_a_family():
    recipes = [rows(f"r{k}", shifted(1.02 + 0.04 * k, turn=1)) for k in range(5)]
    frame = table(rows("baseline", log_curve), *recipes)
    found = equal_quality(frame)
    assert [each.p_adjusted for each in found] == pytest.approx([min(1.0, 5 * (each.p_value or 0)) for each in found])
    for each in found:
        assert each.adjusted_low is not None and each.ratio_low is not None and each.adjusted_low < each.ratio_low
    assert {result.family for result in found} == {5}
    alone = one(table(rows("baseline", log_curve), recipes[0]))
    assert alone.p_adjusted == alone.p_value
    assert (alone.adjusted_low, alone.adjusted_high) == (alone.ratio_low, alone.ratio_high)


def test_a_recipe_does_not_change_what_is_said_of_another():
    first, second = rows("fast", shifted(1.25, turn=1)), rows("other", shifted(1.1, turn=2))
    alone = one(table(rows("baseline", log_curve), first))
    beside = equal_quality(table(rows("baseline", log_curve), second, first))[1]
    assert beside.family == 2 and beside.among(1) == alone


def test_five_seeds_are_drawn_the_same_every_time():
    noise = np.random.default_rng(5).normal(0, 0.003, (2, 5, 5))
    frame = table(
        rows("baseline", lambda s, k: 0.8 + 0.05 * math.log(s) + noise[0, BUDGETS.index(s), k], seeds=range(5)),
        rows("fast", lambda s, k: 0.82 + 0.05 * math.log(s) + noise[1, BUDGETS.index(s), k], seeds=range(5)),
    )
    assert equal_quality(frame) == equal_quality(frame)
    assert one(frame, resamples=500).ratio_low != one(frame).ratio_low


def test_slower_inference_is_marked_relative_to_the_chosen_baseline():
    """By the interval: without the times of the rounds (`test_inference_ratio.py`) nothing is said of slower."""
    rounds: dict[str, Any] = {"inference_windows": [1.0, 0.99, 1.0, 1.01, 1.0]}
    frame = table(
        rows("baseline", log_curve, **rounds),
        rows("heavy", log_curve, inference_ratio=1.5, **rounds),
        rows("light", log_curve, inference_ratio=1.01, **rounds),
    )
    assert [result.slower_inference for result in equal_quality(frame)] == [True, False]
    against_heavy = {result.recipe: result for result in equal_quality(frame, baseline="heavy")}
    assert against_heavy["baseline"].inference_ratio == pytest.approx(1 / 1.5)
    assert not against_heavy["baseline"].slower_inference


def test_times_that_differ_between_seeds_add_to_the_interval():
    frame = table(rows("baseline", log_curve), rows("fast", shifted(1.25, turn=1)))
    jitter = frame["train_seconds"] * (1 + 0.1 * ((frame["seed"] * 7 + frame["recipe"].str.len()) % 3 - 1))
    plain, noisy = one(frame), one(frame.assign(train_seconds=jitter))
    assert (noisy.ratio_high or 0) / (noisy.ratio_low or 1) > (plain.ratio_high or 0) / (plain.ratio_low or 1)


def test_dips_are_pooled_and_reached_at_their_start():
    dip = {0.125: (0.5,), 0.25: (0.6,), 0.5: (0.9,), 1.0: (0.8,), 1.5: (0.95,)}
    result = one(table(rows("baseline", fixed(dip), seeds=(0,)), rows("same", fixed(dip), seeds=(0,))))
    assert result.target == pytest.approx(0.85)
    assert result.baseline_x == result.recipe_x == pytest.approx(50.0)


def test_the_table_has_a_row_for_each_result():
    frame = table(rows("baseline", log_curve), rows("fast", log_curve, step=0.6), rows("slow", shifted(0.5)))
    found = module.table(equal_quality(frame))
    assert found["recipe"].tolist() == ["fast", "slow"]
    assert found["outcome"].tolist() == ["reached", "not reached"]
    assert found["ratio"].isna().tolist() == [False, True]
    assert set(SETTING) <= set(found.columns)
    assert list(module.table([]).columns) == list(found.columns)
