"""Routing: a policy with the taxonomy it was written for, as the total function w(class, phase, layer) in [0, 1].

Total means that every question has an answer, and that the answer to anything unknown is 0: an unknown class, progress
outside [0, 1], a condition or an adapter that the policy does not have, and everything that no rule matches. Where
rules distinguish examples of a class (`explorer.provenance.regions`), the example's band is one more argument.

**Phases** are the stretches of training within which no weight changes. A phase is an interval of training progress and
the set of conditions that are switched on in it. The phases of one set of conditions cover the training once, and every
set of the conditions that rules use has its own.

**The matrix** has the decisions for every class and every layer of a model, phase by phase. Every cell is an answer of
`weight`.

**Admission tables** have the weights for the classes and layers of one run, one table for each phase. They are
training's only source of weights. A ledger names them by their digests; a reader with the policy computes them again
and compares. Their bytes are canonical JSON (RFC 8785): classes in the order of the run, layers with the adapters after
them, weights as `float.hex()`:

    {"classes":["open/bsd"],"format":"explorer/admission/v1","layers":["embed","head"],
     "weights":[["0x0.0p+0","0x1.0000000000000p+0"]]}

(without the line break). Where the rules distinguish examples of a class, its weights there are the largest of all its
examples, the format is explorer/admission/v2, and one more key has the weights band by band, in the order of the
policy's bands:

    "bands":{"open/bsd":[{"entropy":["0x0.0p+0","0x1.0000000000000p+0"],"loss":[...],"weights":[...]}]}

It leaves out classes for which nothing depends on the example in this phase.
"""

