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


def t_interval(
    estimate: float, resampled_R: np.ndarray, *, n: int, df: int, confidence: float, weight_R: np.ndarray | None = None
) -> Interval:
    """The interval of an estimate from n seeds, from its values in the resamples and how many each stands for."""
    weight_R = np.ones(resampled_R.shape) if weight_R is None else weight_R
    mean = weight_R @ resampled_R / weight_R.sum()
    variance = weight_R @ (resampled_R - mean) ** 2 / weight_R.sum()
    error = math.sqrt(variance * n / (n - 1))
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
