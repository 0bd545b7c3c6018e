"""The deployment gate: what has to hold of a model before it may be deployed. A file of their own, in YAML.

    format: explorer/gate/v1
    name: customer-facing
    ledger: full                  # or checkpoint
    policy: half-depth            # optional, like the next: a name, or a digest, that has to be the model's
    taxonomy: licences
    observers:                    # whose observations count, and how much; nobody else's do
      - {name: example.com/evaluator, weight: 1}
    rules:
      - {deny: {branch: personal, depth: [0.5, 1]}}
      - {absent: {branch: licensed/news}}
      - {deletable: {branch: personal, at_least: G2, at_most: 1% of training}}
      - {deleted: {branch: personal/customer, at_least: G2}}
      - {evaluated: {by: example.com/evaluator, metric: accuracy, at_least: 0.9}}
      - {conforms: true}          # or, where numbers were erased: {conforms_but_for: {erased: [personal/customer]}}

`ledger: full` verifies the whole ledger and computes every claim of the attestation again; `checkpoint` takes them on
the word of those who signed, and looks at the signed checkpoint and its quorum alone.

    deny       no class of the branch trained any layer there: in that interval of depth, that the names fit; both, or
               everywhere. The adapter of a sealed region counts as a layer at its layer's depth.
    absent     no example of the branch was in any batch, not even one that was denied
    deletable  every class of the branch that trained anything can be deleted exactly, which is what G2 says: by
               structure or by replay (`explorer.provenance.levels`). `at_most` bounds what that takes: a share of
               training such as 1% of training, or steps such as 500 steps. Without it, training all over again counts
    deleted    something of the branch, or all that an authority vouches for, was deleted exactly, and no class of the
               branch trains what is left
    evaluated  a metric of the admitted observations, the mean of several observers' by their weights
    conforms   the ledger keeps the conditions of a governed pipeline (`explorer conform`). Where that cannot be
               told the rule fails
    conforms_but_for
               the same, and where it cannot be told the rule holds if all that could not be looked at is of branches
               that it names: under `erased` what was erased on record, under `sealed` what is confidential

What trained what follows from what the ledger says of every step; that this agrees with the numbers, the policy and the
tags is what `conforms` asks. A branch is its class and what lies below; examples that are tagged with a class above it,
and no closer, are another class: who wants them to count names that one. A rule holds for the models that a model
continues too. Whatever the gate speaks of and the model does not know makes it fail: a branch, a layer, an authority.
"""

from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le
from pydantic import Field

from explorer.errors import ProvenanceError, SpecError
from explorer.provenance.levels import EXACT, Level, read_cost
from explorer.provenance.model_attestation import Metric
from explorer.provenance.regions import Interval, LayerPattern, check_interval
from explorer.provenance.signing import Name as DocumentName
from explorer.provenance.spellings import ClassPath as Branch
from explorer.provenance.spellings import Digest, Line
from explorer.provenance.trust import Name
from explorer.schema import from_json, record
from explorer.yaml_document import Document, read_document

FORMAT = "explorer/gate/v1"
MAX_RULES = 500

Weight = Annotated[float, Ge(0), Le(1)]


@record
class Observer:
    """Whose observations count; with weight 0 they are looked at and rejected."""

    name: Name
    weight: Weight


@record
class Deny:
    branch: Branch
    depth: Interval | None = None
    layers: Annotated[tuple[LayerPattern, ...], Field(min_length=1, max_length=100)] | None = None


@record
class Absent:
    branch: Branch


@record
class Deletable:
    branch: Branch
    at_least: Level
    at_most: Annotated[str, Field(max_length=100)] | None = None  # of training to repeat; None: all of it


@record
class Deleted:
    branch: Branch | None = None
    authority: Name | None = None
    at_least: Level


@record
class Evaluated:
    metric: Metric
    by: Name | None = None  # None: all observers that are admitted
    at_least: float | None = None
    at_most: float | None = None


Branches = Annotated[tuple[Branch, ...], Field(max_length=200)]


@record
class ButFor:
    """Conforms, or cannot be told for nothing but numbers of these branches."""

    erased: Branches = ()  # and the project's ledger says so
    sealed: Branches = ()  # confidential, and anyone who judges has no key


