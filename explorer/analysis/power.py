"""Power: how many further seeds would probably decide an inconclusive comparison, and what their runs take.

The seeds are fresh ones, of the recipe and of its baseline, and only they are judged, as one comparison
(`explorer.analysis.confirmed`). Adding seeds to a sweep until an interval excludes 1 would be optional stopping: each
look is another chance to be wrong, and the interval of the last look does not know of the earlier ones. A number of
fresh seeds that is stated before they run has no such bias, and needs no adjustment for the other recipes.

The number comes from the same intervals as the verdict: Student's t over paired seeds, and the noise of step times,
which more seeds do not reduce. It is an estimate: few seeds know neither the effect nor its noise well
(`benchmarks/power.md`).
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import ndtri, stdtrit

from explorer.analysis.equal_quality import EQUIVALENT, Call, EqualQuality
from explorer.analysis.inference import Errors, parted, reach_of, size_of
from explorer.costing import wall_seconds

POWER = 0.8  # probability with which the advised number of seeds decides a comparison
MOST_SEEDS = 100  # more are not advised: from the noise of a few seeds such a number would be a guess
LEAST_SEEDS = 2  # one seed has no error
TOO_MANY = f"over {MOST_SEEDS} more seeds would be needed to decide"
TOO_NOISY = "no number of seeds would decide: step times are too noisy, profile again"


@dataclass(frozen=True, kw_only=True, slots=True)
class Power:
    """Further seeds that would decide a comparison, or the reason why none are advised."""

    seeds: int | None
    reason: str = ""  # why there is no number
    after_looking: bool = False  # they would join fresh seeds whose result is known already: optional stopping


def power_of(result: EqualQuality, *, fresh: bool = False) -> Power | None:
    """Return the power of further seeds for an inconclusive comparison; None for any other.

    `fresh`: the result is one of fresh seeds already, which further seeds join. The ratio, the spread of seeds and the
    exactness of step times are assumed to stay what they are. Then the number is the least at which, with probability
    `POWER`, the interval excludes 1, or lies within the margin of equivalence.
    """
    if result.call is not Call.INCONCLUSIVE or result.effect is None or result.seed_error is None:
        return None
    if result.seed_error == 0:  # seeds that agree exactly: all of the error is that of the times
        return Power(seeds=None, reason=TOO_NOISY, after_looking=fresh)
    first = result.n + 1 if fresh else LEAST_SEEDS
    least = _least(
        abs(result.effect.value),
        of_one_seed=result.seed_error * math.sqrt(result.n),
        times=parted(result.effect.errors, result.seed_error)[1],
        alpha=1 - result.confidence,
        first=first,
    )
    if isinstance(least, str):
        return Power(seeds=None, reason=least, after_looking=fresh)
    return Power(seeds=least - (result.n if fresh else 0), after_looking=fresh)


def _least(effect: float, *, of_one_seed: float, times: Errors, alpha: float, first: int) -> int | str:
    """Return the least number of seeds, from `first`, that decides; or why none does."""
    margin, reach, size = math.log(EQUIVALENT), reach_of(times, alpha), size_of(times)
    # More seeds shrink the error of the seeds by the root of their number, and the error of the times not at all.
    n_N = np.arange(first, MOST_SEEDS + 1)
    seeds_N = of_one_seed / np.sqrt(n_N)
    half_N = np.hypot(stdtrit(n_N - 1, 1 - alpha / 2) * seeds_N, reach)
    spread_N = np.hypot(seeds_N, size)
    # Decided as different: the effect exceeds the half width by what the estimate varies at the given power. Decided as
    # equivalent: the same on both sides of the margin, hence the two-sided quantile.
    enough_N = effect >= half_N + stdtrit(n_N - 1, POWER) * spread_N
    enough_N |= margin - effect >= half_N + stdtrit(n_N - 1, (1 + POWER) / 2) * spread_N
    if enough_N.any():
        return int(n_N[enough_N.argmax()])
    # Infinitely many seeds leave the times: if those are too noisy as well, seeds are not what is missing.
    decides = effect >= reach + ndtri(POWER) * size or margin - effect >= reach + ndtri((1 + POWER) / 2) * size
    return TOO_MANY if decides else TOO_NOISY


# --- what these runs take ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """Runs of a recipe and its baseline, with their time and price; None where a time or a price is not known."""

    runs: int
    train_seconds: float | None  # on a quiet machine
    wall_seconds: float | None  # until all have finished
    usd: float | None


def effort_of(rows: pd.DataFrame, result: EqualQuality, *, seeds: int, workers: int) -> Effort:
    """Return the effort of running a recipe and its baseline on that many further seeds, at every budget of the sweep.

    Time and price are those of the runs that exist, run by run, as in the plan of a sweep.

    Args:
        rows: rows of `results` of the sweep, all budgets and seeds.
        result: the comparison of the two.
        seeds: number of further seeds.
        workers: runs at the same time.
    """
    here = np.ones(len(rows), dtype=bool)
    for column in ("sweep", "device", "hardware", "threads", "world_size"):
        here &= np.asarray(rows[column] == getattr(result.setting, column))
    digests = np.asarray((rows["recipe_digest"] == result.recipe_digest) | (rows["recipe"] == result.baseline))
    mine = rows[here & digests & np.asarray(rows["control"].isna())]
    cells = mine.groupby(["recipe", "ssr"])[["train_seconds", "cost_usd"]].median()
    train, usd = (seeds * float(cells[name].sum(skipna=False)) for name in ("train_seconds", "cost_usd"))
    runs = seeds * len(cells)
    # Evaluation and contention make runs longer than quiet training; by how much, the runs that exist show.
    slower = float((mine["wall_seconds"] / mine["train_seconds"]).median())
    known = math.isfinite(train) and runs > 0
    return Effort(
        runs=runs,
        train_seconds=train if known else None,
        wall_seconds=wall_seconds(train, runs=runs, slowdown=slower if math.isfinite(slower) else 1.0, workers=workers)
        if known
        else None,
        usd=usd if known and math.isfinite(usd) else None,
    )
