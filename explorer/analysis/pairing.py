"""A recipe beside its baseline: the runs that can be compared, and both curves in every resample of the seeds.

Shapes: R resamples (row 0 is the sample itself), B budgets, S seeds.
"""

from dataclasses import dataclass

import numpy as np

from explorer.analysis.inference import draws
from explorer.analysis.ladders import Ladder
from explorer.analysis.monotone import monotone


@dataclass(frozen=True, kw_only=True, slots=True)
class Resampled:
    """One recipe's monotone curve in each resample. Qualities are signed: higher is better."""

    x_RB: np.ndarray  # ascending in each row
    y_RB: np.ndarray
    at_full_budget_R: np.ndarray | None  # the curve's quality at budget 1; None if that was not run with all seeds
    x_at_full_budget_R: np.ndarray | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A baseline and a recipe, resampled jointly where they share seeds."""

    baseline: Resampled
    recipe: Resampled
    n: int  # seeds
    df: int  # degrees of freedom of Student's t
    left_out: tuple[float, ...]  # budgets of either that lack one of the seeds


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cells:
    """The budgets of a ladder that have all of the chosen seeds."""

    ssr_B: np.ndarray
    x_BS: np.ndarray
    y_BS: np.ndarray
    left_out: tuple[float, ...]


def pair(baseline: Ladder, recipe: Ladder, *, resamples: int) -> Pair:
    """Put two ladders side by side.

    Seeds that both have are paired and resampled jointly, with n-1 degrees of freedom. Where they have none in common,
    each is resampled on its own, with 2(n-1). A budget that lacks one of the seeds is left out.
    """
    seeds_b, seeds_r = _seeds(baseline), _seeds(recipe)
    common = np.intersect1d(seeds_b, seeds_r)
    joint = common.size == min(seeds_b.size, seeds_r.size)
    cells_b = _cells(baseline, common if joint else seeds_b)
    cells_r = _cells(recipe, common if joint else seeds_r)
    n = min(cells_b.x_BS.shape[1], cells_r.x_BS.shape[1])
    rows_b, rows_r = _rows(cells_b, cells_r, joint=joint, resamples=resamples)
    return Pair(
        baseline=_resampled(cells_b, rows_b),
        recipe=_resampled(cells_r, rows_r),
        n=n,
        df=n - 1 if common.size else 2 * (n - 1),
        left_out=tuple(sorted({*cells_b.left_out, *cells_r.left_out})),
    )


def _seeds(ladder: Ladder) -> np.ndarray:
    """The seeds of the budget that has most of them; of several such budgets, the smallest."""
    present_BS = np.isfinite(ladder.quality_BS)
    return ladder.seeds_S[present_BS[present_BS.sum(axis=1).argmax()]]


def _cells(ladder: Ladder, seeds: np.ndarray) -> _Cells:
    columns = np.isin(ladder.seeds_S, seeds)
    quality_BS, x_BS = ladder.quality_BS[:, columns], ladder.x_BS[:, columns]
    whole_B = np.isfinite(quality_BS).all(axis=1)
    return _Cells(
        ssr_B=ladder.ssr_B[whole_B],
        x_BS=x_BS[whole_B],
        y_BS=ladder.sign * quality_BS[whole_B],
        left_out=tuple(float(ssr) for ssr in ladder.ssr_B[~whole_B]),
    )


def _rows(b: _Cells, r: _Cells, *, joint: bool, resamples: int) -> tuple[np.ndarray, np.ndarray]:
    """Which seeds each resample takes, for either; the first row takes every seed once."""
    n_b, n_r = b.x_BS.shape[1], r.x_BS.shape[1]
    if joint:
        rows_b = rows_r = draws(n_b, resamples=resamples, key="seeds")
    elif n_b**n_b * n_r**n_r <= resamples:
        all_b, all_r = draws(n_b, resamples=resamples, key=""), draws(n_r, resamples=resamples, key="")
        rows_b, rows_r = np.repeat(all_b, len(all_r), axis=0), np.tile(all_r, (len(all_b), 1))
    else:
        rows_b, rows_r = _drawn(n_b, resamples, "seeds of the baseline"), _drawn(n_r, resamples, "seeds of the recipe")
    return np.vstack([np.arange(n_b), rows_b]), np.vstack([np.arange(n_r), rows_r])


def _drawn(n: int, resamples: int, key: str) -> np.ndarray:
    rows = draws(n, resamples=resamples, key=key)
    return np.resize(rows, (resamples, n)) if len(rows) < resamples else rows


def _resampled(cells: _Cells, rows_RS: np.ndarray) -> Resampled:
    x_RB = np.median(cells.x_BS[:, rows_RS], axis=2).T
    y_RB = cells.y_BS[:, rows_RS].mean(axis=2).T
    order_RB = np.argsort(x_RB, axis=1, kind="stable")
    x_RB, y_RB = np.take_along_axis(x_RB, order_RB, 1), monotone(np.take_along_axis(y_RB, order_RB, 1))
    full = np.flatnonzero(cells.ssr_B == 1.0)
    if full.size == 0:
        return Resampled(x_RB=x_RB, y_RB=y_RB, at_full_budget_R=None, x_at_full_budget_R=None)
    place_RB = order_RB == full[0]
    return Resampled(x_RB=x_RB, y_RB=y_RB, at_full_budget_R=y_RB[place_RB], x_at_full_budget_R=x_RB[place_RB])
