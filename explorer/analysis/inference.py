"""Inference from few seeds: resampling, Student's t, and many comparisons at once.

A sweep has a handful of seeds, so the plain percentile bootstrap covers far less than it says (0.80 instead of 0.95 at
three seeds). The interval here takes only the standard error from the bootstrap, corrects it by sqrt(n/(n-1)), and uses
a t quantile. `benchmarks/coverage.md` has the coverage that this reaches. Where a sweep has several recipes, the
noise of all tells more than that of one comparison (`explorer.analysis.moderation`).
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from explorer.canonical import digest


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A two-sided interval, and the probability of so large an effect if there were none."""

    low: float
    high: float
    p_value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Error:
    """A standard error, and the degrees of freedom that it was estimated with; None where it is known."""

    size: float
    df: float | None

    def __post_init__(self) -> None:
        assert self.size >= 0 and (self.df is None or self.df > 0)


Errors = tuple[Error, ...]
"""Independent parts of an error; those that are exactly 0 may be left out."""


def scaled(errors: Errors, factor: float) -> Errors:
    """Return the errors of `factor` times the estimate."""
    return tuple(Error(size=error.size * abs(factor), df=error.df) for error in errors)


def size_of(errors: Errors) -> float:
    """Return the standard error of independent parts together."""
    return math.hypot(*(error.size for error in errors))


def parted(errors: Errors, size: float) -> tuple[Errors, Errors]:
    """Return the first parts of an error, which together have that size, and the others."""
    place = next(place for place in range(len(errors) + 1) if size_of(errors[:place]) == size)
    return errors[:place], errors[place:]


def reach_of(errors: Errors, probability: float) -> float:
    """Return the distance from the truth that an estimate exceeds with that probability, both sides together."""
    # Parts with the same degrees of freedom have the same quantile, which is most of the work.
    tail = probability / 2
    quantiles = {df: float(ndtri(tail) if df is None else stdtrit(df, tail)) for df in {error.df for error in errors}}
    return math.hypot(*(error.size * quantiles[error.df] for error in errors))


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """An estimate, 0 where there is no effect, with its error: the source of intervals and p-values."""

    value: float
    errors: Errors

    def interval(self, confidence: float, *, of: int = 1, scale: Callable[[float], float] = float) -> Interval:
        """Return the interval and the p-value of one of `of` effects that are judged together.

        Both are Bonferroni's (Dunn 1961): the p-value times `of`, and the interval at a level as much higher. So they
        agree: the interval contains 0 exactly when the p-value exceeds 1 - confidence, and all `of` intervals hold the
        truth at once with at least that confidence, however the effects depend on each other. Holm's method has the
        same smallest p-value and smaller later ones, but the intervals that go with it (Guilbaud 2008) end at 0 for
        what it rejects, so they would not say how large an effect is. The smallest p-value is that of the recipe that
        is announced; the later ones lose a factor of at most `of`. The largest statistic over joint resamples would be
        less wide, but two or three seeds do not tell how effects depend on each other.

        Where the error has several parts, each has its own half width, and their squares add up (Howe 1974). One
        quantile for the whole, at degrees of freedom by Welch and Satterthwaite, errs two to three times as often as it
        says: a spread of three seeds that is small by luck hands the quantile over to the other part, which has many.

        `scale` maps the effect and its limits to the unit in which they are shown; it rises.
        """
        alpha = round(1 - confidence, 12)  # 1 - 0.95 is 0.050000000000000044, and a p-value may be exactly 0.05
        p_value = min(1.0, of * _p_value(self))
        half = reach_of(self.errors, alpha / of)
        low, high, null = scale(self.value - half), scale(self.value + half), scale(0.0)
        # The interval contains "no effect" exactly when the p-value exceeds alpha. Both come from different roundings,
        # so the limits are moved by the last bit where they would contradict each other: views read either.
        if p_value > alpha:
            low, high = min(low, null), max(high, null)
        elif self.value > 0:
            low = max(low, math.nextafter(null, math.inf))
            high = max(high, low)
        else:
            high = min(high, math.nextafter(null, -math.inf))
            low = min(low, high)
        return Interval(low=low, high=high, p_value=p_value)


