"""Equal budget: how much better a recipe is with as much time, cost or steps as the baseline.

The budget is the baseline's x at its full budget, read off again in every resample of the seeds, unless a fixed one is
given. Nothing is extrapolated: a recipe that was not tested at that x has no answer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from explorer.analysis.axis_words import axis_words
from explorer.analysis.comparison import RESAMPLES, Compared, Match, Pair, adjusted, compared, judge, known
from explorer.analysis.inference import Effect, Errors, scaled
from explorer.analysis.ladders import Machine, Setting
from explorer.analysis.monotone import steepest, value_at
from explorer.analysis.step_times import EXACT, error_of, error_of_ratio
from explorer.errors import AnalysisError


@dataclass(frozen=True, kw_only=True, slots=True)
class EqualBudget:
    """One recipe beside its baseline at one x. None where there is no such number; `reason` says why."""

    setting: Setting
    baseline_setting: Setting  # that of the recipe, but for the machine if the baseline is bound to one
    recipe: str
    label: str
    baseline: str
    x: str
    budget: float | None
    own_budget: bool  # the budget is the baseline's own x at its full budget
    baseline_quality: float | None = None
    recipe_quality: float | None = None
    difference: float | None = None  # recipe minus baseline, in the metric's unit
    low: float | None = None  # the unadjusted interval
    high: float | None = None
    adjusted_low: float | None = None  # its interval as one of all comparisons with this baseline
    adjusted_high: float | None = None
    confidence: float
    n: int = 0
    p_value: float | None = None
    p_adjusted: float | None = None
    family: int = 0
    errors: Errors | None = None  # of the difference; None where there is no interval
    tuning: str | None = None  # of the baseline
    left_out: tuple[float, ...] = ()
    reason: str | None = None

    @property
    def better(self) -> bool | None:
        """Return whether the recipe is better, adjusted for all comparisons; None if the interval does not tell."""
        low, high = self.adjusted_low, self.adjusted_high
        if low is None or high is None or low <= 0 <= high:
            return None
        return (low > 0) == self.setting.higher_is_better

    @property
    def effect(self) -> Effect | None:
        """Return the difference with its error; None where there is no interval."""
        if self.difference is None or self.errors is None:
            return None
        return Effect(value=self.difference, errors=self.errors)

    def among(self, family: int) -> "EqualBudget":
        """Return the result judged as one of `family` comparisons."""
        if self.effect is None:
            return self
        interval = self.effect.interval(self.confidence, of=family)
        return replace(
            self, adjusted_low=interval.low, adjusted_high=interval.high, p_adjusted=interval.p_value, family=family
        )


def equal_budget(
    frame: pd.DataFrame,
    *,
    baseline: str | None = None,
    machine: Machine | None = None,
    x: str = "train_seconds",
    budget: float | None = None,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> list[EqualBudget]:
    """Compare every recipe with its baseline, setting by setting.

    Args:
        budget: a fixed x; by default the baseline's at its full budget.
        frame, baseline, machine, x, confidence, resamples: as for `equal_quality`, and so is the family.

    Raises `AnalysisError` for a name, a machine, a column or a budget that cannot be used.
    """
    pairs = compared(frame, x=x, baseline=baseline, machine=machine, resamples=resamples)
    return at_equal_budget(pairs, budget=budget, confidence=confidence)


def at_equal_budget(
    pairs: Sequence[Compared], *, budget: float | None = None, confidence: float = 0.95
) -> list[EqualBudget]:
    """Compare recipes whose curves are known already; return one result for each."""
    if budget is not None and not 0 < budget < math.inf:
        raise AnalysisError(f"budget: found {budget}; expected a number above 0")
    return adjusted([_compare(pair, budget=budget, confidence=confidence) for pair in pairs])


def _compare(compared_pair: Compared, *, budget: float | None, confidence: float) -> EqualBudget:
    match, both, x = compared_pair.match, compared_pair.pair, compared_pair.x
    blank = EqualBudget(
        setting=match.setting,
        baseline_setting=match.baseline_setting,
        recipe=match.recipe.recipe,
        label=match.recipe.label,
        baseline=match.baseline_name,
        x=x,
        budget=budget,
        own_budget=budget is None,
        confidence=confidence,
        tuning=match.baseline.tuning if match.baseline else None,
        reason=match.reason,
    )
    if both is None:
        return blank
    blank = replace(blank, n=both.n, left_out=both.left_out)
    x_R = both.baseline.x_at_full_budget_R if budget is None else np.full(len(both.recipe.x_RB), budget)
    if x_R is None:
        return replace(blank, reason=f"{match.baseline_name} has not finished its full budget with every seed")
    base_R = match.recipe.sign * value_at(both.baseline.x_RB, both.baseline.y_RB, x_R)
    mine_R = match.recipe.sign * value_at(both.recipe.x_RB, both.recipe.y_RB, x_R)
    result = replace(blank, budget=float(x_R[0]), baseline_quality=known(base_R[0]), recipe_quality=known(mine_R[0]))
    # A curve ends at its last budget, and nothing is read beyond it.
    if not np.isfinite(mine_R[0] - base_R[0]):
        who = match.baseline_name if not np.isfinite(base_R[0]) else match.recipe.recipe
        return replace(result, reason=f"{who} was not tested at this {axis_words(x)}")
    judgement = judge(
        mine_R - base_R,
        n=both.n,
        df=both.df,
        weight_R=both.weight_R,
        noise=_noise(match, both, float(x_R[0]), own=budget is None),
        moderation=both.moderation,
        same=both.same,
    )
    result = replace(result, difference=float(mine_R[0] - base_R[0]), reason=judgement.reason)
    if judgement.effect is None:
        return result
    result = replace(result, errors=judgement.effect.errors)
    assert result.effect is not None
    unadjusted = result.effect.interval(confidence)
    return replace(result, low=unadjusted.low, high=unadjusted.high, p_value=unadjusted.p_value)


def _noise(match: Match, both: Pair, x: float, *, own: bool) -> Errors:
    """Return what the noise of step times adds: the error of a logarithm of a time, times the slope of the curve there.

    At the baseline's own full budget its quality was measured, however exact the time is; only the place of that time
    on the recipe's curve is uncertain. At a given time both qualities are read off their curves.
    """
    if match.baseline is None:
        return EXACT
    mine, base = match.recipe.times_at(x), match.baseline.times_at(x)
    slope = steepest(both.recipe.x_RB[0], both.recipe.y_RB[0], x)
    if own:
        return scaled(error_of_ratio(mine, base), slope)
    other = steepest(both.baseline.x_RB[0], both.baseline.y_RB[0], x)
    return *scaled(error_of(mine), slope), *scaled(error_of(base), other)
