"""Contributions: what each class of data did to each layer, step by step.

A step has the gradient of every class by itself, so what is recorded costs one copy of it and a few products: norms,
the Gram matrix of the weighted gradients (the share of a class in the sum, and the angle between any two), how far each
class went along with the update that was made, and a sketch of its direction. Gradients count as they entered the
optimiser, after clipping; the update is whatever moved the parameters in the step, decay and momentum included.

Exact mode keeps the update itself split by class (exact.py). Contributions only look: a run with them has the same
weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from explorer.engine.method import Kind, Method
from explorer.engine.state import State
from explorer.entries.run import Traits
from explorer.errors import RecipeError, unknown
from explorer.governance.layers import governed_layers
from explorer.governance.measure import Measure
from explorer.governance.session import Session
from explorer.provenance.regions import LayerPattern, matches


def chosen(patterns: Sequence[str], layers: Sequence[str]) -> tuple[str, ...]:
    """The layers that the patterns pick. Raises `RecipeError` for a pattern that fits none."""
    for pattern in patterns:
        if not any(matches(pattern, layer) for layer in layers):
            raise RecipeError(f"contributions: exact: {unknown('layer', pattern, layers)}")
    return tuple(layer for layer in layers if any(matches(pattern, layer) for pattern in patterns))


@dataclass(frozen=True, kw_only=True, slots=True)
class Contributions(Method):
    """Record what every class contributed to the update of every layer."""

    name: ClassVar[str] = "contributions"
    kind: ClassVar[Kind] = Kind.RECORD
    summary: ClassVar[str] = "Records what each class of data contributed to the update of each layer."
    source: ClassVar[str] = "no paper"
    formula: ClassVar[str] = (
        "in each step and layer, for class c with weighted gradient G_c, G their sum, U the update: |G_c|,"
        " <G_c, G> / |G|^2, <G_c, G_d> for each class d, <G_c, U>, and 64 numbers of a seeded projection of G_c; in the"
        " layers of `exact` also the update by class, w = D_0 + sum of D_c, and <step of D_c, U>"
    )
    changes: ClassVar[str] = "nothing"
    needs: ClassVar[str] = "any model; for `exact`, an optimiser that is linear in the summed gradient: sgd, adamw"
    traits: ClassVar[Traits] = Traits(remembers="classes")
    routing: ClassVar[str] = "Works: what a class was denied has no gradient of its own and contributes exactly zero."

    exact: Annotated[
        tuple[LayerPattern, ...],
        Field(max_length=1000, description='layers whose update itself is split by class; "*" is all'),
    ] = ()
    sketch: Annotated[bool, Field(description="keep 64 numbers of the direction of each gradient")] = True

    def memory(self, state: State) -> dict[str, Tensor]:
        session = state.resource(Session)
        layers = governed_layers(state.model, state.layers, session.routing.policy.sealed if session.routing else ())
        session.layers = tuple(each.layer for each in layers)
        measure = Measure(
            layers,
            state.regions,
            classes=session.classes,
            seed=state.seed,
            exact=chosen(self.exact, [each.layer.name for each in layers]),
            sketched=self.sketch,
        )
        state.resources[Measure] = measure
        return measure.memory

    def change_plan(self, state: State) -> None:
        state.resource(Measure).begin(state.shares)

    def change_gradients(self, state: State) -> None:
        assert state.share is not None
        share = state.share
        if share.divide is not None:  # what no part of its rows was passed for was not open to it
            share = replace(share, buffers=frozenset[str]().union(*(part.buffers for part in state.passed)))
        state.resource(Measure).add(share, state.gradients)

    def before_update(self, state: State) -> None:
        state.resource(Measure).before_update(state.scales)

    def after_update(self, state: State) -> None:
        notes = state.resource(Session).notes
        notes.numbers, notes.sketches = state.resource(Measure).after_update()
