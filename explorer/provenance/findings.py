"""Findings: parts of a policy that are allowed but probably mistakes, each with the key that it is about.

`of_policy` needs no model; `of_matrix` looks at what the rules do to the layers of a model.
"""

import difflib
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from explorer.provenance.policy import Rule
from explorer.provenance.regions import ADAPTER, WILDCARD, Layer, SealedRegion, exact, matches, region_of
from explorer.provenance.routing_weights import Matrix, Routing
from explorer.provenance.spellings import covers, lineage
from explorer.yaml_document import Key, spell

INSIDE = f".{WILDCARD}"  # ends a pattern for everything inside a module
NEAREST = 3  # names of layers that a message shows


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A remark on one key of a policy."""

    key: Key
    message: str

    def __str__(self) -> str:
        return f"{spell(self.key)}: {self.message}"


def of_policy(routing: Routing) -> tuple[Finding, ...]:
    """Return fractional weights, conditions that no rule uses, and classes that no rule names."""
    return (*_fractions(routing), *_idle_conditions(routing), *_classes_without_rule(routing))


def of_matrix(matrix: Matrix) -> tuple[Finding, ...]:
    """Return void rules and regions, rules that never decide, and sealed classes that train shared layers too."""
    # A void rule never decides either: it is reported once, for the graver fault.
    void_findings = void(matrix.routing, matrix.layers)
    return (
        *void_findings,
        *_rules_that_never_decide(matrix, {finding.key for finding in void_findings}),
        *_sealed_and_shared(matrix),
    )


def void(routing: Routing, layers: Sequence[Layer]) -> tuple[Finding, ...]:
    """Return the rules and sealed regions with less effect than they seem to have: patterns that fit no layer of the
    model, rules that fit none in any phase, rules for sealed layers only. With such a policy no run of the model
    starts, since a denial that matches nothing denies nothing."""
    # Adapters are not layers of the model: no pattern reaches them.
    own = [layer for layer in layers if ADAPTER not in layer.name]
    policy = routing.policy
    return (
        *(finding for at, rule in enumerate(policy.rules) for finding in _void_rule(rule, at, own, policy.sealed)),
        *(finding for at, region in enumerate(policy.sealed) for finding in _void_region(region, at, own)),
    )


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


def _void_rule(rule: Rule, at: int, layers: Sequence[Layer], sealed: Sequence[SealedRegion]) -> Iterator[Finding]:
    missing = list(_patterns_without_layer(("rules", at, "layers"), rule.layers or (), layers))
    yield from missing
    fitting = [layer for layer in layers if rule.holds_layer(layer)]
    if not fitting and not missing:
        depth = "" if rule.depth is None else f" at a depth in [{exact(rule.depth[0])}, {exact(rule.depth[1])})"
        named = f"{', '.join(rule.layers)}: " if rule.layers else ""
        yield Finding(key=("rules", at), message=f"{named}no layer{depth}; {_shown(layers)}")
    elif fitting and all(region_of(sealed, name) for layer in fitting for name in layer.names):
        message = f"every layer that it fits is in a sealed region, which decides before any rule: {fitting[0].name}"
        yield Finding(key=("rules", at), message=message)


def _void_region(region: SealedRegion, at: int, layers: Sequence[Layer]) -> Iterator[Finding]:
    yield from _patterns_without_layer(("sealed", at, "layers"), region.layers or (), layers)
    if region.module and not any(region_of((region,), name) for layer in layers for name in layer.names):
        near = _nearest(region.module, layers)
        yield Finding(key=("sealed", at, "module"), message=f"{region.module!r} holds none of the layers{near}")


def _patterns_without_layer(key: Key, patterns: Sequence[str], layers: Sequence[Layer]) -> Iterator[Finding]:
    """Yield the patterns that fit no layer."""
    # `x` and `x.*` together mean `x` and everything in it: it is enough if one of them fits.
    names = [name for layer in layers for name in layer.names]
    fitting = {pattern for pattern in patterns if any(matches(pattern, name) for name in names)}
    for index, pattern in enumerate(patterns):
        other = pattern.removesuffix(INSIDE) if pattern.endswith(INSIDE) else f"{pattern}{INSIDE}"
        if fitting.isdisjoint((pattern, other)):
            message = f"{pattern!r} fits none of the {len(layers)} layers{_nearest(pattern, layers)}"
            yield Finding(key=(*key, index), message=message)


def _nearest(pattern: str, layers: Sequence[Layer]) -> str:
    """Return the layer names most similar to a pattern, in words."""
    # By beginning first, since patterns mostly name the start of a path; then by the whole name.
    names = [name for layer in layers for name in layer.names]
    stem = pattern.strip(f"{WILDCARD}.")
    cut = {name[: len(stem) + 1].rstrip("."): name for name in reversed(names)}
    near = [cut[match] for match in difflib.get_close_matches(stem, cut, n=NEAREST)]
    near += difflib.get_close_matches(stem, names, n=NEAREST)
    shown = list(dict.fromkeys(near))[:NEAREST]
    return f"; nearest: {', '.join(shown)}" if shown else f"; {_shown(layers)}"


def _shown(layers: Sequence[Layer]) -> str:
    """Return the first layers and the last, with their depths."""
    chosen = [*layers[:2], *layers[max(2, len(layers) - 1) :]]
    return "the model has " + ", ".join(f"{layer.name} ({layer.depth:.3g})" for layer in chosen)


def _rules_that_never_decide(matrix: Matrix, known: Container[Key]) -> Iterator[Finding]:
    """Yield the rules that decide no cell, except those with a finding already (`known`)."""
    deciding = {cell.rule for table in matrix.tables for row in table.rows for cell in row}
    for index in range(len(matrix.routing.policy.rules)):
        if index not in deciding and ("rules", index) not in known:
            others = sorted(_decided_instead(matrix, index))
            message = f"is never reached: {', '.join(others)} decide before it" if others else "matches no layer"
            yield Finding(key=("rules", index), message=message)


def _decided_instead(matrix: Matrix, index: int) -> set[str]:
    """Return the reasons that decide the cells that this rule matches."""
    rule, reasons = matrix.routing.policy.rules[index], set[str]()
    layers = [place for place, layer in enumerate(matrix.layers) if rule.holds_layer(layer)]
    for table in matrix.tables:
        if rule.holds_phase(table.phase.progress[0], table.phase.conditions):
            rows = (row for path, row in zip(matrix.classes, table.rows, strict=True) if rule.holds_class(path))
            reasons |= {row[place].reason for row in rows for place in layers}
    return reasons


def _sealed_and_shared(matrix: Matrix) -> Iterator[Finding]:
    """Yield sealed classes that train shared layers too, from where their influence spreads to every later pass."""
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
