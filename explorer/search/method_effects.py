"""Effects of methods on quality, by a ridge fit to the runs of a search: the picture of what it learned, no claim.

    q(recipe, budget, seed) = a(budget) + c(seed) + sum over methods m of [ b(m) + d(m) log2(budget) ] x(m)
                              + sum over pairs e(m, n) x(m) x(n) + own(recipe) + shared(budget, seed) + noise

x(m) is 1 with the method and 0 without it, less its mean over all recipes that could be tried: b(m) is the effect of
the method at the full budget in an average recipe. Everything but a and c has a normal prior. Its scales are not
chosen: the interval is that of all scales of a grid, each as likely as it makes the runs. Pairs, what a recipe has of
its own and what runs of one seed share widen it, because runs that share them are no independent witnesses.

Shapes: N runs, P coefficients, M methods, G grid of scales.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from explorer.analysis.inference import t_quantile
from explorer.search.searcher import Seen, Space


class Scales(NamedTuple):
    """Prior variances of coefficients."""

    main: float  # in units of the noise's
    pairs: float  # in units of main effects'
    shared: float  # in units of the noise's


SCALES = tuple(Scales(*scales) for scales in product(np.geomspace(1e-2, 1e3, 9), (0.0, 0.1, 0.5), (0.0, 0.5)))
SLOPE = 0.25  # of a doubling of the budget, in units of main effects'
OWN = 0.5  # of a recipe's own, in units of pairs'
FREE = 1e6  # of what has no prior
NONE = 1e-9  # of what a scale leaves out
MOST_OWN = 200  # recipes that have a coefficient of their own: those with most runs
LEAST = 3  # degrees of freedom, with which a spread of Student's t exists


class Effect(NamedTuple):
    """The effect of a method on the signed quality at the full budget, with its interval."""

    method: str
    value: float
    low: float
    high: float
    runs: int  # that have it


def method_effects(
    space: Space, seen: Sequence[Seen], *, confidence: float = 0.95, scales: Sequence[Scales] = SCALES
) -> list[Effect]:
    """Return the effect of each method that some run has, in the order of the space; none while runs are too few."""
    known = [one for one in seen if one.quality is not None]
    methods = [name for name in space.methods if any(name in one.trial.methods for one in known)]
    fixed = len({one.trial.budget for one in known}) + len({one.trial.seed for one in known}) - 1
    freedom = len(known) - fixed
    if not methods or freedom < LEAST:
        return []
    y_N = np.array([one.quality for one in known], dtype=float)
    # Qualities are centred and scaled, so that no unit is too small or too large.
    scale = float(y_N.std()) or 1.0
    x_NP, kinds_P = _design(space, known, methods)
    spread_G, mean_GM, variance_GM = _fits(x_NP, kinds_P, (y_N - y_N.mean()) / scale, len(methods), freedom, scales)
    share_G = np.exp(spread_G - spread_G.max())
    share_G /= share_G.sum()
    value_M = share_G @ mean_GM
    # The spread of a mixture: that of its parts, and that between them.
    spread_M = np.sqrt(share_G @ (variance_GM + (mean_GM - value_M) ** 2 * (freedom - 2) / freedom))
    half_M = float(t_quantile(confidence, freedom)) * spread_M
    runs = Counter(name for one in known for name in one.trial.methods)
    return [
        Effect(method=name, value=scale * mean, low=scale * (mean - half), high=scale * (mean + half), runs=runs[name])
        for name, mean, half in zip(methods, value_M.tolist(), half_M.tolist(), strict=True)
    ]


def _design(space: Space, known: Sequence[Seen], methods: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients' columns and the kind of each: main, slope, pair, own, shared, free."""
    trials = [one.trial for one in known]
    mean_M = np.array([[name in recipe for name in methods] for recipe in space.recipes], dtype=float).mean(axis=0)
    main_NM = np.array([[name in trial.methods for name in methods] for trial in trials], dtype=float) - mean_M
    doublings_N = np.log2([trial.budget for trial in trials])
    again = [name for name, count in Counter(trial.methods for trial in trials).most_common(MOST_OWN) if count > 1]
    cells = sorted({(trial.budget, trial.seed) for trial in trials})
    budgets, seeds = sorted({trial.budget for trial in trials}), sorted({trial.seed for trial in trials})
    parts = {
        "main": list(main_NM.T),
        "slope": list((main_NM * doublings_N[:, None]).T),
        "pair": [main_NM[:, i] * main_NM[:, j] for i, j in combinations(range(len(methods)), 2)],
        "own": [[trial.methods == recipe for trial in trials] for recipe in again],
        "shared": [[(trial.budget, trial.seed) == cell for trial in trials] for cell in cells],
        "free": [[trial.budget == budget for trial in trials] for budget in budgets]
        + [[trial.seed == seed for trial in trials] for seed in seeds[1:]],
    }
    kinds_P = np.array([kind for kind, columns in parts.items() for _ in columns])
    return np.array([column for columns in parts.values() for column in columns], dtype=float).T, kinds_P


def _fits(
    x_NP: np.ndarray, kinds_P: np.ndarray, y_N: np.ndarray, mains: int, freedom: int, scales: Sequence[Scales]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the log likelihood of each of the scales, and the mean and squared spread of the first coefficients."""
    width_GP = np.array([[_width(kind, one) for kind in kinds_P] for one in scales])
    precision_GPP = x_NP.T @ x_NP + np.eye(len(kinds_P)) / width_GP[:, :, None]
    inverse_GPP = np.linalg.inv(precision_GPP)
    mean_GP = inverse_GPP @ (x_NP.T @ y_N)
    # The noise has the prior 1/variance, so that coefficients have a Student's t distribution with these degrees of
    # freedom, and their variance is that of the penalised residual.
    residual_G = np.maximum(y_N @ y_N - mean_GP @ (x_NP.T @ y_N), 1e-12)
    evidence_G = -0.5 * (
        freedom * np.log(residual_G) + np.linalg.slogdet(precision_GPP)[1] + np.log(width_GP).sum(axis=1)
    )
    diagonal_GM = inverse_GPP[:, np.arange(mains), np.arange(mains)]
    return evidence_G, mean_GP[:, :mains], residual_G[:, None] / freedom * diagonal_GM


def _width(kind: str, scales: Scales) -> float:
    pairs = max(scales.main * scales.pairs, NONE)
    return {
        "main": scales.main,
        "slope": SLOPE * scales.main,
        "pair": pairs,
        "own": OWN * pairs,
        "shared": max(scales.shared, NONE),
        "free": FREE,
    }[kind]
