"""Equal quality: how much of the baseline's time, cost or steps a recipe needs to be as good as the baseline.

Both curves are monotone and linear in log x, and neither is extrapolated: "not reached" is a result. Where the baseline
has the target at its lowest budget already, its x is an upper limit, and nothing is compared with that. Unless a fixed
target is given it is the baseline's quality at its full budget, read off again in every resample of the seeds, so that
its own noise is in the interval. Ratios are recipe over baseline: 0.6 means "in 0.6 of its time".
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

import numpy as np
import pandas as pd

from explorer.analysis.comparison import (
    LEAST_REACH_RATE,
    RESAMPLES,
    Compared,
    Judged,
    Match,
    Pair,
    adjusted,
    compared,
    judge,
    known,
    staged,
)
from explorer.analysis.inference import Effect, Errors, exponential
from explorer.analysis.ladders import SEARCHED, Machine, Setting
from explorer.analysis.monotone import Crossing, crossing
from explorer.analysis.step_times import EXACT, error_of_ratio
from explorer.errors import AnalysisError

AT_LOWEST = (
    "the baseline reaches the target at its lowest budget already, so what it really needs is not known: try smaller"
    " budgets"
)
SLOWER_INFERENCE = 1.02  # recipes whose interval lies above are marked: they pay at inference for what training saves


class Outcome(StrEnum):
    """Whether the recipe's curve reaches the target within its tested budgets."""

    REACHED = "reached"
    NOT_REACHED = "not reached"
    BELOW = "below lowest budget"  # already better at its lowest budget: `ratio` is an upper limit
    UNKNOWN = "unknown"  # there is no target, or only an upper limit of what the baseline needs: see `reason`


class Call(StrEnum):
    """What a comparison says. Everything that shows one reads this, and none of its numbers again."""

    LESS = "less than the baseline"
    MORE = "more than the baseline"
    EQUIVALENT = "equivalent"  # the adjusted interval lies within `EQUIVALENT`
    INCONCLUSIVE = "inconclusive"  # neither a difference nor its absence is shown
    ONE_SEED = "one seed"
    NO_INTERVAL = "no interval"
    BELOW = "past the target at its lowest budget"  # so how much less it needs is not known
    NOT_REACHED = "not reached"
    NO_BASELINE = "the baseline does not have this quality"
    SEARCHED = SEARCHED
    UNKNOWN = "cannot be compared"


EQUIVALENT = 1.05  # ratios from 1 / EQUIVALENT to EQUIVALENT are no difference that matters


