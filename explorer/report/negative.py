"""Negative results of a sweep: what did not work, cannot be told, or was never finished. They stay, beside the rest."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from explorer.analysis.control_sentences import control_sentence
from explorer.analysis.controls import Controlled
from explorer.analysis.equal_quality import Call, EqualQuality
from explorer.analysis.sentences import decide_words, inference_words, ratio_interval
from explorer.analysis.verdict import Verdict

Topic = Literal[
    "does not reach the baseline",
    "needs more than the baseline",
    "inconclusive",
    "equivalent to the baseline",
    "costs more at inference",
    "no better than its control",
    "budgets left out",
    "cannot be compared",
    "not confirmed",
    "run without a result",
    "not run",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Negative:
    """One negative result."""

    topic: Topic
    subject: str  # a recipe, or a run
    where: str  # metric and hardware; of a run its sweep
    words: str


def of_verdicts(found: Iterable[Verdict], *, where: str) -> Iterator[Negative]:
    """What verdicts say against a recipe."""
    for each in found:
        label = each.comparison.label
        yield from (Negative(topic=topic, subject=label, where=where, words=words) for topic, words in _of(each))


def of_controls(found: Iterable[Controlled], *, where: str) -> Iterator[Negative]:
    """Gains that a control has too: one result for each recipe and control, said at the largest of these budgets."""
    vanishing: dict[tuple[str, str], list[Controlled]] = {}
    for each in found:
        if each.gain_vanishes:
            vanishing.setdefault((each.label, each.control), []).append(each)
    for (label, _), budgets in vanishing.items():
        largest = max(budgets, key=lambda each: each.ssr)
        also = f"; so it is at {len(budgets)} budgets, of which this is the largest" if len(budgets) > 1 else ""
        words = f"at budget {largest.ssr:g} {control_sentence(largest)}{also}"
        yield Negative(topic="no better than its control", subject=label, where=where, words=words)


def of_runs(runs: pd.DataFrame, *, where: str) -> Iterator[Negative]:
    """Runs, rows of `frames.runs`, that have no result."""
    for row in runs[runs["state"] != "finished"].itertuples():
        recipe = f"{row.recipe} at budget {row.ssr:g}, seed {row.seed:g}: " if _known(row.recipe) else ""
        why = next((str(each) for each in (row.failure_message, row.problem) if _known(each)), "")
        words = f"{recipe}{row.state}{f', {why}' if why else ''}"
        yield Negative(topic="run without a result", subject=str(row.run_id), where=where, words=words)


def not_run(asked: Sequence[tuple[str, str]], *, where: str) -> Iterator[Negative]:
    """What a specification asked for and the plan left out: names and reasons."""
    for name, reason in asked:
        yield Negative(topic="not run", subject=name, where=where, words=reason)


def _of(verdict: Verdict) -> Iterator[tuple[Topic, str]]:
    found = verdict.comparison
    seeds = f"{found.n} seed{'s' * (found.n != 1)}"
    words = f"{found.ratio or 0:.2f} of what the baseline needs{_interval(found)}"
    match verdict.call:
        case Call.UNKNOWN:
            yield "cannot be compared", found.reason or "there is no target"
        case Call.NOT_REACHED:
            yield "does not reach the baseline", f"within the budgets that were run, {seeds}"
        case Call.MORE:
            yield "needs more than the baseline", words
        case Call.EQUIVALENT:
            yield "equivalent to the baseline", words
        case Call.INCONCLUSIVE:
            yield "inconclusive", f"{words}; {decide_words(verdict)}"
        case Call.ONE_SEED | Call.NO_INTERVAL:
            yield "inconclusive", f"{words}, no interval: {found.reason or seeds}"
        case _:
            pass
    if found.slower_inference:
        yield "costs more at inference", inference_words(found)
    if found.left_out:
        budgets = ", ".join(f"{each:g}" for each in found.left_out)
        yield "budgets left out", f"{budgets}: some seeds are missing there, so they took no part"


def _interval(found: EqualQuality) -> str:
    return "" if found.adjusted_low is None else f" ({found.confidence:.0%} interval {ratio_interval(found)})"


def _known(value: object) -> bool:
    return isinstance(value, str) and bool(value)
