"""Contributions: what each class of data did to each layer, step by step.

A step has the gradient of every class by itself, so what is recorded costs one copy of it and a few products: norms,
the Gram matrix of the weighted gradients (the share of a class in the sum, and the angle between any two), how far each
class went along with the update that was made, and a sketch of its direction. Gradients count as they entered the
optimiser, after clipping; the update is whatever moved the parameters in the step, decay and momentum included.

Exact mode keeps the update itself split by class (exact.py). Contributions only look: a run with them has the same
weights.

`Measure` knows no training loop. A loop calls, in every step,

    begin                 with the shares of the step
    add                   with each share's own gradients, before they are weighted and summed
    before_update         with the factors by which the sum was scaled, just before the optimisers step
    after_update          just after: the numbers of the step, and the sketches of its classes

In exact mode an absent class keeps its numbers: what it did before still moves the parameters. The parts of the update
are then state, to be kept in checkpoints: `memory`.

Shapes: k classes with numbers in a step, K of the run, L layers.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from explorer.engine.method import Kind, Method
from explorer.engine.state import Region, Share, State
from explorer.entries.kinds import Traits
from explorer.entries.numbers import Floats, StepNumbers
from explorer.errors import RecipeError, TrainingError, unknown
from explorer.governance.exact import check_linear, split_update, whole
from explorer.governance.gram import Rows, inner_products, lay_out, projections, sketch, step_numbers
from explorer.governance.layers import GovernedLayer, governed_layers
from explorer.governance.shared_state import Session
from explorer.provenance.regions import LayerPattern, matches


def chosen(patterns: Sequence[str], layers: Sequence[str]) -> tuple[str, ...]:
    """Return the layers that the patterns pick. Raises `RecipeError` for a pattern that fits none."""
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
        session.layers = tuple(layer.layer for layer in layers)
        measure = Measure(
            layers,
            state.regions,
            classes=session.classes,
            seed=state.seed,
            exact=chosen(self.exact, [layer.layer.name for layer in layers]),
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


# --- measuring ---


class Measure:
    """What measures the steps of one run."""

    def __init__(
        self,
        layers: Sequence[GovernedLayer],
        regions: Mapping[str, Region],
        *,
        classes: Sequence[str],
        seed: int,
        exact: Collection[str] = (),
        sketched: bool = True,
    ) -> None:
        """`exact` names the layers whose update is split by class. Raises `RecipeError` if an optimiser's cannot be."""
        self._indices = {path: index for index, path in enumerate(classes)}
        self._parameters = {name: p for region in regions.values() for name, p in region.parameters.items()}
        self._layout = lay_out(
            {layer.layer.name: {n: self._parameters[n] for n in layer.parameters} for layer in layers}
        )
        self._bare = {  # by buffer: the layer that has buffers alone, and so no gradient to tell its weight by
            name: at for at, layer in enumerate(layers) if not layer.parameters for name in layer.buffers
        }
        self._rows = Rows(self._layout, self._parameters)
        self._projections = projections(seed, self._layout, like=self._rows.classes) if sketched else None
        stepped = {
            id(p): o for r in regions.values() for o in r.optimizers for g in o.param_groups for p in g["params"]
        }
        chosen = [name for layer in layers if layer.layer.name in exact for name in layer.parameters]
        split = [name for name in chosen if id(self._parameters[name]) in stepped]  # the rest never moves
        self._optimizers = {name: stepped[id(self._parameters[name])] for name in split}
        for optimizer in self._optimizers.values():
            check_linear(optimizer)
        self._parts = {
            name: whole(self._parameters[name], classes=len(classes), optimizer=optimizer)
            for name, optimizer in self._optimizers.items()
        }
        self._trained = torch.zeros(len(classes), dtype=torch.bool)  # who has parts that may move
        self._present: dict[int, Mapping[str, float]] = {}  # by class, in the order of the rows: weights of tensors

    @property
    def memory(self) -> dict[str, Tensor]:
        """Return the state between steps, by name; to go back to it, copy into these tensors. Empty without exact
        mode."""
        memory: dict[str, Tensor] = {"trained": self._trained} if self._parts else {}
        for name, parts in self._parts.items():
            memory[f"displacements/{name}"], memory[f"momenta/{name}"] = parts.displacements, parts.momenta
            memory[f"updates/{name}"] = parts.updates
        return memory

    def begin(self, shares: Sequence[Share]) -> None:
        present = {self._indices[share.name] for share in shares if share.parameters}
        self._rows.begin(len(present.union(self._moving())))
        self._present = {}

    def add(self, share: Share, gradients: Mapping[str, Tensor]) -> None:
        """Check that every gradient is in the numbers of some class. Raises `TrainingError`."""
        if strange := gradients.keys() - self._layout.parameters.keys():
            raise TrainingError(
                f"{min(strange)} took a gradient, and the layers that were met do not have it: expected a forward pass"
                " that runs the same modules in training and in evaluation"
            )
        self._rows.add(gradients)
        changed = (*gradients, *(self._bare.keys() & share.buffers))
        self._present[self._indices[share.name]] = {name: share.weights.get(name, 1.0) for name in changed}

    def before_update(self, scales: Mapping[str, Tensor]) -> None:
        self._rows.scale(scales)
        self._trained[list(self._present)] = True
        for index in self._moving():
            if index not in self._present:
                self._rows.add({})
                self._present[index] = {}
        self._rows.before_update()

    def after_update(self) -> tuple[StepNumbers, Floats | None]:
        """Return the numbers, and the sketches of the weighted gradients, k L 64."""
        self._rows.after_update()
        order = np.argsort(list(self._present))
        classes = tuple(sorted(self._present))
        weights = np.zeros((len(classes), len(self._layout.layers)), dtype=np.float32)
        for place, index in enumerate(classes):
            for name, weight in self._present[index].items():
                weights[place, self._bare[name] if name in self._bare else self._layout.owners[name]] = weight
        products = inner_products(self._rows.everything, self._layout.spans).double().cpu().numpy()
        rows = np.append(order, len(order))
        exact = self._split()[list(classes)] if self._parts else None
        numbers = step_numbers(products[:, rows][:, :, rows], weights, classes=classes, exact_kL=exact)
        if self._projections is None:
            return numbers, None
        sketches = sketch(self._rows.classes, self._layout, self._projections).float().cpu().numpy()
        return numbers, sketches[order] * weights[:, :, None]

    def _moving(self) -> list[int]:
        """Return the classes whose parts of the update may be other than zero."""
        return self._trained.nonzero().flatten().tolist() if self._parts else []

    def _split(self) -> Floats:
        """<the class's part of the update, update> by class and layer, K L; NaN where the parts are not kept."""
        dots = np.full((len(self._indices), len(self._layout.layers)), np.nan)
        dots[:, [self._layout.owners[name] for name in self._parts]] = 0
        moved: dict[str, Tensor] = {}
        for name, parts in self._parts.items():
            parameter, (gradients, update) = self._parameters[name], self._rows.of(name)
            if parameter.grad is None:
                continue
            weighted = torch.zeros_like(parts.displacements)
            for gradient, (index, weights) in zip(gradients, self._present.items(), strict=True):
                weighted[1 + index] = gradient * weights.get(name, 0.0)
            moves = split_update(
                parts,
                weighted,
                before=parameter.detach() - update,
                parameter=parameter,
                optimizer=self._optimizers[name],
            )
            moved[name] = (moves[1:].flatten(1) @ update.flatten()).double()
        for name, terms in zip(moved, torch.stack(list(moved.values())).cpu().numpy() if moved else (), strict=True):
            dots[:, self._layout.owners[name]] += terms
        return dots.astype(np.float32)
