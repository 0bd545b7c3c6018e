"""The verdict on a recipe: the one value that headlines, tables, questions, confirmations and reports read.

It joins the result on the sweep's own seeds (`Call`), the result on fresh seeds, and whether a control takes the gain
away. What can be claimed, has to be confirmed or is still open is decided here and nowhere else.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from explorer.analysis.comparison import RESAMPLES
from explorer.analysis.confirmed import Confirmation, Confirmed, confirmations
from explorer.analysis.controls import Controlled, controlled
from explorer.analysis.equal_quality import EQUIVALENT, Call, EqualQuality, equal_quality
from explorer.analysis.inference import size_of
from explorer.analysis.ladders import Machine, Setting

POWER = 0.8  # probability with which the advised number of seeds decides a comparison
MOST_SEEDS = 100  # more are not advised: from the noise of a few seeds such a number would be a guess
FROM_TIME = ("train_seconds", "cost_usd")  # within one hardware a cost is a time at a price


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A recipe compared with its baseline, with everything that is known about the comparison."""

    comparison: EqualQuality
    call: Call
    seeds: int | None  # number that would decide it; None unless it is inconclusive, or if `MOST_SEEDS` would not
    confirmation: Confirmation | None  # the result on fresh seeds
    control: Controlled | None  # the control against which its gain vanishes

    @property
    def claims(self) -> bool:
        """Return whether the recipe needs less, by the sweep or by fresh seeds, which had no part in choosing it.

        A result that fresh seeds contradict is no claim.
        """
        if self.confirmation is not None and self.confirmation.verdict is Confirmed.NOT_CONFIRMED:
            return False
        return self.call is Call.LESS or self.is_confirmed

    @property
    def is_confirmed(self) -> bool:
        return self.confirmation is not None and self.confirmation.verdict is Confirmed.CONFIRMED

    @property
    def is_refuted(self) -> bool:
        """Return whether it looked like less, and fresh seeds did not confirm it."""
        return self.confirmation is not None and self.confirmation.verdict is Confirmed.NOT_CONFIRMED

    @property
    def judged_by_others(self) -> bool:
        """Return whether other sweeps have a confirmation of it, finished or not."""
        return self.confirmation is not None and self.confirmation.verdict is not Confirmed.ITSELF

    @property
    def confirmable(self) -> bool:
        """Return whether fresh seeds can turn it into a claim, or have done so: it is less, at least unadjusted."""
        return self.call is Call.LESS or self.comparison.less_alone or self.is_confirmed

    @property
    def asks(self) -> bool:
        """Return whether it should be run on fresh seeds: they could confirm it, and there are none yet."""
        return self.confirmable and self.confirmation is None


def verdicts(
    comparisons: Sequence[EqualQuality],
    *,
    controls: Iterable[Controlled] = (),
    fresh: Iterable[Confirmation] = (),
) -> list[Verdict]:
    """Return the verdict on each comparison of one family or several, in their order.

    `fresh` are confirmations against the sweep's own baseline, matched by what was run. `controls` compare recipes with
    their controls at every budget; the largest budget counts.
    """
    by_recipe = {
        (comparison.setting, comparison.recipe_digest, comparison.baseline): comparison for comparison in fresh
    }
    vanishing = _vanishing(controls)
    # Matched by digest and not by name: a recipe that was changed under its name is not confirmed by older runs.
    results = []
    for comparison in comparisons:
        here = comparison.baseline_setting == comparison.setting  # fresh seeds run on one machine
        results.append(
            Verdict(
                comparison=comparison,
                call=comparison.call,
                seeds=seeds_to_decide(comparison),
                confirmation=by_recipe.get((comparison.setting, comparison.recipe_digest, comparison.baseline))
                if here
                else None,
                control=vanishing.get((comparison.setting, comparison.label)),
            )
        )
    return results


