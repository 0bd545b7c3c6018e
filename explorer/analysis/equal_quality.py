"""Time, cost or steps at equal quality: how much of the baseline's x a recipe needs to be as good as the baseline.

Both curves are monotone and linear in log x, and neither is extrapolated: "not reached" is a result. The target is the
baseline's quality at its full budget, found anew in every resample of the seeds, unless a fixed one is given. Ratios
are recipe over baseline: 0.6 means "in 0.6 of its time".
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

import numpy as np
import pandas as pd

from explorer.analysis.comparison import RESAMPLES, Compared, Match, Pair, adjusted, compared, judge, known
from explorer.analysis.inference import Effect, Errors, exponential
from explorer.analysis.ladders import Machine, Setting
from explorer.analysis.monotone import Crossing, crossing
from explorer.analysis.step_times import EXACT, error_of_ratio
from explorer.errors import AnalysisError

SLOWER_INFERENCE = 1.02  # an interval above it: what training saves is paid for at inference, and is marked


class Outcome(StrEnum):
    """Whether the recipe's curve reaches the target within its tested budgets."""

    REACHED = "reached"
    NOT_REACHED = "not reached"
    BELOW = "below lowest budget"  # already better at its lowest budget: `ratio` is an upper limit
    UNKNOWN = "unknown"  # there is no target, see `reason`


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
    UNKNOWN = "cannot be compared"


