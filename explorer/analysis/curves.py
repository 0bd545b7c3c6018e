"""Tradeoff curves: quality over time, cost or steps, one curve for each recipe and hardware, with a band over seeds.

The band is that of single points, by Student's t: it says how exact the mean at a budget is. Comparisons do not use it;
they resample seeds (`comparison`), because points of one curve share them.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from explorer.analysis.inference import t_quantile
from explorer.analysis.ladders import Ladder, Ladders, Setting, ladders_of, stacked
from explorer.analysis.monotone import crossing, monotone, value_at


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A budget of a curve. Without a second seed there is no band, and `low` and `high` are None."""

    ssr: float
    x: float  # median over seeds
    mean: float  # mean quality over seeds
    fitted: float  # the monotone curve through the means
    low: float | None  # the band: the monotone curves through the limits of the means' t intervals
    high: float | None
    n: int  # seeds


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """Quality of one recipe on one hardware as it rises with x (falls, where lower is better), linear in log x."""

    setting: Setting
    recipe: str
    label: str
    is_baseline: bool
    time_source: str
    x: str  # the column that x is
    points: tuple[Point, ...]  # x ascends

    def quality_at(self, x: float) -> float | None:
        """Return the quality at `x`; None outside the tested range."""
        sign = 1 if self.setting.higher_is_better else -1
        value = value_at(self._row("x"), sign * self._row("fitted"), np.array([x]))[0]
        return float(sign * value) if np.isfinite(value) else None

    def x_at(self, quality: float) -> float | None:
        """Return the least x that reaches `quality`; None if that is not within the tested range."""
        sign = 1 if self.setting.higher_is_better else -1
        least = crossing(self._row("x"), sign * self._row("fitted"), np.array([sign * quality])).x_R[0]
        return float(least) if np.isfinite(least) else None

    def _row(self, name: str) -> np.ndarray:
        return np.array([[getattr(point, name) for point in self.points]])


def curves(frame: pd.DataFrame | Ladders, *, x: str = "train_seconds", confidence: float = 0.95) -> list[Curve]:
    """Return the curves in a table with the columns of `results`. Rows without x are left out."""
    lines = ladders_of(frame, x=x).lines()
    return [
        Curve(
            setting=ladder.setting,
            recipe=ladder.recipe,
            label=ladder.label,
            is_baseline=ladder.is_baseline,
            time_source=ladder.time_source,
            x=x,
            points=points,
        )
        for ladder, points in zip(lines, _points(lines, confidence), strict=True)
    ]


def table(curves: list[Curve]) -> pd.DataFrame:
    """Return one row for each point of each curve, with the curve's setting."""
    setting, point = Setting.__dataclass_fields__, Point.__dataclass_fields__
    rows = []
    for curve in curves:
        common = *(getattr(curve.setting, name) for name in setting), curve.recipe, curve.label, curve.is_baseline
        common = *common, curve.time_source, curve.x
        rows += [(*common, *(getattr(entry, name) for name in point)) for entry in curve.points]
    columns = [*setting, "recipe", "label", "is_baseline", "time_source", "x_name", *point]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.astype({"low": float, "high": float}) if rows else frame


def _points(lines: list[Ladder], confidence: float) -> list[tuple[Point, ...]]:
    """Return the points of each ladder. P: points of all ladders, ladder by ladder, by x in each.

    All ladders are computed at once: a view of 100,000 runs has thousands of them, and a call of numpy costs more than
    the arithmetic of one.
    """
    if not lines:
        return []
    x_PS, quality_PS = stacked([line.x_BS for line in lines]), stacked([line.quality_BS for line in lines])
    sizes = np.array([line.ssr_B.size for line in lines])
    line_P = np.repeat(np.arange(sizes.size), sizes)
    order = np.lexsort((np.nanmedian(x_PS, axis=1), line_P))
    x_PS, quality_PS = x_PS[order], quality_PS[order]
    n_P, mean_P = np.isfinite(quality_PS).sum(axis=1), np.nanmean(quality_PS, axis=1)
    half_P = _half_widths(quality_PS, n_P, confidence)
    half_P[np.repeat([line.searched for line in lines], sizes)] = np.nan  # see `SEARCHED`
    sign_P = np.repeat([line.sign for line in lines], sizes)
    # Scattered into an array of lines x budgets, fitted, and gathered again.
    place = line_P, np.arange(line_P.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    columns = (
        np.concatenate([line.ssr_B for line in lines])[order],
        np.nanmedian(x_PS, axis=1),
        mean_P,
        *_fits((mean_P, mean_P - half_P, mean_P + half_P), n_P, sign_P, place),
        n_P,
    )
    points = [
        Point(ssr=ssr, x=x, mean=mean, fitted=fitted, low=_known(low), high=_known(high), n=n)
        for ssr, x, mean, fitted, low, high, n in zip(*(column.tolist() for column in columns), strict=True)
    ]
    edge = [0, *np.cumsum(sizes).tolist()]
    return [tuple(points[start:end]) for start, end in itertools.pairwise(edge)]


def _half_widths(quality_PS: np.ndarray, n_P: np.ndarray, confidence: float) -> np.ndarray:
    """Return half the width of each mean's t interval; NaN for a single seed."""
    half_P = np.full(n_P.shape, np.nan)
    several = n_P > 1
    spread = np.nanstd(quality_PS[several], axis=1, ddof=1)
    half_P[several] = t_quantile(confidence, n_P[several] - 1) * spread / np.sqrt(n_P[several])
    return half_P


def _fits(
    values: Sequence[np.ndarray], n_P: np.ndarray, sign_P: np.ndarray, place: tuple[np.ndarray, np.ndarray]
) -> list[np.ndarray]:
    """Return the monotone fits, weighted by seeds, of the known values. `place`: each point's ladder and rank."""
    shape = place[0][-1] + 1, place[1].max() + 1
    fits = []
    # The limits of the band are fitted like the means, so that the band is monotone and encloses the curve.
    for values_P in values:
        y_LB, weights_LB = np.zeros(shape), np.zeros(shape)
        y_LB[place], weights_LB[place] = sign_P * values_P, np.where(np.isfinite(values_P), n_P, 0)
        fits.append(sign_P * monotone(y_LB, weights_LB)[place])
    return fits


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
