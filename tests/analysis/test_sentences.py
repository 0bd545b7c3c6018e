"""Every answer in words, with the honest variants."""

from dataclasses import replace

import numpy as np
import pytest

from explorer.analysis.equal_budget import EqualBudget, equal_budget
from explorer.analysis.equal_quality import EqualQuality, Outcome, equal_quality
from explorer.analysis.ladders import Setting
from explorer.analysis.sentences import answer, budget_answer, is_winner, summary, time_notes
from tests.analysis.tables import SETTING, rows, table

FAST = EqualQuality(
    setting=Setting(**SETTING),
    baseline_setting=Setting(**SETTING),
    recipe="fast",
    label="fast",
    baseline="baseline",
    x="train_seconds",
    target=0.97,
    own_target=True,
    outcome=Outcome.REACHED,
    baseline_x=100.0,
    recipe_x=62.0,
    ratio=0.62,
    ratio_low=0.55,
    ratio_high=0.70,
    confidence=0.95,
    n=3,
    reach_rate=1.0,
    p_value=0.001,
    p_holm=0.004,
    family=4,
    inference_ratio=1.0,
    time_source="profiled",
    tuning="lr over 5 values",
)
ONE_SEED = replace(FAST, ratio_low=None, ratio_high=None, n=1, p_value=None, p_holm=None, reason="one seed")
NO_INTERVAL = replace(ONE_SEED, n=3, reach_rate=0.7, reason="only 70% of the resamples reach the target")
NO_DIFFERENCE = replace(FAST, ratio_low=0.3, ratio_high=1.2)
NOT_REACHED = replace(ONE_SEED, n=3, outcome=Outcome.NOT_REACHED, ratio=None, recipe_x=None)
BELOW = replace(ONE_SEED, n=3, outcome=Outcome.BELOW, ratio=0.125)
UNKNOWN = replace(NOT_REACHED, outcome=Outcome.UNKNOWN, reason="fast has no cost: there is no price for its hardware")


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (FAST, "fast reaches the baseline's accuracy in 0.62 of its time (95% interval 0.55-0.70, 3 seeds)"),
        (replace(FAST, x="cost_usd"), "in 0.62 of its cost (95%"),
        (replace(FAST, x="steps"), "in 0.62 of its steps (95%"),
        (replace(FAST, baseline="tuned"), "fast reaches tuned's accuracy in 0.62"),
        (replace(FAST, own_target=False), "fast reaches accuracy 0.97 in 0.62 of its time (95%"),
        (
            NO_DIFFERENCE,
            "fast: no difference to baseline in time at the baseline's accuracy (95% interval 0.30-1.20, 3 seeds)",
        ),
        (replace(FAST, p_holm=0.08), "3 seeds); no difference once all 4 comparisons are taken into account"),
        (NOT_REACHED, "fast does not reach the baseline's accuracy within its budgets (3 seeds)"),
        (
            BELOW,
            "fast is past the baseline's accuracy at its lowest budget already, in less than 0.12 of its time (no"
            " interval, 3 s",
        ),
        (ONE_SEED, "fast reaches the baseline's accuracy in 0.62 of its time (n=1: one seed, no interval)"),
        (NO_INTERVAL, "(no interval: only 70% of the resamples reach the target; 3 seeds)"),
        (UNKNOWN, "fast cannot be compared: fast has no cost: there is no price for its hardware"),
        (replace(FAST, inference_ratio=1.3), "; inference costs 1.30 of the baseline's"),
        (replace(FAST, tuning=None), "; baseline is not tuned"),
        (replace(FAST, left_out=(0.5, 1.5)), "; budget 0.5, 1.5 left out: not run with every seed"),
    ],
)
def test_answers(result, expected):
    assert expected in answer(result)


def test_the_plain_answer_is_nothing_but_that():
    assert answer(FAST) == "fast reaches the baseline's accuracy in 0.62 of its time (95% interval 0.55-0.70, 3 seeds)"


def test_a_winner_is_to_be_confirmed():
    slower = replace(FAST, recipe="slow", label="slow", ratio=1.5, ratio_low=1.4, ratio_high=1.6)
    less = replace(FAST, recipe="less", label="less", ratio=0.8, ratio_low=0.7, ratio_high=0.9)
    assert summary([slower, less, FAST, BELOW]) == f"{answer(FAST)}; confirm on fresh seeds"
    assert is_winner(FAST) and not is_winner(slower)


@pytest.mark.parametrize("result", [NO_DIFFERENCE, NOT_REACHED, NO_INTERVAL])
def test_what_is_no_winner_is_not_announced(result):
    assert not is_winner(result)
    assert summary([result]) == f"{result.label} is not shown to need less time than the baseline at equal quality"


