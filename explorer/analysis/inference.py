"""Resampling seeds, Student's t, and many comparisons at once.

A handful of seeds is all there is, so the plain percentile bootstrap covers far less than it says (0.80 instead of 0.95
at three seeds). The interval here takes from the bootstrap only the standard error, corrects it by sqrt(n/(n-1)), and
uses a t quantile.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

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

    def reach(self, probability: float) -> float:
        """How far from the truth the estimate is with that probability, split between both sides."""
        tail = probability / 2
        return -self.size * float(ndtri(tail) if self.df is None else stdtrit(self.df, tail))


Errors = tuple[Error, ...]
"""Independent parts of an error; those that are exactly 0 may be left out."""


def scaled(errors: Errors, factor: float) -> Errors:
    """The errors of so many times the estimate."""
    return tuple(Error(size=each.size * abs(factor), df=each.df) for each in errors)


def size_of(errors: Errors) -> float:
    """The standard error that independent parts come to."""
    return math.hypot(*(each.size for each in errors))


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """An estimate whose absence is 0, with its error: what raw and adjusted intervals and p-values come from."""

    value: float
    errors: Errors

    def interval(self, confidence: float, *, of: int = 1, scale: Callable[[float], float] = float) -> Interval:
        """The interval, and the p-value, of one of `of` effects that are judged together.

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
        alpha = round(1 - confidence, 12)
        p_value = self._p_value(of)
        half = self._reach(alpha / of)
        low, high, null = scale(self.value - half), scale(self.value + half), scale(0.0)
        if p_value > alpha:  # rounding must not separate the interval from its p-value
            low, high = min(low, null), max(high, null)
        elif self.value > 0:
            low = max(low, math.nextafter(null, math.inf))
            high = max(high, low)
        else:
            high = min(high, math.nextafter(null, -math.inf))
            low = min(low, high)
        return Interval(low=low, high=high, p_value=p_value)

    def _reach(self, probability: float) -> float:
        return math.hypot(*(each.reach(probability) for each in self.errors))

    def _p_value(self, of: int) -> float:
        """The probability that reaches as far as the value does, by halving in its logarithm."""
        distance = abs(self.value)
        if distance == 0:
            return 1.0
        if size_of(self.errors) == 0:
            return 0.0
        if len(self.errors) == 1:
            return min(1.0, of * 2 * _below(self.errors[0].df, -distance / self.errors[0].size))
        low, high = -_LARGEST, 0.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if self._reach(math.exp(middle)) < distance else (middle, high)
        return min(1.0, of * math.exp(high))


def _below(df: float | None, score: float) -> float:
    """The probability of no more than `score` by Student's t, or by the normal where the error is known."""
    return float(ndtr(score) if df is None else stdtr(df, score))


def exponential(value: float) -> float:
    """exp of a log ratio, within what floats hold."""
    return math.exp(min(max(value, -_LARGEST), _LARGEST))


_LARGEST = 700.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Resamples:
    """How often each resample takes each seed; a mean or a median over seeds asks for nothing else.

    Resamples that take the same are one, with their number as its weight: of five seeds there are 126. The first takes
    each seed once, so it is the sample itself; where it was not drawn, its weight is 0. `counts`: an R x S array for
    each of one or several samples that are resampled at the same time.
    """

    counts: tuple[np.ndarray, ...]
    weight_R: np.ndarray


def draws(n: int, *, resamples: int, key: str) -> np.ndarray:
    """Resamples of n seeds with replacement, one a row: all n**n of them if they are at most `resamples`, else drawn.

    The same arguments always give the same rows.
    """
    if n**n <= resamples:
        return np.array(list(itertools.product(range(n), repeat=n)))
    return generator(key, n).integers(0, n, size=(resamples, n))


def counted(*samples: np.ndarray) -> Resamples:
    """Resamples from their rows of seeds; row k of each of the arrays belongs to resample k."""
    taken_RS = np.hstack([_taken(rows_RS) for rows_RS in samples])
    taken_RS, weight_R = np.unique(np.vstack([np.ones_like(taken_RS[:1]), taken_RS]), axis=0, return_counts=True)
    once = int((taken_RS == 1).all(axis=1).argmax())
    weight_R[once] -= 1
    order = np.r_[once, np.delete(np.arange(len(weight_R)), once)]
    edges = np.cumsum([rows_RS.shape[1] for rows_RS in samples])[:-1]
    return Resamples(counts=tuple(np.split(taken_RS[order], edges, axis=1)), weight_R=weight_R[order].astype(float))


def _taken(rows_RS: np.ndarray) -> np.ndarray:
    """How often each row has each seed."""
    place_RS = rows_RS + np.arange(len(rows_RS))[:, None] * rows_RS.shape[1]
    return np.bincount(place_RS.ravel(), minlength=rows_RS.size).reshape(rows_RS.shape)


def generator(*key: object) -> np.random.Generator:
    """A stream of random numbers that belongs to `key` alone."""
    return np.random.Generator(np.random.Philox(key=int(digest([str(part) for part in key])[:32], 16)))


def standard_error(resampled_R: np.ndarray, *, n: int, weight_R: np.ndarray | None = None) -> float:
    """The standard error of an estimate from n seeds, from its values in the resamples and how many each stands for."""
    weight_R = np.ones(resampled_R.shape) if weight_R is None else weight_R
    mean = weight_R @ resampled_R / weight_R.sum()
    variance = weight_R @ (resampled_R - mean) ** 2 / weight_R.sum()
    return math.sqrt(variance * n / (n - 1))


def t_quantile(confidence: float, df: float | np.ndarray) -> float | np.ndarray:
    """How many standard errors a two-sided interval of that confidence reaches to each side."""
    return stdtrit(df, (1 + confidence) / 2)


def holm(p_values: list[float]) -> list[float]:
    """The p-values adjusted for being a family (Holm 1979): below alpha, at most alpha of families err even once."""
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(len(p_values))
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return [float(value) for value in adjusted]
