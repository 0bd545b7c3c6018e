"""Learning curves of several runs: smoothed, and averaged over seeds with a band.

A frame of curves is that of `store.learning_curves`. The band is the t interval of the mean at each place, from the
spread of the seeds there. Places of one curve are not independent, so the band says how exact a mean is at one place,
and not that a whole curve lies inside. A mean ends where the shortest of its runs ends: beyond it, it would be one of
other runs.
"""

import itertools
import math

import numpy as np
import pandas as pd

from explorer.analysis.inference import t_quantile
from explorer.analysis.ladders import searched

CONFIDENCE = 0.95
SMOOTH = 0.02  # the share of a run that a noisy curve is smoothed over at first
PLACES = 200  # of a mean where runs have more than that between them
MEANS = ("recipe", "ssr", "x", "y", "low", "high", "n")


def smoothed(frame: pd.DataFrame, *, x: str, share: float) -> pd.Series:
    """Return the exponential mean of each run's curve over about `share` of the longest run; `value` for a share of 0.

    It weighs by distance along `x`, so that thinning changes nothing, and divides by the weight that it has gathered,
    so that it does not begin at zero. Rows are in the order of runs and steps.
    """
    if not share or frame.empty:
        return frame["value"]
    at, values = frame[x].to_numpy(float), frame["mean"].to_numpy(float)
    length = share * float(at.max())
    parts = [_exponential(at[run], values[run], length) for run in _runs(frame)]
    return pd.Series(np.concatenate(parts), index=frame.index)


def over_seeds(frame: pd.DataFrame, *, x: str, y: str = "value") -> pd.DataFrame:
    """Return the mean curve of each recipe and budget: recipe, ssr, x, y, low, high and n, the number of seeds.

    `low` and `high` are NaN for a single seed, and for runs that a search chose. Runs without a known `x` are left out.
    Rows are in the order of runs and steps.
    """
    known = frame[frame[x].notna()]
    at, values = known[x].to_numpy(float), known[y].to_numpy(float)
    curves: dict[tuple[str, float], list[tuple[np.ndarray, np.ndarray]]] = {}
    runs = _runs(known)
    first = known.iloc[[run.start for run in runs]]
    for run, recipe, ssr in zip(runs, first["recipe"], first["ssr"], strict=True):
        curves.setdefault((recipe, ssr), []).append((at[run], values[run]))
    if not curves:
        return pd.DataFrame({name: pd.Series(dtype=float) for name in MEANS})
    means = [_mean(of_seeds) for of_seeds in curves.values()]
    lengths = [len(mean[0]) for mean in means]
    recipes, budgets = zip(*curves, strict=True)
    columns = {name: np.concatenate(parts) for name, parts in zip(MEANS[2:], zip(*means, strict=True), strict=True)}
    chosen = set(first.loc[searched(first), "recipe"])
    without_band = np.repeat([recipe in chosen for recipe in recipes], lengths)
    for name in ("low", "high"):
        columns[name] = np.where(without_band, np.nan, columns[name])
    return pd.DataFrame(
        {"recipe": np.repeat(np.array(recipes, dtype=object), lengths), "ssr": np.repeat(budgets, lengths), **columns}
    )


def _mean(curves: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, ...]:
    """Return x, y, low, high and n of the mean of some curves."""
    first, last = max(places[0] for places, _ in curves), min(places[-1] for places, _ in curves)
    every = np.unique(np.concatenate([places for places, _ in curves]))
    at = every[(every >= first) & (every <= last)]
    if len(at) > PLACES:
        at = np.linspace(first, last, PLACES)
    values = np.array([np.interp(at, places, heights) for places, heights in curves])
    n, mean = len(values), values.mean(axis=0)
    half = np.full(len(at), np.nan)
    if n > 1:
        half = t_quantile(CONFIDENCE, n - 1) * values.std(axis=0, ddof=1) / math.sqrt(n)
    return at, mean, mean - half, mean + half, np.full(len(at), n)


def _runs(frame: pd.DataFrame) -> list[slice]:
    """Return the rows of each run, which lie behind one another."""
    names = frame["directory"].to_numpy(dtype=object)
    starts = np.flatnonzero(np.r_[True, names[1:] != names[:-1]][: len(names)]).tolist()
    return [slice(start, end) for start, end in itertools.pairwise([*starts, len(names)])]


def _exponential(x: np.ndarray, values: np.ndarray, length: float) -> np.ndarray:
    keep = np.exp(-np.diff(x, prepend=x[0]) / length) if length > 0 else np.zeros(len(x))
    result, total, weight = np.empty(len(x)), 0.0, 0.0
    for place, (kept, value) in enumerate(zip(keep, values, strict=True)):
        total, weight = total * kept + value, weight * kept + 1.0
        result[place] = total / weight
    return result
