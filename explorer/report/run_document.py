"""The governance report of a run as values, whose JSON form is published as a schema (`schemas/run_report.v2.json`).

It holds every figure of the page, and those that the page has no room for. What is unknown is null. A later version of
the format has another number.
"""

from typing import Literal

import explorer
from explorer.audit.conditions import Condition, Contradiction
from explorer.audit.profiles import DepthProfile
from explorer.provenance.description import Description
from explorer.provenance.times import Time, format_time
from explorer.report.frameworks.answers import Answer, Answered, Mapped
from explorer.report.frameworks.mapping import DISCLAIMER, mapped
from explorer.report.run_channels import UNRECORDED, Channel
from explorer.report.run_cite import Citations
from explorer.report.run_classes import ClassLine
from explorer.report.run_content import DecisionLine, RunContent
from explorer.report.run_counts import Counts
from explorer.report.run_depth import DepthLine
from explorer.report.run_history import History
from explorer.report.run_keys import KeyLine
from explorer.report.run_layers import LayerLine
from explorer.report.run_policy import PolicyWords
from explorer.report.run_references import Document, ListedEntry, Reference
from explorer.report.run_replay import Replay
from explorer.report.run_summary import LIMITS
from explorer.report.run_taxonomy import TaxonomyLine
from explorer.report.run_vouchers import VoucherLine
from explorer.schema import record

FORMAT = 2


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
    not_looked_at: tuple[str, ...] = ()  # why it cannot be told


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
class Profiles:
    """Entropy profiles: each layer first and last, and all that was measured."""

    layers: tuple[DepthLine, ...]
    rows: tuple[DepthProfile, ...]
    reference: Reference | None


@record
class Channels:
    """Ways from one class to another besides a layer."""

    recorded: tuple[Channel, ...]
    on_no_record: tuple[str, ...]  # whether there were any


@record
class Believed:
    """Whom the run believed, and what the reader's trust file says otherwise; null: the reader brought none."""

    keys: tuple[KeyLine, ...]
    quorum: tuple[str, ...]
    since: tuple[KeyLine, ...] | None


@record
class FormField:
    """A question of a form, and what the record says."""

    name: str
    reference: str
    verified: bool  # the reference, against the official text
    asks: str
    status: Literal["answered", "in part", "not recorded"]
    answer: str | None
    lacks: str | None  # what of the question is not recorded
    would_stand_in: str | None  # of what is not recorded: where it would have to be
    references: tuple[Reference, ...]
    documents: tuple[Document, ...]


@record
class FormDate:
    """A day from which something of a form holds."""

    day: str
    what: str
    source: str
    verified: bool  # against the official text


@record
class Form:
    """A form of a regulator or a standard."""

    name: str
    says: str
    verified: bool | None  # its titles and sections, against the official text; None: there is no such text
    dates: tuple[FormDate, ...]
    coverage: str
    fields: tuple[FormField, ...]


@record
class RunReport:
    """The whole report."""

    format: Literal[2] = FORMAT
    explorer: str  # the version that made it
    made: Time
    run: str
    simulated_provenance: bool
    answer: str
    facts: dict[str, str]
    metrics: Metrics
    integrity: Integrity
    confidential: str | None
    classes: tuple[ClassLine, ...]
    counts: tuple[Counts, ...]
    layers: tuple[LayerLine, ...]
    quarantined_slots: int
    profiles: Profiles
    taxonomy: tuple[TaxonomyLine, ...]
    dataset: Description | None
    documents: tuple[Document, ...]
    vouchers: tuple[VoucherLine, ...]
    not_vouched: str | None
    policy: PolicyWords | None
    decisions: tuple[DecisionLine, ...]
    channels: Channels
    trust: Believed
    replay: Replay
    history: History
    environment: dict[str, str] | None
    not_here: tuple[str, ...]
    disclaimer: str  # of the forms
    forms: tuple[Form, ...]
    reproduce: tuple[str, ...]
    limits: tuple[str, ...]
    entries: tuple[ListedEntry, ...]
    entries_not_listed: int


def run_report(content: RunContent) -> RunReport:
    """The report of this content. Raises `LedgerError` for entries that are damaged."""
    answers = mapped(content)
    cite = Citations(content, answers)
    words = content.integrity
    return RunReport(
        explorer=explorer.__version__,
        made=format_time(content.made),
        run=content.run,
        simulated_provenance=content.simulated,
        answer=content.sentence,
        facts=dict(content.facts),
        metrics=Metrics(values=dict(content.metrics), reference=content.end),
        integrity=Integrity(
            verdict=words.verdict,
            sentences=words.sentences,
            findings=words.findings,
            sums=content.sums,
            sums_agree=content.sums_agree,
            conditions=tuple(map(_judged, content.conditions)),
        ),
        confidential=content.confidential,
        classes=content.classes,
        counts=content.counts,
        layers=content.layers,
        quarantined_slots=content.quarantined,
        profiles=Profiles(layers=content.depth, rows=content.opened.profiles, reference=content.profiles),
        taxonomy=content.taxonomy,
        dataset=content.description,
        documents=tuple(content.documents.values()),
        vouchers=content.vouchers,
        not_vouched=content.vouched,
        policy=content.policy,
        decisions=content.decisions,
        channels=Channels(recorded=content.channels, on_no_record=UNRECORDED),
        trust=Believed(keys=content.keys, quorum=content.quorum, since=content.keys_since),
        replay=content.replay,
        history=content.history,
        environment=None if content.pinned.environment is None else dict(content.pinned.environment),
        not_here=content.pinned.absent,
        disclaimer=DISCLAIMER,
        forms=tuple(map(_form, answers)),
        reproduce=tuple(command for command, _ in content.commands),
        limits=LIMITS,
        entries=cite.listed,
        entries_not_listed=cite.unlisted,
    )


def _judged(each: Condition) -> Judged:
    return Judged(
        name=each.name,
        holds=each.holds,
        says=each.says,
        checked=each.checked,
        contradictions=each.contradictions,
        more=each.more,
        notes=each.notes,
        outcome=each.outcome.value,
        not_looked_at=tuple(one.message for one in each.untold),
    )


def _form(each: Mapped) -> Form:
    framework = each.framework
    return Form(
        name=framework.name,
        says=framework.says,
        verified=framework.verified,
        dates=tuple(
            FormDate(day=date.day, what=date.what, source=date.source, verified=date.verified)
            for date in framework.dates
        ),
        coverage=each.coverage,
        fields=tuple(map(_field, each.answers)),
    )


def _field(each: Answered) -> FormField:
    found = each.answer if isinstance(each.answer, Answer) else None
    return FormField(
        name=each.field.name,
        reference=each.field.reference,
        verified=each.field.verified,
        asks=each.field.asks,
        status=each.status,
        answer=found and found.text,
        lacks=found and (found.lacks or None),
        would_stand_in=None if isinstance(each.answer, Answer) else each.answer.where,
        references=found.references if found else (),
        documents=found.documents if found else (),
    )
