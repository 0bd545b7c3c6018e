"""The routing policy: which class of data may train which layer, when, and how strongly.

A policy is a list of rules, read from the top: THE FIRST RULE THAT MATCHES DECIDES, AND WHERE NONE MATCHES THE WEIGHT
IS 0. A rule matches if all of its keys match; a key that it does not have is no constraint.

    format: explorer/policy/v1
    name: half-depth
    version: 1
    issued: 2026-01-01T00:00:00Z
    expires: 2031-01-01T00:00:00Z
    taxonomy: {name: licences, version: 1, digest: 3b1f...}   # `explorer taxonomy show` prints it
    quarantine: refuse            # examples without valid tags stop the loader; weight-zero keeps them in
    conditions: [settled]         # recorded decisions can switch these on later
    sealed: []                    # see `explorer.provenance.regions`
    confidential: [personal]      # branches whose numbers a run's ledger keeps encrypted
    rules:
      - {classes: [open/bsd], layers: ["embed*"], weight: 0}
      - {classes: [open/bsd], depth: [0.5, 1], progress: [0.3334, 1], weight: 1}
      - {classes: [licensed/news], examples: {loss: [0.5, 1]}, layers: ["block.*"], weight: 1}
      - {classes: ["*"], condition: settled, weight: 0.25}

    classes     branches of the taxonomy, by whole segments; "*" is every class but the quarantine
    layers      name patterns; `*` is any run of characters (see `explorer.provenance.regions`)
    depth       [from, to) of relative depth: 0 is the input, 1 the output; an interval that ends in 1 holds 1
    progress    [from, to) of training: the share of its steps that is done when a step begins
    condition   one of `conditions`, as long as it is switched on
    examples    [from, to) of a class's examples in a step, ranked by a score (see `explorer.provenance.regions`)
    weight      0 and 1 are guarantees; anything between attenuates and guarantees nothing

Parameters and buffers of a layer have the same weight. A tensor that a model holds under several names (a head that is
tied to the embedding, a module that is used as two) belongs to the layer that uses it first. The rules apply to each of
its names, at the depth of the first use, and the least weight counts: a denial under any name denies.

A rule is written for a model. A run does not start if a pattern of a rule fits no layer of its model (of `x` and `x.*`
in one rule, one has to), if a rule fits no layer at all, or if it fits only layers in sealed regions: such a rule
denies nothing. Branches of the taxonomy without examples in the run are normal, and rules may name them.

If a run has a class of a confidential branch, the class's numbers leave the training process encrypted under keys of
their own. So do numbers over several classes, since differences of these would reveal the class
(`explorer.provenance.encryption`). The number of its examples in each step stays readable. "*" is every class.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Literal

from annotated_types import Ge, Le
from pydantic import Field

from explorer.canonical import digest
from explorer.errors import ProvenanceError, unknown
from explorer.provenance.regions import (
    WILDCARD,
    Band,
    Examples,
    Interval,
    Layer,
    Patterns,
    SealedRegion,
    bands_of,
    check_bands,
    check_examples,
    check_interval,
    check_regions,
    exact,
    inside,
    matches,
    written,
)
from explorer.provenance.signing import Kind, Name, Version, check_span, read_draft
from explorer.provenance.spellings import CLASS_PATTERN, MAX_PATH, Time, covers
from explorer.provenance.taxonomy import QUARANTINE
from explorer.provenance.trust import Role
from explorer.schema import record, to_json
from explorer.yaml_document import Document

FORMAT = "explorer/policy/v1"
MAX_RULES = 500
MAX_CONDITIONS = 6  # every set of them is a phase of its own
MAX_REGIONS = 100
MAX_CONFIDENTIAL = 100

Branch = Annotated[str, Field(pattern=rf"{CLASS_PATTERN}|^\*$", max_length=MAX_PATH)]
Condition = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=64)]


class Quarantine(StrEnum):
    """What becomes of an example that nobody vouches for. It never trains either way."""

    REFUSE = "refuse"  # the loader stops and names it
    WEIGHT_ZERO = "weight-zero"  # it keeps its slot and has no effect


@record
class TaxonomyReference:
    """The one taxonomy that a policy was written for."""

    name: Name
    version: Version
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def _unsaid(value: object) -> bool:
    # Left out of the canonical form, so that policies signed before the key existed keep their digests.
    return value is None


@record
class Rule:
    """The weight of some classes in some layers at some time."""

    classes: Annotated[tuple[Branch, ...], Field(min_length=1, max_length=100)]
    layers: Patterns | None = None
    depth: Interval | None = None
    progress: Interval | None = None
    condition: Condition | None = None
    examples: Annotated[Examples | None, Field(exclude_if=_unsaid)] = None
    weight: Annotated[float, Ge(0), Le(1)]

    def holds_class(self, path: str) -> bool:
        return _holds(self.classes, path)

    def holds_layer(self, layer: Layer) -> bool:
        """Return whether the rule applies to the layer, under any of its names."""
        named = self.layers is None or any(matches(pattern, name) for pattern in self.layers for name in layer.names)
        return named and (self.depth is None or inside(layer.depth, self.depth))

    def holds_band(self, band: Band) -> bool:
        """Return whether the rule applies to a band of the class's examples."""
        return self.examples is None or self.examples.holds(band)

    def holds_phase(self, progress: float, conditions: frozenset[str]) -> bool:
        on = self.condition is None or self.condition in conditions
        return on and (self.progress is None or inside(progress, self.progress))


