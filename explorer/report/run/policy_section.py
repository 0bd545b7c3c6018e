"""The section on the policy: its rules in words, the weights in force, the run's own decisions, and the channels by
which one class may have influenced another other than through a common layer.

A channel is a decision that looked at several classes, which the ledger names, or something that was done before the
run began, which no ledger of a run can name.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from explorer.audit.history import Decided, Rules
from explorer.entries.kinds import Genesis
from explorer.page import document
from explorer.page.document import Block, Bullets, Heading, Paragraph, Picture, Row, Span, Table, sentence
from explorer.provenance.policy import QUARANTINE_WORDS, confidential_words, region_words, rule_words
from explorer.provenance.regions import exact
from explorer.report.run.references import GENESIS, Reference, refer
from explorer.report.run.reported_run import ReportedRun
from explorer.report.run.shares_section import inner
from explorer.report.section import Section
from explorer.runlog.admission_tables import InForce, tables_in_force
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import record
from explorer.views.ledger import timeline
from explorer.views.ledger.timeline import about, decided_by

MOST_DECISIONS = 40  # rows of the table; the JSON report has all

UNRECORDED = (
    "hyper-parameters that people chose after seeing results",
    "deduplication, filtering and selection of examples before they were tagged",
    "the choice of this model among several",
)
"""Channels outside the run, which are on no ledger."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """Neighbouring layers that are treated alike: the first and the last of them, and the weight of each class."""

    first: str
    last: str
    weights: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseTable:
    """The weights of one stretch of steps, as its entry names them."""

    phase: str
    first: int
    stop: int
    columns: tuple[Column, ...]
    reference: Reference


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyWords:
    """A policy."""

    name: str
    quarantine: str
    rules: tuple[str, ...]
    regions: tuple[str, ...]
    confidential: str | None  # whose numbers are encrypted
    phases: tuple[PhaseTable, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionLine:
    """A decision, and what took it."""

    step: int
    action: str
    about: str
    decided_by: str
    superseded: bool  # undone when the steps after a kept state were executed again
    reference: Reference


@dataclass(frozen=True, kw_only=True, slots=True)
class Channel:
    """One such way."""

    where: str  # "decision", "normalisation", "preparation", or another name of something fitted in the genesis
    words: str
    reference: Reference


@record
class Channels:
    """Ways from one class to another besides a layer."""

    recorded: tuple[Channel, ...]
    on_no_record: tuple[str, ...]  # channels that no ledger could name


@record
class PolicyRecord:
    """Policy and decisions."""

    policy: PolicyWords | None
    decisions: tuple[DecisionLine, ...]
    channels: Channels


class PolicySection(Section[ReportedRun, PolicyRecord]):
    """Policy and decisions."""

    record = PolicyRecord

    def gather(self, run: ReportedRun) -> PolicyRecord:
        rules = run.vouchers.rules if run.vouchers else None
        decisions = run.opened.decisions
        recorded = channels(decisions, run.ledger.genesis)
        return PolicyRecord(
            policy=policy_words(run.ledger, rules) if rules else None,
            decisions=tuple(map(_decision, decisions)),
            channels=Channels(recorded=recorded, on_no_record=UNRECORDED),
        )

    def blocks(self, record: PolicyRecord, run: ReportedRun) -> list[Block]:
        blocks: list[Block] = [Heading(2, "Policy and decisions", "policy")]
        # An untrusted policy is neither shown nor denied: the section on vouchers says why it is not trusted.
        if record.policy:
            blocks += _policy(record.policy, run)
        elif not run.not_vouched:
            blocks.append(Paragraph("The run had no policy: every class could train every layer."))
        blocks.append(Heading(3, "Decisions of the run"))
        if record.decisions:
            blocks += _decisions(record.decisions, run)
        else:
            blocks.append(Paragraph("No decision is on record: the run decided nothing by itself."))
        listed = [
            (Span(f"{sentence(f'{channel.where}: {channel.words}')} "), run.cite(channel.reference))
            for channel in record.channels.recorded
        ]
        return [
            *blocks,
            Heading(3, "Channels from one class to another, other than a layer", "channels"),
            Bullets(listed) if listed else Paragraph("None is on record."),
            Paragraph(f"Not recorded, if there were any: {'; '.join(UNRECORDED)}.", "note"),
        ]


# --- gathering ---


def policy_words(run: RunLedger, rules: Rules) -> PolicyWords:
    """Return a run's policy in words. Raises `LedgerError` where a table in force is missing."""
    policy = rules.routing.policy
    return PolicyWords(
        name=f"{policy.name} version {policy.version}",
        quarantine=QUARANTINE_WORDS[policy.quarantine],
        rules=tuple(map(rule_words, policy.rules)),
        regions=tuple(f"{region.name}: {region_words(region)}" for region in policy.sealed),
        confidential=confidential_words(policy.confidential) if policy.confidential else None,
        phases=tuple(_phase(run, table) for table in tables_in_force(run)),
    )


