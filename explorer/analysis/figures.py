"""Figures of one recipe, to be compared with limits: time to a quality, cost, inference, deletion."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from explorer.analysis.comparison import LEAST_REACH_RATE, RESAMPLES, Judged, judge, known, pair
from explorer.analysis.equal_quality import EqualQuality
from explorer.analysis.inference import exponential
from explorer.analysis.ladders import SEARCHED, Ladder
from explorer.analysis.monotone import crossing
from explorer.analysis.step_times import StepTimes, error_of
from explorer.provenance.levels import Level

# --- time to a quality ---

_SAME = 1e-9  # relative: the rounding error that the time of a tested budget may carry


@dataclass(frozen=True, kw_only=True, slots=True)
class Tested:
    """A budget that was run, with its time and quality."""

    ssr: float
    seconds: float  # median over seeds
    quality: float  # mean over seeds
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Reached:
    """The time to a quality of one recipe. `seconds` is None if no tested budget has it, and no point between two."""

    target: float | None  # None: there is nothing to reach, see `reason`
    best: float  # the best quality of the curve
    best_seconds: float  # the least time to that
    seconds: float | None
    low: float | None = None  # the interval of `seconds`
    high: float | None = None
    at_lowest: bool = False  # the lowest budget exceeds the quality: less time was not tried
    reach_rate: float | None = None  # share of the resamples whose curve has it; None for one seed
    n: int
    doubt: str = ""  # why the quality is uncertain; empty if it is not
    tested: Tested | None = None  # the least tested budget that has it; if none has, the one of the best quality
    below: float | None = None  # the tested budget below `seconds`; None where `seconds` is that of a tested one
    left_out: tuple[float, ...] = ()  # budgets that lack seeds and took no part
    reason: str = ""  # why nothing can be said
    seconds_R: np.ndarray = field(repr=False, compare=False)  # the sample, then the resamples; NaN: not reached
    weight_R: np.ndarray = field(repr=False, compare=False)  # number of resamples behind each of these
    seeds: tuple[int, ...]
    df: int = 0
    times: StepTimes = field(default_factory=StepTimes, repr=False, compare=False)  # how exact `seconds` is


def reached_by(
    ladder: Ladder, *, baseline: Ladder | None, target: float | None, confidence: float, resamples: int = RESAMPLES
) -> Reached:
    """Return the time in which a recipe reaches the target.

    Args:
        ladder: the recipe, along its training time.
        baseline: its baseline; None where there is none.
        target: the quality; None for the baseline's at its full budget, read off again in every resample.
        confidence: of the interval.
        resamples: bootstrap resamples of the seeds.
    """
    reason = ""
    if not ladder.ssr_B.size:
        reason = "its time is unknown: its steps were not profiled and its runs shared the machine"
    # A fixed target needs no baseline; the baseline's own quality needs one run at its full budget.
    elif target is None and (baseline is None or not baseline.ssr_B.size):
        reason = "the baseline's quality is unknown: no single recipe of its name has a finished run of known time here"
    if reason:
        nothing = np.full(1, math.nan)
        return Reached(
            target=None,
            best=math.nan,
            best_seconds=math.nan,
            seconds=None,
            n=0,
            reason=reason,
            seconds_R=nothing,
            weight_R=nothing,
            seeds=(),
        )
    base = ladder if baseline is None else baseline
    return _reached(ladder, baseline=base, target=target, confidence=confidence, resamples=resamples)


def _reached(ladder: Ladder, *, baseline: Ladder, target: float | None, confidence: float, resamples: int) -> Reached:
    own = target is None
    both = pair(baseline if own else ladder, ladder, resamples=resamples)
    curve, sign, seeds = both.recipe, ladder.sign, tuple(int(seed) for seed in ladder.seeds_S)
    top = int(curve.y_RB[0].argmax())
    best, best_seconds = float(sign * curve.y_RB[0, top]), float(curve.x_RB[0, top])
    # --- the target, in each resample ---
    target_R = both.baseline.at_full_budget_R if own else np.full(len(curve.x_RB), sign * target)
    if target_R is None:
        why = f"{baseline.label} has not finished its full budget with every seed"
        blank = np.full(len(curve.x_RB), np.nan)
        return Reached(
            target=None,
            best=best,
            best_seconds=best_seconds,
            seconds=None,
            n=both.n,
            reason=why,
            seconds_R=blank,
            weight_R=both.weight_R,
            seeds=seeds,
        )
    # --- the time to it; a curve that starts above the target is taken at its lowest budget ---
    cross = crossing(curve.x_RB, curve.y_RB, target_R)
    seconds_R = np.where(cross.below_R, curve.x_RB[:, 0], cross.x_R)
    times = ladder.times_at(float(seconds_R[0])) if np.isfinite(seconds_R[0]) else StepTimes()
    judged = judge(np.log(seconds_R), n=both.n, df=both.df, weight_R=both.weight_R, noise=error_of(times))
    if ladder.searched or baseline.searched:
        judged = Judged(effect=None, reach_rate=None, reason=SEARCHED)
    seconds, at_lowest = known(seconds_R[0]), bool(cross.below_R[0])
    # --- certainty: a recipe is as good as itself, and a budget that was run needs no interpolation ---
    enough = (judged.reach_rate or 0.0) >= LEAST_REACH_RATE
    sure = (own and ladder is baseline) or (at_lowest and enough)
    sized = judged.effect is not None and seconds is not None
    interval = judged.effect.interval(confidence, scale=exponential) if judged.effect and sized else None
    tested, below = _around(ladder, best_seconds if seconds is None else seconds, left_out=both.left_out)
    return Reached(
        target=float(sign * target_R[0]),
        best=best,
        best_seconds=best_seconds,
        seconds=seconds,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        at_lowest=at_lowest,
        reach_rate=judged.reach_rate,
        n=both.n,
        doubt="" if sure else judged.reason or "",
        tested=tested,
        below=below,
        left_out=both.left_out,
        seconds_R=seconds_R,
        weight_R=both.weight_R,
        seeds=seeds,
        df=both.df,
        times=times,
    )


def _around(ladder: Ladder, seconds: float, *, left_out: tuple[float, ...]) -> tuple[Tested, float | None]:
    """Return the tested budget at a time or above it, and the one below if the time lies between two."""
    used = ~np.isin(ladder.ssr_B, left_out)
    ssr_B, x_BS, quality_BS = ladder.ssr_B[used], ladder.x_BS[used], ladder.quality_BS[used]
    x_B = np.nanmedian(x_BS, axis=1)
    order = np.argsort(x_B, kind="stable")
    upper = min(int(np.searchsorted(x_B[order], seconds * (1 - _SAME))), order.size - 1)
    at = order[upper]
    tested = Tested(
        ssr=float(ssr_B[at]),
        seconds=float(x_B[at]),
        quality=float(np.nanmean(quality_BS[at])),
        n=int(np.isfinite(quality_BS[at]).sum()),
    )
    exact = math.isclose(tested.seconds, seconds, rel_tol=_SAME)
    return tested, None if exact or upper == 0 else float(ssr_B[order[upper - 1]])


# --- all figures of a recipe ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Deletion:
    """The forecast of deleting a class, of the costliest of some runs. Unknown seconds are None."""

    level: Level
    steps: float | None  # to replay, in the run where their share is largest; None: unknown
    of: float | None  # all steps of that run
    seconds: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """All figures of one recipe. None: unknown."""

    reached: Reached
    higher_is_better: bool
    usd_per_hour: float | None
    price_source: str  # empty: there is no price
    price_as_of: str  # empty: the source gives no date
    no_price: str  # why there is none
    inference_seconds: float | None
    inference_ratio: float | None  # to the baseline; its own is 1 exactly
    inference_low: float | None  # its interval; None where a profile kept no rounds
    inference_high: float | None
    deletions: Mapping[str, Deletion | str]  # or why it is not known
    peak_memory: float | None = None  # bytes: the most of its runs; None unless it was measured in all of them

    def usd(self, seconds: float | None) -> float | None:
        """Return the cost of a training time."""
        if seconds is None or self.usd_per_hour is None:
            return None
        return seconds / 3600 * self.usd_per_hour


KEY = ("sweep", "device", "hardware", "threads", "world_size", "recipe", "recipe_digest")
USED = ("ssr", "directory", "usd_per_hour", "price_source", "price_as_of", "inference_seconds", "time_source", "steps")
MEASURED = "peak_memory"  # a column that rows from elsewhere, such as an export of an older version, may lack


def by_ladder(rows: pd.DataFrame) -> dict[tuple[object, ...], pd.DataFrame]:
    """Return the rows of each ladder by its `key_of`, with the columns that figures are read from."""
    used = [*KEY, *USED, *([MEASURED] if MEASURED in rows else [])]
    return {key: mine for key, mine in rows[used].groupby(list(KEY), sort=False)}


def key_of(ladder: Ladder) -> tuple[object, ...]:
    """Return the key of a ladder's rows."""
    return (*(getattr(ladder.setting, name) for name in KEY[:5]), ladder.recipe, ladder.recipe_digest)