EQUIVALENT = 1.05  # ratios from 1 / EQUIVALENT to EQUIVALENT make no difference that matters


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
    ratio_low: float | None = None  # the interval of this comparison alone
    ratio_high: float | None = None
    adjusted_low: float | None = None  # its interval as one of all comparisons with this baseline
    adjusted_high: float | None = None
    confidence: float
    n: int
    reach_rate: float | None = None
    p_value: float | None = None
    p_adjusted: float | None = None  # for all comparisons with this baseline
    family: int = 0  # how many these are
    errors: Errors | None = None  # of the logarithm of the ratio; None where there is no interval
    seed_error: float | None = None  # the part of the error that more seeds would reduce
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
        """What it says, all comparisons with this baseline taken into account.

        Equivalence is shown as by two one-sided tests (Schuirmann 1987), at half their level: the whole interval lies
        within the margin. A difference that is shown stays one, be it smaller than the margin.
        """
        if self.outcome is not Outcome.REACHED:
            others = {Outcome.NOT_REACHED: Call.NOT_REACHED, Outcome.BELOW: Call.BELOW}
            return others.get(self.outcome, Call.UNKNOWN)
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
        """Whether it would be less if it were the only comparison: what fresh seeds may show, and these do not."""
        return self.call is Call.INCONCLUSIVE and self.ratio_high is not None and self.ratio_high < 1

    @property
    def effect(self) -> Effect | None:
        """The logarithm of the ratio with its error; None where there is no interval."""
        if self.ratio is None or self.errors is None:
            return None
        return Effect(value=math.log(self.ratio), errors=self.errors)

    def among(self, family: int) -> "EqualQuality":
        """The same as one of that many comparisons."""
        if self.effect is None:
            return self
        found = self.effect.interval(self.confidence, of=family, scale=exponential)
        return replace(self, adjusted_low=found.low, adjusted_high=found.high, p_adjusted=found.p_value, family=family)

    @property
    def slower_inference(self) -> bool:
        """Whether the whole interval of the inference ratio lies above `SLOWER_INFERENCE`.

        Models that are the same bit for bit differ in their measured times, so a ratio without an interval makes no
        recipe slower. There is none where
        either profile kept no rounds, as those of older versions did not: of such recipes nothing is said.
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
    """Compare every recipe of a table with the columns of `results` with its baseline, setting by setting.

    `baseline` names the recipe to compare with, by default the one of the sweep; `machine` binds it to one machine, by
    default it is the baseline on the recipe's own. Intervals and p-values are adjusted for all recipes of the table: a
    view that shows some of them gives the whole table, and leaves results out afterwards.
    Raises `AnalysisError` for a name, a machine, a column or a target that cannot be used.
    """
    found = compared(frame, x=x, baseline=baseline, machine=machine, resamples=resamples)
    return at_equal_quality(found, target=target, confidence=confidence)


def at_equal_quality(
    found: Sequence[Compared], *, target: float | None = None, confidence: float = 0.95
) -> list[EqualQuality]:
    """The same for recipes whose curves are there already, one result each."""
    if target is not None and not math.isfinite(target):
        raise AnalysisError(f"target: found {target}; expected a finite quality")
    results = adjusted([_compare(each, target=target, confidence=confidence) for each in found])
    return _with_inference(results, [_inference_effect(each.match) for each in found])


def table(results: list[EqualQuality]) -> pd.DataFrame:
    """One row for each result; the setting's fields, and those of the baseline's machine, are columns of their own."""
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


def _compare(each: Compared, *, target: float | None, confidence: float) -> EqualQuality:
    match, both = each.match, each.pair
    blank = _blank(match, x=each.x, target=target, confidence=confidence)
    if both is None:
        return blank
    blank = replace(blank, n=both.n, left_out=both.left_out)
    sign = match.recipe.sign
    if target is not None:
        target_R = np.full(len(both.recipe.x_RB), sign * target)
    elif both.baseline.at_full_budget_R is not None:
        target_R = both.baseline.at_full_budget_R
        blank = replace(blank, target=float(sign * target_R[0]))
    else:
        return replace(blank, reason=f"{match.baseline_name} has not finished its full budget with every seed")
    return _measured(blank, match, both, target_R)


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
    """The recipe's inference time over that of the baseline compared with, which need not be the sweep's."""
    recipe = match.recipe.inference_ratio
    baseline = match.here.inference_ratio if match.here else None
    return None if recipe is None or baseline is None else recipe / baseline


def _inference_effect(match: Match) -> Effect | None:
    """The logarithm of that ratio with its error; None unless both profiles kept the time of each round."""
    ratio = _inference_ratio(match)
    if ratio is None or match.here is None:
        return None
    times = match.recipe.inference_times, match.here.inference_times
    if any(each.log_W is None for each in times):
        return None
    return Effect(value=math.log(ratio), errors=error_of_ratio(*times))


def _with_inference(results: list[EqualQuality], effects: Sequence[Effect | None]) -> list[EqualQuality]:
    """The results with the intervals of their inference ratios, adjusted for all that have the same baseline."""
    sizes = Counter((r.baseline_setting, r.baseline) for r, effect in zip(results, effects, strict=True) if effect)
    done = []
    for result, effect in zip(results, effects, strict=True):
        if effect is not None:
            family = sizes[result.baseline_setting, result.baseline]
            found = effect.interval(result.confidence, of=family, scale=exponential)
            result = replace(result, inference_low=found.low, inference_high=found.high)
        done.append(result)
    return done


def _measured(blank: EqualQuality, match: Match, both: Pair, target_R: np.ndarray) -> EqualQuality:
    base = crossing(both.baseline.x_RB, both.baseline.y_RB, target_R)
    mine = crossing(both.recipe.x_RB, both.recipe.y_RB, target_R)
    outcome = _outcome(mine)
    recipe_x = float(both.recipe.x_RB[0, 0] if outcome == Outcome.BELOW else mine.x_R[0])
    found = replace(
        blank,
        outcome=outcome,
        baseline_x=known(base.x_R[0]),
        recipe_x=known(recipe_x),
        ratio=known(recipe_x / base.x_R[0]),
    )
    if not base.found_R[0]:
        reached = judge(np.log(mine.x_R), n=both.n, df=both.df, weight_R=both.weight_R)
        why = f"{blank.baseline} itself does not have this quality within its budgets"
        return replace(found, reach_rate=reached.reach_rate, reason=why)
    judged = judge(
        np.log(mine.x_R) - np.log(base.x_R),
        n=both.n,
        df=both.df,
        weight_R=both.weight_R,
        noise=_noise(match, found.recipe_x, found.baseline_x),
        same=both.same,
    )
    if outcome != Outcome.REACHED:
        return replace(found, reach_rate=judged.reach_rate)
    found = replace(found, reach_rate=judged.reach_rate, reason=judged.reason)
    if judged.effect is None:
        return found
    found = replace(found, errors=judged.effect.errors, seed_error=judged.seed_error)
    assert found.effect is not None
    alone = found.effect.interval(blank.confidence, scale=exponential)
    return replace(found, ratio_low=alone.low, ratio_high=alone.high, p_value=alone.p_value)


def _noise(match: Match, recipe_x: float | None, baseline_x: float | None) -> Errors:
    """What the noise of step times adds to the error of the ratio."""
    if match.baseline is None or recipe_x is None or baseline_x is None:
        return EXACT
    return error_of_ratio(match.recipe.times_at(recipe_x), match.baseline.times_at(baseline_x))


def _outcome(mine: Crossing) -> Outcome:
    if mine.found_R[0]:
        return Outcome.REACHED
    return Outcome.BELOW if mine.below_R[0] else Outcome.NOT_REACHED
