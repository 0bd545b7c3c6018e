"""What the governance report of a run says, gathered once and the same in every format.

Everything comes from the run directory, and every figure names the entries of the ledger that it rests on.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from explorer import records, rundir
from explorer.audit.checking import check_sums
from explorer.audit.conditions import Condition
from explorer.audit.conform import Conformance, conform
from explorer.audit.history import Decided, Vouchers, vouchers
from explorer.audit.ledger_sums import is_confidential
from explorer.audit.vouched import Rules
from explorer.entries.fields import read_float
from explorer.entries.run import End
from explorer.errors import ExplorerError, RunError
from explorer.provenance.routing import confidential
from explorer.provenance.trust import read_trust
from explorer.recorded.blobs import Missing
from explorer.recorded.keys import NoKeys
from explorer.recorded.run_ledger import RunLedger
from explorer.records import METRICS, RunRecord
from explorer.report.run_classes import ClassLine, class_lines
from explorer.report.run_deletion import deletability
from explorer.report.run_policy import PolicyWords, policy_words
from explorer.report.run_references import GENESIS, ListedEntry, Reference, list_entries, refer
from explorer.report.run_vouchers import VoucherLine, voucher_lines
from explorer.views import text
from explorer.views.ledger_badge import Words, badge_words, is_simulated
from explorer.views.ledger_runs import OpenRun, open_run
from explorer.views.ledger_timeline import about, decided_by

MOST = 5  # classes that the sentence names

LIMITS = (
    "The record says what this pipeline did with the tags it was given. Whether a tag is true, its authority vouches "
    "for; whether the record is true, a replay shows.",
    "A denied class has no direct part in a layer. Through layers that admit it, it reaches every later forward pass: "
    "only a class that is sealed or denied everywhere leaves the rest untouched.",
    "A share is a class's part in the summed gradient over these steps. It is neither what the class taught nor what "
    "the model would be without it.",
    "That classes can be told apart in a layer does not show that training on them is why.",
    "Tokeniser, normalisation constants, chosen hyper-parameters and the order of work before the run are not on this "
    "record.",
    "A ledger that was rolled back to an earlier checkpoint looks like this too: only who holds a later one can tell.",
)


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
    simulated: bool
    sentence: str  # what trained what, in one breath
    facts: Mapping[str, str]
    integrity: Words
    conditions: tuple[Condition, ...]  # of a conforming pipeline
    sums: str  # how the shares were held against the ledger
    sums_agree: bool
    confidential: str | None  # what the reader of a run with confidential classes has to know
    classes: tuple[ClassLine, ...]
    quarantined: int  # slots of batches, over all steps, that were never read
    vouchers: tuple[VoucherLine, ...]
    vouched: str | None  # why the documents cannot be believed; None: they are
    policy: PolicyWords | None
    decisions: tuple[DecisionLine, ...]
    commands: tuple[tuple[str, str], ...]  # what to type, and what it does
    genesis: Reference
    whole: Reference  # the ledger from end to end
    steps: Reference  # all steps and states
    profiles: Reference | None
    metrics: Mapping[str, str]  # of the last evaluation, by name
    end: Reference | None
    entries: tuple[ListedEntry, ...]
    unlisted: int  # entries that are referred to and left out of the list
    opened: OpenRun


def gather(run_directory: Path, *, trust: Path | None, now: int) -> RunContent:
    """Gather the content; `now` is in seconds since 1970. Raises `ExplorerError` where the ledger cannot be read."""
    opened = open_run(run_directory, trust=trust, now=now)
    run, recorded = opened.ledger, opened.recorded
    if run.begins == run.steps:
        raise RunError(f"{run_directory}: no step is on record yet: there is nothing to report")
    believed = None if trust is None else read_trust(trust)
    judged = conform(run, trust=believed, now=now)
    found, fault = _vouchers(run, trust)
    rules = found.rules if found else None
    sums, sealed = check_sums(run, list(run.segments())), is_confidential(run)
    lines = class_lines(
        run,
        recorded,
        routing=rules.routing if rules else None,
        tagged=found.tags.table.histogram if found else None,
        deletable=deletability(run, established=_established(judged)),
    )
    policy = policy_words(run, found) if found else None
    decisions = tuple(_decision(each) for each in opened.decisions)
    steps = refer([*recorded.entries.tolist(), *(index for _, index in run.outline.states)])
    profiles = refer(run.outline.profiles) if run.outline.profiles else None
    metrics, end = _metrics(run)
    whole = Reference(first=0, last=opened.badge.size - 1)
    references = [GENESIS, whole, steps, *(line.reference for line in lines), *(each.reference for each in decisions)]
    references += [each for each in (profiles, end) if each]
    references += [phase.reference for phase in policy.phases] if policy else []
    entries, unlisted = list_entries(run, references)
    return RunContent(
        run=run.genesis.run,
        directory=run_directory,
        simulated=is_simulated(run.genesis.classes),
        sentence=_sentence(lines, measured=bool(recorded.numbers.any()), closed=sealed and not opens(run)),
        facts=_facts(run, run_directory, opened),
        integrity=badge_words(opened.badge),
        conditions=judged.conditions,
        sums=str(sums),
        sums_agree=sums.agrees,
        confidential=_confidential(run, rules) if sealed else None,
        classes=lines,
        quarantined=int(recorded.quarantined.sum()),
        vouchers=voucher_lines(found) if found else (),
        vouched=fault,
        policy=policy,
        decisions=decisions,
        commands=_commands(run_directory, run.steps),
        genesis=GENESIS,
        whole=whole,
        steps=steps,
        profiles=profiles,
        metrics=metrics,
        end=end,
        entries=entries,
        unlisted=unlisted,
        opened=opened,
    )


def _vouchers(run: RunLedger, trust: Path | None) -> tuple[Vouchers | None, str | None]:
    """The documents, or why they are not believed."""
    try:
        return vouchers(run, trust=None if trust is None else read_trust(trust)), None
    except ExplorerError as error:
        return None, str(error)


def _established(judged: Conformance) -> bool:
    """Whether nothing contradicts what the record says about who was denied what."""
    sound = badge_words(judged.badge).verdict != "broken"
    return sound and all(condition.holds for condition in judged.conditions)


def _decision(each: Decided) -> DecisionLine:
    return DecisionLine(
        step=each.step,
        action=each.action,
        about=about(each),
        decided_by=decided_by(each),
        superseded=each.superseded,
        reference=refer([each.index]),
    )


def opens(run: RunLedger) -> bool:
    """Whether whoever reads has keys at all: then what is read holds numbers that are sealed for others."""
    return not isinstance(run.keys, NoKeys)


def _confidential(run: RunLedger, rules: Rules | None) -> str:
    whose = ", ".join(sorted(confidential(rules.routing, run.genesis.classes))) if rules else "some classes"
    if opens(run):
        return f"This report holds numbers of {whose}, which are confidential: whoever has it has them."
    return f"Numbers of {whose}, and those over several classes at once, are {Missing.SEALED}."


def _sentence(lines: tuple[ClassLine, ...], *, measured: bool, closed: bool) -> str:
    """Who moved the layers most, and who was kept out."""
    moved = sorted((line for line in lines if line.share is not None), key=lambda line: -(line.share or 0))
    kept = [line.path for line in lines if line.first_admitted is None]
    words = "What moved this model was not measured"
    if measured:
        where = f"is {Missing.SEALED}" if closed else "the sums are not beside the ledger"
        words = f"What moved this model was measured, and {where}"
    if moved:
        named = [f"{line.path} {_rounded(line.share or 0)}" for line in moved[:MOST]]
        named += [f"{len(moved) - MOST} more"] if len(moved) > MOST else []
        words = f"What moved this model: {', '.join(named)}"
    return f"{words}; denied everywhere: {', '.join(kept)}." if kept else f"{words}."


def _rounded(share: float) -> str:
    """A share in a headline: one that is not zero is never called zero."""
    return "under 1%" if 0 < abs(share) < 0.01 else f"{share:.0%}"


def _facts(run: RunLedger, directory: Path, opened: OpenRun) -> dict[str, str]:
    genesis, recorded = run.genesis, opened.recorded
    facts = {
        "Steps": f"{len(recorded):,}, {opened.badge.outcome}",
        "Classes, layers": f"{len(genesis.classes)}, {len(genesis.layers)}",
        "Strategy": genesis.strategy,
        "Seed": str(genesis.seed),
        "Ledger": f"{opened.badge.origin}, {text.count(opened.badge.size, 'entry', 'entries')}",
        "Root": opened.badge.root,
        "Recipe": genesis.recipe,
        "Code": genesis.code,
        "Environment": genesis.environment,
        "Data": genesis.data,
        "Starts from": "; ".join(parent.words for parent in genesis.parents) or "nothing that was trained before",
    }
    if not (directory / rundir.RUN).exists():
        return facts
    record = records.read(RunRecord, directory / rundir.RUN)
    task = {"Task": f"{record.model} on {record.dataset}", "Methods": ", ".join(record.methods) or "none"}
    return {**task, "Hardware": f"{record.hardware.name}, {record.precision}", **facts}


def _metrics(run: RunLedger) -> tuple[dict[str, str], Reference | None]:
    """What came out, as the last entry says."""
    if run.outline.end is None:
        return {}, None
    (end,) = run.read([run.outline.end], End)
    found = {
        name: text.quality(read_float(value), METRICS[name].unit if name in METRICS else None)
        for name, value in end.entry.metrics.items()
    }
    return found, refer([end.index])


def _commands(directory: Path, steps: int) -> tuple[tuple[str, str], ...]:
    where = shlex.quote(directory.as_posix())
    ledger = shlex.quote((directory / rundir.LEDGER).as_posix())
    return (
        (f"explorer ledger verify {ledger} --trust TRUST.json", "the tree, the signatures, every blob"),
        (f"explorer conform {where} --trust TRUST.json", "the three conditions of a conforming pipeline"),
        (f"explorer replay {where} --steps 0:{steps}", "execute it again and compare it entry by entry, bit for bit"),
        (f"explorer ledger show {ledger}", "every entry"),
        (f"explorer ledger prove {ledger} INDEX --out FILE", "a proof of one entry, for somebody far away"),
    )