def figures_of(
    mine: pd.DataFrame,
    forecasts: pd.DataFrame,
    ladder: Ladder,
    *,
    comparison: EqualQuality | None,
    is_baseline: bool,
    classes: Iterable[str],
    reached: Reached,
) -> Figures:
    """Return the figures of a recipe.

    Args:
        mine: the rows of its ladder.
        forecasts: deletion forecasts of all runs.
        ladder: the recipe, along its training time.
        comparison: with its baseline, for the ratio of inference times; None if there is none.
        is_baseline: it is the baseline itself, whose ratio is 1.
        classes: the classes whose deletion is asked for.
        reached: its time to the quality.
    """
    # The baseline compared with itself is exactly 1, whatever the noise of its profile.
    usd_per_hour = _median(mine["usd_per_hour"])
    ratio = low = high = None
    if is_baseline and ladder.inference_ratio is not None:
        ratio = low = high = 1.0
    elif comparison is not None:
        ratio, low, high = comparison.inference_ratio, comparison.inference_low, comparison.inference_high
    return Figures(
        reached=reached,
        higher_is_better=ladder.sign > 0,
        usd_per_hour=usd_per_hour,
        price_source="" if usd_per_hour is None else _text(mine["price_source"]),
        price_as_of="" if usd_per_hour is None else _text(mine["price_as_of"]),
        no_price=_text(mine["price_source"]) or f"no price for {ladder.setting.hardware}",
        inference_seconds=_median(mine["inference_seconds"]),
        inference_ratio=ratio,
        inference_low=low,
        inference_high=high,
        deletions={class_: _deletion(mine, forecasts, class_, reached) for class_ in classes},
        peak_memory=_most(mine),
    )


