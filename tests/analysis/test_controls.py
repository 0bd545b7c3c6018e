"""Recipes beside the baseline trained for as long, and beside choosing at random."""

import math

import pytest
from scipy import stats

from explorer.analysis.controls import controlled
from explorer.analysis.equal_budget import equal_budget
from explorer.analysis.equal_quality import equal_quality
from explorer.analysis.ladders import ladders
from explorer.analysis.sentences import control_sentences
from tests.analysis.tables import rows, table

SEEDS = {0: -0.004, 1: 0.001, 2: 0.003, 3: 0.0}
LADDER = (0.5, 1.0)


def line(gain=0.0, noise=0.0):
    """Quality rises by 0.05 with each factor e of budget; seeds move it, and recipes move seeds."""
    return lambda ssr, seed: gain + 0.8 + 0.05 * math.log(ssr) + SEEDS[seed] + noise * SEEDS[(seed + 1) % 4]


BASE = rows("baseline", line(), budgets=LADDER, seeds=range(4))


def rescaled(budgets, of="slow"):
    return rows("baseline", line(), budgets=budgets, seeds=range(4), control="rescaled-baseline", control_of=of)


def recipe(name, gain, *, noise=0.3, **changes):
    return rows(name, line(gain, noise), budgets=LADDER, seeds=range(4), **changes)


def at_full_budget(frame, control="rescaled-baseline"):
    (found,) = [each for each in controlled(frame) if each.ssr == 1.0 and each.control == control]
    return found


def test_the_baseline_that_takes_as_long_is_the_control():
    frame = table(BASE, rescaled([0.8, 1.6]), recipe("slow", 0.01, step=1.6))
    half, full = controlled(frame)
    assert [(each.ssr, each.control_ssr, each.name) for each in (half, full)] == [
        (0.5, 0.8, "baseline"),
        (1.0, 1.6, "baseline"),
    ]
    assert full.seconds == pytest.approx(full.control_seconds)
    assert full.against.difference == pytest.approx(0.01 - 0.05 * math.log(1.6))
    assert full.plain.difference == pytest.approx(0.01)
    assert (full.against.n, full.verdict) == (4, "worse")


def test_the_interval_is_that_of_paired_differences():
    full = at_full_budget(table(BASE, rescaled([0.8, 1.6]), recipe("slow", 0.01, step=1.6)))
    mine = [line(0.01, 0.3)(1.0, seed) for seed in range(4)]
    expected = stats.ttest_rel(mine, [line()(1.6, seed) for seed in range(4)])
    interval = expected.confidence_interval(0.95)
    assert full.against.p_value == pytest.approx(expected.pvalue)
    assert (full.against.low, full.against.high) == (pytest.approx(interval.low), pytest.approx(interval.high))


def test_a_gain_that_is_bought_with_time_vanishes():
    """At equal steps the recipe is better; the baseline gets as far when it may train for as long."""
    frame = table(BASE, rescaled([0.8, 1.6]), recipe("slow", 0.05 * math.log(1.6) + 0.0005, step=1.6))
    full = at_full_budget(frame)
    assert (full.verdict, full.gain_vanishes) == ("cannot tell", True)
    (words,) = control_sentences(controlled(frame))
    assert words.startswith("slow is better than baseline at the same budget (+2.40 points, 95% interval ")
    assert ", but is not shown to be better than baseline trained for as long (+0.05 points, " in words
    assert words.endswith("4 seeds): its gain vanishes against the control")


def test_a_gain_that_stands():
    frame = table(BASE, rescaled([0.8, 1.6]), recipe("slow", 0.1, step=1.6))
    full = at_full_budget(frame)
    assert (full.verdict, full.gain_vanishes) == ("better", False)
    (words,) = control_sentences(controlled(frame))
    assert words.startswith("slow is better than baseline trained for as long (+7.65 points, 95% interval ")
    lower = frame.assign(higher_is_better=False, quality=-frame["quality"], unit="bits")
    assert at_full_budget(lower).verdict == "better"
    assert "(-0.0765 bits, " in control_sentences(controlled(lower))[0]


def test_a_recipe_that_is_the_baseline_gains_nothing():
    """The negative control: the same runs under another name."""
    frame = table(BASE, rows("nothing", line(), budgets=LADDER, seeds=range(4)))
    found = controlled(frame)
    assert [(each.ssr, each.control_ssr, each.verdict, each.gain_vanishes) for each in found] == [
        (0.5, 0.5, "the same", False),
        (1.0, 1.0, "the same", False),
    ]
    assert control_sentences(found) == ["nothing is the same as baseline trained for as long, seed for seed (4 seeds)"]


