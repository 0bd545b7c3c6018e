"""Whether a model may pass a gate: its record, its ledger, and rule by rule what the gate asks for.

What fails first hides nothing that comes after it. But where the record itself is not believed, there is nothing that
rules could be judged by, and all of them fail.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from explorer import rundir
from explorer.audit.conform import Conformance, conform
from explorer.errors import ExplorerError, LedgerError, unknown
from explorer.ledger.storage import CHECKPOINT
from explorer.provenance.policy import RoutingPolicy
from explorer.provenance.taxonomy import Taxonomy
from explorer.provenance.trust import Trust
from explorer.release.attest import check_card, check_certificate, check_tensors
from explorer.release.gate import CONFORMS, Gate, kind_of
from explorer.release.model_claims import claims, deletable_at_best, differences
from explorer.release.observations import Weighed, weigh
from explorer.release.rules import Evidence, Ruling, judge_rules, words_of
from explorer.release.shipped import Shipped, open_shipped
from explorer.runlog.influence import recorded_plan
from explorer.runlog.model_file import CARD
from explorer.runlog.run_ledger import RunLedger

MOST = 5  # differences that are shown


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """Something that has to hold before any rule counts."""

    name: str
    holds: bool
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What came of it."""

    gate: str
    model: Path
    shipped: Shipped | None  # None: its record is not believed
    checks: tuple[Check, ...]
    rules: tuple[Ruling, ...]
    observations: tuple[Weighed, ...]
    unseen: tuple[str, ...]  # what was not looked at, in words

    @property
    def passes(self) -> bool:
        """Return whether everything holds."""
        return self.shipped is not None and all(each.holds for each in (*self.checks, *self.rules))


def verify_model(path: Path, gate: Gate, *, trust: Trust, ledger: Path | None, now: int) -> Verdict:
    """Judge a model: its directory, or the file in it. `ledger`: the directory of the run that made it.

    What does not hold is in the verdict and never raised.
    """
    try:
        shipped = open_shipped(path, trust=trust, now=now)
    except ExplorerError as fault:
        return _refused(path, gate, str(fault))
    run, opened = _opened(ledger, gate)
    observations = weigh(shipped.directory, shipped.attested, gate.observers, trust=trust, now=now)
    evidence = Evidence(
        models=(shipped.attested, *shipped.ancestors),
        taxonomy=shipped.taxonomy.value,
        trust=trust,
        observations=observations,
        conformance=_conformance(run, trust=trust, now=now),
    )
    checks = (
        _record(shipped),
        opened or _ledger(run, shipped, trust=trust, now=now),
        *_named(gate, shipped),
        *_observers(gate, trust),
    )
    return Verdict(
        gate=gate.name,
        model=shipped.model,
        shipped=shipped,
        checks=checks,
        rules=judge_rules(gate, evidence),
        observations=observations,
        unseen=tuple(_unseen(gate, shipped, ledger, run)),
    )


def _refused(path: Path, gate: Gate, fault: str) -> Verdict:
    why = "not judged: the model's record is not believed"
    rules = tuple(Ruling(rule=kind_of(each), says=words_of(each), holds=False, why=why) for each in gate.rules)
    return Verdict(
        gate=gate.name,
        model=path,
        shipped=None,
        checks=(Check(name="record", holds=False, why=fault),),
        rules=rules,
        observations=(),
        unseen=("everything else",),
    )


def _record(shipped: Shipped) -> Check:
    names = ", ".join(one.name for one in shipped.attested.authorities)
    return Check(name="record", holds=True, why=f"{shipped.model.name} is the one that {names} attested")


def _opened(ledger: Path | None, gate: Gate) -> tuple[RunLedger | None, Check | None]:
    """Read the run that the gate has looked at, if it has one looked at; or why it cannot be."""
    if gate.ledger == "checkpoint":
        return None, None
    if ledger is None:
        return None, Check(name="ledger", holds=False, why="the gate asks for all of it: say where with --ledger DIR")
    try:
        inside = ledger.name == rundir.LEDGER and (ledger / CHECKPOINT).exists()
        return RunLedger(ledger.parent if inside else ledger), None
    except ExplorerError as fault:
        return None, Check(name="ledger", holds=False, why=str(fault))