@dataclass(frozen=True, kw_only=True, slots=True)
class EqualQuality:
    """One recipe beside its baseline. None where there is no such number; `reason` says why."""

    setting: Setting
    baseline_setting: Setting  # that of the recipe, but for the machine if the baseline is bound to one
    recipe: str
    recipe_digest: str
    label: str
    baseline: str
    x: str  # the column that is compared
    target: float | None
    own_target: bool  # the target is the baseline's own quality at its full budget
    outcome: Outcome
    baseline_x: float | None
    recipe_x: float | None  # for BELOW, the recipe's lowest x
    ratio: float | None  # recipe over baseline
    ratio_low: float | None = None  # the unadjusted interval
    ratio_high: float | None = None
    adjusted_low: float | None = None  # its interval as one of all comparisons with this baseline
    adjusted_high: float | None = None
    confidence: float
    n: int
    first: int | None = None  # of the n seeds, those whose spread decided on the others, and is the error of all
    reach_rate: float | None = None
    p_value: float | None = None
    p_adjusted: float | None = None  # for all comparisons with this baseline
    family: int = 0  # how many these are
    errors: Errors | None = None  # of the logarithm of the ratio; None where there is no interval
    seed_error: float | None = None  # the part of the error that more seeds would reduce
    moderated: bool = False  # the noise of its seeds, by that of the sweep's other recipes
    inference_ratio: float | None  # to the baseline on the recipe's own machine
    inference_low: float | None = None  # its interval as one of all recipes with this baseline
    inference_high: float | None = None
    time_source: str
    tuning: str | None
    left_out: tuple[float, ...] = ()  # budgets that lack seeds and took no part
    reason: str | None = None

    @property
    def speedup(self) -> float | None:
        return None if self.ratio is None else 1 / self.ratio

    @property
    def call(self) -> Call:
        """Return the call, adjusted for all comparisons with this baseline.

        Equivalence is shown as by two one-sided tests (Schuirmann 1987), at half their level: the whole interval lies
        within the margin. A significant difference is a difference, even within the margin.
        """
        if self.outcome is not Outcome.REACHED:
            others = {Outcome.NOT_REACHED: Call.NOT_REACHED, Outcome.BELOW: Call.BELOW}
            return others.get(self.outcome, Call.SEARCHED if self.reason == SEARCHED else Call.UNKNOWN)
        if self.ratio is None:
            return Call.NO_BASELINE
        if self.adjusted_low is None or self.adjusted_high is None:
            return Call.ONE_SEED if self.n == 1 else Call.NO_INTERVAL
        if not self.adjusted_low <= 1 <= self.adjusted_high:
            return Call.LESS if self.adjusted_high < 1 else Call.MORE
        within = self.adjusted_low >= 1 / EQUIVALENT and self.adjusted_high <= EQUIVALENT
        return Call.EQUIVALENT if within else Call.INCONCLUSIVE

    @property
    def less_alone(self) -> bool:
        """Return whether the unadjusted interval lies below 1: fresh seeds, a family of one, may confirm that."""
        return self.call is Call.INCONCLUSIVE and self.ratio_high is not None and self.ratio_high < 1

    @property
    def effect(self) -> Effect | None:
        """Return the logarithm of the ratio with its error; None where there is no interval."""
        if self.ratio is None or self.errors is None:
            return None
        return Effect(value=math.log(self.ratio), errors=self.errors)

    def among(self, family: int) -> "EqualQuality":
        """Return the result judged as one of `family` comparisons."""
        if self.effect is None:
            return self
        interval = self.effect.interval(self.confidence, of=family, scale=exponential)
        return replace(
            self, adjusted_low=interval.low, adjusted_high=interval.high, p_adjusted=interval.p_value, family=family
        )

    @property
    def slower_inference(self) -> bool:
        """Return whether the whole interval of the inference ratio lies above `SLOWER_INFERENCE`.

        Measured times of identical models differ, so a ratio without an interval makes no recipe slower. There is none
        where either profile kept no rounds, as in older versions.
        """
        return self.inference_low is not None and self.inference_low > SLOWER_INFERENCE


