"""The section on integrity: the ledger, the conditions of a conforming pipeline, the run and its last evaluation."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

from explorer.audit.conditions import Condition, Contradiction, Outcome, together
from explorer.entries.fields import read_float
from explorer.entries.kinds import End
from explorer.page import amounts
from explorer.page.document import Block, Bullets, Facts, Heading, Paragraph, Span, Text
from explorer.report.run.references import GENESIS, Reference, refer
from explorer.report.run.reported_run import ReportedRun
from explorer.report.section import Section
from explorer.run_files import METRICS
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import record
from explorer.views.ledger.open_run import Words, badge_words

DIGEST = re.compile(r"[0-9a-f]{64}")  # a SHA-256, which is shown as code
CONFORMS = {
    Outcome.FAILS: "The run does not conform: see Integrity.",
    Outcome.UNTOLD: "Whether the run conforms cannot be told: see Integrity.",
}


@record
class Metrics:
    """What came out, with its units."""

    values: dict[str, str]
    reference: Reference | None


@record
class Judged:
    """A condition of a conforming pipeline."""

    name: str
    holds: bool
    says: str
    checked: dict[str, int]
    contradictions: tuple[Contradiction, ...]
    more: int
    notes: tuple[str, ...]
    outcome: Literal["holds", "does not hold", "cannot be told"] | None = None  # None: a report of earlier versions
    not_looked_at: tuple[str, ...] = ()  # what could not be checked, and why


@record
class Integrity:
    """Whether the ledger is sound, and whom the reader believes."""

    verdict: Literal["verified", "unchecked", "broken"]
    sentences: tuple[str, ...]
    findings: tuple[str, ...]
    sums: str
    sums_agree: bool
    conditions: tuple[Judged, ...]


@record
class IntegrityRecord:
    """The ledger itself, the run that it is about, and the last evaluation."""

    facts: dict[str, str]
    metrics: Metrics
    integrity: Integrity
    environment: dict[str, str] | None
    not_here: tuple[str, ...]


class IntegritySection(Section[ReportedRun, IntegrityRecord]):
    """The ledger, the conditions of a conforming pipeline, and facts about the run."""

    record = IntegrityRecord

    def gather(self, run: ReportedRun) -> IntegrityRecord:
        words, pinned = integrity_words(run), run.pinned
        return IntegrityRecord(
            facts=facts_of(run),
            metrics=metrics_of(run.ledger),
            integrity=Integrity(
                verdict=words.verdict,
                sentences=words.sentences,
                findings=words.findings,
                sums=str(run.sums),
                sums_agree=run.sums.agrees,
                conditions=tuple(map(_judged, run.conformance.conditions)),
            ),
            environment=None if pinned.environment is None else dict(pinned.environment),
            not_here=pinned.absent,
        )

    def blocks(self, record: IntegrityRecord, run: ReportedRun) -> list[Block]:
        # The conditions in full, because a reader must see what was checked, and not only that it holds.
        blocks: list[Block] = [Heading(2, (Span("Integrity "), run.cite(run.whole)), "integrity")]
        for condition in run.conformance.conditions:
            blocks += _condition(condition)
        pairs: list[tuple[str, Text]] = [
            (name, (Span(value, "code"),) if DIGEST.fullmatch(value) else value) for name, value in record.facts.items()
        ]
        # Metrics cite the last entry; the other facts are those of the first.
        if end := record.metrics.reference:
            pairs += [(name, (Span(f"{value} "), run.cite(end))) for name, value in record.metrics.values.items()]
        blocks += [Heading(3, (Span("The run "), run.cite(GENESIS))), Facts(pairs)]
        blocks += [Heading(3, "What else the first entry binds")]
        if record.environment:
            blocks.append(Facts(list(record.environment.items())))
        if record.not_here:
            blocks.append(Bullets([f"Missing: {file}" for file in record.not_here]))
        return blocks


def integrity_words(run: ReportedRun) -> Words:
    """Return the badge in words, with one more sentence if the conditions do not all hold."""
    words = badge_words(run.opened.badge)
    said = CONFORMS.get(together(condition.outcome for condition in run.conformance.conditions))
    return words if said is None else replace(words, sentences=(*words.sentences, said))


def facts_of(run: ReportedRun) -> dict[str, str]:
    """Return facts about the run by name."""
    genesis, badge = run.ledger.genesis, run.opened.badge
    facts = {
        "Steps": f"{len(run.opened.recorded):,}, {badge.outcome}",
        "Classes, layers": f"{len(genesis.classes)}, {len(genesis.layers)}",
        "Strategy": genesis.strategy,
        "Seed": str(genesis.seed),
        "Ledger": f"{badge.origin}, {amounts.count(badge.size, 'entry', 'entries')}",
        "Root": badge.root,
        "Recipe": genesis.recipe,
        "Code": genesis.code,
        "Environment": genesis.environment,
        "Data": genesis.data,
        "Starts from": "; ".join(run.ledger.continues) or "nothing that was trained before",
    }
    record = run.pinned.record
    if record is None:
        return facts
    # A reader looks for these three first; they come from a file that the first entry binds.
    task = {"Task": f"{record.model} on {record.dataset}", "Methods": ", ".join(record.methods) or "none"}
    code = record.identity.get("code")
    if isinstance(code, Mapping):  # needed to train it again, and by nothing that reads it
        sources = ", ".join(f"{top} (source {str(digest)[:12]})" for top, digest in code.items())
        task["Code of other packages"] = sources
    return {**task, "Hardware": f"{record.hardware.name}, {record.precision}", **facts}


def metrics_of(run: RunLedger) -> Metrics:
    """Return the last evaluation, from the ledger's last entry."""
    if run.outline.end is None:
        return Metrics(values={}, reference=None)
    (end,) = run.read([run.outline.end], End)
    values = {
        name: METRICS[name].show(read_float(value)) if name in METRICS else f"{read_float(value):.4g}"
        for name, value in end.entry.metrics.items()
    }
    return Metrics(values=values, reference=refer([end.index]))


def _judged(condition: Condition) -> Judged:
    return Judged(
        name=condition.name,
        holds=condition.holds,
        says=condition.says,
        checked=condition.checked,
        contradictions=condition.contradictions,
        more=condition.more,
        notes=condition.notes,
        outcome=condition.outcome.value,
        not_looked_at=tuple(finding.message for finding in condition.untold),
    )


def _condition(condition: Condition) -> Iterator[Block]:
    looked = ", ".join(f"{number:,} {what}" for what, number in condition.checked.items())
    notes = "".join(f" {note}." for note in condition.notes)
    words = f"{condition.outcome.capitalize()}: {condition.says}.{f' Checked: {looked}.' if looked else ''}{notes}"
    yield Heading(4, condition.name.capitalize())
    yield Paragraph(words, "plain" if condition.holds else "bad")
    # A contradiction disproves the condition; what could not be checked leaves it open.
    if condition.contradictions:
        yield Bullets([_contradiction(finding) for finding in condition.contradictions], "bad")
    if condition.more:
        yield Paragraph(f"And {condition.more} more.", "bad")
    if condition.untold:
        yield Bullets([f"Not checked: {finding.message}" for finding in condition.untold], "bad")
    if condition.more_untold:
        yield Paragraph(f"And {condition.more_untold} more not checked.", "bad")


def _contradiction(finding: Contradiction) -> str:
    where = "" if finding.entry is None else f"entry {finding.entry}: "
    held = "" if finding.expected is None else f"; expected {finding.expected}, found {finding.found}"
    return f"{where}{finding.message}{held}"
