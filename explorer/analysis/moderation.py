"""The noise of seeds, moderated over the recipes of a sweep: few seeds say little about a spread, many recipes more.

Three seeds leave two degrees of freedom, with a t quantile of 4.3. The recipes of a sweep are trained alike, on the
same seeds, so the spread of one says something about that of the others. A comparison is linear in the qualities of its
two curves, near enough: it weighs the recipe's budgets one way and the baseline's another. The same weights are put on
the runs of every recipe of the sweep, seed by seed. That makes a table of recipes by seeds with two kinds of noise:

    own        what is left without the means of recipes and of seeds. The variance of a recipe is averaged with one
               that all have in common, which counts for more degrees of freedom the more alike the variances are:
               empirical Bayes (Smyth 2004, as in limma).
    shared     what a seed does to all recipes, and differently at the budgets that are compared. Only seeds count
               for it, so it keeps n-1 degrees of freedom.

The half widths of both add up as squares (`Effect.interval`). Budgets of one recipe and seed may depend on each other
in any way, as those that branch from one trunk do: the weights make one number a seed of them, and only recipes and
seeds are counted. Two things are assumed: recipes share no noise with each other but that of their seed, and none is
much noisier than the rest, least of all the baseline. The rules below keep to the interval of the recipe's own seeds
where there is too little to moderate with, or where the data speak against it. `benchmarks/coverage.md` has what they
were chosen by, and what goes wrong where the assumptions do.

Shapes: M recipes (the baseline first), B budgets, S seeds, R resamples, P probes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, fdtrc, zeta

from explorer.analysis.inference import Error, Errors, reach_of

ASSUMED = (
    "Moderated intervals assume that recipes share no noise but that of their seeds."
    " They also assume that none is much noisier than the others, least of all the baseline."
)
LEAST_RECIPES = 4  # with the baseline: fewer leave too little to moderate with
MOST_PRIOR_DF = 6.0  # what other recipes may count for: few variances look alike even where they are not
MOST_SEEDS = 6  # more tell more by themselves than the others may add
UNLIKE = 0.02  # a spread that is this improbable among the others keeps its own interval, if that is the wider one
SEEDS_THAT_SHOW_IT = 3  # two seeds say too little of their own spread
LEAST_VARIANCE = 1e-5  # of the median one, as in limma: the logarithm of a smaller one would outweigh all others


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Prior:
    """The distribution that variances are taken from: a scaled inverse chi-square."""

    variance: np.ndarray
    df: np.ndarray  # infinite where estimates differ by no more than they would if all variances were equal

    def moderated(self, variance_M: np.ndarray, *, df: int) -> np.ndarray:
        """Return the means of estimated variances and the prior's, each weighing as its degrees of freedom."""
        weight = (df / (self.df + df))[..., None]
        return weight * variance_M + (1 - weight) * self.variance[..., None]

    def chance(self, variance_M: np.ndarray, *, df: int) -> np.ndarray:
        """Return the probability of estimated variances at least as large."""
        return fdtrc(df, np.minimum(self.df, 1e9)[..., None], variance_M / self.variance[..., None])


def prior_of(variance_M: np.ndarray, *, df: int, most: float = np.inf) -> Prior:
    """Return the prior of estimated variances above 0, by the moments of their logarithms (limma's `fitFDist`).

    Args:
        variance_M: the estimates. Axes before the last, here and below, are those of many priors at once.
        df: degrees of freedom of an estimate.
        most: degrees of freedom that the prior has at most.
    """
    logs_M = np.log(variance_M) - digamma(df / 2) + np.log(df / 2)
    excess = logs_M.var(axis=-1, ddof=1) - zeta(2, df / 2)
    some = np.maximum(excess, 1e-9)
    prior_df = np.minimum(most, np.where(excess > 0, 2 * inverse_trigamma(some), np.inf))
    finite = np.where(np.isfinite(prior_df), prior_df, 1e9)
    return Prior(variance=np.exp(logs_M.mean(axis=-1) + digamma(finite / 2) - np.log(finite / 2)), df=prior_df)


