"""Resampling, Student's t and Holm against references."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from explorer.analysis.inference import (
    Effect,
    Error,
    Interval,
    counted,
    draws,
    exponential,
    holm,
    standard_error,
    t_quantile,
)


def t_interval(
    estimate: float, resampled_R: np.ndarray, *, n: int, df: int, confidence: float, weight_R: np.ndarray | None = None
) -> Interval:
    error = Error(size=standard_error(resampled_R, n=n, weight_R=weight_R), df=df)
    return Effect(value=estimate, errors=(error,)).interval(confidence)


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


def test_parts_of_an_error_add_up_in_the_squares_of_their_half_widths():
    seeds, times = Error(size=1.0, df=2), Error(size=0.5, df=None)
    both = Effect(value=1.0, errors=(seeds, times)).interval(0.95)
    halves = 4.302653 * 1.0, 1.959964 * 0.5
    assert both.high - 1.0 == pytest.approx(math.hypot(*halves))
    alone = Effect(value=1.0, errors=(seeds,)).interval(0.95)
    assert both.low < alone.low and both.p_value > alone.p_value
    assert Effect(value=1.0, errors=(seeds, Error(size=0.0, df=3))).interval(0.95).high == pytest.approx(alone.high)
    nothing = Effect(value=1.0, errors=()).interval(0.95)
    assert (nothing.low, nothing.high, nothing.p_value) == (1.0, 1.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("family", [1, 5])
def test_two_parts_hold_the_truth_and_one_quantile_for_both_does_not(family):
    """Three seeds and a known part of the same size; the negative control is Welch and Satterthwaite's quantile."""
    random, missed, control = np.random.default_rng(0), 0, 0
    for sample in random.normal(size=(4000, 3)):
        error, known, truth = sample.std(ddof=1) / 3**0.5, 0.15, random.normal(0, 0.15)
        value = sample.mean() + truth
        parts = Error(size=error, df=2), Error(size=known, df=None)
        missed += Effect(value=value, errors=parts).interval(0.95, of=family).p_value <= 0.05
        df = 2 * (1 + (known / error) ** 2) ** 2
        control += 2 * family * stats.t.sf(abs(value) / math.hypot(error, known), df) <= 0.05
    assert missed / 4000 <= 0.055 / family + 0.005
    assert control > 1.5 * missed


families = st.lists(
    st.tuples(
        st.floats(-3, 3),
        st.one_of(st.just(0.0), st.floats(1e-6, 3)),
        st.sampled_from([1.0, 2.0, 2.5, 8.0, None]),
        st.one_of(st.just(0.0), st.floats(1e-6, 1)),
    ),
    min_size=1,
    max_size=12,
)


@given(families, st.sampled_from([0.5, 0.9, 0.95, 0.99]), st.sampled_from([float, exponential]))
def test_an_interval_contains_the_null_exactly_when_its_p_value_exceeds_alpha(family, confidence, scale):
    null, alpha = scale(0.0), round(1 - confidence, 12)
    for value, size, df, known in family:
        effect = Effect(value=value, errors=(Error(size=size, df=df), Error(size=known, df=None)))
        alone = effect.interval(confidence, scale=scale)
        among = effect.interval(confidence, of=len(family), scale=scale)
        for each in (alone, among):
            assert (each.low <= null <= each.high) == (each.p_value > alpha)
        assert among.low <= alone.low <= alone.high <= among.high and among.p_value >= alone.p_value
        assert effect.interval(confidence, of=1, scale=scale) == alone


@pytest.mark.parametrize("of", [1, 2, 4, 20])
@pytest.mark.parametrize("df", [1.0, 2.0, 7.5, None])
@pytest.mark.parametrize("scale", [float, exponential])
def test_they_agree_at_the_very_boundary(of, df, scale):
    """At the effect whose p-value is alpha, and at the next floats to both sides of it: rounding decides either way,
    and the interval goes with it. The control: what the formula of the interval alone says differs from it."""
    quantile = -float(stats.norm.ppf(0.05 / of / 2) if df is None else stats.t.ppf(0.05 / of / 2, df))
    formula = []
    for value in (quantile, *(math.nextafter(quantile, to) for to in (0, 9e9)), quantile * (1 + 1e-9)):
        for signed in (value, -value):
            found = Effect(value=signed, errors=(Error(size=1.0, df=df),)).interval(0.95, of=of, scale=scale)
            assert (found.low <= scale(0.0) <= found.high) == (found.p_value > 0.05)
            formula.append(scale(abs(signed) - quantile) > scale(0.0))
    assert len(set(formula)) == 2


def test_an_unadjusted_interval_does_not_agree_with_an_adjusted_p_value():
    """The negative control: the interval alone beside the p-value among four, as they were once shown together."""
    effect = Effect(value=3.0, errors=(Error(size=1.0, df=20.0),))
    alone, among = effect.interval(0.95), effect.interval(0.95, of=10)
    assert alone.low > 0 and among.p_value > 0.05 and among.low < 0


def test_all_intervals_of_a_family_hold_the_truth_at_once():
    random = np.random.default_rng(0)
    missed = {1: 0, 8: 0}
    for _ in range(1000):
        sample_NS = random.normal(size=(8, 4)) + random.normal(size=4)  # they depend on each other
        effects = [Effect(value=s.mean(), errors=(Error(size=s.std(ddof=1) / 2, df=3),)) for s in sample_NS]
        for of in missed:
            missed[of] += any(not e.interval(0.95, of=of).low <= 0 <= e.interval(0.95, of=of).high for e in effects)
    assert missed[8] <= 70 < missed[1]
