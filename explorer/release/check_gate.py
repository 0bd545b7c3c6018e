"""The judgement of a model by a gate: its record, its ledger, and each rule, which holds or fails with a reason.

A failure hides no later one: everything is judged, except where the record itself is not believed. Then nothing is left
to judge rules by, and all of them fail. A rule is judged for the model and for every model that it continues, with the
reason of the first that fails it. A rule that names something the model lacks fails, so that no typing error passes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from explorer import rundir
from explorer.audit.conditions import Cause, Outcome, Untold
from explorer.audit.conform import Conformance, conform
from explorer.errors import ExplorerError, LedgerError, ProvenanceError, unknown
from explorer.ledger.storage import CHECKPOINT
from explorer.provenance.levels import reaches, read_cost, replay_words
from explorer.provenance.model_attestation import Attested, ClassClaim, LayerDepth
from explorer.provenance.policy import RoutingPolicy
from explorer.provenance.regions import ADAPTER, WHOLE, inside, matches, written
from explorer.provenance.spellings import covers
from explorer.provenance.taxonomy import Taxonomy
from explorer.provenance.trust import Trust
from explorer.release.attest import check_card, check_certificate, check_tensors
from explorer.release.gate import CONFORMS, Absent, ButFor, Deletable, Deleted, Deny, Evaluated, Gate, Rule, kind_of
from explorer.release.model_claims import claims, deletable_at_best, differences
from explorer.release.observations import Weighed, metric, weigh
from explorer.release.shipped import Shipped, open_shipped
from explorer.runlog.anchor import delegate_of
from explorer.runlog.influence import recorded_plan
from explorer.runlog.model_file import CARD
from explorer.runlog.run_ledger import RunLedger

MOST = 5  # differences that are shown


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """A condition that must hold before any rule counts."""

    name: str
    holds: bool
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Ruling:
    """The outcome of a rule."""

    rule: str  # "deny"
    says: str  # the rule in words
    holds: bool
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """The facts that rules are judged by, all of them believed."""

    models: tuple[Attested, ...]  # the model, and those that it continues
    taxonomy: Taxonomy
    trust: Trust
    observations: tuple[Weighed, ...]
    conformance: Callable[[], Conformance]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The outcome of a gate for one model."""

    gate: str
    model: Path
    shipped: Shipped | None  # None: its record is not believed
    checks: tuple[Check, ...]
    rules: tuple[Ruling, ...]
    observations: tuple[Weighed, ...]
    unseen: tuple[str, ...]  # what was not examined, in words

    @property
    def passes(self) -> bool:
        """Return whether everything holds."""
        return self.shipped is not None and all(part.holds for part in (*self.checks, *self.rules))


