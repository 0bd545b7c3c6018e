"""The front: the points that nothing beats in cost and quality at once, and how sure their place on it is."""

from dataclasses import asdict

import numpy as np
import pandas as pd

from explorer.analysis.inference import generator
from explorer.analysis.ladders import Ladder, ladders
from explorer.errors import AnalysisError


def front(x: np.ndarray, y: np.ndarray, *, higher_is_better: bool = True) -> np.ndarray:
    """Indices of the points that nothing beats, by rising x: least x, best y, one of each tie.

    Raises `AnalysisError` for NaN, which would hide better points.
    """
    x, y = _checked(x, y)
    y = y if higher_is_better else -y
    order = np.lexsort((-y, x))
    best = np.maximum.accumulate(y[order])
    return order[np.r_[True, best[1:] > best[:-1]][: order.size]]


def hypervolume(
    x: np.ndarray, y: np.ndarray, *, worst_x: float, worst_y: float, higher_is_better: bool = True
) -> float:
    """The area between the front and the reference point. For a logarithmic axis, give logarithms."""
    x, y = _checked(x, y)
    y, worst_y = (y, worst_y) if higher_is_better else (-y, -worst_y)
    keep = (x < worst_x) & (y > worst_y)
    x, y = x[keep], y[keep]
    if x.size == 0:
        return 0.0
    i = front(x, y)
    return float(np.sum((np.r_[x[i][1:], worst_x] - x[i]) * (y[i] - worst_y)))


def front_table(frame: pd.DataFrame, *, x: str = "train_seconds", resamples: int = 1000) -> pd.DataFrame:
    """The mean point of every recipe and budget, whether it is on its setting's front, and with which probability.

    Columns: the setting, recipe, label, is_baseline, ssr, x, quality, n, on_front, probability. The probability is the
    share of resamples of the seeds in which the point is on the front; NaN where a point of the setting has one seed
    alone. Recipes share seeds, so they are resampled jointly. Controls of other recipes are no candidates, and are left
    out.
    """
    found = [ladder for ladder in ladders(frame, x=x) if ladder.control is None]
    settings = list(dict.fromkeys(ladder.setting for ladder in found))
    parts = [_setting_table([ladder for ladder in found if ladder.setting == key], resamples) for key in settings]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _setting_table(found: list[Ladder], resamples: int) -> pd.DataFrame:
    rows = pd.DataFrame(
        [
            {**asdict(ladder.setting), "recipe": ladder.recipe, "label": ladder.label, "ssr": float(ssr)}
            | {"is_baseline": ladder.is_baseline}
            for ladder in found
            for ssr in ladder.ssr_B
        ]
    )
    x_PS, quality_PS = _aligned(found)
    higher = found[0].setting.higher_is_better
    rows["x"], rows["quality"] = np.nanmedian(x_PS, axis=1), np.nanmean(quality_PS, axis=1)
    rows["n"] = np.isfinite(quality_PS).sum(axis=1)
    rows["on_front"] = False
    rows.loc[front(rows["x"].to_numpy(), rows["quality"].to_numpy(), higher_is_better=higher), "on_front"] = True
    rows["probability"] = _membership(x_PS, quality_PS, higher, resamples)
    return rows


def _aligned(found: list[Ladder]) -> tuple[np.ndarray, np.ndarray]:
    """x and quality of all points, one a row, with a column for each seed of any of them; NaN where it has no run."""
    seeds = np.unique(np.concatenate([ladder.seeds_S for ladder in found]))
    places = [np.searchsorted(seeds, ladder.seeds_S) for ladder in found]
    grids = []
    for name in ("x_BS", "quality_BS"):
        wide = [np.full((ladder.ssr_B.size, seeds.size), np.nan) for ladder in found]
        for grid, ladder, place in zip(wide, found, places, strict=True):
            grid[:, place] = getattr(ladder, name)
        grids.append(np.concatenate(wide))
    return grids[0], grids[1]


def _membership(x_PS: np.ndarray, quality_PS: np.ndarray, higher: bool, resamples: int) -> np.ndarray:
    """How often each point is on the front when the seeds are resampled. A point that drew no seed keeps its mean."""
    n_P = np.isfinite(quality_PS).sum(axis=1)
    if n_P.min() < 2:
        return np.full(n_P.shape, np.nan)
    seeds = x_PS.shape[1]
    counts_RS = generator("front", seeds).multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples)
    present_PS = np.isfinite(quality_PS).astype(float)
    drawn_RP = counts_RS @ present_PS.T
    total_RP = counts_RS @ np.nan_to_num(quality_PS).T
    mean_P = np.nanmean(quality_PS, axis=1)
    quality_RP = np.where(drawn_RP > 0, total_RP / np.maximum(drawn_RP, 1), mean_P)
    return _shares(np.nanmedian(x_PS, axis=1), quality_RP if higher else -quality_RP)


def _shares(x_P: np.ndarray, quality_RP: np.ndarray) -> np.ndarray:
    """The share of the rows R in which each point is on the front; points of the same x compete with one another."""
    times, best_R = np.zeros(x_P.size), np.full(quality_RP.shape[0], -np.inf)
    for x in np.unique(x_P):
        rivals = np.flatnonzero(x_P == x)
        winner_R = rivals[quality_RP[:, rivals].argmax(axis=1)]
        quality_R = quality_RP[np.arange(best_R.size), winner_R]
        np.add.at(times, winner_R[quality_R > best_R], 1)
        best_R = np.maximum(best_R, quality_R)
    return times / best_R.size


def _checked(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if x.shape != y.shape or x.ndim != 1:
        raise AnalysisError(f"a front needs as many x as y in one row each; found {x.shape} and {y.shape}")
    if np.isnan(x).any() or np.isnan(y).any():
        raise AnalysisError("a front of unknown values: NaN found; leave those points out")
    return x, y
