"""Figures of one recipe that limits are compared with: the time to a quality, its price, inference, deletion."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from explorer.analysis.comparison import LEAST_REACH_RATE, RESAMPLES, judge, known, pair
from explorer.analysis.equal_quality import EqualQuality
from explorer.analysis.inference import exponential
from explorer.analysis.ladders import Ladder
from explorer.analysis.monotone import crossing
from explorer.analysis.step_times import StepTimes, error_of
from explorer.provenance.levels import Level

# ---- the least time in which a recipe's curve has a quality, and how sure that is

_SAME = 1e-9  # relative; what rounding may take from the time of a tested budget


@dataclass(frozen=True, kw_only=True, slots=True)
class Tested:
    """A budget that was run: what it took and what it gave."""

    ssr: float
    seconds: float  # median over seeds
    quality: float  # mean over seeds
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Reached:
    """Where one recipe has the quality. `seconds` is None where it does so at no tested budget and between none."""

    target: float | None  # None: there is nothing to reach, see `reason`
    best: float  # the best quality of the curve
    best_seconds: float  # the least time in which it has that
    seconds: float | None
    low: float | None = None  # the interval of `seconds`
    high: float | None = None
    at_lowest: bool = False  # its lowest budget has more than that: less time was not tried
    reach_rate: float | None = None  # share of the resamples whose curve has it; None for one seed
    n: int
    doubt: str = ""  # why it is not sure that the quality is there; empty where it is
    tested: Tested | None = None  # the least tested budget that has it; where none has, the one of the best quality
    below: float | None = None  # the tested budget below `seconds`; None where `seconds` is that of a tested one
    left_out: tuple[float, ...] = ()  # budgets that lack seeds and took no part
    reason: str = ""  # why nothing can be said
    seconds_R: np.ndarray = field(repr=False, compare=False)  # as it is first, then in the resamples; NaN: not reached
    weight_R: np.ndarray = field(repr=False, compare=False)  # how many resamples each of these stands for
    seeds: tuple[int, ...]
    df: int = 0
    times: StepTimes = field(default_factory=StepTimes, repr=False, compare=False)  # how exact `seconds` is


def reached_by(
    ladder: Ladder, *, baseline: Ladder | None, target: float | None, confidence: float, resamples: int = RESAMPLES
) -> Reached:
    """Where the recipe of `ladder` reaches the target, or else what the baseline has at its full budget, found anew in
    every resample. A blank says why it is not known: times may be, and the baseline may be absent."""
    reason = ""
    if not ladder.ssr_B.size:
        reason = "its time is unknown: its steps were not profiled and its runs shared the machine"
    elif target is None and (baseline is None or not baseline.ssr_B.size):
        reason = "it is not known what the baseline has: no finished run of known time here is the only one of its name"
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
    cross = crossing(curve.x_RB, curve.y_RB, target_R)
    seconds_R = np.where(cross.below_R, curve.x_RB[:, 0], cross.x_R)
    times = ladder.times_at(float(seconds_R[0])) if np.isfinite(seconds_R[0]) else StepTimes()
    judged = judge(np.log(seconds_R), n=both.n, df=both.df, weight_R=both.weight_R, noise=error_of(times))
    seconds, at_lowest = known(seconds_R[0]), bool(cross.below_R[0])
    enough = (judged.reach_rate or 0.0) >= LEAST_REACH_RATE
    sure = (own and ladder is baseline) or (at_lowest and enough)  # it is as good as itself, and what was run was run
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
    """The tested budgets on either side of a time that lies between them: the one above, and the one below if it is
    another."""
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


# ---- what the results know of a recipe


@dataclass(frozen=True, kw_only=True, slots=True)
class Deletion:
    """What deleting a class takes: the forecast of the dearest of some runs. Unknown seconds are None."""

    level: Level
    steps: float | None  # to replay, None: unknown; of
    of: float | None  # so many, in the run where the share is largest
    seconds: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """What is known of one recipe. None: unknown."""

    reached: Reached
    higher_is_better: bool
    usd_per_hour: float | None
    price_source: str  # empty: there is no price
    price_as_of: str  # empty: the source says no date
    no_price: str  # why there is none
    inference_seconds: float | None
    inference_ratio: float | None  # to the baseline; its own is 1 exactly
    inference_low: float | None  # its interval; None where a profile kept no rounds
    inference_high: float | None
    deletions: Mapping[str, Deletion | str]  # or why it is not known

    def usd(self, seconds: float | None) -> float | None:
        """What so much training time costs."""
        if seconds is None or self.usd_per_hour is None:
            return None
        return seconds / 3600 * self.usd_per_hour


KEY = ("sweep", "device", "hardware", "threads", "world_size", "recipe", "recipe_digest")
USED = ("ssr", "directory", "usd_per_hour", "price_source", "price_as_of", "inference_seconds", "time_source", "steps")


def by_ladder(rows: pd.DataFrame) -> dict[tuple[object, ...], pd.DataFrame]:
    """The rows of each ladder, by `key_of` it, as far as figures are read from them."""
    return {key: mine for key, mine in rows[[*KEY, *USED]].groupby(list(KEY), sort=False)}


def key_of(ladder: Ladder) -> tuple[object, ...]:
    """What tells the rows of a ladder from others."""
    return (*(getattr(ladder.setting, name) for name in KEY[:5]), ladder.recipe, ladder.recipe_digest)


def figures_of(
    mine: pd.DataFrame,
    forecasts: pd.DataFrame,
    ladder: Ladder,
    *,
    beside: EqualQuality | None,
    is_baseline: bool,
    classes: Iterable[str],
    reached: Reached,
) -> Figures:
    """What the rows of a ladder and the deletion forecasts tell of its recipe. `beside`: it beside its baseline."""
    usd_per_hour = _median(mine["usd_per_hour"])
    ratio = low = high = None
    if is_baseline and ladder.inference_ratio is not None:
        ratio = low = high = 1.0
    elif beside is not None:
        ratio, low, high = beside.inference_ratio, beside.inference_low, beside.inference_high
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
    )


def _text(column: pd.Series) -> str:
    """The text of the first row; an absent one is empty."""
    first = column.iloc[0]
    return first if isinstance(first, str) else ""


def _deletion(mine: pd.DataFrame, forecasts: pd.DataFrame, class_: str, reached: Reached) -> Deletion | str:
    """What deleting the class takes from the runs at the tested budgets on either side, at most."""
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
    level: Level = "G3" if "G3" in set(of_class["level"]) else "G2"  # the dearer way, if one of them takes it
    steps, of = _replayed(of_class, runs)
    elsewhere = bool((runs["time_source"] == "predicted").any())  # a forecast is for the machine that trained
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
    """The steps to replay and all steps, of the run in which they are the largest share; unknown if any are."""
    whole = of_class["directory"].map(runs.drop_duplicates("directory").set_index("directory")["steps"])
    share = of_class["steps"] / whole
    if share.isna().any():
        return None, None
    at = int(np.argmax(share))
    return float(of_class["steps"].iloc[at]), float(whole.iloc[at])


def _median(column: pd.Series) -> float | None:
    known = np.asarray(column, dtype=float)
    known = known[np.isfinite(known)]
    return float(np.median(known)) if known.size else None
