"""What the governance report of a run says, gathered once and the same in every format.

Everything comes from the run directory and the project's ledger beside it, and every figure names the entries, or the
documents that the first entry binds, that it rests on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from explorer.audit.checking import check_sums
from explorer.audit.conditions import Condition, Outcome, together
from explorer.audit.conform import Conformance, conform
from explorer.audit.history import Badge, Decided, Vouchers, vouchers
from explorer.audit.ledger_sums import is_confidential
from explorer.audit.shares import shares
from explorer.errors import ExplorerError, RunError
from explorer.provenance.attestation import VerifiedTags
from explorer.provenance.description import Description
from explorer.provenance.trust import Trust, read_trust
from explorer.report.run_channels import Channel, channels
from explorer.report.run_classes import ClassLine, class_lines
from explorer.report.run_counts import Counts, counts
from explorer.report.run_deletion import deletability
from explorer.report.run_depth import DepthLine, depth_lines
from explorer.report.run_history import History, history_of
from explorer.report.run_keys import KeyLine, key_lines, keys_since, quorum_words
from explorer.report.run_layers import LayerLine, layer_lines
from explorer.report.run_pinned import Pinned, pinned
from explorer.report.run_policy import PolicyWords, policy_words
from explorer.report.run_references import GENESIS, Document, Reference, refer
from explorer.report.run_replay import Replay, replay_of
from explorer.report.run_summary import commands_of, confidential_words, facts_of, metrics_of, opens, sentence_of
from explorer.report.run_taxonomy import TaxonomyLine, taxonomy_lines
from explorer.report.run_vouchers import VoucherLine, voucher_lines
from explorer.runlog.run_ledger import RunLedger
from explorer.views.ledger import matrices
from explorer.views.ledger.badge import Words, badge_words, is_simulated
from explorer.views.ledger.open_run import OpenRun, open_run
from explorer.views.ledger.timeline import about, decided_by


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionLine:
    """A decision, and what took it."""

    step: int
    action: str
    about: str
    decided_by: str
    superseded: bool
    reference: Reference


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RunContent:
    """The report's content."""

    run: str
    directory: Path
    made: int  # seconds since 1970
    simulated: bool
    sentence: str  # what trained what, in one breath
    facts: Mapping[str, str]
    integrity: Words
    conditions: tuple[Condition, ...]  # of a conforming pipeline
    sums: str  # how the shares were held against the ledger
    sums_agree: bool
    spooled: bool  # whether there are files beside the ledger to sum from
    confidential: str | None  # what the reader of a run with confidential classes has to know
    opens: bool  # whether the reader has keys to sealed numbers
    classes: tuple[ClassLine, ...]
    counts: tuple[Counts, ...]
    layers: tuple[LayerLine, ...]
    cells: pd.DataFrame  # the same as the heat map has them
    depth: tuple[DepthLine, ...]
    quarantined: int  # slots of batches, over all steps, that were never read
    taxonomy: tuple[TaxonomyLine, ...]
    description: Description | None  # of the tagged dataset, as its attestation has it
    tags: VerifiedTags | None  # None: not believed
    documents: Mapping[str, Document]  # that the first entry binds and that are here and believed, by what they are
    vouchers: tuple[VoucherLine, ...]
    vouched: str | None  # why the documents cannot be believed; None: they are
    policy: PolicyWords | None
    decisions: tuple[DecisionLine, ...]
    channels: tuple[Channel, ...]
    keys: tuple[KeyLine, ...]  # of the run's own trust file
    keys_since: tuple[KeyLine, ...] | None  # of the reader's, as far as it says otherwise; None: there is none
    quorum: tuple[str, ...]
    pinned: Pinned
    replay: Replay
    history: History
    commands: tuple[tuple[str, str], ...]  # what to type, and what it does
    genesis: Reference
    whole: Reference  # the ledger from end to end
    steps: Reference  # all steps and states
    states: Reference | None
    profiles: Reference | None
    metrics: Mapping[str, str]  # of the last evaluation, by name
    end: Reference | None
    opened: OpenRun


