"""Monotone curves: the closest rising curve through noisy points, linear in log x, never extrapolated.

All functions work on many curves at once. Shapes: R curves, B points; x ascends along B; higher y is better.
"""

from dataclasses import dataclass

import numpy as np

TOLERANCE = 1e-12  # relative: the rounding error that a mean may carry


@dataclass(frozen=True, kw_only=True, slots=True)
class Crossing:
    """The x at which each curve first reaches a value; NaN in `x_R` where it does not within its range."""

    x_R: np.ndarray
    below_R: np.ndarray  # it is there at its first point and was before: it starts above the value, or level at it

    @property
    def found_R(self) -> np.ndarray:
        return np.isfinite(self.x_R)


def monotone(y_RB: np.ndarray, weights_RB: np.ndarray | None = None) -> np.ndarray:
    """Return the rising curves closest to `y_RB` by least squares (the solution of pool-adjacent-violators).

    A point without weight is unknown: it takes no part, and the curve is NaN there.
    """
    if weights_RB is not None:
        known_RB = weights_RB > 0
        return np.where(known_RB, _pooled(np.where(known_RB, y_RB, 0.0).T, weights_RB.T).T, np.nan)
    # Most resamples rise already, and are their own fit.
    falling_R = (y_RB[:, 1:] < y_RB[:, :-1]).any(axis=1)
    if not falling_R.any():
        return y_RB
    fitted_RB = y_RB.copy()
    fitted_RB[falling_R] = _pooled(y_RB[falling_R].T, np.ones((y_RB.shape[1], 1))).T
    return fitted_RB


def _pooled(y_BR: np.ndarray, weights_BR: np.ndarray) -> np.ndarray:
    """Return fits by the min-max formula: at i, the largest over j <= i of the least over k >= i of the mean of j..k.

    The formula costs O(B^2) a curve where pooling costs O(B), but it does all curves at once, and B is about five.
    """
    sums_BR, totals_BR = _summed(y_BR * weights_BR), _summed(weights_BR)
    fitted_BR = np.full(y_BR.shape, -np.inf)
    for j, y_R in enumerate(y_BR):
        totals_KR = totals_BR[j + 1 :] - totals_BR[j]
        some_KR = totals_KR > 0
        means_KR = np.full(fitted_BR[j:].shape, np.inf)
        np.divide(sums_BR[j + 1 :] - sums_BR[j], totals_KR, out=means_KR, where=some_KR)
        means_KR[0] = np.where(some_KR[0], y_R, np.inf)  # the point itself, without the rounding of sums
        smallest_KR = np.minimum.accumulate(means_KR[::-1])[::-1]
        np.maximum(fitted_BR[j:], smallest_KR, out=fitted_BR[j:])
    return fitted_BR


def _summed(values_BR: np.ndarray) -> np.ndarray:
    """Return the sums of the first 0, 1, 2, ... rows."""
    return np.cumsum(np.vstack([np.zeros(values_BR.shape[1]), values_BR]), axis=0)


def crossing(x_RB: np.ndarray, y_RB: np.ndarray, value_R: np.ndarray) -> Crossing:
    """Return where the rising curves first reach `value_R`."""
    # With a slack, because a target that is the mean of the same numbers in another order may differ in the last bit.
    slack_R = TOLERANCE * np.maximum(1.0, np.abs(value_R))
    reached_RB = y_RB >= (value_R - slack_R)[:, None]
    first_R = reached_RB.argmax(axis=1)
    # A curve that starts level at the value was as good before, by all it shows; one that only meets it there was not.
    level_R = reached_RB[:, 0] & (y_RB[:, min(1, y_RB.shape[1] - 1)] <= value_R + slack_R) & (y_RB.shape[1] > 1)
    below_R = (y_RB[:, 0] > value_R + slack_R) | level_R
    x0, y0 = _at(x_RB, first_R - 1), _at(y_RB, first_R - 1)
    x1, y1 = _at(x_RB, first_R), _at(y_RB, first_R)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.clip((value_R - y0) / (y1 - y0), 0.0, 1.0)
        between = np.exp(np.log(x0) + share * (np.log(x1) - np.log(x0)))
    x_R = np.where(first_R == 0, x1, between)
    return Crossing(x_R=np.where(reached_RB.any(axis=1) & ~below_R, x_R, np.nan), below_R=below_R)


def value_at(x_RB: np.ndarray, y_RB: np.ndarray, x_R: np.ndarray) -> np.ndarray:
    """Return the values of the curves at `x_R`; NaN outside their range."""
    slack_R = TOLERANCE * x_R
    inside_R = (x_R >= x_RB[:, 0] - slack_R) & (x_R <= x_RB[:, -1] + slack_R)
    upper_R = np.clip((x_RB < x_R[:, None]).sum(axis=1), 0, x_RB.shape[1] - 1)
    lower_R = np.maximum(upper_R - 1, 0)
    x0, x1, y0, y1 = _at(x_RB, lower_R), _at(x_RB, upper_R), _at(y_RB, lower_R), _at(y_RB, upper_R)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.clip((np.log(x_R) - np.log(x0)) / (np.log(x1) - np.log(x0)), 0.0, 1.0)
    # Two budgets may have the same x, as where times are counted in whole seconds: the later one counts.
    value = np.where(x1 > x0, y0 + share * (y1 - y0), y1)
    return np.where(inside_R, value, np.nan)


def steepest(x_B: np.ndarray, y_B: np.ndarray, x: float) -> float:
    """Return the slope of one curve in log x at `x`; where two pieces meet, that of the steeper one."""
    width_B = np.diff(np.log(x_B))
    near_B = (x_B[:-1] <= x * (1 + TOLERANCE)) & (x_B[1:] >= x * (1 - TOLERANCE)) & (width_B > 0)
    return float((np.diff(y_B)[near_B] / width_B[near_B]).max(initial=0.0))


def _at(values_RB: np.ndarray, index_R: np.ndarray) -> np.ndarray:
    return values_RB[np.arange(len(index_R)), index_R]
