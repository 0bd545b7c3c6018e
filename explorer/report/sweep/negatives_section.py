"""The section on negative results: recipes that did not help, inconclusive comparisons, and runs without a result."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from explorer.analysis.axis_words import gain_number, gain_span
from explorer.analysis.confirmed import Confirmed
from explorer.analysis.controls import Controlled
from explorer.analysis.equal_quality import Call, EqualQuality
from explorer.analysis.sentences import control_sentence, decide_words, inference_words
from explorer.analysis.verdict import Verdict
from explorer.page.document import Block, Column, Heading, Paragraph, Row, Table
from explorer.report.section import Section
from explorer.report.sweep.reported_sweep import ReportedSweep
from explorer.schema import record

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


@record
class NegativesRecord:
    """Negative results."""

    negatives: tuple[Negative, ...]


class NegativesSection(Section[ReportedSweep, NegativesRecord]):
    """Negative results."""

    record = NegativesRecord

    def gather(self, sweep: ReportedSweep) -> NegativesRecord:
        # From the most general to the most particular: verdicts, controls, fresh seeds, then single runs.
        negatives = list[Negative]()
        for results in sweep.metrics:
            negatives += of_verdicts(results.answer.verdicts, where=results.where)
            negatives += of_controls(results.controls, where=results.where)
            for confirmation in results.confirmations:
                if confirmation.verdict is Confirmed.NOT_CONFIRMED:
                    words, recipe = confirmation.sentence, confirmation.recipe
                    negatives.append(Negative(topic="not confirmed", subject=recipe, where=results.where, words=words))
        negatives += of_runs(sweep.states, where=sweep.name)
        for left_out in sweep.plan.get("not_run", ()) if sweep.plan else ():
            name, reason = left_out["name"], left_out["reason"]
            negatives.append(Negative(topic="not run", subject=name, where=sweep.name, words=reason))
        return NegativesRecord(negatives=tuple(negatives))

    def blocks(self, record: NegativesRecord, sweep: ReportedSweep) -> list[Block]:
        heading = Heading(2, "Negative results", "negative")
        if not record.negatives:
            words = "None on record: no compared recipe fell short, and every run has a result."
            return [heading, Paragraph(words)]
        columns = [Column("Recipe or run"), Column("Result"), Column("Details"), Column("Where")]
        rows = [Row((result.subject, result.topic, result.words, result.where)) for result in record.negatives]
        return [heading, Table(columns, rows)]


def of_verdicts(verdicts: Iterable[Verdict], *, where: str) -> Iterator[Negative]:
    """Yield the negative results in verdicts."""
    for verdict in verdicts:
        label = verdict.comparison.label
        yield from (Negative(topic=topic, subject=label, where=where, words=words) for topic, words in _of(verdict))


def of_controls(controls: Iterable[Controlled], *, where: str) -> Iterator[Negative]:
    """Yield gains that a control has too: one result for every recipe and control, at the largest of their budgets."""
    vanishing: dict[tuple[str, str], list[Controlled]] = {}
    for control in controls:
        if control.gain_vanishes:
            vanishing.setdefault((control.label, control.control), []).append(control)
    for (label, _), budgets in vanishing.items():
        largest = max(budgets, key=lambda control: control.ssr)
        also = f"; the same at {len(budgets)} budgets, of which this is the largest" if len(budgets) > 1 else ""
        words = f"at budget {largest.ssr:g} {control_sentence(largest)}{also}"
        yield Negative(topic="no better than its control", subject=label, where=where, words=words)


def of_runs(runs: pd.DataFrame, *, where: str) -> Iterator[Negative]:
    """Yield the runs without a result, from rows of `frames.runs`."""
    for row in runs[runs["state"] != "finished"].itertuples():
        recipe = f"{row.recipe} at budget {row.ssr:g}, seed {row.seed:g}: " if _known(row.recipe) else ""
        why = next((str(message) for message in (row.failure_message, row.problem) if _known(message)), "")
        words = f"{recipe}{row.state}{f', {why}' if why else ''}"
        yield Negative(topic="run without a result", subject=str(row.run_id), where=where, words=words)


def _of(verdict: Verdict) -> Iterator[tuple[Topic, str]]:
    comparison = verdict.comparison
    seeds = f"{comparison.n} seed{'s' * (comparison.n != 1)}"
    words = "" if comparison.ratio is None else f"{gain_number(comparison.x, comparison.ratio)}{_interval(comparison)}"
    # A favourable verdict is no negative result, but slower inference and excluded budgets limit any verdict.
    match verdict.call:
        case Call.UNKNOWN:
            yield "cannot be compared", comparison.reason or "there is no target"
        case Call.NOT_REACHED:
            yield "does not reach the baseline", f"within the tested budgets, {seeds}"
        case Call.MORE:
            yield "needs more than the baseline", words
        case Call.EQUIVALENT:
            yield "equivalent to the baseline", words
        case Call.INCONCLUSIVE:
            yield "inconclusive", f"{words}; {decide_words(verdict)}"
        case Call.ONE_SEED | Call.NO_INTERVAL:
            yield "inconclusive", f"{words}, no interval: {comparison.reason or seeds}"
        case _:
            pass
    if comparison.slower_inference:
        yield "costs more at inference", inference_words(comparison)
    if comparison.left_out:
        budgets = ", ".join(f"{budget:g}" for budget in comparison.left_out)
        yield "budgets left out", f"{budgets}: excluded, because some of their seeds are missing"


def _interval(comparison: EqualQuality) -> str:
    return (
        ""
        if comparison.adjusted_low is None
        else f" ({comparison.confidence:.0%} interval {gain_span(comparison.adjusted_low, comparison.adjusted_high)})"
    )


def _known(value: object) -> bool:
    return isinstance(value, str) and bool(value)