def gather(run_directory: Path, *, trust: Path | None, now: int) -> RunContent:
    """Gather the content; `now` is in seconds since 1970. Raises `ExplorerError` where the ledger cannot be read."""
    opened = open_run(run_directory, trust=trust, now=now)
    run, recorded = opened.ledger, opened.recorded
    if run.begins == run.steps:
        kept = (
            "it holds what a deletion kept, and trained nothing: the report of the run before tells how that came to be"
        )
        why = kept if run.begins else "no step is on record yet: there is nothing to report"
        raise RunError(f"{run_directory}: {why}")
    believed = None if trust is None else read_trust(trust)
    judged = conform(run, trust=believed, now=now)
    found, fault = _vouchers(run, believed)
    moved = shares(run)
    cells = matrices.cells(moved, recorded)
    rules = found.rules if found else None
    routing = rules.routing if rules else None
    tagged = found.tags.table.histogram if found else None
    sums, sealed = check_sums(run, list(run.segments())), is_confidential(run)
    lines = class_lines(
        run, recorded, routing=routing, tagged=tagged, deletable=deletability(run, denied=_denied(judged))
    )
    files = pinned(run)
    metrics, end = metrics_of(run)
    states = [index for _, index in run.outline.states]
    return RunContent(
        run=run.genesis.run,
        directory=run_directory,
        made=now,
        simulated=is_simulated(run.genesis.classes),
        sentence=sentence_of(
            lines,
            measured=bool(recorded.numbers.any()),
            closed=sealed and not opens(run),
            erased=bool(opened.badge.blobs.erased),
        ),
        facts=facts_of(run, opened, files),
        integrity=_integrity(opened.badge, judged),
        conditions=judged.conditions,
        sums=str(sums),
        sums_agree=sums.agrees,
        spooled=sums.spooled,
        confidential=confidential_words(run, routing) if sealed else None,
        opens=opens(run),
        classes=lines,
        counts=counts(run, recorded),
        layers=layer_lines(moved, cells),
        cells=cells,
        depth=depth_lines(opened.profiles),
        quarantined=int(recorded.quarantined.sum()),
        taxonomy=taxonomy_lines(found.basis.taxonomy, classes=run.genesis.classes, tagged=tagged) if found else (),
        description=found.tags.table.description if found else None,
        tags=found.tags if found else None,
        documents=_documents(run, found, files),
        vouchers=voucher_lines(found) if found else (),
        vouched=fault,
        policy=policy_words(run, found) if found else None,
        decisions=tuple(map(_decision, opened.decisions)),
        channels=channels(opened.decisions, run.genesis),
        keys=key_lines(files.trust) if files.trust else (),
        keys_since=None if believed is None else keys_since(files.trust, believed),
        quorum=quorum_words(files.trust) if files.trust else (),
        pinned=files,
        replay=replay_of(run),
        history=history_of(run, trust=believed, own=files.trust, now=now),
        commands=commands_of(run_directory, range(run.begins, run.steps)),
        genesis=GENESIS,
        whole=Reference(first=0, last=opened.badge.size - 1),
        steps=refer([*recorded.entries[run.begins :].tolist(), *states]),
        states=refer(states) if states else None,
        profiles=refer(run.outline.profiles) if run.outline.profiles else None,
        metrics=metrics,
        end=end,
        opened=opened,
    )


def _vouchers(run: RunLedger, trust: Trust | None) -> tuple[Vouchers | None, str | None]:
    """The documents, or why they are not believed."""
    if run.genesis.taxonomy is None:
        return None, "its first entry names no taxonomy and no tags: it was recorded, and not governed"
    try:
        return vouchers(run, trust=trust), None
    except ExplorerError as error:
        return None, str(error)


CONFORMS = {
    Outcome.FAILS: "The run does not conform: see Integrity.",
    Outcome.UNTOLD: "Whether the run conforms cannot be told: see Integrity.",
}


def _integrity(found: Badge, judged: Conformance) -> Words:
    """The badge, and in a sentence whether all conditions hold, where they do not."""
    words = badge_words(found)
    said = CONFORMS.get(together(condition.outcome for condition in judged.conditions))
    return words if said is None else replace(words, sentences=(*words.sentences, said))


def _denied(judged: Conformance) -> Outcome:
    """Whether what the record says about who was denied what holds, whoever vouches for it."""
    sound = Outcome.FAILS if badge_words(judged.badge).verdict == "broken" else Outcome.HOLDS
    return together((sound, *(condition.outcome for condition in judged.conditions)))


def _documents(run: RunLedger, found: Vouchers | None, files: Pinned) -> dict[str, Document]:
    digests = {} if found is None else {"taxonomy": found.basis.taxonomy.digest, "tags": found.tags.attestation}
    if found and found.rules:
        digests["policy"] = found.rules.routing.policy.digest
    if files.trust:
        digests["trust file"] = files.trust.digest
    if files.record:
        digests["recipe"] = run.genesis.recipe
    if files.environment is not None:
        digests["environment"] = run.genesis.environment
    return {what: Document(what=what, digest=digest) for what, digest in digests.items()}


def _decision(each: Decided) -> DecisionLine:
    return DecisionLine(
        step=each.step,
        action=each.action,
        about=about(each),
        decided_by=decided_by(each),
        superseded=each.superseded,
        reference=refer([each.index]),
    )


def references_of(content: RunContent) -> Iterator[Reference]:
    """Everything that a figure of the report rests on."""
    yield from (content.genesis, content.whole, content.steps)
    yield from (each for each in (content.states, content.profiles, content.end) if each)
    yield from (each.reference for each in (*content.classes, *content.decisions, *content.channels))
    yield from (each.reference for each in (content.policy.phases if content.policy else ()))
