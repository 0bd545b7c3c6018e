"""The deployment gate: a YAML file with the conditions that a model must meet before it is deployed.

    format: explorer/gate/v1
    name: customer-facing
    ledger: full                  # or checkpoint
    policy: half-depth            # optional, like the next: the name or the digest that the model's must have
    taxonomy: licences
    observers:                    # the authorities whose observations count, with their weights; no others count
      - {name: example.com/evaluator, weight: 1}
    rules:
      - {deny: {branch: personal, depth: [0.5, 1]}}
      - {absent: {branch: licensed/news}}
      - {deletable: {branch: personal, at_least: G2, at_most: 1% of training}}
      - {deleted: {branch: personal/customer, at_least: G2}}
      - {evaluated: {by: example.com/evaluator, metric: accuracy, at_least: 0.9}}
      - {conforms: true}          # or, where numbers were erased: {conforms_but_for: {erased: [personal/customer]}}

`ledger: full` verifies the whole ledger and recomputes every claim of the attestation; `checkpoint` verifies only the
signed checkpoint and its quorum, and takes the claims on the word of their signers.

    deny       no class of the branch trained any layer in the depth interval, of the named layers, or in both; with
               neither, no layer at all. The adapter of a sealed region counts as a layer at its layer's depth.
    absent     no example of the branch was in any batch, not even one that was denied
    deletable  every class of the branch that trained anything can be deleted exactly (G2): by structure or by replay
               (`explorer.provenance.levels`). `at_most` limits the cost: a share of training such as
               1% of training, or steps such as 500 steps. Without it, repeating all of training is allowed.
    deleted    something of the branch, or all that an authority vouches for, was deleted exactly, and no class of the
               branch trains what is left
    evaluated  a metric of the admitted observations; several observers' are averaged by their weights
    conforms   the ledger keeps the conditions of a governed pipeline (`explorer conform`). The rule fails where that
               cannot be determined.
    conforms_but_for
               the same, except that numbers of the named branches may be unavailable: under `erased` those that were
               erased on record, under `sealed` those that are confidential

Claims about which class trained which layer follow from the steps in the ledger; `conforms` checks that the steps agree
with the numbers, the policy and the tags. A branch is its class with everything below it. Examples that are tagged only
with a class above the branch belong to that other class: name it to include them. A rule must also hold for every model
that the model continues. A branch, layer or authority that the model does not know fails the rule that names it.
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
    """An authority whose observations count; with weight 0 they are shown and rejected."""

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
    """Conformance, with gaps allowed for the numbers of these branches."""

    erased: Branches = ()  # and the project's ledger says so
    sealed: Branches = ()  # confidential, and the reader who judges has no key


@record
class Rule:
    """A rule: exactly one of these fields is set."""

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
    """Return the gate in a YAML document; see `read_gate`."""
    try:
        gate = from_json(Gate, document.value, where=document.where, error=SpecError)
        _check(gate, document.where)
    except SpecError as fault:
        raise document.locate(fault) from fault
    except ProvenanceError as fault:
        raise document.locate(SpecError(str(fault))) from fault
    return gate


def kind_of(rule: Rule) -> str:
    """Return the kind of a rule, the name of its only field that is set."""
    return next(name for name in KINDS if getattr(rule, name) is not None)


CONFORMS = ("conforms", "conforms_but_for")
KINDS = ("deny", "absent", "deletable", "deleted", "evaluated", *CONFORMS)


def _check(gate: Gate, where: str) -> None:
    names = [observer.name for observer in gate.observers]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise SpecError(f"{where}: observers[{index}].name: {name!r} is listed twice")
    for index, rule in enumerate(gate.rules):
        _check_rule(rule, gate, f"{where}: rules[{index}]")


def _check_rule(rule: Rule, gate: Gate, where: str) -> None:
    given = [name for name in KINDS if getattr(rule, name) is not None]
    if len(given) != 1:
        raise SpecError(f"{where}: expected one of {', '.join(KINDS)}; found {', '.join(given) or 'none'}")
    if rule.deny is not None:
        check_interval(rule.deny.depth, f"{where}.deny.depth")
    # `at_least: G3` would read as a stronger demand, but G2 and G3 are equally exact: only the cost differs.
    for name, deletion in (("deletable", rule.deletable), ("deleted", rule.deleted)):
        if deletion is not None and deletion.at_least != EXACT:
            raise SpecError(
                f"{where}.{name}.at_least: found {deletion.at_least}, which is as exact as {EXACT} and not above it:"
                f" expected {EXACT}; to limit what a deletion costs, write deletable.at_most: 1% of training"
            )
    if rule.deletable is not None and rule.deletable.at_most is not None:
        read_cost(rule.deletable.at_most, where=f"{where}.deletable.at_most")
    if rule.deleted is not None and (rule.deleted.branch is None) == (rule.deleted.authority is None):
        raise SpecError(f"{where}.deleted: expected a branch or an authority, one of the two")
    if given[0] in CONFORMS and gate.ledger != "full":
        raise SpecError(f"{where}.{given[0]}: conformance needs the full ledger: expected ledger: full")
    if (but := rule.conforms_but_for) is not None and not (but.erased or but.sealed):
        raise SpecError(f"{where}.conforms_but_for: expected branches under erased or sealed, found none")
    if rule.evaluated is not None:
        evaluated = rule.evaluated
        if (evaluated.at_least is None) == (evaluated.at_most is None):
            raise SpecError(f"{where}.evaluated: expected at_least or at_most, one of the two")
        if evaluated.by is not None and evaluated.by not in names_of(gate):
            raise SpecError(
                f"{where}.evaluated.by: {evaluated.by!r} is none of the observers with a weight above 0: "
                f"{', '.join(names_of(gate)) or 'there is none'}"
            )


def names_of(gate: Gate) -> tuple[str, ...]:
    """Return the observers with a weight above 0."""
    return tuple(observer.name for observer in gate.observers if observer.weight > 0)