@record
class Rule:
    """Exactly one of them."""

    deny: Deny | None = None
    absent: Absent | None = None
    deletable: Deletable | None = None
    deleted: Deleted | None = None
    evaluated: Evaluated | None = None
    conforms: Literal[True] | None = None
    conforms_but_for: ButFor | None = None


@record
class Gate:
    """A gate file."""

    format: Literal["explorer/gate/v1"]
    name: Annotated[Line, Field(max_length=200)]
    ledger: Literal["full", "checkpoint"]
    policy: Digest | DocumentName | None = None
    taxonomy: Digest | DocumentName | None = None
    observers: Annotated[tuple[Observer, ...], Field(max_length=200)] = ()
    rules: Annotated[tuple[Rule, ...], Field(min_length=1, max_length=MAX_RULES)]


def read_gate(path: Path) -> Gate:
    """Read a gate file. Raises `SpecError` that names file, line, key and fault."""
    return gate_of(read_document(path))


def gate_of(document: Document) -> Gate:
    """Return the gate that a document says; see `read_gate`."""
    try:
        gate = from_json(Gate, document.value, where=document.where, error=SpecError)
        _check(gate, document.where)
    except SpecError as fault:
        raise document.locate(fault) from fault
    except ProvenanceError as fault:
        raise document.locate(SpecError(str(fault))) from fault
    return gate


def kind_of(rule: Rule) -> str:
    """Return which rule it is."""
    return next(name for name in KINDS if getattr(rule, name) is not None)


CONFORMS = ("conforms", "conforms_but_for")
KINDS = ("deny", "absent", "deletable", "deleted", "evaluated", *CONFORMS)


def _check(gate: Gate, where: str) -> None:
    names = [each.name for each in gate.observers]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise SpecError(f"{where}: observers[{index}].name: {name!r} stands twice")
    for index, rule in enumerate(gate.rules):
        _check_rule(rule, gate, f"{where}: rules[{index}]")


def _check_rule(rule: Rule, gate: Gate, where: str) -> None:
    given = [name for name in KINDS if getattr(rule, name) is not None]
    if len(given) != 1:
        raise SpecError(f"{where}: expected one of {', '.join(KINDS)}; found {', '.join(given) or 'none'}")
    if rule.deny is not None:
        check_interval(rule.deny.depth, f"{where}.deny.depth")
    for name, each in (("deletable", rule.deletable), ("deleted", rule.deleted)):
        if each is not None and each.at_least != EXACT:
            raise SpecError(
                f"{where}.{name}.at_least: found {each.at_least}, which is as exact as {EXACT} and not above it:"
                f" expected {EXACT}; what a deletion may take is limited by deletable.at_most: 1% of training"
            )
    if rule.deletable is not None and rule.deletable.at_most is not None:
        read_cost(rule.deletable.at_most, where=f"{where}.deletable.at_most")
    if rule.deleted is not None and (rule.deleted.branch is None) == (rule.deleted.authority is None):
        raise SpecError(f"{where}.deleted: expected a branch or an authority, one of the two")
    if given[0] in CONFORMS and gate.ledger != "full":
        raise SpecError(f"{where}.{given[0]}: conformance is found out from a whole ledger: expected ledger: full")
    if (but := rule.conforms_but_for) is not None and not (but.erased or but.sealed):
        raise SpecError(f"{where}.conforms_but_for: expected branches under erased or sealed, found none")
    if rule.evaluated is not None:
        evaluated = rule.evaluated
        if (evaluated.at_least is None) == (evaluated.at_most is None):
            raise SpecError(f"{where}.evaluated: expected at_least or at_most, one of the two")
        if evaluated.by is not None and evaluated.by not in names_of(gate):
            raise SpecError(
                f"{where}.evaluated.by: {evaluated.by!r} is none of the observers whose observations count: "
                f"{', '.join(names_of(gate)) or 'nobody'}"
            )


def names_of(gate: Gate) -> tuple[str, ...]:
    """Return the observers whose observations count for something."""
    return tuple(each.name for each in gate.observers if each.weight > 0)
