"""A recipe beside its baseline: the runs that can be compared, and both curves in every resample of the seeds.

Shapes: R different resamples (row 0 is the sample itself), B budgets, S seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from explorer.analysis.inference import Resamples, counted, draws
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
    weight_R: np.ndarray  # how many resamples each row stands for
    n: int  # seeds
    df: int  # degrees of freedom of Student's t
    left_out: tuple[float, ...]  # budgets of either that lack one of the seeds
    same: bool  # the recipe has the baseline's quality in every run, seed by seed


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cells:
    """The budgets of a ladder that have all of the chosen seeds."""

    ssr_B: np.ndarray
    x_BS: np.ndarray
    y_BS: np.ndarray
    left_out: tuple[float, ...]


def pairs(baseline: Ladder, recipes: Sequence[Ladder], *, resamples: int) -> list[Pair]:
    """Put each of the recipes beside the baseline, whose own curves are found once for all recipes with its seeds.

    Seeds that both have are paired and resampled jointly, with n-1 degrees of freedom. Where they have none in common,
    each is resampled on its own, with 2(n-1). A budget that lacks one of the seeds is left out.
    """
    seeds_b, known = _seeds(baseline), {}
    done = []
    for recipe in recipes:
        seeds_r = _seeds(recipe)
        common = np.intersect1d(seeds_b, seeds_r)
        joint = common.size == min(seeds_b.size, seeds_r.size)
        mine, others = (common, common) if joint else (seeds_b, seeds_r)
        taken = _resamples(mine.size, others.size, joint=joint, resamples=resamples)
        key = (tuple(mine), others.size, joint)
        if key not in known:
            cells_b = _cells(baseline, mine)
            known[key] = cells_b, _resampled(cells_b, taken.counts[0])
        cells_b, curves_b = known[key]
        cells_r = _cells(recipe, others)
        n = min(mine.size, others.size)
        done.append(
            Pair(
                baseline=curves_b,
                recipe=_resampled(cells_r, taken.counts[-1]),
                weight_R=taken.weight_R,
                n=n,
                df=n - 1 if common.size else 2 * (n - 1),
                left_out=tuple(sorted({*cells_b.left_out, *cells_r.left_out})),
                same=joint and _same(cells_b, cells_r),
            )
        )
    return done


def pair(baseline: Ladder, recipe: Ladder, *, resamples: int) -> Pair:
    """One recipe beside the baseline."""
    return pairs(baseline, [recipe], resamples=resamples)[0]


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


def _same(first: _Cells, second: _Cells) -> bool:
    return np.array_equal(first.ssr_B, second.ssr_B) and np.array_equal(first.y_BS, second.y_BS)


@lru_cache(maxsize=32)
def _resamples(n_b: int, n_r: int, *, joint: bool, resamples: int) -> Resamples:
    """Which seeds each resample takes, of either; of both at once if `joint`."""
    if joint:
        return counted(draws(n_b, resamples=resamples, key="seeds"))
    if n_b**n_b * n_r**n_r <= resamples:
        all_b, all_r = draws(n_b, resamples=resamples, key=""), draws(n_r, resamples=resamples, key="")
        return counted(np.repeat(all_b, len(all_r), axis=0), np.tile(all_r, (len(all_b), 1)))
    return counted(_drawn(n_b, resamples, "seeds of the baseline"), _drawn(n_r, resamples, "seeds of the recipe"))


def _drawn(n: int, resamples: int, key: str) -> np.ndarray:
    rows = draws(n, resamples=resamples, key=key)
    return np.resize(rows, (resamples, n)) if len(rows) < resamples else rows


def _resampled(cells: _Cells, counts_RS: np.ndarray) -> Resampled:
    x_RB = _medians(cells.x_BS, counts_RS)
    y_RB = counts_RS @ cells.y_BS.T / counts_RS.shape[1]
    order_RB = np.argsort(x_RB, axis=1, kind="stable")
    x_RB, y_RB = np.take_along_axis(x_RB, order_RB, 1), monotone(np.take_along_axis(y_RB, order_RB, 1))
    full = np.flatnonzero(cells.ssr_B == 1.0)
    if full.size == 0:
        return Resampled(x_RB=x_RB, y_RB=y_RB, at_full_budget_R=None, x_at_full_budget_R=None)
    place_RB = order_RB == full[0]
    return Resampled(x_RB=x_RB, y_RB=y_RB, at_full_budget_R=y_RB[place_RB], x_at_full_budget_R=x_RB[place_RB])


def _medians(x_BS: np.ndarray, counts_RS: np.ndarray) -> np.ndarray:
    """The median x of each resample; only where seeds differ in it is there anything to find."""
    x_RB = np.repeat(x_BS[None, :, 0], len(counts_RS), axis=0)
    differing_B = (x_BS != x_BS[:, :1]).any(axis=1)
    if differing_B.any():
        seeds = np.broadcast_to(np.arange(counts_RS.shape[1]), counts_RS.shape)
        rows_RS = np.repeat(seeds.ravel(), counts_RS.ravel()).reshape(counts_RS.shape)
        x_RB[:, differing_B] = np.median(x_BS[differing_B][:, rows_RS], axis=2).T
    return x_RB
