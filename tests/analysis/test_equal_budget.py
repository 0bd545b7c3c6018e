"""Quality at the baseline's own time, cost or steps."""

import math

import pytest
from scipy import stats

from explorer.analysis.equal_budget import equal_budget
from explorer.errors import AnalysisError
from tests.analysis.tables import rows, table

SEEDS = {0: -0.01, 1: 0.002, 2: 0.008}


def curve(gain):
    return lambda ssr, seed: gain + 0.8 + 0.05 * math.log(ssr) + SEEDS[seed]


def noisy(gain):
    return lambda ssr, seed: gain + 0.8 + 0.05 * math.log(ssr) + 0.5 * SEEDS[(seed + 1) % 3]


def one(frame, **asked):
    (result,) = equal_budget(frame, **asked)
    return result


def test_the_difference_is_read_at_the_baselines_full_budget():
    result = one(table(rows("baseline", curve(0.0)), rows("fast", curve(0.03), step=0.8)))
    assert result.budget == 100
    assert result.baseline_quality == pytest.approx(0.8)
    assert result.difference == pytest.approx(0.03 + 0.05 * math.log(1 / 0.8))


def test_the_interval_is_that_of_paired_differences():
    """At equal steps nothing is interpolated, so the bootstrap's standard error is that of a paired t-test."""
    frame = table(rows("baseline", curve(0.0)), rows("fast", noisy(0.03)))
    result = one(frame, x="steps")
    mine, base = [noisy(0.03)(1.0, k) for k in range(3)], [curve(0.0)(1.0, k) for k in range(3)]
    expected = stats.ttest_rel(mine, base)
    interval = expected.confidence_interval(0.95)
    assert result.p_value == pytest.approx(expected.pvalue)
    assert (result.low, result.high) == (pytest.approx(interval.low), pytest.approx(interval.high))
    assert result.better is None or result.better == (interval.low > 0)


def test_better_follows_the_metrics_direction():
    frame = table(rows("baseline", curve(0.0)), rows("fast", noisy(0.2)))
    assert one(frame).better is True
    assert one(frame.assign(higher_is_better=False, quality=-frame["quality"])).better is True
    assert one(frame.assign(quality=-frame["quality"] + frame["ssr"])).better is False


def test_no_difference_is_no_answer():
    assert one(table(rows("baseline", curve(0.0)), rows("same", noisy(0.0)))).better is None


def test_nothing_is_extrapolated():
    result = one(table(rows("baseline", curve(0.0)), rows("dear", curve(0.1), step=10)))
    assert (result.difference, result.low) == (None, None)
    assert result.reason == "dear was not tested at this time"
    beyond = one(table(rows("baseline", curve(0.0)), rows("fast", curve(0.1))), budget=1000)
    assert beyond.reason == "baseline was not tested at this time"


def test_a_given_budget():
    result = one(table(rows("baseline", curve(0.0)), rows("fast", curve(0.03))), budget=50.0)
    assert result.baseline_quality == pytest.approx(0.8 + 0.05 * math.log(0.5))
    with pytest.raises(AnalysisError, match="above 0"):
        equal_budget(table(rows("baseline", curve(0.0))), budget=0)


def test_the_family_is_corrected():
    found = equal_budget(table(rows("baseline", curve(0.0)), rows("a", noisy(0.03)), rows("b", noisy(0.05))))
    assert [result.family for result in found] == [2, 2]
    assert all((result.p_adjusted or 0) >= (result.p_value or 1) for result in found)


def test_a_baseline_that_is_not_done_is_a_reason():
    result = one(table(rows("baseline", curve(0.0), budgets=(0.5,)), rows("fast", curve(0.1))))
    assert "has not finished its full budget" in (result.reason or "")