def test_several_that_are_no_winner_are_counted():
    assert summary([NOT_REACHED, NOT_REACHED]).startswith("none of 2 recipes is shown")


def test_what_reaches_a_target_that_the_baseline_does_not_is_the_answer():
    only = replace(FAST, ratio=None, ratio_low=None, ratio_high=None, baseline_x=None, reason="baseline does not")
    assert summary([NOT_REACHED, replace(only, label="late", recipe_x=90.0), only]) == answer(only)


def test_what_stands_alone_but_not_in_its_family_is_a_candidate():
    alone = replace(FAST, p_holm=0.08, family=4)
    assert not is_winner(alone)
    assert "no difference once all 4 comparisons are taken into account" in answer(alone)
    assert summary([alone]) == f"{answer(alone)}; confirm on fresh seeds"


def test_what_one_seed_or_the_lowest_budget_suggests_is_called_that():
    assert summary([ONE_SEED]).endswith("more seeds are needed before that is a result")
    assert summary([BELOW]).endswith("lower budgets are needed to say by how much")
    assert summary([UNKNOWN]) == f"nothing can be compared: {UNKNOWN.reason}"
    assert summary([]) == "nothing to compare: there is no recipe beside the baseline"


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
        winners += any(is_winner(result) for result in equal_quality(table(*recipes, more)))
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
    low=0.001,
    high=0.007,
    confidence=0.95,
    n=3,
    p_value=0.001,
    p_holm=0.004,
    family=4,
    tuning="lr over 5 values",
)
LOSS = replace(BETTER.setting, unit="bits", metric="bits_per_byte", higher_is_better=False)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (
            BETTER,
            "fast is better than the baseline by 0.40 points in the same time (95% interval 0.10 to 0.70, 3 seeds)",
        ),
        (
            replace(BETTER, difference=-0.004, low=-0.007, high=-0.001, x="cost_usd", baseline="plain"),
            "fast is worse than plain by 0.40 points at the same cost (95% interval 0.10 to 0.70, 3 seeds)",
        ),
        (
            replace(BETTER, setting=LOSS, baseline_setting=LOSS, difference=-0.02, low=-0.03, high=-0.01, x="steps"),
            "fast is better than the baseline by 0.0200 bits in as many steps (95% interval 0.0100 to 0.0300, 3 seeds)",
        ),
        (
            replace(BETTER, low=-0.001, high=0.009),
            "fast: no difference to baseline in accuracy in the same time"
            " (95% interval -0.10 to +0.90 points, 3 seeds)",
        ),
        (
            replace(BETTER, p_holm=0.2),
            "fast is better than the baseline by 0.40 points in the same time (95% interval 0.10 to 0.70, 3 seeds);"
            " no difference once all 4 comparisons are taken into account",
        ),
        (
            replace(BETTER, low=None, high=None, n=1, own_budget=False, budget=12.5, tuning=None),
            "fast is better than the baseline by 0.40 points in 12.5 s (n=1: one seed, no interval);"
            " baseline is not tuned",
        ),
        (
            replace(BETTER, own_budget=False, x="deletion_usd/{0}", left_out=(0.5,)),
            "fast is better than the baseline by 0.40 points at a cost of deletion of {0} of $100"
            " (95% interval 0.10 to 0.70, 3 seeds); budget 0.5 left out: not run with every seed",
        ),
        (
            replace(BETTER, difference=None, low=None, reason="fast was not tested at this time", tuning=None),
            "fast cannot be compared: fast was not tested at this time",
        ),
    ],
)
def test_quality_in_the_same_time(result, expected):
    assert budget_answer(result) == expected


def test_a_baseline_on_another_machine_is_named():
    there = replace(FAST.setting, hardware="NVIDIA A100")
    assert answer(replace(FAST, baseline_setting=there)) == (
        "fast on AMD EPYC 7B13 reaches the baseline's accuracy in 0.62 of its time on NVIDIA A100"
        " (95% interval 0.55-0.70, 3 seeds)"
    )
    assert answer(
        replace(NO_DIFFERENCE, baseline_setting=replace(there, hardware=FAST.setting.hardware, threads=8))
    ) == (
        "fast (AMD EPYC 7B13, 1 thread): no difference to baseline in time (AMD EPYC 7B13, 8 threads)"
        " at the baseline's accuracy (95% interval 0.30-1.20, 3 seeds)"
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
    assert result.significant and result.better
    assert budget_answer(result).startswith("fast is better than the baseline by 0.98 points in the same time (95% in")


def test_each_source_of_times_is_told_for_itself() -> None:
    assert [len(time_notes(sources)) for sources in ((), ("",), ("measured",), ("measured+profiled", "predicted"))] == [
        *(0, 0, 1, 3)
    ]
    assert "quiet machine" not in " ".join(time_notes(["measured", "predicted"]))
