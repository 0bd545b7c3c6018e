"""Controls: how much of a recipe's gain is left when the baseline gets as much.

Two controls, each at every budget of a recipe where it was run, seed by seed:

rescaled-baseline   the baseline's run that takes as much uncontended time as the recipe's, with a schedule of that
                    length: quality at equal time, without a curve between budgets
random-subset       for a recipe that chooses examples, the same recipe choosing as many at random, at the same budget

A difference counts if its interval, adjusted for all recipes at that budget, excludes 0 (`inference.Effect`). Quality
at equal time is only as exact as the times: their error, times the slope of the baseline's curve there, is in the
interval.

Shapes: B budgets, S seeds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from explorer.analysis.comparison import RESAMPLES, Match, judge, matches
from explorer.analysis.inference import Effect, Errors, draws, scaled
from explorer.analysis.ladders import Ladder, Setting, ladders
from explorer.analysis.monotone import monotone, steepest
from explorer.analysis.step_times import EXACT, error_of_ratio
from explorer.costing import SAME_TIME
from explorer.run_files import Control

Verdict = Literal["better", "worse", "the same", "cannot tell", "not compared"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A recipe's quality less another's, seed by seed. None where there is no such number; `reason` says why."""

    quality: float | None = None  # the recipe's mean over the seeds that both have
    other: float | None = None
    difference: float | None = None  # in the metric's unit
    low: float | None = None  # the unadjusted interval
    high: float | None = None
    adjusted_low: float | None = None  # its interval as one of all recipes with this control at this budget
    adjusted_high: float | None = None
    n: int = 0
    p_value: float | None = None
    p_adjusted: float | None = None
    family: int = 0
    errors: Errors | None = None  # of the difference; None where there is no interval
    identical: bool = False  # not one seed differs
    reason: str | None = None

    def among(self, family: int, *, confidence: float) -> "Difference":
        """Return the difference judged as one of `family`."""
        if self.difference is None or self.errors is None:
            return self
        interval = Effect(value=self.difference, errors=self.errors).interval(confidence, of=family)
        return replace(
            self, adjusted_low=interval.low, adjusted_high=interval.high, p_adjusted=interval.p_value, family=family
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Controlled:
    """A recipe at one budget beside one of its controls, and beside the plain baseline at the same budget."""

    setting: Setting
    recipe: str
    label: str
    baseline: str
    control: Control
    name: str  # the recipe whose runs are the control
    ssr: float  # the recipe's budget
    control_ssr: float | None  # the control's; None: there is none
    seconds: float | None  # the recipe's training time
    control_seconds: float | None
    against: Difference  # to the control
    plain: Difference  # to the baseline at the recipe's budget
    confidence: float

    @property
    def verdict(self) -> Verdict:
        """Return how the recipe compares with its control."""
        return verdict(self.against, self)

    @property
    def gain_vanishes(self) -> bool:
        """Return whether the recipe is better than the plain baseline, and not shown to be better than its control."""
        compared = self.verdict not in ("better", "not compared")
        return compared and verdict(self.plain, self) == "better"


def verdict(difference: Difference, pair: Controlled) -> Verdict:
    """Return a difference in a word."""
    if difference.difference is None:
        return "not compared"
    if difference.identical:
        return "the same"
    low, high = difference.adjusted_low, difference.adjusted_high
    if low is None or high is None or low <= 0 <= high:
        return "cannot tell"
    return "better" if (low > 0) == pair.setting.higher_is_better else "worse"


def controlled(frame: pd.DataFrame, *, confidence: float = 0.95, resamples: int = RESAMPLES) -> list[Controlled]:
    """Compare every recipe in a table of `results` with the controls that were run, budget by budget.

    A recipe without a run of the baseline that takes as long is listed only if the table has rescaled baselines:
    otherwise that question was not asked. Raises `AnalysisError` for a column that is not there.
    """
    every = ladders(frame, x="steps")
    look = _Look(
        timed={_key(ladder): ladder for ladder in ladders(frame, x="train_seconds")},
        twins={(twin.setting, name): twin for twin in every if twin.control for name in twin.control_of},
        asked=bool((frame["control"] == "rescaled-baseline").any()),
        confidence=confidence,
        resamples=resamples,
    )
    return _adjusted([pair for match in matches(frame, x="steps", baseline=None) for pair in look.at(match)])


def _key(ladder: Ladder) -> tuple[Setting, str]:
    """Return what distinguishes the recipes of a table."""
    return ladder.setting, ladder.recipe_digest


@dataclass(frozen=True, kw_only=True, slots=True)
class _Look:
    """Controls and settings of one table of results. Ladders are along the steps, which every run has."""

    timed: dict[tuple[Setting, str], Ladder]  # ladders along the time, of recipes whose time is known
    twins: dict[tuple[Setting, str], Ladder]  # by the name of the recipe that they are the control of
    asked: bool  # the table has rescaled baselines
    confidence: float
    resamples: int

    def at(self, match: Match) -> Iterator[Controlled]:
        """Yield the recipe of a match at each of its budgets, compared with each of its controls."""
        if match.baseline is None:
            return
        for ssr in match.recipe.ssr_B:
            rescaled = self._rescaled(match, match.baseline, float(ssr))
            if rescaled is not None:
                yield rescaled
        twin = self.twins.get((match.setting, match.recipe.recipe))
        if twin is not None:
            for ssr in match.recipe.ssr_B:
                yield self._beside(match, match.baseline, twin, float(ssr), float(ssr), "random-subset")

    def _rescaled(self, match: Match, baseline: Ladder, ssr: float) -> Controlled | None:
        seconds, budgets = self._seconds(match.recipe, ssr), self._budgets(baseline)
        if seconds is None or not budgets:
            return None
        nearest = min(budgets, key=lambda budget: abs(budgets[budget] - seconds))
        # One step more or less is the finest that a schedule can be scaled, so it is allowed on top of the tolerance.
        step = budgets[nearest] / _medians(baseline)[nearest]
        if abs(budgets[nearest] - seconds) <= SAME_TIME * seconds + step:
            return self._beside(match, baseline, baseline, ssr, nearest, "rescaled-baseline")
        if not self.asked:
            return None
        missing = self._beside(match, baseline, baseline, ssr, nearest, "rescaled-baseline")
        words = (
            f"no run of {baseline.recipe} takes as long: the nearest takes {budgets[nearest] / seconds:.2f}x its time"
        )
        return replace(missing, control_ssr=None, control_seconds=None, against=Difference(reason=words))

    def _beside(
        self, match: Match, baseline: Ladder, other: Ladder, ssr: float, other_ssr: float, control: Control
    ) -> Controlled:
        recipe = match.recipe
        return Controlled(
            setting=match.setting,
            recipe=recipe.recipe,
            label=recipe.label,
            baseline=baseline.recipe,
            control=control,
            name=other.recipe,
            ssr=ssr,
            control_ssr=other_ssr,
            seconds=self._seconds(recipe, ssr),
            control_seconds=self._seconds(other, other_ssr),
            against=self._difference(recipe, ssr, other, other_ssr, timed=control == "rescaled-baseline"),
            plain=self._difference(recipe, ssr, baseline, ssr),
            confidence=self.confidence,
        )

    def _budgets(self, ladder: Ladder) -> dict[float, float]:
        """Return seconds by budget."""
        timed = self.timed.get(_key(ladder))
        return {} if timed is None else _medians(timed)

    def _seconds(self, ladder: Ladder, ssr: float) -> float | None:
        return self._budgets(ladder).get(ssr)

    def _noise(self, recipe: Ladder, ssr: float, other: Ladder, other_ssr: float) -> Errors:
        """Return what the uncertainty of both times adds to the error of the difference.

        The control is meant to take as long as the recipe. If its time is off by 1%, its quality is off by 1% of the
        slope of the baseline's curve in log time.
        """
        mine, base = self.timed.get(_key(recipe)), self.timed.get(_key(other))
        seconds, others = self._seconds(recipe, ssr), self._seconds(other, other_ssr)
        if mine is None or base is None or seconds is None or others is None:
            return EXACT
        x_B, y_B = np.nanmedian(base.x_BS, axis=1), base.sign * np.nanmean(base.quality_BS, axis=1)
        order = np.argsort(x_B, kind="stable")
        slope = steepest(x_B[order], monotone(y_B[order][None, :])[0], others)
        return scaled(error_of_ratio(mine.times_at(seconds), base.times_at(others)), slope)

    def _difference(
        self, recipe: Ladder, ssr: float, other: Ladder, other_ssr: float, *, timed: bool = False
    ) -> Difference:
        mine, others = _by_seed(recipe, ssr), _by_seed(other, other_ssr)
        seeds = sorted(mine.keys() & others.keys())
        if not seeds:
            words = f"{other.recipe} was not run at budget {other_ssr:g}" if not others else "they share no seed"
            return Difference(reason=words)
        mine_S, other_S = np.array([mine[s] for s in seeds]), np.array([others[s] for s in seeds])
        less_S, n = mine_S - other_S, len(seeds)
        # Paired by seed: both runs saw the same data order and initial weights.
        rows_RS = draws(n, resamples=self.resamples, key="seeds")
        noise = self._noise(recipe, ssr, other, other_ssr) if timed else EXACT
        values_R = np.r_[less_S.mean(), less_S[rows_RS].mean(axis=1)]
        judgement = judge(values_R, n=n, df=n - 1, noise=noise)
        result = Difference(
            quality=float(mine_S.mean()),
            other=float(other_S.mean()),
            difference=float(less_S.mean()),
            n=n,
            identical=not less_S.any(),
            reason=judgement.reason,
        )
        if judgement.effect is None:
            return result
        unadjusted = judgement.effect.interval(self.confidence)
        return replace(
            result,
            low=unadjusted.low,
            high=unadjusted.high,
            p_value=unadjusted.p_value,
            errors=judgement.effect.errors,
        )


def _medians(ladder: Ladder) -> dict[float, float]:
    """Return the median x by budget."""
    return {float(ssr): float(np.nanmedian(row)) for ssr, row in zip(ladder.ssr_B, ladder.x_BS, strict=True)}


def _by_seed(ladder: Ladder, ssr: float) -> dict[int, float]:
    """Return the qualities at a budget by seed."""
    rows = ladder.quality_BS[ladder.ssr_B == ssr]
    return (
        {int(s): float(q) for s, q in zip(ladder.seeds_S, rows[0], strict=True) if np.isfinite(q)} if len(rows) else {}
    )


def _adjusted(pairs: list[Controlled]) -> list[Controlled]:
    """Judge each comparison in its family: all recipes with the same kind of control at the same budget."""
    families: dict[tuple[Setting, str, float], list[int]] = {}
    for index, pair in enumerate(pairs):
        families.setdefault((pair.setting, pair.control, pair.ssr), []).append(index)
    adjusted = list(pairs)
    for members in families.values():
        against = sum(adjusted[index].against.p_value is not None for index in members)
        plain = sum(adjusted[index].plain.p_value is not None for index in members)
        for index in members:
            pair = adjusted[index]
            adjusted[index] = replace(
                pair,
                against=pair.against.among(against, confidence=pair.confidence),
                plain=pair.plain.among(plain, confidence=pair.confidence),
            )
    return adjusted
