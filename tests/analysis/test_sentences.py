"""Every answer in words, with the honest variants."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from explorer.analysis.controls import Controlled, Difference
from explorer.analysis.equal_budget import EqualBudget, equal_budget
from explorer.analysis.equal_quality import Call, EqualQuality, Outcome, equal_quality
from explorer.analysis.inference import Error
from explorer.analysis.ladders import Setting
from explorer.analysis.sentences import answer, budget_answer, summary, time_notes
from explorer.analysis.verdict import most_promising, verdicts
from tests.analysis.tables import SETTING, rows, table


def spread(size, *times):
    return {"errors": (Error(size=size, df=2), *times), "seed_error": size}


def between(low, high):
    return {"adjusted_low": low, "adjusted_high": high}


FAST = EqualQuality(
    setting=Setting(**SETTING),
    baseline_setting=Setting(**SETTING),
    recipe="fast",
    recipe_digest="fa57",
    label="fast",
    baseline="baseline",
    x="train_seconds",
    target=0.97,
    own_target=True,
    outcome=Outcome.REACHED,
    baseline_x=100.0,
    recipe_x=62.0,
    ratio=0.62,
    ratio_low=0.57,
    ratio_high=0.67,
    adjusted_low=0.55,
    adjusted_high=0.70,
    confidence=0.95,
    n=3,
    reach_rate=1.0,
    p_value=0.001,
    p_adjusted=0.004,
    family=4,
    inference_ratio=1.0,
    time_source="profiled",
    tuning="lr over 5 values",
)
NONE = dict.fromkeys(("ratio_low", "ratio_high", "adjusted_low", "adjusted_high", "p_value", "p_adjusted"))
ONE_SEED = replace(FAST, n=1, reason="one seed", **NONE)
NO_INTERVAL = replace(ONE_SEED, n=3, reach_rate=0.7, reason="only 70% of the resamples reach the target")
UNSURE = replace(
    FAST,
    ratio_low=0.4,
    ratio_high=1.1,
    adjusted_low=0.3,
    adjusted_high=1.2,
    **spread(0.2),
)
ALONE = replace(UNSURE, ratio_high=0.95)
TWIN = replace(FAST, ratio=1.0, adjusted_low=0.97, adjusted_high=1.03)
NOT_REACHED = replace(ONE_SEED, n=3, outcome=Outcome.NOT_REACHED, ratio=None, recipe_x=None)
BELOW = replace(ONE_SEED, n=3, outcome=Outcome.BELOW, ratio=0.125)
UNKNOWN = replace(NOT_REACHED, outcome=Outcome.UNKNOWN, reason="fast has no cost: there is no price for its hardware")


def said(result, control=None):
    return answer(replace(verdicts([result])[0], control=control))


def told(*results):
    return summary(verdicts(results))


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (
            FAST,
            "fast reaches the baseline's accuracy 1.61x faster"
            " (95% interval 1.43x-1.82x adjusted for 4 comparisons, 3 seeds)",
        ),
        (replace(FAST, x="cost_usd"), "1.61x cheaper (95%"),
        (replace(FAST, x="steps"), "in 1.61x fewer steps (95%"),
        (replace(FAST, baseline="tuned"), "fast reaches tuned's accuracy 1.61x faster"),
        (replace(FAST, own_target=False), "fast reaches 0.97 accuracy 1.61x faster (95%"),
        (
            UNSURE,
            "fast looks 1.61x faster, but 3 seeds cannot tell"
            " (95% interval 0.83x-3.33x adjusted"
            " for 4 comparisons, 3 seeds); about ",
        ),
        (ALONE, "3 seeds; 1.05x-2.50x as the only comparison); about "),
        (
            TWIN,
            "fast is equivalent within 5%: it reaches the baseline's accuracy as fast (95% interval 0.97x-1.03x adj",
        ),
        (replace(FAST, family=1), "(95% interval 1.43x-1.82x, 3 seeds)"),
        (NOT_REACHED, "fast does not reach the baseline's accuracy within its budgets (3 seeds)"),
        (
            BELOW,
            "fast is past the baseline's accuracy at its lowest budget already, at least 8.00x faster (no"
            " interval, 3 s",
        ),
        (
            replace(BELOW, ratio=1.46),
            "fast is past the baseline's accuracy at its lowest budget already, at most 1.46x slower (no interval, 3 s",
        ),
        (ONE_SEED, "fast reaches the baseline's accuracy 1.61x faster (n=1: one seed, no interval)"),
        (NO_INTERVAL, "(no interval: only 70% of the resamples reach the target; 3 seeds)"),
        (UNKNOWN, "fast cannot be compared: fast has no cost: there is no price for its hardware"),
        (
            replace(FAST, inference_ratio=1.31, inference_low=1.26, inference_high=1.36),
            "; inference takes 1.31x the baseline's (1.26 to 1.36)",
        ),
        (replace(FAST, tuning=None), "; baseline is not tuned"),
        (replace(FAST, left_out=(0.5, 1.5)), "; budget 0.5, 1.5 left out: not run with every seed"),
    ],
)
def test_answers(result, expected):
    assert expected in said(result)


def test_the_plain_answer_is_nothing_but_that():
    assert said(FAST) == (
        "fast reaches the baseline's accuracy 1.61x faster (95% interval 1.43x-1.82x adjusted for 4 comparisons,"
        " 3 seeds)"
    )


def test_a_winner_is_to_be_confirmed():
    slower = replace(FAST, recipe="slow", label="slow", ratio=1.5, adjusted_low=1.4, adjusted_high=1.6)
    less = replace(FAST, recipe="less", label="less", ratio=0.8, adjusted_low=0.7, adjusted_high=0.9)
    assert told(slower, less, FAST, BELOW) == f"{said(FAST)}; confirm on fresh seeds"
    assert [each.claims for each in verdicts([FAST, slower])] == [True, False]


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (UNSURE, "inconclusive"),
        (NOT_REACHED, "not reached"),
        (NO_INTERVAL, "with no interval: too few resamples of the seeds reach the target"),
        (replace(NO_INTERVAL, reach_rate=1.0, reason="the seeds agree"), "with no interval: the seeds agree"),
    ],
)
def test_a_recipe_that_is_no_winner_is_not_announced(result, kind):
    assert not verdicts([result])[0].claims
    assert told(result).startswith(f"no recipe beats the baseline yet (1 {kind})")


def test_several_that_are_no_winner_are_counted_and_the_most_hopeful_is_told():
    words = told(NOT_REACHED, UNSURE, NOT_REACHED)
    assert words == f"no recipe beats the baseline yet (2 not reached, 1 inconclusive): {said(UNSURE)}"
    unknown = replace(NO_INTERVAL, outcome=Outcome.UNKNOWN, ratio=None, reason="no time")
    assert (
        told(NOT_REACHED, unknown) == "no recipe beats the baseline yet (1 not reached, 1 cannot be compared: no time)"
    )
    slower = replace(UNSURE, ratio=1.1)
    assert told(NOT_REACHED, slower) == "no recipe beats the baseline yet (1 not reached, 1 inconclusive)"


def test_a_slower_recipe_is_told_with_its_speedup():
    slower = replace(FAST, ratio=1.5, adjusted_low=1.25, adjusted_high=1.6)
    assert said(slower).startswith(
        "fast reaches the baseline's accuracy 1.50x slower (speedup 0.67x, 95% interval 0.62x-0.80x adjusted"
    )


def test_what_reaches_a_target_that_the_baseline_does_not_is_the_answer():
    only = replace(FAST, ratio=None, baseline_x=None, reason="baseline does not", **NONE)
    assert told(NOT_REACHED, replace(only, label="late", recipe_x=90.0), only) == said(only)


def test_what_stands_alone_but_not_in_its_family_is_inconclusive_and_may_be_confirmed():
    (found, _) = verdicts([ALONE, UNSURE])
    assert not found.claims and found.asks and found.call is Call.INCONCLUSIVE
    assert told(ALONE, UNSURE) == f"{said(ALONE)}; confirm on fresh seeds"


def test_a_control_that_takes_the_gain_away_is_said_and_comes_after_a_gain_that_stays():
    control = Controlled(
        setting=FAST.setting,
        recipe="fast",
        label="fast",
        baseline="baseline",
        control="random-subset",
        name="fast-random",
        ssr=1.0,
        control_ssr=1.0,
        seconds=1.0,
        control_seconds=1.0,
        against=Difference(),
        plain=Difference(),
        confidence=0.95,
    )
    assert said(FAST, control).endswith("; its gain vanishes against its control fast-random")
    less = replace(FAST, recipe="less", label="less", ratio=0.8, adjusted_low=0.7, adjusted_high=0.9)
    taken, kept = verdicts([FAST, less])
    assert summary([replace(taken, control=control), kept]).startswith("less reaches")
    assert summary([taken, kept]).startswith("fast reaches")


def test_the_seeds_that_would_decide_are_those_that_do():
    """By simulation: with that many fresh seeds, judged as one comparison, it is decided about as often as is said, and
    with half of them it is not."""
    noise, effect, family = 0.3, -0.35, 4
    small = replace(UNSURE, ratio=math.exp(effect), n=3, **spread(noise / 3**0.5))
    small = small.among(family)
    assert small.call is Call.INCONCLUSIVE
    (found,) = verdicts([small])
    assert found.seeds is not None and 5 <= found.seeds <= 20
    random = np.random.default_rng(0)

    def decided(n):
        sample_RN = random.normal(effect, noise, (2000, n))
        error_R = sample_RN.std(axis=1, ddof=1) / n**0.5
        return np.mean(np.abs(sample_RN.mean(axis=1)) > -stats.t.ppf(0.05 / 2, n - 1) * error_R)

    assert 0.7 <= decided(found.seeds) <= 0.95
    assert decided(found.seeds // 2) < 0.6
    loud = replace(small, **spread(noise / 3**0.5, Error(size=0.5, df=6)), **between(0.1, 4.0))  # step times
    assert verdicts([loud])[0].seeds is None
    assert "step times are too noisy, profile again" in said(loud)
    slight = replace(small, ratio=1.06, **between(0.8, 1.3), **spread(noise / 3**0.5))
    assert verdicts([slight])[0].seeds is None and "over 100 more seeds would be needed" in said(slight)
    nothing = replace(small, ratio=1.0, **between(0.8, 1.3), **spread(0.05))
    (equal,) = verdicts([nothing])
    assert equal.seeds is not None and equal.seeds > 10  # until the interval lies within the margin


def test_the_headline_names_the_recipe_that_the_fewest_seeds_decide():
    """A wild recipe looks best, and hardly any number of seeds would show it: it is not what to do next."""
    wild = replace(UNSURE, recipe="wild", label="wild", ratio=0.5, **between(0.05, 5.0), **spread(1.2))
    both = verdicts([replace(UNSURE, ratio=0.7), wild])
    steady, other = both
    assert steady.seeds is not None and (other.seeds is None or other.seeds > steady.seeds)
    assert most_promising(both) is steady and most_promising([other]) is other
    assert "wild" not in summary(both)
    assert most_promising(verdicts([replace(UNSURE, ratio=1.06, **between(0.8, 1.3))])) is None


def test_what_one_seed_or_the_lowest_budget_suggests_is_called_that():
    assert told(ONE_SEED).endswith("more seeds are needed before that is a result")
    assert told(BELOW).endswith("lower budgets are needed to say by how much")
    assert told(UNKNOWN) == f"nothing can be compared: {UNKNOWN.reason}"
    assert summary([]) == "nothing to compare: the baseline is the only recipe"


def test_equal_recipes_make_no_winner_out_of_noise():
    """Twenty recipes that are the baseline but for noise: the family is corrected, so hardly one sweep has a winner."""
    random = np.random.default_rng(0)
    winners = 0
    for _ in range(20):
        noise = random.normal(0, 0.005, (21, 2, 3))
        recipes = [
            rows(
                "baseline" if k == 0 else f"r{k}",
                lambda ssr, seed, k=k, noise=noise: ssr / 10 + noise[k, int(ssr > 1), seed],
                budgets=(1.0, 2.0),
            )
            for k in range(21)
        ]
        more = rows("baseline", lambda ssr, seed: ssr / 10, budgets=(0.5,))
        winners += any(each.claims for each in verdicts(equal_quality(table(*recipes, more))))
    assert winners <= 3


BETTER = EqualBudget(
    setting=Setting(**SETTING),
    baseline_setting=Setting(**SETTING),
    recipe="fast",
    label="fast",
    baseline="baseline",
    x="train_seconds",
    budget=100.0,
    own_budget=True,
    baseline_quality=0.97,
    recipe_quality=0.974,
    difference=0.004,
    low=0.002,
    high=0.006,
    adjusted_low=0.001,
    adjusted_high=0.007,
    confidence=0.95,
    n=3,
    p_value=0.001,
    p_adjusted=0.004,
    family=4,
    tuning="lr over 5 values",
)


LOSS = replace(BETTER.setting, unit="bits", metric="bits_per_byte", higher_is_better=False)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (
            BETTER,
            "fast is better than the baseline by 0.40 points in the same time"
            " (95% interval 0.10 to 0.70 adjusted for 4 comparisons, 3 seeds)",
        ),
        (
            replace(
                BETTER, difference=-0.004, adjusted_low=-0.007, adjusted_high=-0.001, x="cost_usd", baseline="plain"
            ),
            "fast is worse than plain by 0.40 points at the same cost"
            " (95% interval 0.10 to 0.70 adjusted for 4 comparisons, 3 seeds)",
        ),
        (
            replace(
                BETTER,
                setting=LOSS,
                baseline_setting=LOSS,
                difference=-0.02,
                adjusted_low=-0.03,
                adjusted_high=-0.01,
                x="steps",
            ),
            "fast is better than the baseline by 0.0200 bits in as many steps"
            " (95% interval 0.0100 to 0.0300 adjusted for 4 comparisons, 3 seeds)",
        ),
        (
            replace(BETTER, adjusted_low=-0.001, adjusted_high=0.009),
            "fast is inconclusive: better than the baseline by 0.40 points in the same time"
            " (95% interval -0.10 to +0.90 points adjusted for 4 comparisons, 3 seeds)",
        ),
        (
            replace(BETTER, family=1),
            "fast is better than the baseline by 0.40 points in the same time (95% interval 0.10 to 0.70, 3 seeds)",
        ),
        (
            replace(BETTER, adjusted_low=None, adjusted_high=None, n=1, own_budget=False, budget=12.5, tuning=None),
            "fast is better than the baseline by 0.40 points in 12.5 s (n=1: one seed, no interval);"
            " baseline is not tuned",
        ),
        (
            replace(BETTER, own_budget=False, x="deletion_usd/{0}", left_out=(0.5,)),
            "fast is better than the baseline by 0.40 points at a cost of deletion of {0} of $100"
            " (95% interval 0.10 to 0.70 adjusted for 4 comparisons, 3 seeds)"
            "; budget 0.5 left out: not run with every seed",
        ),
        (
            replace(BETTER, difference=None, adjusted_low=None, reason="fast was not tested at this time", tuning=None),
            "fast cannot be compared: fast was not tested at this time",
        ),
    ],
)
def test_quality_in_the_same_time(result, expected):
    assert budget_answer(result) == expected


def test_a_baseline_on_another_machine_is_named():
    there = replace(FAST.setting, hardware="NVIDIA A100")
    assert said(replace(FAST, baseline_setting=there)).startswith(
        "fast on AMD EPYC 7B13 reaches the baseline's accuracy on NVIDIA A100 1.61x faster (95% interval"
    )
    threads = replace(there, hardware=FAST.setting.hardware, threads=8)
    assert said(replace(UNSURE, baseline_setting=threads)).startswith(
        "fast (AMD EPYC 7B13, 1 thread) looks 1.61x faster than the baseline (AMD EPYC 7B13, 8 threads), but 3 seeds"
        " cannot tell (95% interval 0.83x-3.33x"
    )
    assert budget_answer(replace(BETTER, baseline_setting=there)).startswith(
        "fast on AMD EPYC 7B13 is better than the baseline on NVIDIA A100 by 0.40 points in the same time"
    )


def test_what_is_found_is_what_is_said():
    frame = table(
        rows("baseline", lambda ssr, seed: 0.9 + 0.02 * np.log(ssr) + seed / 1000),
        rows("fast", lambda ssr, seed: 0.91 + 0.02 * np.log(ssr) + seed**2 / 2000),
    )
    (result,) = equal_budget(frame)
    assert result.better
    assert budget_answer(result).startswith("fast is better than the baseline by 0.98 points in the same time (95% in")


def test_each_source_of_times_is_told_for_itself() -> None:
    assert [len(time_notes(sources)) for sources in ((), ("",), ("measured",), ("measured+profiled", "predicted"))] == [
        *(0, 0, 1, 3)
    ]
    assert "quiet machine" not in " ".join(time_notes(["measured", "predicted"]))
