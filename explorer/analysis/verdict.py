"""The verdict on a recipe: the one value that headline, tables, questions, confirmations, reports and terminal read.

It joins what the sweep's own seeds say (`Call`), what fresh seeds say, and whether a control takes the gain away. What
there is to claim, to confirm or to wait for is decided here and nowhere else.
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

POWER = 0.8  # with how many seeds a comparison is decided: this probability that it is
MOST_SEEDS = 100  # more are not advised: nobody runs them, and the estimate would be no better than a guess
FROM_TIME = ("train_seconds", "cost_usd")  # within one hardware a cost is a time at a price


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What is known of one recipe beside its baseline."""

    comparison: EqualQuality
    call: Call
    seeds: int | None  # that would decide what is inconclusive; None where it is not, or `MOST_SEEDS` would not
    confirmation: Confirmation | None  # what fresh seeds say
    control: Controlled | None  # beside which its gain vanishes

    @property
    def claims(self) -> bool:
        """Whether the recipe is shown to need less: by the sweep, or by fresh seeds, which are not chosen by anything.
        What fresh seeds contradict is no claim."""
        if self.confirmation is not None and self.confirmation.verdict is Confirmed.NOT_CONFIRMED:
            return False
        return self.call is Call.LESS or self.is_confirmed

    @property
    def is_confirmed(self) -> bool:
        return self.confirmation is not None and self.confirmation.verdict is Confirmed.CONFIRMED

    @property
    def is_refuted(self) -> bool:
        """Whether it looked like less, and fresh seeds do not bear it out."""
        return self.confirmation is not None and self.confirmation.verdict is Confirmed.NOT_CONFIRMED

    @property
    def judged_by_others(self) -> bool:
        """Whether there is a confirmation of it, finished or not, in other sweeps."""
        return self.confirmation is not None and self.confirmation.verdict is not Confirmed.ITSELF

    @property
    def confirmable(self) -> bool:
        """Whether fresh seeds can make, or have made, a claim of it: it is less, or would be if it were alone."""
        return self.call is Call.LESS or self.comparison.less_alone or self.is_confirmed

    @property
    def asks(self) -> bool:
        """Whether it asks for fresh seeds: it can be confirmed, and nothing says yet whether it is."""
        return self.confirmable and self.confirmation is None


def verdicts(
    comparisons: Sequence[EqualQuality],
    *,
    controls: Iterable[Controlled] = (),
    fresh: Iterable[Confirmation] = (),
) -> list[Verdict]:
    """The verdicts on all comparisons of one family or several, one for each, in their order.

    `fresh` are confirmations beside the sweep's own baseline: those that belong to a comparison with it are found by
    what was run. `controls` are recipes beside theirs at every budget; the largest one counts.
    """
    by_recipe = {(each.setting, each.recipe_digest, each.baseline): each for each in fresh}
    vanishing = _vanishing(controls)
    done = []
    for each in comparisons:
        here = each.baseline_setting == each.setting  # fresh seeds run on one machine
        done.append(
            Verdict(
                comparison=each,
                call=each.call,
                seeds=seeds_to_decide(each),
                confirmation=by_recipe.get((each.setting, each.recipe_digest, each.baseline)) if here else None,
                control=vanishing.get((each.setting, each.label)),
            )
        )
    return done


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
    """The verdicts on the recipes in rows of `results`, of one metric. `fresh` are the rows that `store.confirming`
    finds for the sweep, its own among them; the other arguments are those of `equal_quality`."""
    found = equal_quality(
        rows, baseline=baseline, machine=machine, x=x, target=target, confidence=confidence, resamples=resamples
    )
    return verdicts(found, controls=controls_of(rows), fresh=() if fresh is None else confirming(fresh, found))


def controls_of(rows: pd.DataFrame) -> list[Controlled]:
    """The recipes of the rows that choose examples, beside those that choose as many at random."""
    if not (rows["control"] == "random-subset").any():
        return []
    return [each for each in controlled(rows) if each.control == "random-subset"]


def confirming(fresh: pd.DataFrame, found: Sequence[EqualQuality]) -> list[Confirmation]:
    """What fresh seeds say of comparisons of one question, beside the baseline that each sweep names."""
    done: list[Confirmation] = []
    for sweep in dict.fromkeys(each.setting.sweep for each in found):
        first = next(each for each in found if each.setting.sweep == sweep)
        x = "train_seconds" if first.x in FROM_TIME else first.x
        target = None if first.own_target else first.target
        done += confirmations(fresh, sweep=sweep, x=x, target=target, confidence=first.confidence)
    return done


def seeds_to_decide(found: EqualQuality) -> int | None:
    """How many seeds would probably decide an inconclusive comparison; None where it is not, or `MOST_SEEDS` would not.

    Assumed is that the ratio is what it was found to be, that seeds go on to differ as they did, and that step times
    stay as exact as they are. Then it is the least number at which, with probability `POWER`, the adjusted interval
    leaves 1 out; or lies within the margin of equivalence, if the ratio does. The number is itself as uncertain as the
    noise of few seeds is: at three seeds it may be twice as large, or half.
    """
    if found.call is not Call.INCONCLUSIVE or found.effect is None or not found.seed_error:
        return None
    effect, margin = abs(found.effect.value), math.log(EQUIVALENT)
    alpha = (1 - found.confidence) / max(found.family, 1)
    times = [each for each in found.effect.errors[1:]]  # the first part is that of the seeds
    reach, size = math.hypot(*(each.reach(alpha) for each in times)), size_of(tuple(times))
    n_N = np.arange(found.n + 1, MOST_SEEDS + 1)
    seeds_N = found.seed_error * np.sqrt(found.n / n_N)
    half_N = np.hypot(stdtrit(n_N - 1, 1 - alpha / 2) * seeds_N, reach)
    spread_N = np.hypot(seeds_N, size)
    enough_N = effect >= half_N + stdtrit(n_N - 1, POWER) * spread_N
    enough_N |= margin - effect >= half_N + stdtrit(n_N - 1, (1 + POWER) / 2) * spread_N
    return int(n_N[enough_N.argmax()]) if enough_N.any() else None


def _vanishing(controls: Iterable[Controlled]) -> Mapping[tuple[Setting, str], Controlled]:
    """The recipes whose gain at their largest budget with a control is none beside it."""
    largest: dict[tuple[Setting, str], Controlled] = {}
    for each in controls:
        place = each.setting, each.label
        if each.ssr >= largest.get(place, each).ssr:
            largest[place] = each
    return {place: each for place, each in largest.items() if each.gain_vanishes}
