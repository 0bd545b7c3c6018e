"""Resampling seeds, Student's t, and many comparisons at once.

A handful of seeds is all there is, so the plain percentile bootstrap covers far less than it says (0.80 instead of 0.95
at three seeds). The interval here takes from the bootstrap only the standard error, corrects it by sqrt(n/(n-1)), and
uses a t quantile.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from explorer.canonical import digest


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A two-sided interval, and the probability of so large an effect if there were none."""

    low: float
    high: float
    p_value: float


def draws(n: int, *, resamples: int, key: str) -> np.ndarray:
    """Resamples of n seeds with replacement, one a row: all n**n of them if they are at most `resamples`, else drawn.

    The same arguments always give the same rows.
    """
    if n**n <= resamples:
        return np.array(list(itertools.product(range(n), repeat=n)))
    return generator(key, n).integers(0, n, size=(resamples, n))


def generator(*key: object) -> np.random.Generator:
    """A stream of random numbers that belongs to `key` alone."""
    return np.random.Generator(np.random.Philox(key=int(digest([str(part) for part in key])[:32], 16)))


def t_interval(estimate: float, resampled_R: np.ndarray, *, n: int, df: int, confidence: float) -> Interval:
    """The interval of an estimate from n seeds, from its values in the resamples."""
    error = float(np.std(resampled_R)) * math.sqrt(n / (n - 1))
    half = float(t_quantile(confidence, df)) * error
    score = abs(estimate) / error if error > 0 else 0.0 if estimate == 0 else math.inf
    return Interval(low=estimate - half, high=estimate + half, p_value=float(2 * stdtr(df, -score)))


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