def twin(gain, *, noise=0.3, of="picky"):
    return recipe("picky-random", gain, noise=noise, step=0.7, control="random-subset", control_of=of)


def test_choosing_beside_choosing_at_random():
    """`picky` is faster and better than the baseline; whether by what it chooses, its twin says."""
    picky = recipe("picky", 0.05, step=0.7)
    good = at_full_budget(table(BASE, picky, twin(0.01, noise=0.1)), "random-subset")
    assert (good.name, good.control_ssr, good.verdict, good.gain_vanishes) == ("picky-random", 1.0, "better", False)
    idle = at_full_budget(table(BASE, picky, twin(0.0495, noise=-0.3)), "random-subset")
    assert (idle.verdict, idle.gain_vanishes) == ("cannot tell", True)
    same = table(BASE, picky, twin(0.05))
    assert at_full_budget(same, "random-subset").verdict == "the same"
    (words,) = control_sentences(controlled(same))
    assert words.endswith(
        "but is the same as picky-random, which chooses as many examples at random, seed for seed:"
        " its gain vanishes against the control"
    )


def test_a_twin_is_no_candidate():
    """However good it is: nothing is found to be better than the baseline, and the family is smaller by it."""
    frame = table(BASE, recipe("picky", 0.0), twin(0.2), recipe("other", 0.01))
    for compared in (equal_quality(frame), equal_budget(frame, x="steps")):
        assert [result.recipe for result in compared] == ["picky", "other"]
        assert {result.family for result in compared} <= {0, 1, 2}
    (found,) = [ladder for ladder in ladders(frame, x="steps") if ladder.control]
    assert (found.recipe, found.control_of) == ("picky-random", ("picky",))


def test_rescaled_runs_are_points_of_the_baselines_curve():
    frame = table(BASE, rescaled([0.8, 1.6]), recipe("slow", 0.1, step=1.6))
    (baseline,) = [ladder for ladder in ladders(frame, x="steps") if ladder.recipe == "baseline"]
    assert list(baseline.ssr_B) == [0.5, 0.8, 1.0, 1.6]
    assert (baseline.control, baseline.control_of) == (None, ())


def test_a_control_that_was_not_run_is_missed_only_where_controls_were_asked_for():
    """A step time that moved since then leaves the control in the wrong place, and that is said."""
    slow = recipe("slow", 0.1, step=1.4)
    assert controlled(table(BASE, slow)) == []
    found = controlled(table(BASE, rescaled([0.8, 1.6]), slow))
    assert [(each.verdict, each.control_ssr) for each in found] == [("not compared", None)] * 2
    assert found[1].against.reason == "no run of baseline takes as long: the nearest takes 1.14x its time"
    assert control_sentences(found) == [
        "slow has nothing to compare with baseline trained for as long: no run of baseline takes as long:"
        " the nearest takes 1.14x its time"
    ]
    unknown = recipe("slow", 0.1, step=1.6, train_seconds=math.nan)
    assert controlled(table(BASE, rescaled([1.6]), unknown)) == []


def test_one_seed_has_no_interval_and_no_verdict():
    lone = rows("slow", line(0.1), budgets=LADDER, seeds=[0], step=1.6)
    full = at_full_budget(table(BASE, rescaled([0.8, 1.6]), lone))
    assert (full.against.n, full.against.low, full.verdict) == (1, None, "cannot tell")
    assert "no interval: one seed, 1 seed" in control_sentences([full])[0]
    none = rows("slow", lambda ssr, seed: 0.9, budgets=LADDER, seeds=[7], step=1.6)
    assert at_full_budget(table(BASE, rescaled([0.8, 1.6]), none)).against.reason == "they share no seed"


def test_many_recipes_are_corrected_for():
    """One recipe alone is better; among twelve that are not, nobody can tell."""
    mild = recipe("mild", 0.006, noise=1.0)
    alone = at_full_budget(table(BASE, mild))
    others = [recipe(f"idle{index}", 0.0, noise=1.0 + index / 10) for index in range(12)]
    (among,) = [each for each in controlled(table(BASE, mild, *others)) if each.ssr == 1.0 and each.recipe == "mild"]
    assert (alone.against.family, among.against.family) == (1, 13)
    assert (among.against.p_adjusted or 0) > (alone.against.p_adjusted or 1)
    assert alone.against.low == among.against.low
    assert (alone.verdict, among.verdict) == ("better", "cannot tell")
    assert among.against.adjusted_low is not None and among.against.adjusted_low < 0
    assert "adjusted for 13 comparisons" in control_sentences([among])[0]
