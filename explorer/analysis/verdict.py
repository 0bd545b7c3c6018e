"""The verdict on a recipe: the one value that headlines, tables, questions, confirmations and reports read.

It joins the result on the sweep's own seeds (`Call`), the result on fresh seeds, and whether a control takes the gain
away. What can be claimed, has to be confirmed or is still open is decided here and nowhere else.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from explorer.analysis.comparison import RESAMPLES
from explorer.analysis.confirmed import Confirmation, Confirmed, confirmations
from explorer.analysis.controls import Controlled, controlled
from explorer.analysis.equal_quality import Call, EqualQuality, equal_quality
from explorer.analysis.ladders import Machine, Setting
from explorer.analysis.power import Power, power_of

FROM_TIME = ("train_seconds", "cost_usd")  # within one hardware a cost is a time at a price


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A recipe compared with its baseline, with everything that is known about the comparison."""

    comparison: EqualQuality
    call: Call
    power: Power | None  # further seeds that would decide it; None unless it is inconclusive
    confirmation: Confirmation | None  # the result on fresh seeds
    control: Controlled | None  # the control against which its gain vanishes

    @property
    def seeds(self) -> int | None:
        """Return the number of further seeds that would probably decide an inconclusive comparison."""
        return None if self.power is None else self.power.seeds

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
        """Return whether it should be run on fresh seeds: they could confirm it, and there are none yet.

        They cannot confirm what was compared with the baseline of another sweep.
        """
        same = self.comparison.setting.sweep == self.comparison.baseline_setting.sweep
        return same and self.confirmable and self.confirmation is None


def most_promising(verdicts: Iterable[Verdict]) -> Verdict | None:
    """Return the inconclusive verdict that looks better than the baseline and takes the fewest seeds to decide.

    Ties and recipes that no number of seeds decides go by their ratio. None if no recipe looks better.
    """
    hopeful = [v for v in verdicts if v.call is Call.INCONCLUSIVE and (v.comparison.ratio or 1.0) < 1]
    return min(hopeful, key=lambda v: (v.seeds is None, v.seeds or 0, v.comparison.ratio), default=None)


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
        key = (comparison.setting, comparison.recipe_digest, comparison.baseline)
        confirmation = by_recipe.get(key) if here else None
        # Fresh seeds that do not tell either are the ones that further seeds would join.
        judged = confirmation.result if confirmation is not None else None
        undecided = judged is not None and judged.call is Call.INCONCLUSIVE
        results.append(
            Verdict(
                comparison=comparison,
                call=comparison.call,
                power=power_of(judged, fresh=True) if judged is not None and undecided else power_of(comparison),
                confirmation=confirmation,
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


def _vanishing(controls: Iterable[Controlled]) -> Mapping[tuple[Setting, str], Controlled]:
    """Return the recipes whose gain, at the largest budget with a control, vanishes against that control."""
    largest: dict[tuple[Setting, str], Controlled] = {}
    for pair in controls:
        key = pair.setting, pair.label
        if pair.ssr >= largest.get(key, pair).ssr:
            largest[key] = pair
    return {key: pair for key, pair in largest.items() if pair.gain_vanishes}