@record
class RoutingPolicy:
    """The rules and the sealed regions, with what they are about."""

    format: Literal["explorer/policy/v1"]
    name: Name
    version: Version
    issued: Time
    expires: Time
    taxonomy: TaxonomyReference
    quarantine: Quarantine
    conditions: Annotated[tuple[Condition, ...], Field(max_length=MAX_CONDITIONS)] = ()
    sealed: Annotated[tuple[SealedRegion, ...], Field(max_length=MAX_REGIONS)] = ()
    confidential: Annotated[tuple[Branch, ...], Field(max_length=MAX_CONFIDENTIAL)] = ()
    rules: Annotated[tuple[Rule, ...], Field(max_length=MAX_RULES)]

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, which is what a signature covers."""
        return digest(to_json(self))

    def bands(self, path: str) -> tuple[Band, ...]:
        """Return the bands into which the rules divide the examples of a class; one of all if no rule divides them."""
        return bands_of(rule.examples for rule in self.rules if rule.examples is not None and rule.holds_class(path))

    def is_confidential(self, path: str) -> bool:
        """Return whether the numbers of a class are encrypted."""
        return _holds(self.confidential, path)


def check_policy(policy: RoutingPolicy, where: str) -> None:
    """Check a policy without its taxonomy. Raises `ProvenanceError` that begins with `where`."""
    check_span(policy, where)
    for index, name in enumerate(policy.conditions):
        if name in policy.conditions[:index]:
            raise ProvenanceError(f"{where}: conditions[{index}]: {name!r} is given twice")
    check_regions(policy.sealed, where)
    for index, region in enumerate(policy.sealed):
        _check_not_quarantine(region.branch, f"{where}: sealed[{index}].branch")
    for index, branch in enumerate(policy.confidential):
        _check_not_quarantine(branch, f"{where}: confidential[{index}]")
        if branch in policy.confidential[:index]:
            raise ProvenanceError(f"{where}: confidential[{index}]: {branch!r} is given twice")
    check_bands((rule.examples for rule in policy.rules), f"{where}: rules")
    for index, rule in enumerate(policy.rules):
        _check_rule(rule, policy.conditions, f"{where}: rules[{index}]")


def _check_rule(rule: Rule, conditions: tuple[str, ...], where: str) -> None:
    for index, branch in enumerate(rule.classes):
        _check_not_quarantine(branch, f"{where}.classes[{index}]")
    check_interval(rule.depth, f"{where}.depth")
    check_interval(rule.progress, f"{where}.progress")
    check_examples(rule.examples, f"{where}.examples")
    if rule.condition is not None and rule.condition not in conditions:
        raise ProvenanceError(f"{where}.condition: {unknown('condition', rule.condition, conditions)}")


def _holds(branches: Iterable[str], path: str) -> bool:
    return any(branch == WILDCARD or covers(branch, path) for branch in branches)


def _check_not_quarantine(branch: str, where: str) -> None:
    if covers(QUARANTINE, branch):
        raise ProvenanceError(f"{where}: {QUARANTINE!r} never trains, and no rule can change that")


POLICY = Kind(name="policy", record=RoutingPolicy, role=Role.MODEL_RISK, check=check_policy)


def read_policy(document: Document) -> RoutingPolicy:
    """Return the policy in a draft. Raises `SpecError` that names file, line, key and fault."""
    return read_draft(POLICY, document)


# ---------------------------------------------------------------------------- rules and regions in words, one line each

QUARANTINE_WORDS = {
    Quarantine.REFUSE: "an example without a valid tag stops the loader",
    Quarantine.WEIGHT_ZERO: "an example without a valid tag keeps its slot with weight 0",
}


def rule_words(rule: Rule) -> str:
    """Return a rule in words: classes, place, time and weight; `~` marks attenuation, which guarantees nothing."""
    parts = [", ".join(rule.classes)]
    parts += [f"layers {', '.join(rule.layers)}"] if rule.layers else []
    parts += [f"depth {written(rule.depth)}"] if rule.depth else []
    parts += [f"progress {written(rule.progress)}"] if rule.progress else []
    parts += [f"when {rule.condition}"] if rule.condition else []
    parts += [f"examples of {_examples(rule.examples)}"] if rule.examples else []
    return f"{'; '.join(parts)}: weight {exact(rule.weight)}{'~' if 0 < rule.weight < 1 else ''}"


def region_words(region: SealedRegion) -> str:
    """Return a region in words: its branch and its content."""
    held = f"module {region.module}" if region.module else f"adapters of rank {region.rank} on {_list(region.layers)}"
    return f"sealed for {region.branch}: {held}"


def confidential_words(branches: Sequence[str]) -> str:
    """Return in words whose numbers are encrypted."""
    whose = "every class" if WILDCARD in branches else ", ".join(branches)
    return f"the numbers of {whose} are encrypted, and with them those over several classes at once"


def _examples(examples: Examples) -> str:
    return ", ".join(
        f"{score} {written(interval)}" for score, interval in examples.named().items() if interval is not None
    )


def _list(names: Sequence[str] | None) -> str:
    return ", ".join(names or ())