def _text(column: pd.Series) -> str:
    """Return the text of the first row; empty if it is absent."""
    first = column.iloc[0]
    return first if isinstance(first, str) else ""


def _deletion(mine: pd.DataFrame, forecasts: pd.DataFrame, class_: str, reached: Reached) -> Deletion | str:
    """Return the costliest forecast of deleting a class, among the runs at the tested budgets on either side.

    A recipe at a time between two budgets was not run there; the costlier neighbour is an upper bound.
    """
    if reached.tested is None:
        return reached.reason
    budgets = [reached.tested.ssr, reached.tested.ssr if reached.below is None else reached.below]
    runs = mine[mine["ssr"].isin(budgets)]
    known = forecasts[forecasts["directory"].isin(runs["directory"])]
    if known.empty:
        return "it is not governed: its runs keep no ledger"
    of_class = known[known["class"] == class_]
    if of_class["directory"].nunique() < runs["directory"].nunique():
        return f"not all of its runs have a forecast for {class_}"
    level: Level = "G3" if "G3" in set(of_class["level"]) else "G2"  # the costlier level, if one of them takes it
    steps, of = _replayed(of_class, runs)
    # --- the time of that, which is known for the machine of the runs only ---
    elsewhere = bool((runs["time_source"] == "predicted").any())
    if elsewhere or of_class["seconds"].isna().any():
        return Deletion(level=level, steps=steps, of=of, seconds=None, high=None)
    high = of_class["seconds_high"]
    return Deletion(
        level=level,
        steps=steps,
        of=of,
        seconds=float(of_class["seconds"].max()),
        high=None if high.isna().any() else float(high.max()),
    )


def _replayed(of_class: pd.DataFrame, runs: pd.DataFrame) -> tuple[float | None, float | None]:
    """Return the steps to replay and all steps, of the run in which their share is largest; unknown if any is."""
    whole = of_class["directory"].map(runs.drop_duplicates("directory").set_index("directory")["steps"])
    share = of_class["steps"] / whole
    if share.isna().any():
        return None, None
    at = int(np.argmax(share))
    return float(of_class["steps"].iloc[at]), float(whole.iloc[at])


def _most(mine: pd.DataFrame) -> float | None:
    if MEASURED not in mine or mine[MEASURED].isna().any():
        return None
    return float(mine[MEASURED].max())


def _median(column: pd.Series) -> float | None:
    known = np.asarray(column, dtype=float)
    known = known[np.isfinite(known)]
    return float(np.median(known)) if known.size else None