def equal_quality(
    frame: pd.DataFrame,
    *,
    baseline: str | None = None,
    machine: Machine | None = None,
    x: str = "train_seconds",
    target: float | None = None,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> list[EqualQuality]:
    """Compare every recipe with its baseline, setting by setting.

    Intervals and p-values are adjusted for all recipes of the table: a view that shows some of them passes the whole
    table, and leaves results out afterwards.

    Args:
        frame: a table with the columns of `results`.
        baseline: name of the recipe to compare with; by default the sweep's own.
        machine: compare with the baseline on this machine; by default with that on each recipe's own.
        x: the column that is compared.
        target: a fixed quality; by default the baseline's at its full budget.
        confidence: of the intervals, as one of their family.
        resamples: bootstrap resamples of the seeds.

    Raises `AnalysisError` for a name, a machine, a column or a target that cannot be used.
    """
    pairs = compared(frame, x=x, baseline=baseline, machine=machine, resamples=resamples)
    return at_equal_quality(pairs, target=target, confidence=confidence)


def at_equal_quality(
    pairs: Sequence[Compared], *, target: float | None = None, confidence: float = 0.95
) -> list[EqualQuality]:
    """Compare recipes whose curves are known already; return one result for each."""
    if target is not None and not math.isfinite(target):
        raise AnalysisError(f"target: found {target}; expected a finite quality")
    results = adjusted([_compare(pair, target=target, confidence=confidence) for pair in pairs])
    return _with_inference(results, [_inference_effect(pair.match) for pair in pairs])


def table(results: list[EqualQuality]) -> pd.DataFrame:
    """Return one row for each result; the fields of the setting and of the baseline's machine are columns too."""
    rows = [
        asdict(result.setting)
        | {name: getattr(result, name) for name in _OWN}
        | {f"baseline_{name}": getattr(result.baseline_setting, name) for name in Machine.__dataclass_fields__}
        | {"outcome": str(result.outcome), "call": str(result.call), "speedup": result.speedup}
        for result in results
    ]
    columns = [*Setting.__dataclass_fields__, *_OWN, *(f"baseline_{name}" for name in Machine.__dataclass_fields__)]
    frame = pd.DataFrame(rows, columns=None if rows else [*columns, "call", "speedup"])
    return frame.astype(dict.fromkeys(_NUMBERS, float)) if rows else frame


_OWN = tuple(
    name for name in EqualQuality.__dataclass_fields__ if name not in ("setting", "baseline_setting", "errors")
)
_NUMBERS = (
    *("target", "baseline_x", "recipe_x", "ratio", "ratio_low", "ratio_high", "adjusted_low", "adjusted_high"),
    *("speedup", "reach_rate", "p_value", "p_adjusted", "seed_error"),
    *("inference_ratio", "inference_low", "inference_high"),
)


def _compare(compared_pair: Compared, *, target: float | None, confidence: float) -> EqualQuality:
    match, both = compared_pair.match, compared_pair.pair
    blank = _blank(match, x=compared_pair.x, target=target, confidence=confidence)
    if both is None:
        return blank
    blank = replace(blank, n=both.n, first=None if both.first is None else both.first.n, left_out=both.left_out)
    sign = match.recipe.sign
    if target is not None:
        target_R = np.full(len(both.recipe.x_RB), sign * target)
    elif both.baseline.at_full_budget_R is not None:
        target_R = both.baseline.at_full_budget_R
        blank = replace(blank, target=float(sign * target_R[0]))
    else:
        return replace(blank, reason=f"{match.baseline_name} has not finished its full budget with every seed")
    return _measured(blank, match, both, target_R, target=None if target is None else sign * target)


def _blank(match: Match, *, x: str, target: float | None, confidence: float) -> EqualQuality:
    return EqualQuality(
        setting=match.setting,
        baseline_setting=match.baseline_setting,
        recipe=match.recipe.recipe,
        recipe_digest=match.recipe.recipe_digest,
        label=match.recipe.label,
        baseline=match.baseline_name,
        x=x,
        target=target,
        own_target=target is None,
        outcome=Outcome.UNKNOWN,
        baseline_x=None,
        recipe_x=None,
        ratio=None,
        confidence=confidence,
        n=0,
        inference_ratio=_inference_ratio(match),
        time_source=match.recipe.time_source,
        tuning=match.baseline.tuning if match.baseline else None,
        reason=match.reason,
    )


def _inference_ratio(match: Match) -> float | None:
    """Return the recipe's inference time over that of the baseline that it is compared with."""
    recipe = match.recipe.inference_ratio
    baseline = match.here.inference_ratio if match.here else None
    return None if recipe is None or baseline is None else recipe / baseline


def _inference_effect(match: Match) -> Effect | None:
    """Return the logarithm of that ratio with its error; None unless both profiles kept the time of each round."""
    ratio = _inference_ratio(match)
    if ratio is None or match.here is None:
        return None
    times = match.recipe.inference_times, match.here.inference_times
    if any(noise.log_W is None for noise in times):
        return None
    return Effect(value=math.log(ratio), errors=error_of_ratio(*times))


def _with_inference(results: list[EqualQuality], effects: Sequence[Effect | None]) -> list[EqualQuality]:
    """Return the results with intervals of their inference ratios, adjusted for all that have the same baseline."""
    sizes = Counter((r.baseline_setting, r.baseline) for r, effect in zip(results, effects, strict=True) if effect)
    judged = []
    for result, effect in zip(results, effects, strict=True):
        if effect is not None:
            family = sizes[result.baseline_setting, result.baseline]
            interval = effect.interval(result.confidence, of=family, scale=exponential)
            result = replace(result, inference_low=interval.low, inference_high=interval.high)
        judged.append(result)
    return judged


def _measured(
    blank: EqualQuality, match: Match, both: Pair, target_R: np.ndarray, *, target: float | None
) -> EqualQuality:
    base = crossing(both.baseline.x_RB, both.baseline.y_RB, target_R)
    mine = crossing(both.recipe.x_RB, both.recipe.y_RB, target_R)
    # --- the estimate: row 0 is the sample itself ---
    outcome = _outcome(mine)
    recipe_x = float(both.recipe.x_RB[0, 0] if outcome == Outcome.BELOW else mine.x_R[0])
    result = replace(
        blank,
        outcome=outcome,
        baseline_x=known(base.x_R[0]),
        recipe_x=known(recipe_x),
        ratio=known(recipe_x / base.x_R[0]),
        reach_rate=_reach_rate(mine, both),
    )
    # --- without the baseline's x there is no ratio; the share of resamples that get there is still a result ---
    if base.below_R[0]:
        return result if outcome == Outcome.NOT_REACHED else replace(result, outcome=Outcome.UNKNOWN, reason=AT_LOWEST)
    if not base.found_R[0]:
        return replace(result, reason=f"{blank.baseline} itself does not have this quality within its budgets")
    # --- the error of the log ratio: ratios are skewed, and their logarithms are close to normal ---
    noise = _noise(match, result.recipe_x, result.baseline_x)
    judgement = judge(
        np.log(mine.x_R) - np.log(base.x_R),
        n=both.n,
        df=both.df,
        weight_R=both.weight_R,
        noise=noise,
        moderation=both.moderation,
        same=both.same,
    )
    if both.first is not None and not both.same:
        share = math.sqrt(both.first.n / both.n)
        judgement = staged(judgement, _by_first(both.first, target=target), share=share, noise=noise)
    # A recipe that is past the target at its lowest budget has an upper limit in place of an estimate.
    if outcome != Outcome.REACHED:
        return result
    if judgement.effect is None:
        return replace(result, reason=_without_interval(judgement, result.reach_rate))
    result = replace(
        result,
        errors=judgement.effect.errors,
        seed_error=judgement.seed_error,
        moderated=judgement.moderated,
    )
    assert result.effect is not None
    unadjusted = result.effect.interval(blank.confidence, scale=exponential)
    return replace(result, ratio_low=unadjusted.low, ratio_high=unadjusted.high, p_value=unadjusted.p_value)


def _reach_rate(mine: Crossing, both: Pair) -> float | None:
    """Return the share of resamples in which the recipe has the target, be it at its lowest budget; None for one seed.

    Others have only an upper limit in place of a ratio, so the share of those with a ratio may be smaller.
    """
    if both.n < 2:
        return None
    return float(both.weight_R[mine.found_R | mine.below_R].sum() / both.weight_R.sum())


def _without_interval(judged: Judged, reach_rate: float | None) -> str | None:
    """Return why there is no interval."""
    if reach_rate is None or judged.reach_rate is None or judged.reach_rate >= LEAST_REACH_RATE:
        return judged.reason
    if reach_rate < LEAST_REACH_RATE:
        return f"only {reach_rate:.0%} of the resamples reach the target"
    return f"only {judged.reach_rate:.0%} of the resamples have the target between the tested budgets of both"


def _by_first(both: Pair, *, target: float | None) -> Judged:
    """Judge the log ratio by the seeds of the first stage, without the noise of step times."""
    target_R = both.baseline.at_full_budget_R if target is None else np.full(len(both.recipe.x_RB), target)
    if target_R is None:
        return Judged(effect=None, reach_rate=None, reason="the first seeds have no run at the full budget")
    base, mine = (crossing(side.x_RB, side.y_RB, target_R).x_R for side in (both.baseline, both.recipe))
    return judge(np.log(mine) - np.log(base), n=both.n, df=both.df, weight_R=both.weight_R, moderation=both.moderation)


def _noise(match: Match, recipe_x: float | None, baseline_x: float | None) -> Errors:
    """Return what the noise of step times adds to the error of the ratio."""
    if match.baseline is None or recipe_x is None or baseline_x is None:
        return EXACT
    return error_of_ratio(match.recipe.times_at(recipe_x), match.baseline.times_at(baseline_x))


def _outcome(mine: Crossing) -> Outcome:
    if mine.found_R[0]:
        return Outcome.REACHED
    return Outcome.BELOW if mine.below_R[0] else Outcome.NOT_REACHED
