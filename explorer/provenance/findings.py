"""Findings: what is allowed in a policy and probably not meant, each with the key that it is about.

Two kinds of question: `of_policy` needs no model, `of_matrix` asks what the rules do to the layers of one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from explorer.document import Key, spell
from explorer.provenance.branches import covers, lineage
from explorer.provenance.intervals import exact
from explorer.provenance.layers import ADAPTER, WILDCARD, matches
from explorer.provenance.matrix import Matrix
from explorer.provenance.routing import Routing
from explorer.provenance.sealed import region_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A remark on one key of a policy."""

    key: Key
    message: str

    def __str__(self) -> str:
        return f"{spell(self.key)}: {self.message}"


def of_policy(routing: Routing) -> tuple[Finding, ...]:
    """Fractions, conditions that no rule asks for, and classes that no rule names."""
    return (*_fractions(routing), *_idle_conditions(routing), *_classes_without_rule(routing))


def of_matrix(matrix: Matrix) -> tuple[Finding, ...]:
    """Patterns without a layer, rules that never decide, and sealed classes that train shared layers too."""
    return (*_patterns_without_layer(matrix), *_rules_that_never_decide(matrix), *_sealed_and_shared(matrix))


def _fractions(routing: Routing) -> Iterator[Finding]:
    for index, rule in enumerate(routing.policy.rules):
        if 0 < rule.weight < 1:
            message = f"{exact(rule.weight)} is attenuation, not a guarantee; only 0 and 1 are"
            yield Finding(key=("rules", index, "weight"), message=message)


def _idle_conditions(routing: Routing) -> Iterator[Finding]:
    asked = {rule.condition for rule in routing.policy.rules}
    for index, name in enumerate(routing.policy.conditions):
        if name not in asked:
            yield Finding(key=("conditions", index), message=f"no rule asks for {name!r}")


def _classes_without_rule(routing: Routing) -> Iterator[Finding]:
    named = {branch for rule in routing.policy.rules for branch in rule.classes}
    named |= {region.branch for region in routing.policy.sealed}
    for path in sorted(routing.classes):
        if WILDCARD not in named and named.isdisjoint(lineage(path)):
            yield Finding(key=("rules",), message=f"no rule names class {path}; it trains nothing")


def _patterns_without_layer(matrix: Matrix) -> Iterator[Finding]:
    policy = matrix.routing.policy
    shared = [layer.name for layer in matrix.layers if ADAPTER not in layer.name]
    patterns: list[tuple[Key, Sequence[str]]] = [
        *((("rules", at, "layers"), rule.layers or ()) for at, rule in enumerate(policy.rules)),
        *((("sealed", at, "layers"), region.layers or ()) for at, region in enumerate(policy.sealed)),
    ]
    for key, names in patterns:
        for index, pattern in enumerate(names):
            if not any(matches(pattern, name) for name in shared):
                yield Finding(key=(*key, index), message=f"{pattern!r} fits none of the {len(shared)} layers")
    for at, region in enumerate(policy.sealed):
        if region.module and all(region_of((region,), name) is None for name in shared):
            yield Finding(key=("sealed", at, "module"), message=f"{region.module!r} holds none of the layers")


def _rules_that_never_decide(matrix: Matrix) -> Iterator[Finding]:
    deciding = {cell.rule for table in matrix.tables for row in table.rows for cell in row}
    for index in range(len(matrix.routing.policy.rules)):
        if index not in deciding:
            others = sorted(_decided_instead(matrix, index))
            message = f"is never reached: {', '.join(others)} decide before it" if others else "matches no layer"
            yield Finding(key=("rules", index), message=message)


def _decided_instead(matrix: Matrix, index: int) -> set[str]:
    """What decides the cells that this rule matches."""
    rule, found = matrix.routing.policy.rules[index], set[str]()
    layers = [place for place, layer in enumerate(matrix.layers) if rule.holds_layer(layer)]
    for table in matrix.tables:
        if rule.holds_phase(table.phase.progress[0], table.phase.conditions):
            rows = (row for path, row in zip(matrix.classes, table.rows, strict=True) if rule.holds_class(path))
            found |= {row[place].reason for row in rows for place in layers}
    return found


def _sealed_and_shared(matrix: Matrix) -> Iterator[Finding]:
    """A class whose traces are in shared layers is in every later forward pass of everybody."""
    for at, region in enumerate(matrix.routing.policy.sealed):
        admitted = {
            cell.reason
            for table in matrix.tables
            for path, row in zip(matrix.classes, table.rows, strict=True)
            for cell in row
            if covers(region.branch, path) and cell.region is None and cell.weight > 0
        }
        if admitted:
            by = ", ".join(sorted(admitted))
            message = f"{region.branch} is sealed and also trains shared layers by {by}: no exact deletion (G2) for it"
            yield Finding(key=("sealed", at), message=message)