def sweep_verdicts(
    rows: pd.DataFrame,
    fresh: pd.DataFrame | None = None,
    *,
    baseline: str | None = None,
    machine: Machine | None = None,
    x: str = "train_seconds",
    target: float | None = None,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> list[Verdict]:
    """Return the verdicts on the recipes in rows of `results`, of one metric.

    Args:
        rows: the results of one sweep or several.
        fresh: the rows of `frames.with_confirming` for the sweep; None to leave fresh seeds out.
        baseline, machine, x, target, confidence, resamples: those of `equal_quality`.
    """
    comparisons = equal_quality(
        rows, baseline=baseline, machine=machine, x=x, target=target, confidence=confidence, resamples=resamples
    )
    return verdicts(
        comparisons, controls=controls_of(rows), fresh=() if fresh is None else confirming(fresh, comparisons)
    )


def controls_of(rows: pd.DataFrame) -> list[Controlled]:
    """Return the recipes of the rows that choose examples, compared with those that choose as many at random."""
    if not (rows["control"] == "random-subset").any():
        return []
    return [pair for pair in controlled(rows) if pair.control == "random-subset"]


def confirming(fresh: pd.DataFrame, comparisons: Sequence[EqualQuality]) -> list[Confirmation]:
    """Return the confirmations of comparisons, against the baseline that each sweep names."""
    results: list[Confirmation] = []
    for sweep in dict.fromkeys(comparison.setting.sweep for comparison in comparisons):
        first = next(comparison for comparison in comparisons if comparison.setting.sweep == sweep)
        x = "train_seconds" if first.x in FROM_TIME else first.x
        target = None if first.own_target else first.target
        results += confirmations(fresh, sweep=sweep, x=x, target=target, confidence=first.confidence)
    return results


def seeds_to_decide(result: EqualQuality) -> int | None:
    """Return the number of seeds that would probably decide an inconclusive comparison.

    None if it is not inconclusive, or if `MOST_SEEDS` would not decide it. The ratio, the spread of seeds and the
    exactness of step times are assumed to stay what they are. Then it is the least number at which, with probability
    `POWER`, the adjusted interval excludes 1; or lies within the margin of equivalence, if the ratio does. The number
    is as uncertain as the noise of few seeds: at three seeds it may be twice as large, or half.
    """
    if result.call is not Call.INCONCLUSIVE or result.effect is None or not result.seed_error:
        return None
    effect, margin = abs(result.effect.value), math.log(EQUIVALENT)
    alpha = (1 - result.confidence) / max(result.family, 1)
    times = [error for error in result.effect.errors[1:]]  # the first part is that of the seeds
    reach, size = math.hypot(*(error.reach(alpha) for error in times)), size_of(tuple(times))
    # More seeds shrink the error of the seeds by the root of their number, and the error of the times not at all.
    n_N = np.arange(result.n + 1, MOST_SEEDS + 1)
    seeds_N = result.seed_error * np.sqrt(result.n / n_N)
    half_N = np.hypot(stdtrit(n_N - 1, 1 - alpha / 2) * seeds_N, reach)
    spread_N = np.hypot(seeds_N, size)
    # Decided as different: the effect exceeds the half width by what the estimate varies at the given power. Decided as
    # equivalent: the same on both sides of the margin, hence the two-sided quantile.
    enough_N = effect >= half_N + stdtrit(n_N - 1, POWER) * spread_N
    enough_N |= margin - effect >= half_N + stdtrit(n_N - 1, (1 + POWER) / 2) * spread_N
    return int(n_N[enough_N.argmax()]) if enough_N.any() else None


def _vanishing(controls: Iterable[Controlled]) -> Mapping[tuple[Setting, str], Controlled]:
    """Return the recipes whose gain, at the largest budget with a control, vanishes against that control."""
    largest: dict[tuple[Setting, str], Controlled] = {}
    for pair in controls:
        key = pair.setting, pair.label
        if pair.ssr >= largest.get(key, pair).ssr:
            largest[key] = pair
    return {key: pair for key, pair in largest.items() if pair.gain_vanishes}
