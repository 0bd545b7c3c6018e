"""The matrix: what a policy decides for every class and every layer of a model, phase by phase.

It is made by asking `routing.weight` for every cell; it has no opinion of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from explorer.errors import ProvenanceError
from explorer.provenance.examples import Band
from explorer.provenance.layers import Layer
from explorer.provenance.phases import Phase, phases
from explorer.provenance.policy import RoutingPolicy
from explorer.provenance.routing import Decision, Routing, weight
from explorer.provenance.sealed import with_adapters

MAX_CELLS = 500_000
MAX_CHECKS = 50_000_000  # branches and patterns compared


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """What is decided in one phase: a row for each class, a decision in it for each layer."""

    phase: Phase
    rows: tuple[tuple[Decision, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrix:
    """What is decided in all of them. Classes are sorted; layers are the model's, and after them the adapters. A class
    whose examples the rules tell apart has a row for each band of them."""

    routing: Routing
    classes: tuple[str, ...]  # of each row
    bands: tuple[Band, ...]  # likewise
    layers: tuple[Layer, ...]
    tables: tuple[Table, ...]


def matrix(routing: Routing, layers: Sequence[Layer]) -> Matrix:
    """Ask the policy for every phase, class and layer; without layers there is nothing to ask.

    Raises `ProvenanceError` when that is too much to write down.
    """
    policy, found = routing.policy, []
    named = [(each, band) for each in sorted(routing.classes) for band in policy.bands(each)]
    check_size(policy, len(layers) * len(policy.sealed))
    stretches, all_layers = phases(policy) if layers else (), with_adapters(policy.sealed, layers)
    check_size(policy, len(stretches) * len(named) * len(all_layers))
    for phase in stretches:
        rows = tuple(_row(routing, phase, each, band, all_layers) for each, band in named)
        found.append(Table(phase=phase, rows=rows))
    classes, bands = tuple(each for each, _ in named), tuple(band for _, band in named)
    return Matrix(routing=routing, classes=classes, bands=bands, layers=all_layers, tables=tuple(found))


def _row(routing: Routing, phase: Phase, class_: str, band: Band, layers: Sequence[Layer]) -> tuple[Decision, ...]:
    """Nothing changes inside a phase, so its start speaks for all of it."""
    start = phase.progress[0]
    return tuple(
        weight(routing, class_=class_, progress=start, conditions=phase.conditions, layer=layer, band=band)
        for layer in layers
    )


def check_size(policy: RoutingPolicy, cells: int) -> None:
    """Check that the cells can be worked out. One costs at worst a look at every branch and pattern of the policy.

    Raises `ProvenanceError`.
    """
    names = sum(len(rule.classes) + len(rule.layers or ()) for rule in policy.rules)
    names += sum(1 + len(region.layers or ()) for region in policy.sealed)
    if cells > MAX_CELLS or cells * names > MAX_CHECKS:
        raise ProvenanceError(
            f"{cells} cells under {len(policy.rules)} rules are too many for a matrix; name fewer layers"
        )
