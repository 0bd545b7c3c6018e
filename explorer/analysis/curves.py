"""Tradeoff curves: quality over time, cost or steps, one curve for each recipe and hardware, with an honest band."""

from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from explorer.analysis.inference import t_quantile
from explorer.analysis.ladders import Ladder, Setting, ladders
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
        """The quality at `x`; None outside the tested range."""
        sign = 1 if self.setting.higher_is_better else -1
        found = value_at(self._row("x"), sign * self._row("fitted"), np.array([x]))[0]
        return float(sign * found) if np.isfinite(found) else None

    def x_at(self, quality: float) -> float | None:
        """The least x that reaches `quality`; None where that is not within the tested range."""
        sign = 1 if self.setting.higher_is_better else -1
        found = crossing(self._row("x"), sign * self._row("fitted"), np.array([sign * quality])).x_R[0]
        return float(found) if np.isfinite(found) else None

    def _row(self, name: str) -> np.ndarray:
        return np.array([[getattr(point, name) for point in self.points]])


def curves(frame: pd.DataFrame, *, x: str = "train_seconds", confidence: float = 0.95) -> list[Curve]:
    """The curves in a table with the columns of `results`. Rows without x are left out."""
    return [_curve(ladder, x, confidence) for ladder in ladders(frame, x=x)]


def table(curves: list[Curve]) -> pd.DataFrame:
    """One row for each point of each curve, with the curve's setting."""
    rows = [
        {**asdict(curve.setting), "recipe": curve.recipe, "label": curve.label, "is_baseline": curve.is_baseline}
        | {"time_source": curve.time_source, "x_name": curve.x}
        | asdict(point)
        for curve in curves
        for point in curve.points
    ]
    frame = pd.DataFrame(rows, columns=None if rows else _COLUMNS)
    return frame.astype({"low": float, "high": float}) if rows else frame


_COLUMNS = [
    *Setting.__dataclass_fields__,
    *("recipe", "label", "is_baseline", "time_source", "x_name"),
    *Point.__dataclass_fields__,
]


def _curve(ladder: Ladder, x: str, confidence: float) -> Curve:
    n_B = np.isfinite(ladder.quality_BS).sum(axis=1)
    x_B = np.nanmedian(ladder.x_BS, axis=1)
    order = np.argsort(x_B, kind="stable")
    mean_B = np.nanmean(ladder.quality_BS, axis=1)
    half_B = _half_widths(ladder.quality_BS, n_B, confidence)
    columns = {
        "ssr": ladder.ssr_B[order],
        "x": x_B[order],
        "mean": mean_B[order],
        "fitted": _fit(mean_B[order], n_B[order], ladder.sign),
        "low": _fit((mean_B - half_B)[order], n_B[order], ladder.sign),
        "high": _fit((mean_B + half_B)[order], n_B[order], ladder.sign),
    }
    points = [
        {name: float(column[i]) if np.isfinite(column[i]) else None for name, column in columns.items()}
        for i in range(order.size)
    ]
    return Curve(
        setting=ladder.setting,
        recipe=ladder.recipe,
        label=ladder.label,
        is_baseline=ladder.is_baseline,
        time_source=ladder.time_source,
        x=x,
        points=tuple(Point(**point, n=int(n)) for point, n in zip(points, n_B[order], strict=True)),  # pyright: ignore
    )


def _half_widths(quality_BS: np.ndarray, n_B: np.ndarray, confidence: float) -> np.ndarray:
    """Half the width of each mean's t interval; NaN for a single seed."""
    half_B = np.full(n_B.shape, np.nan)
    several = n_B > 1
    spread = np.nanstd(quality_BS[several], axis=1, ddof=1)
    half_B[several] = t_quantile(confidence, n_B[several] - 1) * spread / np.sqrt(n_B[several])
    return half_B


def _fit(values_B: np.ndarray, n_B: np.ndarray, sign: int) -> np.ndarray:
    """The monotone fit, weighted by seeds, of the values that are known."""
    fitted = np.full(values_B.shape, np.nan)
    known = np.isfinite(values_B)
    if known.any():
        fitted[known] = sign * monotone(sign * values_B[None, known], n_B[known].astype(float))[0]
    return fitted