# Most of the work of an interval, and asked twice: of the effect by itself, and as one of several.
@lru_cache(maxsize=4096)
def _p_value(effect: Effect) -> float:
    """Return the probability at which `reach_of` equals the distance of the value from 0."""
    distance = abs(effect.value)
    if distance == 0:
        return 1.0
    if size_of(effect.errors) == 0:
        return 0.0
    if len(effect.errors) == 1:
        return 2 * _below(effect.errors[0].df, -distance / effect.errors[0].size)
    # Several parts have no closed form. Bisection in the logarithm of the probability: 60 halvings of a range of
    # 700 leave an error below any float that is printed.
    low, high = -_LARGEST, 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if reach_of(effect.errors, math.exp(middle)) < distance else (middle, high)
    return math.exp(high)


def _below(df: float | None, score: float) -> float:
    """Return the probability of at most `score` by Student's t, or by the normal where the error is known."""
    return float(ndtr(score) if df is None else stdtr(df, score))


def exponential(value: float) -> float:
    """Return exp of a log ratio, within the range of floats."""
    return math.exp(min(max(value, -_LARGEST), _LARGEST))


_LARGEST = 700.0  # exp of more overflows (at 709.8)


@dataclass(frozen=True, kw_only=True, slots=True)
class Resamples:
    """Counts of each seed in each resample, which is all that a mean or a median over seeds needs.

    Equal resamples are one row, with their number as its weight: five seeds have 126 different ones. The first row
    takes each seed once, so it is the sample itself; if it was not drawn, its weight is 0. `counts` is an R x S array
    for each of the samples that are resampled at the same time.
    """

    counts: tuple[np.ndarray, ...]
    weight_R: np.ndarray


def draws(n: int, *, resamples: int, key: str) -> np.ndarray:
    """Return resamples of n seeds with replacement, one a row: all n**n if that is at most `resamples`, else drawn.

    The same arguments always give the same rows, so a result can be reproduced to the last digit.
    """
    if n**n <= resamples:
        return np.array(list(itertools.product(range(n), repeat=n)))
    return generator(key, n).integers(0, n, size=(resamples, n))


def counted(*samples: np.ndarray) -> Resamples:
    """Return resamples from their rows of seeds; row k of each of the arrays belongs to resample k."""
    # The sample itself is put in front, so that it is there even if it was not drawn, and is then counted once less.
    taken_RS = np.hstack([_taken(rows_RS) for rows_RS in samples])
    taken_RS, weight_R = np.unique(np.vstack([np.ones_like(taken_RS[:1]), taken_RS]), axis=0, return_counts=True)
    once = int((taken_RS == 1).all(axis=1).argmax())
    weight_R[once] -= 1
    order = np.r_[once, np.delete(np.arange(len(weight_R)), once)]
    edges = np.cumsum([rows_RS.shape[1] for rows_RS in samples])[:-1]
    return Resamples(counts=tuple(np.split(taken_RS[order], edges, axis=1)), weight_R=weight_R[order].astype(float))


def _taken(rows_RS: np.ndarray) -> np.ndarray:
    """Return the number of times that each row has each seed."""
    # One bincount for all rows: each row counts in a range of its own, which is a hundred times faster than a loop.
    place_RS = rows_RS + np.arange(len(rows_RS))[:, None] * rows_RS.shape[1]
    return np.bincount(place_RS.ravel(), minlength=rows_RS.size).reshape(rows_RS.shape)


def generator(*key: object) -> np.random.Generator:
    """Return a stream of random numbers that depends on `key` and on nothing else."""
    return np.random.Generator(np.random.Philox(key=int(digest([str(part) for part in key])[:32], 16)))


def standard_error(resampled_R: np.ndarray, *, n: int, weight_R: np.ndarray | None = None) -> float:
    """Return the standard error of an estimate from n seeds, from its values in the resamples, with their weights."""
    weight_R = np.ones(resampled_R.shape) if weight_R is None else weight_R
    mean = weight_R @ resampled_R / weight_R.sum()
    variance = weight_R @ (resampled_R - mean) ** 2 / weight_R.sum()
    # The bootstrap draws from n values whose own variance is too small by (n-1)/n; at three seeds that is a third.
    return math.sqrt(variance * n / (n - 1))


def t_quantile(confidence: float, df: float | np.ndarray) -> float | np.ndarray:
    """Return the half width of a two-sided interval of that confidence, in standard errors."""
    return stdtrit(df, (1 + confidence) / 2)


def holm(p_values: list[float]) -> list[float]:
    """Return p-values adjusted as a family (Holm 1979).

    If those below alpha are rejected, at most a share alpha of families has a single error or more.
    """
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(len(p_values))
    highest = 0.0  # an adjusted p-value is never below that of a smaller one: steps down stop at the first failure
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return [float(value) for value in adjusted]
