"""Quality at equal time, cost or steps: how much better a recipe is when it may use no more than the baseline.

The budget is the baseline's x at its full budget, found anew in every resample of the seeds, unless a fixed one is
given. Nothing is extrapolated: a recipe that was not tested at that x has no answer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from explorer.analysis.comparison import RESAMPLES, Compared, adjusted, compared, judge, known
from explorer.analysis.ladders import Machine, Setting, axis_words
from explorer.analysis.monotone import value_at
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
    low: float | None = None
    high: float | None = None
    confidence: float
    n: int = 0
    p_value: float | None = None
    p_holm: float | None = None
    family: int = 0
    tuning: str | None = None  # of the baseline
    left_out: tuple[float, ...] = ()
    reason: str | None = None

    @property
    def better(self) -> bool | None:
        """Whether the recipe is better; None where the interval cannot tell."""
        if self.low is None or self.high is None or self.low <= 0 <= self.high:
            return None
        return (self.low > 0) == self.setting.higher_is_better

    @property
    def significant(self) -> bool:
        """Whether the difference stands when all comparisons are taken into account."""
        return self.better is not None and self.p_holm is not None and self.p_holm < 1 - self.confidence


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
    """Compare every recipe of a table with the columns of `results` with its baseline, setting by setting.

    `baseline`, `machine` and the adjusting of p-values are those of `equal_quality`.
    Raises `AnalysisError` for a name, a machine, a column or a budget that cannot be used.
    """
    found = compared(frame, x=x, baseline=baseline, machine=machine, resamples=resamples)
    return at_equal_budget(found, budget=budget, confidence=confidence)


def at_equal_budget(
    found: Sequence[Compared], *, budget: float | None = None, confidence: float = 0.95
) -> list[EqualBudget]:
    """The same for recipes whose curves are there already, one result each."""
    if budget is not None and not 0 < budget < math.inf:
        raise AnalysisError(f"budget: found {budget}; expected a number above 0")
    return adjusted([_compare(each, budget=budget, confidence=confidence) for each in found])


def _compare(each: Compared, *, budget: float | None, confidence: float) -> EqualBudget:
    match, both, x = each.match, each.pair, each.x
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
    found = replace(blank, budget=float(x_R[0]), baseline_quality=known(base_R[0]), recipe_quality=known(mine_R[0]))
    if not np.isfinite(mine_R[0] - base_R[0]):
        who = match.baseline_name if not np.isfinite(base_R[0]) else match.recipe.recipe
        return replace(found, reason=f"{who} was not tested at this {axis_words(x)}")
    judged = judge(mine_R - base_R, n=both.n, df=both.df, confidence=confidence, weight_R=both.weight_R)
    found = replace(found, difference=float(mine_R[0] - base_R[0]), reason=judged.reason)
    if judged.interval is None:
        return found
    return replace(found, low=judged.interval.low, high=judged.interval.high, p_value=judged.interval.p_value)