import hashlib
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from explorer.canonical import canonical
from explorer.errors import ProvenanceError, unknown
from explorer.provenance.policy import POLICY, RoutingPolicy, check_policy
from explorer.provenance.regions import (
    ADAPTER,
    SCORES,
    WHOLE,
    WILDCARD,
    Band,
    Interval,
    Layer,
    SealedRegion,
    inside,
    partition,
    region_of,
    with_adapters,
    written,
)
from explorer.provenance.signing import Kind
from explorer.provenance.spellings import covers
from explorer.provenance.taxonomy import QUARANTINE, Taxonomy


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """A weight and its origin: a rule by its index, a sealed region by its name, or a reason to refuse."""

    weight: float
    rule: int | None = None
    region: str | None = None
    reason: str

    @property
    def guaranteed(self) -> bool:
        """Return whether the weight is a guarantee, 0 or 1; a fraction is only attenuation."""
        return self.weight in (0, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Routing:
    """A policy and its taxonomy, checked to belong together. Made by `bind`."""

    policy: RoutingPolicy
    taxonomy: Taxonomy
    classes: frozenset[str]  # of the taxonomy; the quarantine is not among them


DEFAULT_DENY = Decision(weight=0.0, reason="no rule matches: default deny")


def bind(policy: RoutingPolicy, taxonomy: Taxonomy, *, where: str) -> Routing:
    """Bind a policy to its taxonomy.

    Raises `ProvenanceError` that begins with `where` if the policy was written for another taxonomy or names a class
    that this one lacks.
    """
    # By digest too: a taxonomy of the same name and version could mean other classes by the same paths.
    wanted, actual = policy.taxonomy, taxonomy.digest
    if (wanted.name, wanted.version, wanted.digest) != (taxonomy.name, taxonomy.version, actual):
        raise ProvenanceError(
            f"{where}: taxonomy: the policy was written for {wanted.name} version {wanted.version}, "
            f"sha256 {wanted.digest}; found {taxonomy.name} version {taxonomy.version}, sha256 {actual}"
        )
    classes = frozenset(class_.path for class_ in taxonomy.classes)
    for index, region in enumerate(policy.sealed):
        _check_known(region.branch, classes, f"{where}: sealed[{index}].branch")
    named = {f"confidential[{place}]": branch for place, branch in enumerate(policy.confidential)}
    for index, rule in enumerate(policy.rules):
        named |= {f"rules[{index}].classes[{place}]": branch for place, branch in enumerate(rule.classes)}
    for place, branch in named.items():
        if branch != WILDCARD:
            _check_known(branch, classes, f"{where}: {place}")
    return Routing(policy=policy, taxonomy=taxonomy, classes=classes)


def policy_for(taxonomy: Taxonomy) -> Kind[RoutingPolicy]:
    """Return the kind of document for policies of this taxonomy; those for another are refused."""

    def check(policy: RoutingPolicy, where: str) -> None:
        check_policy(policy, where)
        bind(policy, taxonomy, where=where)

    return replace(POLICY, check=check)


def weight(
    routing: Routing,
    *,
    class_: str,
    progress: float,
    conditions: Collection[str] = (),
    layer: Layer,
    band: Band | None = None,
) -> Decision:
    """Return how strongly an example of this class may train this layer now. Never raises: anything unknown is denied.

    Args:
        routing: the policy with its taxonomy.
        class_: the class of the example.
        progress: the share of training that is done.
        conditions: the conditions that are switched on.
        layer: the layer. If it has several names, the strictest decides.
        band: the band of `policy.bands(class_)` that has the example; None: unknown, so the strictest of all bands.
    """
    # Denied before any rule is read: a rule for "*" must not admit a class that the taxonomy does not have.
    on = frozenset(conditions)
    if class_ == QUARANTINE:
        return _refused("the quarantine never trains")
    if class_ not in routing.classes:
        return _refused(f"unknown class {class_!r}")
    if not inside(progress, WHOLE):
        return _refused(f"unknown phase: progress {progress} is outside [0, 1]")
    if not on <= set(routing.policy.conditions):
        return _refused(f"unknown phase: no condition {min(on - set(routing.policy.conditions))!r}")
    bands = routing.policy.bands(class_) if band is None else (band,)
    decided = (
        _under(routing.policy, class_, progress, on, Layer(name, layer.depth), one_band)
        for name in layer.names
        for one_band in bands
    )
    # A tensor with several names follows the strictest: a denial under any name denies.
    return min(decided, key=lambda decision: decision.weight)


def admits(routing: Routing, class_: str) -> bool:
    """Return whether the class may ever train some layer. False is certain: it is denied everywhere, at all times."""
    if class_ == QUARANTINE or class_ not in routing.classes:
        return False
    if any(covers(region.branch, class_) for region in routing.policy.sealed):
        return True
    return admitted_by_rule(routing.policy, class_)


def admitted_by_rule(policy: RoutingPolicy, class_: str) -> bool:
    """Return whether a rule may ever let the class train a layer outside of sealed regions."""
    for rule in policy.rules:
        # A rule without constraints matches every cell, so no rule after it decides anything for the class.
        if rule.holds_class(class_):
            if rule.weight > 0:
                return True
            if (rule.layers, rule.depth, rule.progress, rule.condition, rule.examples) == (None,) * 5:
                return False
    return False


def confidential(routing: Routing | None, classes: Iterable[str]) -> frozenset[str]:
    """Return the classes whose numbers the policy has encrypted; none without a policy."""
    return frozenset() if routing is None else frozenset(filter(routing.policy.is_confidential, classes))


def _under(
    policy: RoutingPolicy, class_: str, progress: float, on: frozenset[str], layer: Layer, band: Band
) -> Decision:
    """Return the decision for a layer under one name."""
    # Sealed regions before rules: no rule can open a region to another class, or close it to its owner.
    region = region_of(policy.sealed, layer.name)
    if region is not None:
        return _sealed(region, class_)
    if ADAPTER in layer.name or not inside(layer.depth, WHOLE):
        return _refused(f"unknown layer {layer.name!r} at depth {layer.depth}")
    return _by_rule(policy, class_, progress, on, layer, band)


def _by_rule(
    policy: RoutingPolicy, class_: str, progress: float, on: frozenset[str], layer: Layer, band: Band
) -> Decision:
    for index, rule in enumerate(policy.rules):
        here = rule.holds_class(class_) and rule.holds_phase(progress, on) and rule.holds_band(band)
        if here and rule.holds_layer(layer):
            return Decision(weight=abs(rule.weight), rule=index, reason=f"rules[{index}]")  # abs: -0.0 is 0
    return DEFAULT_DENY


def _sealed(region: SealedRegion, class_: str) -> Decision:
    owner = covers(region.branch, class_)
    reason = f"sealed region {region.name!r} of {region.branch}"
    return Decision(weight=1.0 if owner else 0.0, region=region.name, reason=reason)


def _refused(reason: str) -> Decision:
    return Decision(weight=0.0, reason=f"{reason}: default deny")


def _check_known(branch: str, classes: frozenset[str], where: str) -> None:
    if branch not in classes:
        raise ProvenanceError(f"{where}: {unknown('class', branch, classes)}")


# --------------------------------------------------------------------------------------------------------------- phases


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """A stretch of training, as an interval of its progress, and the conditions that are switched on in it."""

    progress: Interval
    conditions: frozenset[str]

    def __str__(self) -> str:
        on = f", {' and '.join(sorted(self.conditions))}" if self.conditions else ""
        return f"progress {written(self.progress)}{on}"


def phases(policy: RoutingPolicy) -> tuple[Phase, ...]:
    """Return all phases, those without any condition first. A phase begins only where a rule begins or ends."""
    asked = sorted(_asked(policy))
    all_phases: list[Phase] = []
    for count in range(len(asked) + 1):
        for on in map(frozenset, itertools.combinations(asked, count)):
            all_phases += [Phase(progress=interval, conditions=on) for interval in _stretches(policy, on)]
    return tuple(all_phases)


def phase_at(policy: RoutingPolicy, *, progress: float, conditions: Collection[str] = ()) -> Phase:
    """Return the phase of training at this progress; conditions that no rule uses make no difference.

    Raises `ProvenanceError` for progress outside [0, 1].
    """
    if not inside(progress, WHOLE):
        raise ProvenanceError(f"found progress {progress}: expected a share of training, in [0, 1]")
    on = frozenset(conditions) & _asked(policy)
    interval = next(stretch for stretch in _stretches(policy, on) if inside(progress, stretch))
    return Phase(progress=interval, conditions=on)


def _asked(policy: RoutingPolicy) -> frozenset[str]:
    return frozenset(rule.condition for rule in policy.rules if rule.condition is not None)


def _stretches(policy: RoutingPolicy, on: frozenset[str]) -> tuple[Interval, ...]:
    """Return the stretches of training under these conditions."""
    active = [rule for rule in policy.rules if rule.condition is None or rule.condition in on]
    return partition(rule.progress for rule in active if rule.progress is not None)


# ----------------------------------------------------------------------------------------------------------- the matrix

MAX_CELLS = 500_000
MAX_CHECKS = 50_000_000  # branches and patterns compared


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Decisions of one phase: a row for each class, a decision in it for each layer."""

    phase: Phase
    rows: tuple[tuple[Decision, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrix:
    """Decisions of all phases. Classes are sorted; layers are the model's, followed by the adapters. A class whose
    examples the rules distinguish has a row for each band."""

    routing: Routing
    classes: tuple[str, ...]  # of each row
    bands: tuple[Band, ...]  # likewise
    layers: tuple[Layer, ...]
    tables: tuple[Table, ...]


def matrix(routing: Routing, layers: Sequence[Layer]) -> Matrix:
    """Return the decisions for every phase, class and layer; without layers there are none.

    Raises `ProvenanceError` if the matrix would be too large.
    """
    policy, tables = routing.policy, []
    # Sizes are checked before each step that could be large: adapters multiply the layers by the regions.
    named = [(path, band) for path in sorted(routing.classes) for band in policy.bands(path)]
    check_size(policy, len(layers) * len(policy.sealed))
    stretches, all_layers = phases(policy) if layers else (), with_adapters(policy.sealed, layers)
    check_size(policy, len(stretches) * len(named) * len(all_layers))
    for phase in stretches:
        rows = tuple(_row(routing, phase, path, band, all_layers) for path, band in named)
        tables.append(Table(phase=phase, rows=rows))
    classes, bands = tuple(path for path, _ in named), tuple(band for _, band in named)
    return Matrix(routing=routing, classes=classes, bands=bands, layers=all_layers, tables=tuple(tables))


def _row(routing: Routing, phase: Phase, class_: str, band: Band, layers: Sequence[Layer]) -> tuple[Decision, ...]:
    """Return the decisions of one row."""
    start = phase.progress[0]  # nothing changes inside a phase
    return tuple(
        weight(routing, class_=class_, progress=start, conditions=phase.conditions, layer=layer, band=band)
        for layer in layers
    )


def check_size(policy: RoutingPolicy, cells: int) -> None:
    """Check that so many cells can be computed. Raises `ProvenanceError`."""
    # A cell costs at worst a comparison with every branch and pattern of the policy, and the policy is its author's.
    names = sum(len(rule.classes) + len(rule.layers or ()) for rule in policy.rules)
    names += sum(1 + len(region.layers or ()) for region in policy.sealed)
    if cells > MAX_CELLS or cells * names > MAX_CHECKS:
        raise ProvenanceError(
            f"{cells} cells under {len(policy.rules)} rules are too many for a matrix; name fewer layers"
        )


# ----------------------------------------------------------------------------------------- tables of weights for a run

FORMAT = "explorer/admission/v1"
BY_EXAMPLE = "explorer/admission/v2"


@dataclass(frozen=True, kw_only=True, eq=False)
class Banded:
    """The weights of one class where they depend on the example: a row for each band, B L. Read-only."""

    bands: tuple[Band, ...]
    weights: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Admission:
    """The weights of one phase: float64 in [0, 1], a row for each class and a column for each layer. Read-only."""

    phase: Phase
    classes: tuple[str, ...]
    layers: tuple[str, ...]
    weights: np.ndarray
    by_example: Mapping[str, Banded] = field(default_factory=dict)  # by class; then `weights` are the largest

    @cached_property
    def content(self) -> bytes:
        """The canonical bytes. They do not contain the phase, so that phases with equal weights share a table."""
        rows = [[number.hex() for number in row] for row in self.weights.tolist()]
        head = {"format": FORMAT, "classes": list(self.classes), "layers": list(self.layers), "weights": rows}
        if self.by_example:
            bands = {path: _rows(banded) for path, banded in self.by_example.items()}
            head |= {"format": BY_EXAMPLE, "bands": bands}
        return canonical(head)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes, in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()

    def row(self, class_: str) -> dict[str, float]:
        """Return the weight of a class in every layer; 0 everywhere for a class that the run does not know."""
        if class_ not in self.classes:
            return dict.fromkeys(self.layers, 0.0)
        return dict(zip(self.layers, self.weights[self.classes.index(class_)].tolist(), strict=True))


def admit(
    routing: Routing,
    *,
    classes: Sequence[str],
    layers: Sequence[Layer],
    progress: float,
    conditions: Collection[str] = (),
) -> Admission:
    """Return the table in force at this progress, with these conditions switched on.

    Args:
        routing: the policy with its taxonomy.
        classes: the classes of the run, in order.
        layers: the layers of the run in order, including the adapters.
        progress: the share of training that is done.
        conditions: the conditions that are switched on.

    Raises `ProvenanceError` for progress outside [0, 1], and for too many cells.
    """
    phase = phase_at(routing.policy, progress=progress, conditions=conditions)

    def ask(class_: str, layer: Layer, band: Band) -> float:
        asked = weight(routing, class_=class_, progress=progress, conditions=conditions, layer=layer, band=band)
        return asked.weight

    bands = {path: routing.policy.bands(path) for path in classes}
    check_size(routing.policy, sum(map(len, bands.values())) * len(layers))
    by_band = {path: np.array([[ask(path, layer, band) for layer in layers] for band in bands[path]]) for path in bands}
    by_band = {path: rows.astype(np.float64).reshape(len(bands[path]), len(layers)) for path, rows in by_band.items()}
    # The largest weight of its bands: an upper bound for readers who do not know the bands of examples.
    weights = np.array([by_band[path].max(axis=0) for path in classes]).reshape(len(classes), len(layers))
    differ = {
        path: Banded(bands=bands[path], weights=rows) for path, rows in by_band.items() if (rows != rows[0]).any()
    }
    for array in (weights, *(banded.weights for banded in differ.values())):
        array.flags.writeable = False
    names = tuple(layer.name for layer in layers)
    return Admission(phase=phase, classes=tuple(classes), layers=names, weights=weights, by_example=differ)


def _rows(banded: Banded) -> list[dict[str, list[str]]]:
    """Return the bands and their weights, as canonical values."""
    return [
        {
            **{score: [float(end).hex() for end in band.of(score)] for score in SCORES},
            "weights": [number.hex() for number in row],
        }
        for band, row in zip(banded.bands, banded.weights.tolist(), strict=True)
    ]


class Admissions:
    """The tables of a run, each computed once."""

    def __init__(self, routing: Routing, *, classes: Sequence[str], layers: Sequence[Layer]) -> None:
        self._routing, self._classes, self._layers = routing, tuple(classes), tuple(layers)
        self._known: dict[tuple[Phase, frozenset[str]], Admission] = {}

    def at(self, progress: float, conditions: Collection[str] = ()) -> Admission:
        """Return the table in force now; the same object as long as the phase lasts. Raises like `admit`."""
        on = frozenset(conditions)
        key = phase_at(self._routing.policy, progress=progress, conditions=on), on
        if key not in self._known:
            self._known[key] = admit(
                self._routing, classes=self._classes, layers=self._layers, progress=progress, conditions=on
            )
        return self._known[key]
