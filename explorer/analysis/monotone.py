"""Monotone curves: the closest rising one through noisy points, linear in the logarithm of x, never extrapolated.

All functions work on many curves at once. Shapes: R curves, B points; x ascends along B; higher y is better.
"""

from dataclasses import dataclass

import numpy as np

TOLERANCE = 1e-12  # relative; what rounding may take from a mean


@dataclass(frozen=True, kw_only=True, slots=True)
class Crossing:
    """Where each curve first reaches a value. `x_R` is NaN where it does so nowhere within its range."""

    x_R: np.ndarray
    below_R: np.ndarray  # it starts above the value: it is reached somewhere below the first point

    @property
    def found_R(self) -> np.ndarray:
        return np.isfinite(self.x_R)


def monotone(y_RB: np.ndarray, weights_B: np.ndarray | None = None) -> np.ndarray:
    """The rising curves that are closest to `y_RB` in the least-squares sense (what pool-adjacent-violators finds).

    By the min-max formula: the value at i is the largest over j <= i of the smallest over k >= i of the mean of j..k.
    """
    count = y_RB.shape[-1]
    weights_B = np.ones(count) if weights_B is None else weights_B
    zero = np.zeros((*y_RB.shape[:-1], 1))
    sums = np.concatenate([zero, np.cumsum(y_RB * weights_B, axis=-1)], axis=-1)
    weight = np.concatenate([[0.0], np.cumsum(weights_B)])
    starts, ends = np.arange(count)[:, None], np.arange(count)[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        means = (sums[..., None, 1:] - sums[..., :-1, None]) / (weight[None, 1:] - weight[:-1, None])
    means = np.where(starts == ends, y_RB[..., None, :], means)
    means = np.where(starts <= ends, means, np.inf)
    smallest = np.minimum.accumulate(means[..., ::-1], axis=-1)[..., ::-1]
    return np.where(starts <= ends, smallest, -np.inf).max(axis=-2)


def crossing(x_RB: np.ndarray, y_RB: np.ndarray, value_R: np.ndarray) -> Crossing:
    """Where the rising curves first reach `value_R`."""
    slack_R = TOLERANCE * np.maximum(1.0, np.abs(value_R))
    reached_RB = y_RB >= (value_R - slack_R)[:, None]
    first_R = reached_RB.argmax(axis=1)
    below_R = y_RB[:, 0] > value_R + slack_R
    x0, y0 = _at(x_RB, first_R - 1), _at(y_RB, first_R - 1)
    x1, y1 = _at(x_RB, first_R), _at(y_RB, first_R)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.clip((value_R - y0) / (y1 - y0), 0.0, 1.0)
        between = np.exp(np.log(x0) + share * (np.log(x1) - np.log(x0)))
    found = np.where(first_R == 0, x1, between)
    return Crossing(x_R=np.where(reached_RB.any(axis=1) & ~below_R, found, np.nan), below_R=below_R)


def value_at(x_RB: np.ndarray, y_RB: np.ndarray, x_R: np.ndarray) -> np.ndarray:
    """The curves' values at `x_R`; NaN outside their range."""
    slack_R = TOLERANCE * x_R
    inside_R = (x_R >= x_RB[:, 0] - slack_R) & (x_R <= x_RB[:, -1] + slack_R)
    upper_R = np.clip((x_RB < x_R[:, None]).sum(axis=1), 0, x_RB.shape[1] - 1)
    lower_R = np.maximum(upper_R - 1, 0)
    x0, x1, y0, y1 = _at(x_RB, lower_R), _at(x_RB, upper_R), _at(y_RB, lower_R), _at(y_RB, upper_R)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.clip((np.log(x_R) - np.log(x0)) / (np.log(x1) - np.log(x0)), 0.0, 1.0)
    value = np.where(x1 > x0, y0 + share * (y1 - y0), y1)
    return np.where(inside_R, value, np.nan)


def _at(values_RB: np.ndarray, index_R: np.ndarray) -> np.ndarray:
    return np.take_along_axis(values_RB, index_R[:, None], axis=1)[:, 0]
