"""Effects of methods on quality, by a ridge fit to the runs of a search: the picture of what it learned, no claim.

    q(methods, budget, seed) = a(budget) + c(seed) + sum over methods m of [ b(m) + d(m) log2(budget) ] + noise

with a normal prior on b and d whose width is chosen by marginal likelihood. b(m) is the effect at the full budget,
averaged over the recipes that the search looked at; interactions are part of the noise, and widen its interval.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from explorer.analysis.inference import t_quantile
from explorer.search.searcher import Seen, Space

WIDTHS = np.geomspace(1e-2, 1e2, 25)  # of the prior, in units of the noise
FREE = 1e6  # the same for what has no prior


class Effect(NamedTuple):
    """The effect of a method on the signed quality at the full budget, with its interval."""

    method: str
    value: float
    low: float
    high: float
    runs: int  # that have it


def method_effects(space: Space, seen: Sequence[Seen], *, confidence: float = 0.95) -> list[Effect]:
    """Return the effect of each method that some run has, in the order of the space; none while runs are too few."""
    known = [one for one in seen if one.quality is not None]
    methods = [name for name in space.methods if any(name in one.trial.methods for one in known)]
    budgets, seeds = sorted({one.trial.budget for one in known}), sorted({one.trial.seed for one in known})
    fixed = len(budgets) + len(seeds) - 1
    if not methods or len(known) < fixed + 2:
        return []
    y_N = np.array([one.quality for one in known], dtype=float)
    has_NM = np.array([[name in one.trial.methods for name in methods] for one in known], dtype=float)
    doublings_N = np.log2([one.trial.budget for one in known])
    budget_NB = np.array([[one.trial.budget == budget for budget in budgets] for one in known], dtype=float)
    seed_NS = np.array([[one.trial.seed == seed for seed in seeds[1:]] for one in known], dtype=float)
    x_NP = np.hstack([has_NM, has_NM * doublings_N[:, None], budget_NB, seed_NS.reshape(len(known), -1)])
    # Qualities are centred and scaled, so that the widths of priors are in units of their spread.
    scale = float(y_N.std()) or 1.0
    y_N = (y_N - y_N.mean()) / scale
    free_P = np.r_[np.zeros(2 * len(methods), dtype=bool), np.ones(fixed, dtype=bool)]
    fits = [_fit(x_NP, y_N, np.where(free_P, FREE, width)) for width in WIDTHS]
    best = max(fits, key=lambda fit: fit.evidence)
    half_P = float(t_quantile(confidence, max(1, len(known) - fixed))) * np.sqrt(np.diag(best.covariance_PP))
    return [
        Effect(
            method=name,
            value=scale * float(best.mean_P[place]),
            low=scale * float(best.mean_P[place] - half_P[place]),
            high=scale * float(best.mean_P[place] + half_P[place]),
            runs=int(has_NM[:, place].sum()),
        )
        for place, name in enumerate(methods)
    ]


class _Fit(NamedTuple):
    mean_P: np.ndarray
    covariance_PP: np.ndarray
    evidence: float


def _fit(x_NP: np.ndarray, y_N: np.ndarray, width_P: np.ndarray) -> _Fit:
    """Return the posterior of a linear model whose coefficients have prior variance `width_P` times the noise's."""
    precision_PP = x_NP.T @ x_NP + np.diag(1.0 / width_P)
    mean_P = np.linalg.solve(precision_PP, x_NP.T @ y_N)
    n = len(y_N)
    # The noise has the prior 1/variance, so that its estimate is the penalised residual over n.
    noise = max(float(y_N @ (y_N - x_NP @ mean_P)) / n, 1e-12)
    evidence = -0.5 * (n * np.log(noise) + np.linalg.slogdet(precision_PP)[1] + np.log(width_P).sum())
    return _Fit(mean_P, noise * np.linalg.inv(precision_PP), float(evidence))
