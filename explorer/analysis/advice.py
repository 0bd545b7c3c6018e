"""Advice after an answer: the runs that would settle it, with their time, their price and the command.

An answer that does not tell is never the end: either some number of fresh seeds decides, or the step says what else is
missing, such as quieter step times or other budgets.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from explorer.analysis.comparison import LEAST_REACH_RATE
from explorer.analysis.confirmed import Confirmed
from explorer.analysis.equal_quality import Call
from explorer.analysis.power import TOO_NOISY, Effort, effort_of, power_of
from explorer.analysis.verdict import Verdict, most_promising
from explorer.page import amounts

SEEDS = 3  # fresh ones for a winner, unless more are needed to tell
AFTER_LOOKING = "they would be added after a look at earlier fresh seeds, so state a final number and keep to it"


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """Runs of a recipe and its baseline on fresh seeds; or a remedy, where such runs would not settle anything."""

    recipe: str
    sweep: str
    words: str  # what they would do
    seeds: int | None  # further ones; None: a remedy only
    total: int  # fresh seeds, with those that were run before
    effort: Effort | None
    after_looking: bool = False

    @property
    def price(self) -> str:
        """Return time and price in words.

        "12 runs, about 4 min, $0.02"
        """
        if self.effort is None:
            return ""
        known = self.effort.wall_seconds
        time = "time not known" if known is None else f"about {amounts.seconds(known)}"
        money = () if self.effort.usd is None else (amounts.dollars(self.effort.usd),)
        return ", ".join((amounts.count(self.effort.runs, "run"), time, *money))

    def command(self, *options: str) -> tuple[str, ...]:
        """Return the words after `explorer` of the command that runs them; none for a remedy."""
        if self.seeds is None:
            return ()
        names = (self.sweep, self.recipe)
        stop = ("--",) if any(name.startswith("-") for name in names) else ()  # a name with a dash is no option
        return ("confirm", "--seeds", str(self.total), *options, *stop, *names)

    @property
    def sentence(self) -> str:
        """
        "fast: about 6 more seeds of fast and baseline would decide (12 runs, about 4 min, $0.02)"
        """
        return f"{self.recipe}: {self.words}{f' ({self.price})' if self.price else ''}"


def advise(
    verdicts: Sequence[Verdict], rows: pd.DataFrame, *, workers: int = 1, recipe: str | None = None
) -> Advice | None:
    """Return what to do next in a sweep; None where nothing is open: no recipe to compare, or a confirmed winner.

    Args:
        verdicts: those on the sweep's recipes, all in one setting.
        rows: rows of `results` of the sweep.
        workers: runs at the same time, for the forecast.
        recipe: only advice on this recipe; by default on the most promising one.
    """
    mine = [verdict for verdict in verdicts if recipe in (None, verdict.comparison.recipe)]
    if mine and (itself := [verdict for verdict in mine if _is_itself(verdict)]):
        return _extend(itself[0])
    if not mine or (recipe is None and any(verdict.is_confirmed and verdict.control is None for verdict in mine)):
        return None
    # A winner without a confirmation comes first, the one that needs least before others.
    if asking := [verdict for verdict in mine if verdict.asks]:
        return _confirm(min(asking, key=_ratio), rows, workers)
    if begun := [verdict for verdict in mine if _in_progress(verdict)]:
        return _continue(begun[0])
    # Then what some number of seeds decides: the recipe that the headline names, or else the cheapest to decide.
    decidable = [verdict for verdict in mine if verdict.seeds is not None]
    if decidable:
        cheapest = min(decidable, key=lambda verdict: verdict.seeds or 0)
        return _decide(most_promising(decidable) or cheapest, rows, workers)
    return _remedy(mine)


def _confirm(verdict: Verdict, rows: pd.DataFrame, workers: int) -> Advice:
    power = power_of(verdict.comparison)
    seeds = max(SEEDS, power.seeds if power is not None and power.seeds is not None else 0)
    words = f"{seeds} fresh seeds of it and {verdict.comparison.baseline} would confirm it, or not"
    return _step(verdict, words, rows, seeds=seeds, total=seeds, workers=workers)


def _continue(verdict: Verdict) -> Advice:
    assert verdict.confirmation is not None
    total = len(verdict.confirmation.seeds)
    words = f"its confirmation on {amounts.count(total, 'fresh seed')} has not finished"
    return Advice(
        recipe=verdict.comparison.recipe,
        sweep=verdict.comparison.setting.sweep,
        words=words,
        seeds=0,
        total=total,
        effort=None,
    )


def _extend(verdict: Verdict) -> Advice | None:
    """Return what to add to a sweep that is a confirmation itself: seeds for the sweep that it confirms."""
    power = power_of(verdict.comparison, fresh=True)
    if power is None or verdict.confirmation is None:
        return None
    if power.seeds is None:
        return _only(verdict, power.reason)
    return Advice(
        recipe=verdict.comparison.recipe,
        sweep=verdict.confirmation.sweeps[0],
        words=f"about {amounts.count(power.seeds, 'more fresh seed')} would decide",
        seeds=power.seeds,
        total=len(verdict.confirmation.seeds) + power.seeds,
        effort=None,
        after_looking=True,
    )


def _decide(verdict: Verdict, rows: pd.DataFrame, workers: int) -> Advice:
    assert verdict.power is not None and verdict.seeds is not None
    earlier = len(verdict.confirmation.seeds) if verdict.power.after_looking and verdict.confirmation else 0
    pair = f"{verdict.comparison.recipe} and {verdict.comparison.baseline}"
    words = f"about {amounts.count(verdict.seeds, 'more seed')} of {pair} would decide"
    return _step(verdict, words, rows, seeds=verdict.seeds, total=earlier + verdict.seeds, workers=workers)


def _step(verdict: Verdict, words: str, rows: pd.DataFrame, *, seeds: int, total: int, workers: int) -> Advice:
    after_looking = verdict.power is not None and verdict.power.after_looking
    return Advice(
        recipe=verdict.comparison.recipe,
        sweep=verdict.comparison.setting.sweep,
        words=words,
        seeds=seeds,
        total=total,
        effort=effort_of(rows, verdict.comparison, seeds=seeds, workers=workers),
        after_looking=after_looking,
    )


def _remedy(verdicts: Sequence[Verdict]) -> Advice | None:
    """Return what is missing where no number of seeds decides, for the recipe that looks best."""
    first = min(verdicts, key=_ratio)
    single = [verdict for verdict in verdicts if verdict.call is Call.ONE_SEED]
    if single:
        return _more_than_one(min(single, key=_ratio))
    noisy = [verdict for verdict in verdicts if verdict.power is not None and verdict.power.reason == TOO_NOISY]
    # Seeds that agree exactly say nothing about how many more would decide.
    open_ones = [verdict for verdict in verdicts if verdict.call is Call.INCONCLUSIVE and verdict.power is not None]
    if open_ones:
        first = min(noisy or open_ones, key=_ratio)
        assert first.power is not None
        return _only(first, first.power.reason)
    if below := [verdict for verdict in verdicts if verdict.call is Call.BELOW]:
        return _only(below[0], "add a budget below its lowest: it is past the target there already")
    without = [verdict for verdict in verdicts if verdict.call is Call.NO_INTERVAL]
    if often := [verdict for verdict in without if 0 < (verdict.comparison.reach_rate or 0) < LEAST_REACH_RATE]:
        return _only(min(often, key=_ratio), "add a budget above the largest: not every seed reaches the target")
    if all(verdict.call is Call.NOT_REACHED for verdict in verdicts):
        return _only(first, "add budgets above the largest: no recipe reaches the target within its budgets")
    return None


def _more_than_one(verdict: Verdict) -> Advice:
    words = f"one seed has no interval; {SEEDS} fresh seeds of it and {verdict.comparison.baseline} give one"
    return Advice(
        recipe=verdict.comparison.recipe,
        sweep=verdict.comparison.setting.sweep,
        words=words,
        seeds=SEEDS,
        total=SEEDS,
        effort=None,
    )


def _only(verdict: Verdict, words: str) -> Advice:
    return Advice(
        recipe=verdict.comparison.recipe,
        sweep=verdict.comparison.setting.sweep,
        words=words,
        seeds=None,
        total=0,
        effort=None,
    )


def _is_itself(verdict: Verdict) -> bool:
    return verdict.confirmation is not None and verdict.confirmation.verdict is Confirmed.ITSELF


def _in_progress(verdict: Verdict) -> bool:
    return verdict.confirmation is not None and verdict.confirmation.verdict is Confirmed.IN_PROGRESS


def _ratio(verdict: Verdict) -> float:
    return verdict.comparison.ratio or float("inf")


def to_confirm(verdicts: Sequence[Verdict], *, winner: str | None = None) -> list[Verdict]:
    """Return the recipes that can be confirmed on fresh seeds, in the order in which they are offered.

    Any recipe can be: also one whose sweep does not tell yet. `winner`, the answer to a question, comes first; then
    what asks to be confirmed; then the others, those that need least before those that need more.
    """
    return sorted(
        (verdict for verdict in verdicts if verdict.comparison.baseline_setting == verdict.comparison.setting),
        key=lambda verdict: (verdict.comparison.recipe != winner, not verdict.asks, _ratio(verdict)),
    )