def _ledger(run: RunLedger | None, shipped: Shipped, *, trust: Trust, now: int) -> Check:
    """Return the whole ledger, every claim computed again; or the signed checkpoint, which `open_shipped` has
    judged."""
    judged = shipped.judgement
    signed = ", ".join(dict.fromkeys(each.name for each in judged.signed_by))
    cosigned = ", ".join(each.verifier.name for each in judged.cosignatures if each.fault is None) or "nobody"
    words = f"checkpoint of {judged.checkpoint.size} entries, signed by {signed}, cosigned by {cosigned}"
    if run is None:
        return Check(name="ledger", holds=True, why=words)
    try:
        found = list(_contradictions(run, shipped, trust=trust, now=now))
    except ExplorerError as fault:
        found = [str(fault)]
    if found:
        more = f"; and {len(found) - MOST} more" if len(found) > MOST else ""
        return Check(name="ledger", holds=False, why="; ".join(found[:MOST]) + more)
    return Check(name="ledger", holds=True, why=f"every claim computed again; {words}")


def _contradictions(run: RunLedger, shipped: Shipped, *, trust: Trust, now: int) -> Iterator[str]:
    signed = shipped.attested.value
    computed = claims(
        run,
        trust=trust,
        now=now,
        issued=signed.issued,
        expires=signed.expires,
        deletability=deletable_at_best,
    )
    yield from differences(signed, computed)
    check_tensors(run, shipped.model)
    check_card(run, shipped.directory / CARD)
    check_certificate(run, shipped.attested.model, trust=trust, now=now)


def _named(gate: Gate, shipped: Shipped) -> Iterator[Check]:
    """Yield the documents that the gate asks for by name or digest."""
    pairs: tuple[tuple[str, str | None, Taxonomy | RoutingPolicy], ...] = (
        ("taxonomy", gate.taxonomy, shipped.taxonomy.value),
        ("policy", gate.policy, shipped.policy.value),
    )
    for name, asked, found in pairs:
        if asked is not None:
            words = f"{found.name} version {found.version}, digest {found.digest}"
            holds = asked in (found.name, found.digest)
            yield Check(name=name, holds=holds, why=words if holds else f"asked for {asked}, found {words}")


def _observers(gate: Gate, trust: Trust) -> Iterator[Check]:
    """Yield a fault for each of the gate's observers that the trust file does not know."""
    known = [one.name for one in trust.authorities]
    for each in gate.observers:
        if each.name not in known:
            yield Check(name="observers", holds=False, why=unknown("authority", each.name, known))


def _conformance(run: RunLedger | None, *, trust: Trust, now: int) -> Callable[[], Conformance]:
    @cache
    def found() -> Conformance:
        if run is None:
            raise LedgerError("there is no ledger here to find it out from")
        return conform(run, trust=trust, now=now)

    return found


def _unseen(gate: Gate, shipped: Shipped, ledger: Path | None, run: RunLedger | None) -> Iterator[str]:
    """Yield what nothing here says, whatever was verified."""
    by = ", ".join(one.name for one in shipped.attested.authorities)
    if gate.ledger == "checkpoint":
        beside = "" if ledger is None else f", though --ledger {ledger} was given: the gate asks for the checkpoint"
        yield f"the ledger's entries{beside}: what trained what is the word of {by}"
    elif not any(kind_of(rule) in CONFORMS for rule in gate.rules):
        yield "whether what the ledger says of a step agrees with its numbers: the rule {conforms: true} asks for that"
    if run is None or recorded_plan(run) is None:
        yield f"whether {CARD} builds the model that was trained: the run's recipe, which would tell, is not here"
    yield "whether training was what the ledger records: explorer replay shows that"
    yield "whether a claim about deletability can still be kept: it speaks of the day of its signature"
    yield "observations that are not beside the model"
    if shipped.ancestors:
        yield "the ledgers of the models that it goes on from: what is said of them is the word of who attested them"
    if shipped.attested.value.deletions and gate.ledger == "checkpoint":
        yield "the certificates of its deletions: explorer delete verify checks them"
    unsigned = [claim.path for claim in shipped.attested.value.classes if claim.confidential]
    if unsigned:
        yield f"how much the classes contributed: numbers of {', '.join(unsigned)} are confidential"