def _phase(run: RunLedger, table: InForce) -> PhaseTable:
    return PhaseTable(
        phase=table.phase,
        first=table.first,
        stop=table.stop,
        columns=tuple(_columns(run.genesis.layers, table.weights)),
        reference=refer([table.entry]),
    )


def _columns(layers: tuple[str, ...], weights: np.ndarray) -> Iterator[Column]:
    """Yield columns from input to output; neighbouring layers that are treated alike share one."""
    cells = zip(layers, map(tuple, weights.T.tolist()), strict=True)
    for alike, group in itertools.groupby(cells, key=lambda pair: pair[1]):
        names = [name for name, _ in group]
        yield Column(first=names[0], last=names[-1], weights=tuple(map(_weight, alike)))


def _weight(value: float) -> str:
    """Format a weight: 0 and 1 are guarantees, a fraction is attenuation and marked as such."""
    return exact(value) if value in (0, 1) else f"{exact(value)}~"


def _decision(decided: Decided) -> DecisionLine:
    return DecisionLine(
        step=decided.step,
        action=decided.action,
        about=about(decided),
        decided_by=decided_by(decided),
        superseded=decided.superseded,
        reference=refer([decided.index]),
    )


def channels(decisions: Sequence[Decided], genesis: Genesis) -> tuple[Channel, ...]:
    """Return the channels on record. There may have been others: see `UNRECORDED`."""
    ways = []
    for decided in decisions:
        # A decision about one class is a channel if it looked at another; one about all classes, if it looked at any.
        # A decision that was undone had no effect on the model.
        others = [path for path in decided.evidence if set(decided.subjects) != {path}]
        if others and not decided.superseded:
            whose = f"{decided.action} of {', '.join(decided.subjects) or 'all classes'} at step {decided.step:,}"
            words = f"{whose} looked at numbers of {', '.join(others)}"
            ways.append(Channel(where="decision", words=words, reference=refer([decided.index])))
    fitted = genesis.fitted
    if fitted == {}:  # not None, which runs of earlier versions have: for them nothing is claimed
        fitted = {"preparation": "none: nothing was fitted on the training examples"}
    ways += [Channel(where=where, words=words, reference=GENESIS) for where, words in (fitted or {}).items()]
    return tuple(ways)


# --- showing ---


def _policy(policy: PolicyWords, run: ReportedRun) -> list[Block]:
    blocks: list[Block] = [
        Paragraph(
            f"{policy.name}: rules are read from the top, the first match decides, and without a match the weight is "
            "0. Weights 0 and 1 are guarantees; a fraction (~) is attenuation and guarantees nothing. In this run "
            f"{policy.quarantine}."
        ),
        Bullets(policy.rules, numbered=True),
    ]
    blocks += [Paragraph(sentence(policy.confidential))] if policy.confidential else []
    blocks += [Bullets(policy.regions)] if policy.regions else []
    for phase in policy.phases:
        # A row for every class; neighbouring layers that are treated alike are one column.
        spans = [
            layers.first if layers.first == layers.last else f"{layers.first} to {layers.last}"
            for layers in phase.columns
        ]
        rows = [
            Row((path, *(layers.weights[at] for layers in phase.columns)))
            for at, path in enumerate(run.ledger.genesis.classes)
        ]
        steps = f"steps {phase.first:,} to {phase.stop - 1:,}: {phase.phase or 'all steps'}"
        blocks += [
            Heading(3, (Span(f"Weights in force, {steps} "), run.cite(phase.reference))),
            Table([document.Column("Class"), *map(document.Column, spans)], rows),
        ]
    return blocks


def _decisions(decisions: tuple[DecisionLine, ...], run: ReportedRun) -> list[Block]:
    opened, shown = run.opened, decisions[-MOST_DECISIONS:]  # the latest ones, whose effect is still in the model
    left = len(decisions) - len(shown)
    columns = (
        document.Column("Entry"),
        document.Column("Step", number=True),
        document.Column("Decision"),
        document.Column("About"),
        document.Column("Decided by"),
    )
    rows = [
        Row(
            (
                (run.cite(line.reference),),
                f"{line.step:,}",
                f"{line.action}, undone by a re-execution" if line.superseded else line.action,
                line.about,
                line.decided_by,
            ),
            quiet=line.superseded,
        )
        for line in shown
    ]
    return [
        Picture(
            name="time",
            draw=lambda width: timeline.timeline(
                opened.decisions,
                phases=opened.recorded.phases,
                steps=len(opened.recorded),
                width=inner(width, margin=100),
            ),
            caption=timeline.CAPTION,
            description=f"{len(decisions)} decisions over {len(opened.recorded)} steps.",
        ),
        Table(columns, rows, caption=f"{left} earlier ones are only in the JSON report." if left else ""),
    ]
