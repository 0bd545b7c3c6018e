"""The rules of a gate, judged: each holds or fails, and says why. What a rule speaks of and the model lacks fails it.

A rule is judged for the model and for every model that it continues, with the words of the first that fails.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from explorer.audit.conditions import Cause, Outcome, Untold
from explorer.audit.conform import Conformance
from explorer.errors import ExplorerError, ProvenanceError, unknown
from explorer.provenance.levels import reaches, read_cost, replay_words
from explorer.provenance.model_attestation import Attested, ClassClaim, LayerDepth
from explorer.provenance.regions import ADAPTER, WHOLE, inside, matches, written
from explorer.provenance.spellings import covers
from explorer.provenance.taxonomy import Taxonomy
from explorer.provenance.trust import Trust
from explorer.release.gate import Absent, ButFor, Deletable, Deleted, Deny, Evaluated, Gate, Rule, kind_of
from explorer.release.observations import Weighed, metric


@dataclass(frozen=True, kw_only=True, slots=True)
class Ruling:
    """What became of a rule."""

    rule: str  # "deny"
    says: str  # the rule in words
    holds: bool
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What rules are judged by, all of it believed."""

    models: tuple[Attested, ...]  # the model, and those that it continues
    taxonomy: Taxonomy
    trust: Trust
    observations: tuple[Weighed, ...]
    conformance: Callable[[], Conformance]


def judge_rules(gate: Gate, evidence: Evidence) -> tuple[Ruling, ...]:
    """Judge all rules of the gate, in its order. A rule that cannot be checked fails."""
    return tuple(judge_rule(rule, evidence) for rule in gate.rules)


def judge_rule(rule: Rule, evidence: Evidence) -> Ruling:
    """One rule."""
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
            return f"the ledger keeps the conditions of a governed pipeline, but for {' and '.join(but)}"
        case _:
            return "the ledger keeps the conditions of a governed pipeline"


def _deny(asked: Deny, evidence: Evidence) -> str:
    checked = 0
    for model, path, claim in _claims(asked.branch, evidence):
        meant = {layer.name: layer.depth for layer in _layers(asked, model)}
        for each in claim.trained:
            if each.layer in meant:
                where = f"{each.layer} at depth {meant[each.layer]:g}"
                raise ProvenanceError(f"{_of(model, evidence)}{path} trained {where} in {each.steps} steps")
        checked += len(meant)
    for model in evidence.models:
        _layers(asked, model)  # names that no layer has fail the rule where no class of the branch was there, too
    return f"{checked} pairs of class and layer looked at" if checked else f"the run had no class of {asked.branch}"


def _absent(asked: Absent, evidence: Evidence) -> str:
    for model, path, claim in _claims(asked.branch, evidence):
        if claim.examples or claim.trained:
            raise ProvenanceError(f"{_of(model, evidence)}{claim.examples} examples of {path} stood in batches")
    return "none stood in any batch"


def _deletable(asked: Deletable, evidence: Evidence) -> str:
    levels: dict[str, str] = {}
    most = None if asked.at_most is None else read_cost(asked.at_most, where="at_most")
    whole = _steps(evidence.models[0])
    for model, path, claim in _claims(asked.branch, evidence):
        if not claim.trained:
            continue
        if model is not evidence.models[0]:
            raise ProvenanceError(f"{_of(model, evidence)}{path} trained it, and nothing says how that could be undone")
        way = claim.deletable
        if way.level is None or not reaches(way.level, asked.at_least):
            raise ProvenanceError(f"{path}: {way.level or 'no exact way'}")
        levels[path] = f"{path}: {way.level}, {replay_words(way.steps, of=whole)}"
        if most is not None and not most.allows(way.steps, of=whole):
            raise ProvenanceError(f"{levels[path]}; at most {most} allowed")
    return "; ".join(levels.values()) or f"no class of {asked.branch} trained anything"


def _steps(model: Attested) -> int:
    """Return the steps of a training, as far as an attestation tells: some class trained in as many, and perhaps there
    were more. A share of them is never told smaller than it is."""
    return max((each.steps for claim in model.value.classes for each in claim.trained), default=0)


