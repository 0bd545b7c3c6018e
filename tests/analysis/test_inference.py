"""Resampling, Student's t and Holm against references."""

import itertools

import numpy as np
import pytest
from scipy import stats

from explorer.analysis.inference import draws, holm, t_interval, t_quantile


def test_all_resamples_are_taken_where_they_are_few():
    assert [tuple(row) for row in draws(3, resamples=27, key="")] == list(itertools.product(range(3), repeat=3))
    assert len(draws(3, resamples=26, key="")) == 26
    assert draws(5, resamples=2000, key="").shape == (2000, 5)


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