def verify_model(path: Path, gate: Gate, *, trust: Trust, ledger: Path | None, now: int) -> Verdict:
    """Judge a model by a gate. Failures are in the verdict and never raised.

    Args:
        path: the model's directory, or the model file in it.
        gate: the gate.
        trust: the authorities that count.
        ledger: the directory of the run that made the model, for gates that ask for the full ledger.
        now: the time of the judgement, in seconds since 1970.
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
        rules=tuple(judge_rule(rule, evidence) for rule in gate.rules),
        observations=observations,
        unseen=tuple(_unseen(gate, shipped, ledger, run)),
    )


def _refused(path: Path, gate: Gate, fault: str) -> Verdict:
    why = "not judged: the model's record is not believed"
    return Verdict(
        gate=gate.name,
        model=path,
        shipped=None,
        checks=(Check(name="record", holds=False, why=fault),),
        rules=tuple(Ruling(rule=kind_of(rule), says=words_of(rule), holds=False, why=why) for rule in gate.rules),
        observations=(),
        unseen=("everything else",),
    )


# --- checks before the rules ---


def _record(shipped: Shipped) -> Check:
    names = ", ".join(authority.name for authority in shipped.attested.authorities)
    return Check(name="record", holds=True, why=f"{shipped.model.name} is the file that {names} attested")


def _opened(ledger: Path | None, gate: Gate) -> tuple[RunLedger | None, Check | None]:
    """Open the run if the gate asks for its ledger; return the failed check where that is impossible."""
    if gate.ledger == "checkpoint":
        return None, None
    if ledger is None:
        why = "the gate asks for the full ledger: give the run's directory with --ledger DIR"
        return None, Check(name="ledger", holds=False, why=why)
    try:
        # Both the run's directory and the ledger inside it are accepted.
        inside = ledger.name == rundir.LEDGER and (ledger / CHECKPOINT).exists()
        return RunLedger(ledger.parent if inside else ledger), None
    except ExplorerError as fault:
        return None, Check(name="ledger", holds=False, why=str(fault))


def _ledger(run: RunLedger | None, shipped: Shipped, *, trust: Trust, now: int) -> Check:
    """Check every claim against the full ledger; without a run, name the checkpoint, which `open_shipped` judged."""
    judged = shipped.judgement
    signed = ", ".join(dict.fromkeys(judged.signers))
    counted = [signature.verifier.name for signature in judged.cosignatures if signature.fault is None]
    words = f"checkpoint of {judged.checkpoint.size} entries, signed by {signed}, "
    words += f"cosigned by {', '.join(counted)}" if counted else "without cosignatures"
    if run is None:
        return Check(name="ledger", holds=True, why=words)
    try:
        faults = list(_contradictions(run, shipped, trust=trust, now=now))
        delegate = delegate_of(run.ledger, trust)
        words += f", written with {delegate.words}" if delegate else ""
    except ExplorerError as fault:
        faults = [str(fault)]
    if faults:
        more = f"; and {len(faults) - MOST} more" if len(faults) > MOST else ""
        return Check(name="ledger", holds=False, why="; ".join(faults[:MOST]) + more)
    return Check(name="ledger", holds=True, why=f"every claim recomputed; {words}")


def _contradictions(run: RunLedger, shipped: Shipped, *, trust: Trust, now: int) -> Iterator[str]:
    signed = shipped.attested.value
    # The times are copied from the signed claims: a reader computes later than the trainer did, and only what follows
    # from the ledger is compared.
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
    """Check the documents that the gate asks for by name or digest."""
    pairs: tuple[tuple[str, str | None, Taxonomy | RoutingPolicy], ...] = (
        ("taxonomy", gate.taxonomy, shipped.taxonomy.value),
        ("policy", gate.policy, shipped.policy.value),
    )
    for name, asked, document in pairs:
        if asked is not None:
            words = f"{document.name} version {document.version}, digest {document.digest}"
            holds = asked in (document.name, document.digest)
            yield Check(name=name, holds=holds, why=words if holds else f"expected {asked}, found {words}")


def _observers(gate: Gate, trust: Trust) -> Iterator[Check]:
    """Yield a failed check for each observer that the trust file does not name."""
    known = [authority.name for authority in trust.authorities]
    for observer in gate.observers:
        if observer.name not in known:
            yield Check(name="observers", holds=False, why=unknown("authority", observer.name, known))


def _conformance(run: RunLedger | None, *, trust: Trust, now: int) -> Callable[[], Conformance]:
    """Defer the check of conformance, which reads the whole ledger, until a rule asks for it; run it at most once."""

    @cache
    def conformance() -> Conformance:
        if run is None:
            raise LedgerError("conformance needs the full ledger, and there is no ledger here")
        return conform(run, trust=trust, now=now)

    return conformance


def _unseen(gate: Gate, shipped: Shipped, ledger: Path | None, run: RunLedger | None) -> Iterator[str]:
    """Yield what remains unverified, even where everything passes."""
    by = ", ".join(authority.name for authority in shipped.attested.authorities)
    if gate.ledger == "checkpoint":
        given = "" if ledger is None else f" (--ledger {ledger} was not read: the gate asks for the checkpoint only)"
        yield f"the ledger's entries{given}: the claims about training are the word of {by}"
    elif not any(kind_of(rule) in CONFORMS for rule in gate.rules):
        yield "whether the steps in the ledger agree with their numbers: the rule {conforms: true} checks that"
    if run is None or recorded_plan(run) is None:
        yield f"whether {CARD} builds the model that was trained: the run's recipe, which would show it, is not here"
    yield "whether training was what the ledger records: explorer replay shows that"
    yield "whether a claim about deletability can still be kept: it was true on the day of its signature"
    yield "observations that are not stored with the model"
    if shipped.ancestors:
        yield "the ledgers of the models that this one continues: the claims about them are the word of their signers"
    compared = run is not None and any(kind_of(rule) in CONFORMS for rule in gate.rules)
    if not compared and any(parent.kind == "trunk" for parent in shipped.attested.value.parents):
        words = "the rule {conforms: true} compares both ledgers"
        yield f"whether another run made the first steps: that is the word of {by}; {words}"
    if shipped.attested.value.deletions and gate.ledger == "checkpoint":
        yield "the certificates of its deletions: explorer delete verify checks them"
    confidential = [claim.path for claim in shipped.attested.value.classes if claim.confidential]
    if confidential:
        yield f"how much the classes contributed: numbers of {', '.join(confidential)} are confidential"


# --- rules ---


def judge_rule(rule: Rule, evidence: Evidence) -> Ruling:
    """Judge a rule. One that cannot be checked fails."""
    name = kind_of(rule)
    says, judge = words_of(rule), _JUDGES[name]
    try:
        why = judge(getattr(rule, name), evidence)
    except ExplorerError as fault:
        return Ruling(rule=name, says=says, holds=False, why=str(fault))
    return Ruling(rule=name, says=says, holds=True, why=why)


def words_of(rule: Rule) -> str:
    """Return a rule as a sentence."""
    match rule:
        case Rule(deny=Deny() as deny):
            layers = "" if deny.layers is None else f" of {', '.join(deny.layers)}"
            depth = "" if deny.depth is None else f" at depth {written(deny.depth)}"
            return f"no class of {deny.branch} trained any layer{layers}{depth}"
        case Rule(absent=Absent(branch=branch)):
            return f"no example of {branch} was in any batch"
        case Rule(deletable=Deletable(branch=branch, at_most=most)):
            within = "" if most is None else f", and that takes at most {read_cost(most, where='at_most')}"
            return f"what {branch} trained can be deleted exactly{within}"
        case Rule(deleted=Deleted() as deleted):
            what = deleted.branch or f"what {deleted.authority} vouches for"
            return f"{what} was deleted exactly"
        case Rule(evaluated=Evaluated() as asked):
            bound = f"at least {asked.at_least:g}" if asked.at_least is not None else f"at most {asked.at_most:g}"
            return f"{asked.metric} is {bound}, by {asked.by or 'the observers'}"
        case Rule(conforms_but_for=ButFor(erased=erased, sealed=sealed)):
            but = [f"{what} numbers of {', '.join(of)}" for what, of in (("erased", erased), ("sealed", sealed)) if of]
            return f"the ledger keeps the conditions of a governed pipeline, except for {' and '.join(but)}"
        case _:
            return "the ledger keeps the conditions of a governed pipeline"


# The judges return why a rule holds, and raise `ProvenanceError` with why it does not.


def _deny(asked: Deny, evidence: Evidence) -> str:
    checked = 0
    for model, path, claim in _claims(asked.branch, evidence):
        denied = {layer.name: layer.depth for layer in _layers(asked, model)}
        for trained in claim.trained:
            if trained.layer in denied:
                where = f"{trained.layer} at depth {denied[trained.layer]:g}"
                raise ProvenanceError(f"{_of(model, evidence)}{path} trained {where} in {trained.steps} steps")
        checked += len(denied)
    # Layer names are checked for every model: a name that fits no layer fails the rule even where the branch has no
    # class, and `_claims` yields nothing.
    for model in evidence.models:
        _layers(asked, model)
    return f"{checked} pairs of class and layer checked" if checked else f"the run had no class of {asked.branch}"


def _absent(asked: Absent, evidence: Evidence) -> str:
    for model, path, claim in _claims(asked.branch, evidence):
        if claim.examples or claim.trained:
            raise ProvenanceError(f"{_of(model, evidence)}{claim.examples} examples of {path} were in batches")
    return "none was in any batch"


def _deletable(asked: Deletable, evidence: Evidence) -> str:
    levels: dict[str, str] = {}
    most = None if asked.at_most is None else read_cost(asked.at_most, where="at_most")
    whole = _steps(evidence.models[0])
    for model, path, claim in _claims(asked.branch, evidence):
        if not claim.trained:
            continue
        # Claims about deletability speak of the signer's own run. An ancestor's do not say how its model could be
        # removed from a run that continued it.
        if model is not evidence.models[0]:
            raise ProvenanceError(f"{_of(model, evidence)}{path} trained it, and no claim says how to undo that")
        way = claim.deletable
        if way.level is None or not reaches(way.level, asked.at_least):
            raise ProvenanceError(f"{path}: {way.level or 'no exact way'}")
        levels[path] = f"{path}: {way.level}, {replay_words(way.steps, of=whole)}"
        if most is not None and not most.allows(way.steps, of=whole):
            raise ProvenanceError(f"{levels[path]}; at most {most} allowed")
    return "; ".join(levels.values()) or f"no class of {asked.branch} trained anything"


def _steps(model: Attested) -> int:
    """Return the most steps in which any class trained any layer.

    It is a lower bound on the length of training, so that the share of training that a deletion repeats is never
    understated.
    """
    return max((trained.steps for claim in model.value.classes for trained in claim.trained), default=0)


def _deleted(asked: Deleted, evidence: Evidence) -> str:
    # An ancestor may hold data that the authority vouches for under any class, and attestations name classes only.
    if asked.authority is not None:
        _check_authority(asked.authority, evidence.trust)
        for model in evidence.models[1:]:
            what = f"whether anything that {asked.authority} vouches for is left"
            raise ProvenanceError(f"continues the model of run {model.value.run}: no attestation says {what}")
    # A deletion counts for nothing where a class of the branch trains what is left.
    for model, path, claim in _claims(asked.branch, evidence) if asked.branch else ():
        if claim.trained:
            raise ProvenanceError(f"{_of(model, evidence)}{path} trains what is left")
    deletions = [
        deletion
        for model in evidence.models
        for deletion in model.value.deletions
        if asked.authority in deletion.authorities
        or (asked.branch is not None and any(covers(asked.branch, path) for path in deletion.classes))
    ]
    exact = [deletion for deletion in deletions if reaches(deletion.level, asked.at_least)]
    if not exact:
        levels = ", ".join(deletion.level for deletion in deletions)
        raise ProvenanceError(f"deleted at {levels} only" if deletions else "no such deletion is attested")
    return f"{exact[0].level}, certificate {exact[0].certificate}"


def _evaluated(asked: Evaluated, evidence: Evidence) -> str:
    if asked.by is not None:
        _check_authority(asked.by, evidence.trust)
    measured = metric(evidence.observations, asked)
    if measured is None:
        raise ProvenanceError(f"no admitted observation gives its {asked.metric}")
    value, by = measured
    words = f"{asked.metric} is {value:g}, by {by}"
    # Written as `not (value >= bound)`, so that NaN fails either bound.
    if not (asked.at_least is None or value >= asked.at_least) or not (asked.at_most is None or value <= asked.at_most):
        raise ProvenanceError(words)
    return words


def _conforms(asked: Literal[True] | ButFor, evidence: Evidence) -> str:
    excepted = {Cause.ERASED: asked.erased, Cause.SEALED: asked.sealed} if isinstance(asked, ButFor) else {}
    known = [listed.path for listed in evidence.taxonomy.classes]
    for branch in (branch for branches in excepted.values() for branch in branches):
        if branch not in known:
            raise ProvenanceError(unknown("branch", branch, known))
    conformance = evidence.conformance()
    if conformance.conforms:
        return f"{', '.join(condition.name for condition in conformance.conditions)} hold"
    which = [condition.name for condition in conformance.conditions if condition.outcome is conformance.outcome]
    words = f"{conformance.outcome}: {', '.join(which) or 'the ledger itself'}"
    # No exception excuses a violation: only gaps in what could be examined are excused, each by its cause.
    if conformance.outcome is not Outcome.UNTOLD:
        faults = [one.message for condition in conformance.conditions for one in condition.contradictions]
        raise ProvenanceError("; ".join([words, *faults[:1]]))
    gaps = [untold for condition in conformance.conditions for untold in condition.untold]
    refused = [untold.message for untold in gaps if not _is_excepted(untold, excepted)]
    if refused or any(condition.more_untold for condition in conformance.conditions):
        raise ProvenanceError(f"{words}; {refused[0] if refused else 'more gaps than are listed'}")
    return f"{words}; the rule excepts everything that could not be examined"


def _is_excepted(untold: Untold, excepted: Mapping[Cause, Sequence[str]]) -> bool:
    """Return whether a rule names every class of something that could not be examined."""
    branches = excepted.get(untold.cause, ())
    return bool(untold.classes) and all(any(covers(branch, path) for branch in branches) for path in untold.classes)


_JUDGES: dict[str, Callable[..., str]] = {
    "deny": _deny,
    "absent": _absent,
    "deletable": _deletable,
    "deleted": _deleted,
    "evaluated": _evaluated,
    "conforms": _conforms,
    "conforms_but_for": _conforms,
}


# --- lookups for the rules ---


def _claims(branch: str, evidence: Evidence) -> Iterator[tuple[Attested, str, ClassClaim]]:
    """Yield the claims about the classes of a branch, model by model.

    Raises `ProvenanceError` for a branch that the taxonomy lacks, and for a model that was trained under another
    taxonomy, where the branch may mean anything.
    """
    known = [listed.path for listed in evidence.taxonomy.classes]
    if branch not in known:
        raise ProvenanceError(unknown("branch", branch, known))
    for model in evidence.models:
        if model.value.facts.taxonomy != evidence.taxonomy.digest:
            raise ProvenanceError(f"{_of(model, evidence)}another taxonomy, {model.value.facts.taxonomy}")
        for claim in model.value.classes:
            if covers(branch, claim.path) and taken_over(claim, model, evidence.models):
                yield model, claim.path, claim


def taken_over(claim: ClassClaim, model: Attested, models: Sequence[Attested]) -> bool:
    """Return whether what a class trained in a model is, or may be, in the first of these models.

    It is not in a model whose run began with this one, gave the class weight 0, and has none of the layers that the
    class trained: they belonged to a sealed region, which was left behind.
    """
    children = [
        (child, parent) for child in models for parent in child.value.parents if parent.attestation == model.digest
    ]
    left_behind = [
        parent.admitted.get(claim.path) == 0
        and {trained.layer for trained in claim.trained}.isdisjoint(layer.name for layer in child.value.layers)
        for child, parent in children
    ]
    return not left_behind or not all(left_behind)


def _layers(asked: Deny, model: Attested) -> Sequence[LayerDepth]:
    """Return the layers that a rule is about. Raises `ProvenanceError` for a name that fits none of the model's."""
    shared = sorted({layer.name.partition(ADAPTER)[0] for layer in model.value.layers})
    for pattern in asked.layers or ():
        if not any(matches(pattern, name) for name in shared):
            raise ProvenanceError(unknown("layer", pattern, shared))
    return [
        layer
        for layer in model.value.layers
        if inside(layer.depth, asked.depth or WHOLE)
        and (
            asked.layers is None or any(matches(pattern, layer.name.partition(ADAPTER)[0]) for pattern in asked.layers)
        )
    ]


def _check_authority(name: str, trust: Trust) -> None:
    known = [authority.name for authority in trust.authorities]
    if name not in known:
        raise ProvenanceError(unknown("authority", name, known))


def _of(model: Attested, evidence: Evidence) -> str:
    """Return the words that name the ancestor at fault; empty for the model itself."""
    return "" if model is evidence.models[0] else f"in run {model.value.run}, whose model this one continues: "
