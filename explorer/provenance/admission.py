"""Admission: what a policy decides for the classes and layers of one run, phase by phase, as tables of weights.

Nothing changes inside a phase, so there is one table for each. It is training's only source of weights, and a ledger
names it by its digest; a reader with the policy computes it again and compares. Its bytes are canonical JSON
(RFC 8785): classes in the order of the run, layers with the adapters after them, weights as `float.hex()`:

    {"classes":["open/bsd"],"format":"explorer/admission/v1","layers":["embed","head"],
     "weights":[["0x0.0p+0","0x1.0000000000000p+0"]]}

(without the line break). Where the rules tell the examples of a class apart (`explorer.provenance.examples`), its
weights there are the largest of all its examples, the format is explorer/admission/v2, and one key more has the weights
band by band, in the order of the policy's bands:

    "bands":{"open/bsd":[{"entropy":["0x0.0p+0","0x1.0000000000000p+0"],"loss":[...],"weights":[...]}]}

Classes for which nothing depends on the example in this phase are not in it.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from explorer.canonical import canonical
from explorer.provenance.examples import SCORES, Band
from explorer.provenance.regions import Layer
from explorer.provenance.routing_weights import Phase, Routing, check_size, phase_at, weight

FORMAT = "explorer/admission/v1"
BY_EXAMPLE = "explorer/admission/v2"


@dataclass(frozen=True, kw_only=True, eq=False)
class Banded:
    """The weights of one class where they depend on the example: a row for each band, B L. Read-only."""

    bands: tuple[Band, ...]
    weights: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Admission:
    """The weights of one phase: float64, a row for each class, in it a number in [0, 1] for each layer. Read-only."""

    phase: Phase
    classes: tuple[str, ...]
    layers: tuple[str, ...]
    weights: np.ndarray
    by_example: Mapping[str, Banded] = field(default_factory=dict)  # by class; then `weights` are the largest

    @cached_property
    def content(self) -> bytes:
        """The canonical bytes. The phase is not in them: phases that decide the same have one table."""
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
    """Return the table that holds at this share of training, with these conditions switched on.

    Layers include the adapters.

    Raises `ProvenanceError` for progress outside [0, 1], and for more cells than can be asked about.
    """
    phase = phase_at(routing.policy, progress=progress, conditions=conditions)

    def ask(class_: str, layer: Layer, band: Band) -> float:
        asked = weight(routing, class_=class_, progress=progress, conditions=conditions, layer=layer, band=band)
        return asked.weight

    bands = {path: routing.policy.bands(path) for path in classes}
    check_size(routing.policy, sum(map(len, bands.values())) * len(layers))
    by_band = {path: np.array([[ask(path, layer, band) for layer in layers] for band in bands[path]]) for path in bands}
    by_band = {path: rows.astype(np.float64).reshape(len(bands[path]), len(layers)) for path, rows in by_band.items()}
    # The largest weight of its bands: what a class may do at most, for readers without the bands.
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
    """The tables of a run, each worked out once."""

    def __init__(self, routing: Routing, *, classes: Sequence[str], layers: Sequence[Layer]) -> None:
        self._routing, self._classes, self._layers = routing, tuple(classes), tuple(layers)
        self._known: dict[tuple[Phase, frozenset[str]], Admission] = {}

    def at(self, progress: float, conditions: Collection[str] = ()) -> Admission:
        """Return the table that holds now; the same object as long as the phase lasts. Raises as `admit` does."""
        on = frozenset(conditions)
        key = phase_at(self._routing.policy, progress=progress, conditions=on), on
        if key not in self._known:
            self._known[key] = admit(
                self._routing, classes=self._classes, layers=self._layers, progress=progress, conditions=on
            )
        return self._known[key]
