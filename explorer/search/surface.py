"""The surface of quality over recipes and budgets: a Bayesian linear model of main effects, pairs and budgets.

A run's quality is the baseline's, the effects of the recipe's methods and of their pairs, something of the recipe's
own, and the noise of its seed, a part of which all recipes share. Every effect has a value at each budget; these values
resemble each other, the more the nearer the budgets. Effects are Gaussian about zero: pairs are smaller than main
effects, and shrink more. The scales (of the noise, of pairs, of effects at short budgets, the resemblance) are those of
a grid under which what was seen is likely.

Shapes: N runs seen, R recipes, B budgets, M methods, P pairs, S draws, G grid of scales.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from explorer.search.searcher import Seen, Space

# Variances are relative to that of a main effect at the longest budget.
NOISE = (0.003, 0.03, 0.1, 0.25, 0.6)  # a larger one would take few runs for noise, and see no effect at all
PAIRS = (0.1, 0.5)
GROWTH = (0.0, 0.75, 1.5)  # effects at a budget are (longest / budget) ** this as large as at the longest
RESEMBLANCE = (0.05, 0.5, 0.9)  # correlation of an effect at the shortest budget with that at the longest
OWN = 0.5  # of a pair: what a recipe has of its own, beyond pairs
SHARED = 0.25  # of the noise: what all recipes share at a seed and budget
LEVEL = 25.0  # of the baseline: unknown
OUTLIER = 3.0  # quartile distances below the lower quartile, where a quality is cut off: how bad does not matter
ENOUGH = 5  # qualities, to have quartiles
JITTER = 1e-9
TINY = 1e-30
LARGE = 4.0  # times what keeps a matrix positive
LEAST = (1 - SHARED) * min(NOISE)  # of the eigenvalues of a covariance of runs
PARTS = 4  # likely scales
CROWD = 100  # runs; with more of them fewer scales are tried


@dataclass(frozen=True, kw_only=True, slots=True)
class Scales:
    """Scales of a surface."""

    noise: float
    pairs: float
    growth: float
    resemblance: float


class Cells(NamedTuple):
    """Cells of a landscape: places of recipes and of budgets in their space."""

    recipes: np.ndarray
    budgets: np.ndarray


class Terms:
    """The terms of a space's recipes and budgets, from which covariances follow."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.places = {methods: place for place, methods in enumerate(space.recipes)}
        self.main_RM = np.array([[name in methods for name in space.methods] for methods in space.recipes], dtype=float)
        self.main_RM = self.main_RM.reshape(len(space.recipes), len(space.methods))
        pairs = list(combinations(range(len(space.methods)), 2))
        self.pairs_RP = (
            np.stack([self.main_RM[:, i] * self.main_RM[:, j] for i, j in pairs], axis=1)
            if pairs
            else (np.zeros((len(space.recipes), 0)))
        )
        self.stops_B = np.log2(np.array(space.ladder) / space.ladder[-1])

    def kinship(self, a: np.ndarray, b: np.ndarray, pairs: float) -> np.ndarray:
        """Return the covariance of effects between recipes, given as places."""
        shared = self.main_RM[a] @ self.main_RM[b].T
        return shared + pairs * (shared * (shared - 1) / 2 + OWN * (a[:, None] == b))

    def sizes(self, growth: float) -> np.ndarray:
        """Return the standard deviation of an effect at the budgets, B."""
        return 2 ** (-self.stops_B * growth)

    def between(self, a: np.ndarray, b: np.ndarray, growth: float, resemblance: float) -> np.ndarray:
        """Return the covariance of an effect between budgets, given as places."""
        span, sizes_B = max(float(np.ptp(self.stops_B)), 1e-9), self.sizes(growth)
        nearness = resemblance ** (np.abs(self.stops_B[a][:, None] - self.stops_B[b]) / span)
        return nearness * sizes_B[a][:, None] * sizes_B[b]

    def level(self, a: np.ndarray, b: np.ndarray, growth: float) -> np.ndarray:
        """Return the covariance of the baseline between budgets, given as places."""
        return LEVEL * (a[:, None] == b) * self.sizes(growth)[b] ** 2

    def covariance(self, a: Cells, b: Cells, scales: Scales) -> np.ndarray:
        """Return the covariance of the surface between two lists of cells."""
        between = self.between(a.budgets, b.budgets, scales.growth, scales.resemblance)
        level = self.level(a.budgets, b.budgets, scales.growth)
        return self.kinship(a.recipes, b.recipes, scales.pairs) * between + level


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A surface under some scales, and its share among others."""

    scales: Scales
    share: float
    root_NN: np.ndarray  # Cholesky's, of the covariance of what was seen, relative to `variance`
    solved_N: np.ndarray
    variance: float


class Surface:
    """The surface after some runs: means, covariances and draws, over the scales that are likely."""

    def __init__(self, terms: Terms, seen: Sequence[Seen]) -> None:
        self.terms = terms
        budgets = {budget: place for place, budget in enumerate(terms.space.ladder)}
        runs = [(trial, quality) for trial, quality in seen if quality is not None]
        self._cells = Cells(
            np.array([terms.places[trial.methods] for trial, _ in runs], dtype=int),
            np.array([budgets[trial.budget] for trial, _ in runs], dtype=int),
        )
        self._seeds = np.array([trial.seed for trial, _ in runs])
        y_N = _without_outliers(np.array([quality for _, quality in runs], dtype=float), self._cells.budgets)
        # The unknown level of a budget is centred, so that its variance need not be larger than any quality.
        self._centre_B = _centres(y_N, self._cells.budgets, terms.stops_B)
        self._y_N = y_N - self._centre_B[self._cells.budgets]
        self.parts = self._likely()

    def noise(self, budgets: np.ndarray) -> np.ndarray:
        """Return the variance of a run's noise at some budgets, given as places."""
        sizes = [part.variance * part.scales.noise * self.terms.sizes(part.scales.growth) ** 2 for part in self.parts]
        return np.average(sizes, axis=0, weights=self._shares)[budgets]

    def mean(self, cells: Cells) -> np.ndarray:
        """Return the expected quality of cells."""
        means = [self._towards(cells, part) @ part.solved_N for part in self.parts]
        return self._centre_B[cells.budgets] + np.average(means, axis=0, weights=self._shares)

    def covariance(self, cells: Cells) -> np.ndarray:
        """Return the covariance of the qualities of cells, without the noise of runs."""
        parts = []
        for part in self.parts:
            before = self.terms.covariance(cells, cells, part.scales)
            half = solve_triangular(part.root_NN, self._towards(cells, part).T, lower=True, check_finite=False)
            parts.append(part.variance * (before - half.T @ half))
        return np.average(parts, axis=0, weights=self._shares)

    def draws(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Draw surfaces over all recipes and budgets, SRB; about `count`, shared out among the likely scales."""
        return np.concatenate([self._drawn(part, max(1, round(count * part.share)), rng) for part in self.parts])

    def _drawn(self, part: Part, count: int, rng: np.random.Generator) -> np.ndarray:
        """Draw surfaces from the prior, and move each by what its own runs would have missed (Matheron's rule)."""
        terms, scales = self.terms, part.scales
        (recipes, methods), pairs, stops = terms.main_RM.shape, terms.pairs_RP.shape[1], len(terms.stops_B)
        every = Cells(*(grid.ravel() for grid in np.indices((recipes, stops))))
        one = np.arange(stops)
        between_BB = terms.between(one, one, scales.growth, scales.resemblance)
        # --- the prior, and runs of its own for each draw ---
        prior_SRB = rng.standard_normal((count, recipes, stops)) * np.sqrt(OWN * scales.pairs)
        prior_SRB += terms.main_RM @ rng.standard_normal((count, methods, stops))
        prior_SRB += terms.pairs_RP @ rng.standard_normal((count, pairs, stops)) * np.sqrt(scales.pairs)
        prior_SRB = prior_SRB @ np.linalg.cholesky(between_BB + JITTER * np.diag(np.diag(between_BB))).T
        prior_SRB += (rng.standard_normal((count, stops)) * np.sqrt(LEVEL) * terms.sizes(scales.growth))[:, None]
        noise_NN = np.linalg.cholesky(scales.noise * self._noise_NN(scales.growth))
        noise_SN = rng.standard_normal((count, len(self._y_N))) @ noise_NN.T
        # --- moved to the runs that were seen; their variance is known as well as so many runs tell it ---
        freedom = len(self._y_N)
        scale_S11 = np.sqrt(part.variance * freedom / rng.chisquare(freedom, size=count))[:, None, None]
        seen_SN = prior_SRB[:, self._cells.recipes, self._cells.budgets] + noise_SN
        missed_SN = self._y_N - scale_S11[:, 0] * seen_SN
        weights_NS = cho_solve((part.root_NN, True), missed_SN.T, check_finite=False)
        moved_SRB = (self._towards(every, part) @ weights_NS).T.reshape(count, recipes, stops)
        return self._centre_B + scale_S11 * prior_SRB + moved_SRB

    # --- the scales ---

    @property
    def _shares(self) -> list[float]:
        return [part.share for part in self.parts]

    def _towards(self, cells: Cells, part: Part) -> np.ndarray:
        return self.terms.covariance(cells, self._cells, part.scales)

    def _noise_NN(self, growth: float) -> np.ndarray:
        """Return the covariance of the noise of the runs, relative to its variance at the longest budget."""
        sizes = self.terms.sizes(growth)[self._cells.budgets] ** 2
        together = (self._seeds[:, None] == self._seeds) & (self._cells.budgets[:, None] == self._cells.budgets)
        return (1 - SHARED) * np.diag(sizes) + SHARED * together * sizes

    def _likely(self) -> tuple[Part, ...]:
        """Return surfaces under likely scales, at equal steps of probability: a few runs leave open which are true, and
        the likeliest would be taken for certain."""
        scales, roots, misfits, surprises = [], [], [], []
        recipes, budgets = self._cells
        runs = len(self._y_N)
        pairs = PAIRS[:1] if runs > CROWD else PAIRS
        kinship_P1NN = np.stack([self.terms.kinship(recipes, recipes, pair) for pair in pairs])[:, None]
        noise_G11 = np.array(NOISE)[:, None, None]
        # The qualities are one more row of the matrix: the last row of its root is then the misfit.
        whole = np.empty((len(pairs), len(NOISE), runs + 1, runs + 1))
        whole[..., -1, :-1] = whole[..., :-1, -1] = self._y_N
        for growth, resemblance in product(GROWTH, RESEMBLANCE):
            between = self.terms.between(budgets, budgets, growth, resemblance)
            level, noise_NN = self.terms.level(budgets, budgets, growth), self._noise_NN(growth)
            whole[..., :-1, :-1] = kinship_P1NN * between + (level + noise_G11 * noise_NN)
            whole[..., -1, -1] = LARGE * (self._y_N @ self._y_N + TINY) / LEAST
            root = np.linalg.cholesky(whole).reshape(-1, runs + 1, runs + 1)
            misfit = (root[:, -1, :-1] ** 2).sum(axis=1)
            depth = np.log(np.diagonal(root, axis1=1, axis2=2)[:, :-1]).sum(axis=1)
            surprises += (runs * np.log(misfit + TINY) + 2 * depth).tolist()
            misfits += misfit.tolist()
            roots += list(root[:, :-1, :-1])
            scales += [
                Scales(noise=noise, pairs=pair, growth=growth, resemblance=resemblance)
                for pair, noise in product(pairs, NOISE)
            ]
        likely = np.exp(-0.5 * (np.array(surprises) - min(surprises)))
        steps = np.searchsorted(np.cumsum(likely) / likely.sum(), (np.arange(PARTS) + 0.5) / PARTS)
        return tuple(
            Part(
                scales=scales[place],
                share=float((steps == place).mean()),
                root_NN=roots[place],
                solved_N=cho_solve((roots[place], True), self._y_N, check_finite=False),
                variance=misfits[place] / runs + TINY,
            )
            for place in np.unique(steps)
        )


def _without_outliers(y_N: np.ndarray, budgets_N: np.ndarray) -> np.ndarray:
    """Return the qualities with those that are far below the others at their budget raised to a floor: a recipe that
    almost diverged would make all effects look large."""
    kept = y_N.copy()
    for budget in set(budgets_N.tolist()):
        here = budgets_N == budget
        low, middle = np.quantile(y_N[here], [0.25, 0.75]) if here.sum() >= ENOUGH else (-np.inf, 0.0)
        kept[here] = np.maximum(y_N[here], low - OUTLIER * (middle - low) if np.isfinite(low) else -np.inf)
    return kept


def _centres(y_N: np.ndarray, budgets_N: np.ndarray, stops_B: np.ndarray) -> np.ndarray:
    """Return the mean quality at the budgets, in log time between those at which there are runs."""
    known = np.unique(budgets_N)
    return np.interp(stops_B, stops_B[known], [y_N[budgets_N == stop].mean() for stop in known])