def inverse_trigamma(value: np.ndarray) -> np.ndarray:
    """Return the numbers whose trigamma is each value above 0, by Newton's method on 1/trigamma (Smyth 2004)."""
    x = np.where(value < 10, 0.5 + 1 / value, 1 / np.sqrt(value))
    for _ in range(8):  # 1/trigamma is convex and nearly straight, so that these are enough for the last digit
        trigamma = zeta(2, x)
        x = x + trigamma * (trigamma / value - 1) / (2 * zeta(3, x))
    return x


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Moderated:
    """The noise of each recipe's comparison with the first one, the baseline: variances of one seed."""

    own_M: np.ndarray
    own_df: np.ndarray
    shared: np.ndarray
    unlike_M: np.ndarray  # whether it, or the baseline, spreads improbably far


def moderated(base_MS: np.ndarray, own_MS: np.ndarray) -> Moderated:
    """Moderate the noise of comparisons, each the sum of a recipe's row of `own_MS` and the first row of `base_MS`."""
    m, n = base_MS.shape[-2:]
    df = n - 1
    variances, priors, means, unlike = [], [], [], []
    for row_MS in (base_MS, own_MS):
        variance_M = _own_variances(row_MS)
        least = LEAST_VARIANCE * np.median(variance_M, axis=-1, keepdims=True)
        prior = prior_of(np.maximum(variance_M, least), df=df, most=MOST_PRIOR_DF)
        priors.append(prior.df)
        variances.append(prior.moderated(variance_M, df=df))
        means.append(variance_M.mean(axis=-1))
        unlike.append(prior.chance(variance_M, df=df) < (UNLIKE if n >= SEEDS_THAT_SHOW_IT else 0))
    # The mean over recipes holds an m-th of their own noise as well, which is counted already.
    shared = (base_MS + own_MS).mean(axis=-2).var(axis=-1, ddof=1) - sum(means) / m
    return Moderated(
        own_M=variances[0][..., :1] + variances[1],
        own_df=np.minimum(np.minimum(*priors) + df, (m - 1) * df),
        shared=np.maximum(0.0, shared),
        unlike_M=unlike[0][..., :1] | unlike[1],
    )


