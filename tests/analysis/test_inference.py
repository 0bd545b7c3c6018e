"""Resampling, Student's t and Holm against references."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from explorer.analysis.inference import counted, draws, holm, t_interval, t_quantile


def test_all_resamples_are_taken_where_they_are_few():
    assert [tuple(row) for row in draws(3, resamples=27, key="")] == list(itertools.product(range(3), repeat=3))
    assert len(draws(3, resamples=26, key="")) == 26
    assert draws(5, resamples=2000, key="").shape == (2000, 5)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 9])
def test_resamples_that_take_the_same_are_counted_together(n):
    """Mean and median over the resamples, weighted, are those of the rows as they were drawn."""
    rows_RS = draws(n, resamples=500, key="seeds")
    found = counted(rows_RS)
    (counts_RS,) = found.counts
    assert (counts_RS[0] == 1).all()
    assert (counts_RS.sum(axis=1) == n).all() and found.weight_R.sum() == len(rows_RS)
    assert len({tuple(row) for row in counts_RS.tolist()}) == len(counts_RS) <= math.comb(2 * n - 1, n)
    drawn = Counter(tuple(np.bincount(row, minlength=n).tolist()) for row in rows_RS)
    assert all(drawn[tuple(row)] == weight for row, weight in zip(counts_RS.tolist(), found.weight_R, strict=True))
    sample = np.random.default_rng(n).normal(size=n)
    values_R = counts_RS @ sample / n
    plain_R = sample[rows_RS].mean(axis=1)
    if n > 1:
        weighted = t_interval(0.1, values_R, n=n, df=n, confidence=0.9, weight_R=found.weight_R)
        plain = t_interval(0.1, plain_R, n=n, df=n, confidence=0.9)
        assert (weighted.low, weighted.p_value) == (pytest.approx(plain.low), pytest.approx(plain.p_value))


def test_two_samples_that_are_resampled_at_once():
    first, second = draws(2, resamples=4, key=""), draws(3, resamples=27, key="")
    rows = np.repeat(first, 27, axis=0), np.tile(second, (4, 1))
    found = counted(*rows)
    assert found.weight_R.sum() == 4 * 27
    assert len(found.weight_R) == 3 * 10
    assert [counts.shape[1] for counts in found.counts] == [2, 3]
    assert all((counts[0] == 1).all() for counts in found.counts)


def test_draws_belong_to_their_key():
    first, again, other = (draws(6, resamples=50, key=key) for key in ("a", "a", "b"))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert set(np.unique(draws(6, resamples=500, key=""))) == set(range(6))


def test_the_corrected_interval_of_a_mean_is_students():
    """The bootstrap's standard error of a mean is short by sqrt((n-1)/n): the correction gives back the textbook's."""
    sample = np.array([1.0, 1.5, 2.5])
    means = sample[draws(3, resamples=27, key="")].mean(axis=1)
    found = t_interval(float(sample.mean()), means, n=3, df=2, confidence=0.95)
    error = stats.sem(sample)
    low, high = stats.t.interval(0.95, 2, sample.mean(), error)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert found.p_value == pytest.approx(2 * stats.t.sf(sample.mean() / error, 2))


def test_no_spread():
    assert t_interval(0.0, np.zeros(5), n=2, df=1, confidence=0.95).p_value == 1.0
    assert t_interval(1.0, np.ones(5), n=2, df=1, confidence=0.95).p_value == 0.0


@pytest.mark.parametrize("df", [1, 2, 4, 30])
def test_quantile(df):
    assert t_quantile(0.95, df) == pytest.approx(stats.t.ppf(0.975, df))


def test_holm_by_its_definition():
    random = np.random.default_rng(0)
    for _ in range(50):
        p_values = random.uniform(0, 0.2, int(random.integers(1, 8))).tolist()
        found = holm(p_values)
        for alpha in (0.01, 0.05, 0.1):
            rejected = set()
            for rank, index in enumerate(np.argsort(p_values)):
                if p_values[index] > alpha / (len(p_values) - rank):
                    break
                rejected.add(index)
            assert {index for index, p_value in enumerate(found) if p_value <= alpha} == rejected
    assert holm([]) == []
