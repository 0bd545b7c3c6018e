"""Admission: what a policy decides for the classes and layers of one run, phase by phase, as tables of weights.

Nothing changes inside a phase, so there is one table for each. It is training's only source of weights, and a ledger
names it by its digest; whoever holds the policy works it out again and compares. Its bytes are canonical JSON
(RFC 8785): classes in the order of the run, layers with the adapters after them, weights as `float.hex()`:

    {"classes":["open/bsd"],"format":"explorer/admission/v1","layers":["embed","head"],
     "weights":[["0x0.0p+0","0x1.0000000000000p+0"]]}

(without the line break).
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from explorer.canonical import canonical
from explorer.provenance.layers import Layer
from explorer.provenance.matrix import check_size
from explorer.provenance.phases import Phase, phase_at
from explorer.provenance.routing import Routing, weight

FORMAT = "explorer/admission/v1"


@dataclass(frozen=True, kw_only=True, eq=False)
class Admission:
    """The weights of one phase: float64, a row for each class, in it a number in [0, 1] for each layer. Read-only."""

    phase: Phase
    classes: tuple[str, ...]
    layers: tuple[str, ...]
    weights: np.ndarray

    @cached_property
    def content(self) -> bytes:
        """The canonical bytes. The phase is not in them: phases that decide the same have one table."""
        rows = [[number.hex() for number in row] for row in self.weights.tolist()]
        return canonical(
            {"format": FORMAT, "classes": list(self.classes), "layers": list(self.layers), "weights": rows}
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes, in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()

    def row(self, class_: str) -> dict[str, float]:
        """The weight of a class in every layer; 0 everywhere for a class that the run does not know."""
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
    """The table that holds at this share of training, with these conditions switched on. Layers include the adapters.

    Raises `ProvenanceError` for progress outside [0, 1], and for more cells than can be asked about.
    """
    check_size(routing.policy, len(classes) * len(layers))
    phase = phase_at(routing.policy, progress=progress, conditions=conditions)

    def ask(class_: str, layer: Layer) -> float:
        return weight(routing, class_=class_, progress=progress, conditions=conditions, layer=layer).weight

    weights = np.array([[ask(each, layer) for layer in layers] for each in classes], dtype=np.float64)
    weights = weights.reshape(len(classes), len(layers))
    weights.flags.writeable = False
    names = tuple(layer.name for layer in layers)
    return Admission(phase=phase, classes=tuple(classes), layers=names, weights=weights)


class Admissions:
    """The tables of a run, each worked out once."""

    def __init__(self, routing: Routing, *, classes: Sequence[str], layers: Sequence[Layer]) -> None:
        self._routing, self._classes, self._layers = routing, tuple(classes), tuple(layers)
        self._known: dict[tuple[Phase, frozenset[str]], Admission] = {}

    def at(self, progress: float, conditions: Collection[str] = ()) -> Admission:
        """The table that holds now; the same object as long as the phase lasts. Raises as `admit` does."""
        on = frozenset(conditions)
        key = phase_at(self._routing.policy, progress=progress, conditions=on), on
        if key not in self._known:
            self._known[key] = admit(
                self._routing, classes=self._classes, layers=self._layers, progress=progress, conditions=on
            )
        return self._known[key]