def _own_variances(row_MS: np.ndarray) -> np.ndarray:
    """Return each recipe's variance over the seeds, without what a seed does to all of them."""
    m = row_MS.shape[-2]
    rest_MS = row_MS - row_MS.mean(axis=-2, keepdims=True)
    # The mean over recipes takes an m-th of the variance with it.
    return rest_MS.var(axis=-1, ddof=1) * m / (m - 1)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Runs:
    """The qualities of a baseline and its recipes on one set of seeds; NaN where a budget lacks one of them."""

    ssr_B: np.ndarray
    y_MBS: np.ndarray

    @classmethod
    def of(cls, ladders: Sequence[tuple[np.ndarray, np.ndarray]], *, seeds: int) -> "Runs":
        """Return the runs of ladders, each as its budgets and its qualities, budget by seed; the baseline's first.

        A ladder that lacks some of the seeds adds nothing.
        """
        ssr_B = np.unique(np.concatenate([ssr_B for ssr_B, _ in ladders]))
        y_MBS = np.full((len(ladders), ssr_B.size, seeds), np.nan)
        for m, (own_B, y_BS) in enumerate(ladders):
            if y_BS.shape[1] == seeds:
                y_MBS[m, np.searchsorted(ssr_B, own_B)] = y_BS
        return cls(ssr_B=ssr_B, y_MBS=y_MBS)

    def steps(self, ssr_B: np.ndarray) -> np.ndarray:
        """Return the standard error of a mean over the seeds at some budgets, over all recipes that have them all; NaN
        where none has, as in a sweep that is still running."""
        variance_MB = self.y_MBS.var(axis=2, ddof=1)
        count_B = np.isfinite(variance_MB).sum(axis=0)
        variance_B = np.nansum(variance_MB, axis=0) / np.where(count_B, count_B, np.nan) / self.y_MBS.shape[2]
        return np.sqrt(variance_B[np.searchsorted(self.ssr_B, ssr_B)])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Moderation:
    """The part of the other recipes of a sweep in the error of one comparison.

    An estimate is probed: it is made again with the mean at one budget of one curve raised by a step, then lowered.
    """

    runs: Runs
    recipe: int  # its place among the runs
    seeds: int  # of the estimate; the runs may be those of the first ones only
    baseline_ssr: np.ndarray  # the budgets of both curves
    recipe_ssr: np.ndarray

    @property
    def offsets(self) -> tuple[np.ndarray, np.ndarray]:
        """Return what the probes add to the means of the baseline and of the recipe, probe by budget."""
        steps_b, steps_r = self.runs.steps(self.baseline_ssr), self.runs.steps(self.recipe_ssr)
        both = np.kron(np.diag(np.r_[steps_b, steps_r]), [[1.0], [-1.0]])
        return both[:, : steps_b.size], both[:, steps_b.size :]

    def errors(self, estimate: float, values_R: np.ndarray, *, by_seeds: Error) -> Errors:
        """Return the error of an estimate that was probed; `by_seeds`, that of its own seeds, where it is safer.

        The values of the probes are the last of `values_R`, whose others are not read.
        """
        steps = np.r_[self.runs.steps(self.baseline_ssr), self.runs.steps(self.recipe_ssr)]
        slopes = _slopes(estimate, values_R[-2 * steps.size :], steps)
        if slopes is None:
            return (by_seeds,)
        # --- the runs of all recipes, weighed as the baseline's and as the recipe's are in this comparison ---
        weights_B = np.zeros((2, self.runs.ssr_B.size))
        weights_B[0, np.searchsorted(self.runs.ssr_B, self.baseline_ssr)] = slopes[: self.baseline_ssr.size]
        weights_B[1, np.searchsorted(self.runs.ssr_B, self.recipe_ssr)] = slopes[self.baseline_ssr.size :]
        used_B = np.asarray((weights_B != 0).any(axis=0))
        whole_M = np.asarray(np.isfinite(self.runs.y_MBS[:, used_B]).all(axis=(1, 2)))
        if not (whole_M[0] and whole_M[self.recipe]):
            return (by_seeds,)
        y_MBS = self.runs.y_MBS[whole_M][:, used_B]
        base_MS, own_MS = ((y_MBS * weights_B[side, used_B][:, None]).sum(axis=1) for side in (0, 1))
        # --- recipes that train alike have the same runs, which count once ---
        _, first, same_M = np.unique(np.hstack([base_MS, own_MS]), axis=0, return_index=True, return_inverse=True)
        kept, place = np.sort(first), int(first[same_M.ravel()[whole_M[: self.recipe].sum()]])
        base_MS, own_MS = base_MS[kept], own_MS[kept]
        still = min(np.median(_own_variances(row_MS)) for row_MS in (base_MS, own_MS)) == 0
        if kept.size < LEAST_RECIPES or place == 0 or still:
            return (by_seeds,)
        noise, recipe = moderated(base_MS, own_MS), int(np.searchsorted(kept, place))
        own = _error(noise.own_M[recipe] / self.seeds, df=float(noise.own_df))
        shared = _error(noise.shared / self.seeds, df=y_MBS.shape[2] - 1)
        errors: Errors = (own, shared) if shared.size else (own,)
        return max(errors, (by_seeds,), key=lambda parts: reach_of(parts, 0.05)) if noise.unlike_M[recipe] else errors


def _slopes(estimate: float, values_P: np.ndarray, steps_B: np.ndarray) -> np.ndarray | None:
    """Return how an estimate follows the mean at each budget; None where that is not known."""
    up_B, down_B = values_P[0::2] - estimate, estimate - values_P[1::2]
    # Where a target is not reached with a mean lowered, or with it raised, only the other side tells.
    up_B, down_B = np.where(np.isfinite(up_B), up_B, down_B), np.where(np.isfinite(down_B), down_B, up_B)
    if not (np.isfinite(up_B).all() and (steps_B > 0).all()):
        return None
    # Monotone curves bend: where the slopes of both sides differ, noise goes half the time along either.
    return np.copysign(np.sqrt((up_B**2 + down_B**2) / 2), up_B + down_B) / steps_B


def _error(variance: np.ndarray, *, df: float) -> Error:
    return Error(size=float(np.sqrt(variance)), df=df)