def _deleted(asked: Deleted, evidence: Evidence) -> str:
    if asked.authority is not None:
        _check_authority(asked.authority, evidence.trust)
        for model in evidence.models[1:]:
            what = f"whether anything that {asked.authority} vouches for is left"
            raise ProvenanceError(f"goes on from the model of run {model.value.run}: {what}, no attestation says")
    for model, path, claim in _claims(asked.branch, evidence) if asked.branch else ():
        if claim.trained:
            raise ProvenanceError(f"{_of(model, evidence)}{path} trains what is left")
    done = [each for model in evidence.models for each in model.value.deletions]
    fits = [
        each
        for each in done
        if asked.authority in each.authorities
        or (asked.branch is not None and any(covers(asked.branch, path) for path in each.classes))
    ]
    good = [each for each in fits if reaches(each.level, asked.at_least)]
    if not good:
        levels = ", ".join(each.level for each in fits)
        raise ProvenanceError(f"deleted at {levels} only" if fits else "no such deletion is attested")
    return f"{good[0].level}, certificate {good[0].certificate}"


def _evaluated(asked: Evaluated, evidence: Evidence) -> str:
    if asked.by is not None:
        _check_authority(asked.by, evidence.trust)
    found = metric(evidence.observations, asked)
    if found is None:
        raise ProvenanceError(f"no admitted observation says its {asked.metric}")
    value, by = found
    if not (asked.at_least is None or value >= asked.at_least) or not (asked.at_most is None or value <= asked.at_most):
        raise ProvenanceError(f"{asked.metric} is {value:g}, by {by}")
    return f"{asked.metric} is {value:g}, by {by}"


def _conforms(asked: Literal[True] | ButFor, evidence: Evidence) -> str:
    named = {Cause.ERASED: asked.erased, Cause.SEALED: asked.sealed} if isinstance(asked, ButFor) else {}
    known = [each.path for each in evidence.taxonomy.classes]
    for branch in (branch for branches in named.values() for branch in branches):
        if branch not in known:
            raise ProvenanceError(unknown("branch", branch, known))
    found = evidence.conformance()
    if not found.conforms:
        which = [condition.name for condition in found.conditions if condition.outcome is found.outcome]
        words = f"{found.outcome}: {', '.join(which) or 'the ledger itself'}"
        if found.outcome is not Outcome.UNTOLD:
            raise ProvenanceError(words)
        untold = [each for condition in found.conditions for each in condition.untold]
        refused = [each.message for each in untold if not _is_named(each, named)]
        if refused or any(condition.more_untold for condition in found.conditions):
            raise ProvenanceError(f"{words}; {refused[0] if refused else 'more than can be looked through'}")
        return f"{words}; the rule names all that could not be looked at"
    return f"{', '.join(condition.name for condition in found.conditions)} hold"


def _is_named(untold: Untold, named: Mapping[Cause, Sequence[str]]) -> bool:
    """Return whether a rule names every class that something could not be looked at for."""
    branches = named.get(untold.cause, ())
    return bool(untold.classes) and all(any(covers(each, path) for each in branches) for path in untold.classes)


_JUDGES: dict[str, Callable[..., str]] = {
    "deny": _deny,
    "absent": _absent,
    "deletable": _deletable,
    "deleted": _deleted,
    "evaluated": _evaluated,
    "conforms": _conforms,
    "conforms_but_for": _conforms,
}


def _claims(branch: str, evidence: Evidence) -> Iterator[tuple[Attested, str, ClassClaim]]:
    """Yield what is said of the classes of a branch, model by model. Raises `ProvenanceError` for a branch that the
    taxonomy lacks, and for a model that was trained under another taxonomy: there the branch may mean anything."""
    known = [each.path for each in evidence.taxonomy.classes]
    if branch not in known:
        raise ProvenanceError(unknown("branch", branch, known))
    for model in evidence.models:
        if model.value.facts.taxonomy != evidence.taxonomy.digest:
            raise ProvenanceError(f"{_of(model, evidence)}another taxonomy, {model.value.facts.taxonomy}")
        for claim in model.value.classes:
            if covers(branch, claim.path) and taken_over(claim, model, evidence.models):
                yield model, claim.path, claim


def taken_over(claim: ClassClaim, model: Attested, models: Sequence[Attested]) -> bool:
    """Return whether what a class trained in a model is in the first of these, or may be.

    It is not in a model whose run began with this one, gave the class weight 0, and has none of the layers that the
    class trained: they were a sealed region's, which was left behind.
    """
    children = [
        (child, parent) for child in models for parent in child.value.parents if parent.attestation == model.digest
    ]
    left = [
        parent.admitted.get(claim.path) == 0
        and {each.layer for each in claim.trained}.isdisjoint(layer.name for layer in child.value.layers)
        for child, parent in children
    ]
    return not left or not all(left)


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
    known = [one.name for one in trust.authorities]
    if name not in known:
        raise ProvenanceError(unknown("authority", name, known))


def _of(model: Attested, evidence: Evidence) -> str:
    """Return whose fault it is, where it is not the model's own."""
    return "" if model is evidence.models[0] else f"in run {model.value.run}, whose model this one goes on from: "
