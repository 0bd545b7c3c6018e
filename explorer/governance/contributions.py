"""Contributions: the effect of each class of data on each layer, step by step.

The loop computes the gradient of every class separately, so recording costs one copy of it and a few products: norms,
the Gram matrix of the weighted gradients (the share of a class in the sum, and the angle between any two), the
projection of each class on the update that was made, and a sketch of its direction. Gradients count as they entered the
optimiser, after clipping; the update is whatever moved the parameters in the step, decay and momentum included.
Contributions only observe: a run with them has the same weights.

`Measure` knows no training loop. A loop calls, in every step,

    begin                 with the shares of the step
    add                   with each share's own gradients, before they are weighted and summed
    before_update         with the factors by which the sum was scaled, just before the optimisers step
    after_update          just after: returns the numbers of the step, and the sketches of its classes;
                          `estimate` in its place returns numbers that follow from the sketches

**Rows.** The gradients of k classes and the update are the rows of one matrix, with all parameters in the order of the
layers; a class without a gradient has a row of zeros. One matrix product a layer gives the inner products that hold
everything recorded. Memory: k + 1 numbers for each parameter.

**Sketches.** 64 numbers represent a layer's gradient, so that directions can be compared across steps. A matrix G (a
filter is the matrix of its output channels by everything else) is projected from both sides onto 8 x 8, P_o^T G P_i; a
vector directly onto 64. A projection of n coordinates puts each into one column, with a sign. Both follow from the seed
and the parameter's name:

    words    SHAKE-256("explorer/sketch/v1" 00 seed in decimal 00 name 00 side), 8n bytes: one u64be a coordinate
    column   its place among the coordinates, ordered by their words, modulo 8 (modulo 64 for a vector)
    sign     minus where its word is odd                                          side: "out", "in" or "all"

A layer's sketch is the sum of its parameters'. It is linear: sketches of ranks, microbatches, steps add up. Over seeds
E<s(a), s(b)> = <a, b>. The cosine of two sketches has an error of about 0.13 (1/8); none for vectors of up to 64
numbers, and up to 0.35 for matrices of rank one that differ on one side only, of which at most 8 numbers are seen.

Charikar, Chen, Farach-Colton, "Finding frequent items in data streams", 2002, with columns of equal size.

**Estimates.** With `every` above 1, only each such step, the first among them, has inner products of the gradients. In
the steps between, the numbers are the same products of the sketches, of the classes and of the update: k + 1 rows of 64
in place of P. They meet every condition that inner products meet; a denied class has exactly 0; in a layer that is
one vector of at most 64 numbers they are exact up to rounding. The entry of such a step says that its numbers are
estimates.

**Exact mode** splits the update itself by class: theta = D_0 + sum of D_c, kept as an invariant. With G = sum w_c G_c
and R = K + 1 rows, row 0 for what no class caused (the initial value and every decay) and row 1 + c for class c, each
step that updates a tensor does, row by row, what its optimiser does to the sum:

    Adam, AdamW    m_r <- b1 m_r + (1 - b1) g_r       u_r = m_r / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)
    SGD            b_r <- mu b_r + (1 - tau) g_r      u_r = b_r, or g_r + mu b_r with Nesterov; first use: b_r = g_r
    both           D_r <- (1 - lr decay) D_r - lr u_r

g_r is w_c G_c, after clipping; L2 decay, being part of the gradient, is row 0's. v is the optimiser's own second moment
of the summed gradient: the normalisation is shared, and everything else is linear in the rows, so that they add up. A
class that was denied throughout has D_c exactly 0; one that is absent in a step still moves the tensor through m_c, so
it keeps its numbers. The parts are state, to be kept in checkpoints (`Measure.memory`): 2 (K + 1) numbers for each
number of the tensor. This attributes the path that training took and deletes nothing: the tensor minus D_c is not what
training without the class would have given.

Shapes: k classes with numbers in a step, K of the run, L layers, P numbers in a row; R rows, k + 1 of a step or K + 1
in exact mode.
"""

import hashlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from explorer.engine.method import Kind, Method
from explorer.engine.optimizer import DecoupledSGD
from explorer.engine.state import Region, Share, State
from explorer.entries.kinds import Traits
from explorer.entries.numbers import SKETCH, Floats, StepNumbers, diagonal
from explorer.errors import RecipeError, TrainingError, unknown
from explorer.governance.layers import GovernedLayer, governed_layers
from explorer.governance.shared_state import Session
from explorer.provenance.regions import LayerPattern, matches
from explorer.schema import LATER


def chosen(patterns: Sequence[str], layers: Sequence[str]) -> tuple[str, ...]:
    """Return the layers that match a pattern. Raises `RecipeError` for a pattern that matches none."""
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
        " layers of `exact` also the update by class, w = D_0 + sum of D_c, and <step of D_c, U>; in steps that are no"
        " multiple of `every` the products are those of the 64 numbers of G_c and U"
    )
    changes: ClassVar[str] = "nothing"
    needs: ClassVar[str] = "any model; for `exact`, an optimiser that is linear in the summed gradient: sgd, adamw"
    traits: ClassVar[Traits] = Traits(remembers="classes")
    routing: ClassVar[str] = (
        "Works: in a layer that it is denied, a class has no gradient and contributes exactly zero."
    )

    exact: Annotated[
        tuple[LayerPattern, ...],
        Field(max_length=1000, description='layers whose update itself is split by class; "*" is all'),
    ] = ()
    sketch: Annotated[bool, Field(description="keep 64 numbers of the direction of each gradient")] = True
    every: Annotated[
        int, Field(ge=1, le=10_000, description="steps from one with exact numbers to the next; estimates between them")
    ] = field(default=1, metadata=LATER)

    def __post_init__(self) -> None:
        if self.every > 1 and not self.sketch:
            raise RecipeError(f"found every {self.every} without sketches, which estimates are made from: expected 1")
        if self.every > 1 and self.exact:
            raise RecipeError(
                f"found every {self.every} with exact layers, whose update is split in every step: expected 1"
            )

    def any_length(self) -> bool:
        return True

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
        if share.divide is not None:
            # The class may write more buffers than any band of its rows in this batch: only those of the parts that
            # were passed were open to it.
            share = replace(share, buffers=frozenset[str]().union(*(part.buffers for part in state.passed)))
        state.resource(Measure).add(share, state.gradients)

    def before_update(self, state: State) -> None:
        state.resource(Measure).before_update(state.scales)

    def after_update(self, state: State) -> None:
        notes, measure = state.resource(Session).notes, state.resource(Measure)
        notes.estimated = state.step % self.every != 0
        notes.numbers, notes.sketches = measure.estimate() if notes.estimated else measure.after_update()


# --- measuring ---


class Measure:
    """Contributions of the steps of one run, without its training loop."""

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
        """Lay out the rows and, for the layers in `exact`, the update by class.

        Raises `RecipeError` for an optimiser whose update cannot be split.
        """
        self._indices = {path: index for index, path in enumerate(classes)}
        self._parameters = {name: p for region in regions.values() for name, p in region.parameters.items()}
        self._layout = lay_out(
            {layer.layer.name: {n: self._parameters[n] for n in layer.parameters} for layer in layers}
        )
        # Layers with buffers and no parameters have no gradient that would carry the class's weight: it is taken from
        # their buffers instead.
        self._bare = {name: at for at, layer in enumerate(layers) if not layer.parameters for name in layer.buffers}
        self._rows = Rows(self._layout, self._parameters)
        self._projections = projections(seed, self._layout, like=self._rows.classes) if sketched else None
        stepped = {
            id(p): o for r in regions.values() for o in r.optimizers for g in o.param_groups for p in g["params"]
        }
        # Exact mode: the parameters of the chosen layers that an optimiser steps; the others never move.
        chosen = [name for layer in layers if layer.layer.name in exact for name in layer.parameters]
        split = [name for name in chosen if id(self._parameters[name]) in stepped]
        self._optimizers = {name: stepped[id(self._parameters[name])] for name in split}
        for optimizer in self._optimizers.values():
            check_linear(optimizer)
        self._parts = {
            name: whole(self._parameters[name], classes=len(classes), optimizer=optimizer)
            for name, optimizer in self._optimizers.items()
        }
        self._trained = torch.zeros(len(classes), dtype=torch.bool)  # classes whose momentum may still move a tensor
        self._present: dict[int, Mapping[str, float]] = {}  # by class, in the order of the rows: weights of tensors

    @property
    def memory(self) -> dict[str, Tensor]:
        """Return the state between steps, by name; copy into these tensors to restore it. Empty without exact mode."""
        memory: dict[str, Tensor] = {"trained": self._trained} if self._parts else {}
        for name, parts in self._parts.items():
            memory[f"displacements/{name}"], memory[f"momenta/{name}"] = parts.displacements, parts.momenta
            memory[f"updates/{name}"] = parts.updates
        return memory

    def begin(self, shares: Sequence[Share]) -> None:
        """Begin a step of these shares."""
        present = {self._indices[share.name] for share in shares if share.parameters}
        self._rows.begin(len(present.union(self._moving())))
        self._present = {}

    def add(self, share: Share, gradients: Mapping[str, Tensor]) -> None:
        """Add the gradients of a share. Raises `TrainingError` for one that belongs to no layer, since it would move
        the model without being in anyone's numbers."""
        if strange := gradients.keys() - self._layout.parameters.keys():
            raise TrainingError(
                f"{min(strange)} took a gradient, and the layers that were met do not have it: expected a forward pass"
                " that runs the same modules in training and in evaluation"
            )
        self._rows.add(gradients)
        changed = (*gradients, *(self._bare.keys() & share.buffers))
        self._present[self._indices[share.name]] = {name: share.weights.get(name, 1.0) for name in changed}

    def before_update(self, scales: Mapping[str, Tensor]) -> None:
        """Apply the scales of clipping to every class's gradients, and remember the parameters as they are."""
        self._rows.scale(scales)
        self._trained[list(self._present)] = True
        # A class without examples in this batch still moves tensors by its momentum: it gets a row of zeros.
        for index in self._moving():
            if index not in self._present:
                self._rows.add({})
                self._present[index] = {}
        self._rows.before_update()

    def after_update(self) -> tuple[StepNumbers, Floats | None]:
        """Return the numbers, and the sketches of the weighted gradients, k L 64."""
        self._rows.after_update()
        products = inner_products(self._rows.everything, self._layout.spans)
        exact = self._split() if self._parts else None
        if self._projections is None:
            return self._numbers(products, exact), None
        sketches = sketch(self._rows.classes, self._layout, self._projections)
        return self._numbers(products, exact), self._weighted(sketches)

    def estimate(self) -> tuple[StepNumbers, Floats]:
        """Return the same with numbers from the sketches, for a measure that makes them and has no exact mode."""
        assert self._projections is not None and not self._parts
        self._rows.after_update()
        sketches = sketch(self._rows.everything, self._layout, self._projections)
        by_layer = sketches.transpose(0, 1)
        return self._numbers(by_layer @ by_layer.mT, None), self._weighted(sketches[:-1])

    def _numbers(self, products_LRR: Tensor, exact_KL: Floats | None) -> StepNumbers:
        """Return the numbers from the inner products of the rows."""
        # Rows are in the order in which the shares were passed; what is recorded is in the order of the classes.
        order, classes = np.argsort(list(self._present)), tuple(sorted(self._present))
        rows = np.append(order, len(order))  # the update is the last row
        return step_numbers(
            products_LRR.double().cpu().numpy()[:, rows][:, :, rows],
            self._weights(),
            classes=classes,
            exact_kL=None if exact_KL is None else exact_KL[list(classes)],
        )

    def _weighted(self, sketches_kL64: Tensor) -> Floats:
        """Return the sketches in the order of the classes, times their weights."""
        order = np.argsort(list(self._present))
        return sketches_kL64.float().cpu().numpy()[order] * self._weights()[:, :, None]

    def _weights(self) -> Floats:
        """Return the weight of each class in each layer, in the order of the classes, k L."""
        weights = np.zeros((len(self._present), len(self._layout.layers)), dtype=np.float32)
        for place, index in enumerate(sorted(self._present)):
            for name, weight in self._present[index].items():
                weights[place, self._bare[name] if name in self._bare else self._layout.owners[name]] = weight
        return weights

    def _moving(self) -> list[int]:
        """Return the classes whose parts of the update may be other than zero."""
        return self._trained.nonzero().flatten().tolist() if self._parts else []

    def _split(self) -> Floats:
        """Return <the class's part of the update, update> by class and layer, K L; NaN where no parts are kept."""
        dots = np.full((len(self._indices), len(self._layout.layers)), np.nan)
        dots[:, [self._layout.owners[name] for name in self._parts]] = 0
        moved: dict[str, Tensor] = {}
        for name, parts in self._parts.items():
            parameter, (gradients, update) = self._parameters[name], self._rows.of(name)
            if parameter.grad is None:  # the optimiser skips it, decay and momentum included
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
        # One copy to the host for all tensors: on a GPU each copy waits for the device.
        for name, terms in zip(moved, torch.stack(list(moved.values())).cpu().numpy() if moved else (), strict=True):
            dots[:, self._layout.owners[name]] += terms
        return dots.astype(np.float32)


# --- rows, and their inner products ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Places of the parameters and of the layers in a row."""

    layers: tuple[str, ...]
    parameters: dict[str, slice]  # by name, without gaps
    shapes: dict[str, torch.Size]
    owners: dict[str, int]  # the layer of each parameter: an index into `layers`
    spans: tuple[slice, ...]  # of the layers

    @property
    def width(self) -> int:
        return self.spans[-1].stop if self.spans else 0

    def views(self, row: Tensor) -> dict[str, Tensor]:
        """Return a row as the tensors that it holds, by parameter. Writing to them writes to the row."""
        return {name: row[place].view(self.shapes[name]) for name, place in self.parameters.items()}


def lay_out(layers: Mapping[str, Mapping[str, Tensor]]) -> Layout:
    """Return the layout for the parameters of these layers, both in the order given."""
    parameters: dict[str, slice] = {}
    owners: dict[str, int] = {}
    spans = []
    end = 0
    for index, own in enumerate(layers.values()):
        first = end
        for name, parameter in own.items():
            parameters[name], owners[name] = slice(end, end + parameter.numel()), index
            end += parameter.numel()
        spans.append(slice(first, end))
    shapes = {name: parameter.shape for own in layers.values() for name, parameter in own.items()}
    return Layout(layers=tuple(layers), parameters=parameters, shapes=shapes, owners=owners, spans=tuple(spans))


def inner_products(rows_RP: Tensor, spans: Sequence[slice]) -> Tensor:
    """Return the inner products of the rows over each layer's columns, L R R, in the precision of the rows."""
    products = rows_RP.new_empty(len(spans), len(rows_RP), len(rows_RP))
    for span, out in zip(spans, products, strict=True):
        columns = rows_RP[:, span]
        torch.mm(columns, columns.T, out=out)
    return products


@np.errstate(over="ignore", invalid="ignore")  # what overflowed is recorded as it was
def step_numbers(
    products_LRR: NDArray[np.float64], weights_kL: Floats, *, classes: tuple[int, ...], exact_kL: Floats | None = None
) -> StepNumbers:
    """Return the numbers of a step from the inner products of its unweighted class gradients and, last, its update."""
    k = len(classes)
    weights = weights_kL.astype(np.float64).T
    gram = products_LRR[:, :k, :k] * weights[:, :, None] * weights[:, None, :]
    dots = products_LRR[:, :k, k] * weights
    norms = np.sqrt(np.diagonal(products_LRR, axis1=1, axis2=2)[:, :k])
    # Where the weight is 0 the numbers are set to 0, not multiplied by it: infinity times zero is NaN, and a class that
    # was denied contributed exactly nothing.
    denied = weights == 0
    gram[denied], dots[denied], norms[denied] = 0, 0, 0
    gram.transpose(0, 2, 1)[denied] = 0
    # One half is rounded and mirrored, so that the recorded matrix is symmetric to the last bit. The diagonal follows
    # from the recorded weights and norms, so that a reader can compute it again.
    gram = np.triu(gram, 1).astype(np.float32)
    gram += gram.transpose(0, 2, 1)
    norms_kL = _rounded(norms.T)
    gram[:, range(k), range(k)] = diagonal(weights_kL, norms_kL).T
    return StepNumbers(
        classes=classes,
        weights=weights_kL,
        norms=norms_kL,
        dots=_rounded(dots.T),
        gram=gram,
        updates=_rounded(products_LRR[:, k, k]),
        exact=exact_kL,
    )


def _rounded(array: NDArray[np.float64]) -> Floats:
    return np.ascontiguousarray(array, dtype=np.float32)


class Rows:
    """Class gradients of the current step and its update, at least in single precision."""

    def __init__(self, layout: Layout, parameters: Mapping[str, nn.Parameter]) -> None:
        """Prepare the rows; `parameters` has those of the layout, and perhaps others."""
        self.layout = layout
        self._parameters: list[Tensor] = [parameters[name] for name in layout.parameters]
        self._names = {name: place for place, name in enumerate(layout.parameters)}
        self._matrix = self._new(0)
        self._views: list[list[Tensor]] = []  # of each row, in the order of the layout's parameters
        self._used = 0

    @property
    def classes(self) -> Tensor:
        """Return the gradients of the classes so far, k P."""
        return self._matrix[: self._used]

    @property
    def everything(self) -> Tensor:
        """Return the classes and the update, k + 1 P."""
        return self._matrix[: self._used + 1]

    def of(self, name: str) -> tuple[Tensor, Tensor]:
        """Return one parameter's gradients, k and its shape, and its update."""
        place, shape = self.layout.parameters[name], self.layout.shapes[name]
        return self.classes[:, place].view(-1, *shape), self._matrix[self._used, place].view(shape)

    def begin(self, classes: int) -> None:
        """Begin a step with at most this many classes."""
        self._used = 0
        # The matrix is kept between steps and only ever grows: `add` overwrites all of a row.
        if len(self._matrix) < classes + 1:
            self._matrix = self._new(classes + 1)
            self._views = [list(self.layout.views(row).values()) for row in self._matrix]

    @torch.no_grad()
    def add(self, gradients: Mapping[str, Tensor]) -> None:
        """Add the gradients of the next class, by name."""
        views = self._views[self._used]
        places = [self._names[name] for name in gradients]
        absent = set(range(len(views))).difference(places)
        if places:
            _copy([views[place] for place in places], list(gradients.values()))
        if absent:
            torch._foreach_zero_([views[place] for place in absent])  # pyright: ignore[reportPrivateImportUsage]
        self._used += 1

    def scale(self, factors: Mapping[str, Tensor]) -> None:
        """Multiply every class's gradients of these parameters by a factor: one number, or one for each element."""
        for name, factor in factors.items():
            self.of(name)[0].mul_(factor)

    @torch.no_grad()
    def before_update(self) -> None:
        """Put the negated parameters into the row of the update."""
        _copy(self._views[self._used], self._parameters)
        self._matrix[self._used].neg_()

    @torch.no_grad()
    def after_update(self) -> None:
        """Add the parameters as they are now, which leaves the update in its row."""
        torch._foreach_add_(self._views[self._used], self._parameters)  # pyright: ignore[reportPrivateImportUsage]

    def _new(self, count: int) -> Tensor:
        like = self._parameters[0]
        dtype = torch.promote_types(like.dtype, torch.float32)
        return torch.empty(count, self.layout.width, dtype=dtype, device=like.device)


def _copy(to: list[Tensor], of: list[Tensor]) -> None:
    torch._foreach_copy_(to, of)  # pyright: ignore[reportPrivateImportUsage]


# --- sketches ---

SIDE = math.isqrt(SKETCH)


@dataclass(frozen=True, kw_only=True, slots=True)
class Projection:
    """Projection of one parameter: a matrix from the left and the right, a vector from the right only."""

    left: Tensor | None  # 8 out
    right: Tensor  # in 8, or n 64


def projection(seed: int, name: str, shape: torch.Size, *, like: Tensor) -> Projection:
    """Return the projection of that parameter, with the type and on the device of `like`."""

    def matrix(side: str, rows: int, columns: int) -> Tensor:
        return torch.from_numpy(signed_columns(seed, name, side, rows, columns)).to(like)

    if len(shape) < 2:
        return Projection(left=None, right=matrix("all", shape.numel(), SKETCH))
    left = matrix("out", shape[0], SIDE).T.contiguous()
    return Projection(left=left, right=matrix("in", shape[1:].numel(), SIDE))


def projections(seed: int, layout: Layout, *, like: Tensor) -> dict[str, Projection]:
    """Return the projection of every parameter."""
    return {name: projection(seed, name, shape, like=like) for name, shape in layout.shapes.items()}


def sketch(rows_kP: Tensor, layout: Layout, projections: Mapping[str, Projection]) -> Tensor:
    """Return the sketches of k gradients, k L 64."""
    k = len(rows_kP)
    sketches = rows_kP.new_zeros(k, len(layout.layers), SKETCH)
    for name, place in layout.parameters.items():
        by, gradients, out = projections[name], rows_kP[:, place], sketches[:, layout.owners[name]]
        if by.left is None:
            out.addmm_(gradients, by.right)
        else:
            half = torch.bmm(by.left.expand(k, -1, -1), gradients.view(k, by.left.shape[1], len(by.right)))
            out.view(k, SIDE, SIDE).baddbmm_(half, by.right.expand(k, -1, -1))
    return sketches


def signed_columns(seed: int, name: str, side: str, rows: int, columns: int) -> NDArray[np.float64]:
    """Return a projection with one 1 or -1 in each row; the module's docstring is the specification."""
    stream = b"\x00".join((b"explorer/sketch/v1", str(seed).encode(), name.encode(), side.encode()))
    words = np.frombuffer(hashlib.shake_256(stream).digest(8 * rows), dtype=">u8")
    # Dealing out the ordered words gives columns of equal size, with a smaller variance than independent hashing; the
    # stable sort fixes the order of equal words, so that every implementation draws the same projection.
    order = np.argsort(words, kind="stable")
    signs = np.zeros((rows, columns))
    signs[order, np.arange(rows) % columns] = np.where(words[order] % 2, -1.0, 1.0)
    return signs


# --- exact: the update itself, by class ---

Values = Mapping[str, Any]  # of a parameter group, or of an optimiser's state of one parameter


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """Parts of one tensor and of its momentum, by class; changed in place."""

    displacements: Tensor  # R, then the tensor's shape: D_0, D_1, ...; they add up to the tensor
    momenta: Tensor  # of the same shape: m or b
    updates: Tensor  # int64, on the CPU: how many steps updated the momentum


def whole(parameter: nn.Parameter, *, classes: int, optimizer: Optimizer) -> Parts:
    """Return the parts of a parameter that no class has moved yet: all of it, and of its momentum, is in row 0."""
    displacements = parameter.new_zeros(1 + classes, *parameter.shape, requires_grad=False)
    displacements[0] = parameter.detach()
    momenta = torch.zeros_like(displacements)
    state = optimizer.state.get(parameter, {})
    momentum = state.get("exp_avg", state.get("momentum_buffer"))
    if momentum is not None:
        momenta[0] = momentum
    updates = torch.tensor(0 if momentum is None else 1, dtype=torch.int64)
    return Parts(displacements=displacements, momenta=momenta, updates=updates)


@torch.no_grad()
def split_update(
    parts: Parts, gradients: Tensor, *, before: Tensor, parameter: nn.Parameter, optimizer: Optimizer
) -> Tensor:
    """Repeat the update that `optimizer` has just made to `parameter`, row by row, and return it by row.

    Args:
        parts: of the parameter before the update; updated in place.
        gradients: w_c G_c in the rows 1 + c; row 0 is ignored.
        before: the parameter as it was.
        parameter: the parameter as it is now. It had a gradient in this step.
        optimizer: one that passes `check_linear`, after its step.
    """
    group = group_of(parameter, optimizer)
    rows = -gradients if group["maximize"] else gradients.clone()  # the rules below write into the rows
    rows[0] = 0
    moves = RULES[type(optimizer)](parts, rows, before, group, optimizer.state.get(parameter, {}))
    parts.displacements.add_(moves)
    parts.updates.add_(1)
    return moves


def check_linear(optimizer: Optimizer) -> None:
    """Raise `RecipeError` unless the optimiser is one whose updates can be split."""
    if type(optimizer) not in RULES:  # by exact type: a subclass may have another rule
        known = ", ".join(sorted(kind.__name__ for kind in RULES))
        raise RecipeError(
            f"exact contributions: {type(optimizer).__name__} is not supported: not linear in the summed gradient, as "
            f"far as is known here; known to be: {known}"
        )


def group_of(parameter: nn.Parameter, optimizer: Optimizer) -> dict[str, Any]:
    """Return the parameter group that the parameter is in."""
    return next(group for group in optimizer.param_groups if any(p is parameter for p in group["params"]))


def _sgd(parts: Parts, rows: Tensor, before: Tensor, group: Values, state: Values) -> Tensor:
    lr, momentum = float(group["lr"]), group["momentum"]
    if group["weight_decay"]:
        rows[0] += group["weight_decay"] * before
    if momentum:
        # torch's first momentum buffer is the gradient itself, undampened.
        dampening = group["dampening"] if parts.updates else 0
        parts.momenta.mul_(momentum).add_(rows, alpha=1 - dampening)
        rows = rows.add_(parts.momenta, alpha=momentum) if group["nesterov"] else parts.momenta
    return -lr * rows


def _decoupled_sgd(parts: Parts, rows: Tensor, before: Tensor, group: Values, state: Values) -> Tensor:
    decay = float(group["lr"]) * group["decoupled"]
    return _sgd(parts, rows, before, group, state).sub_(parts.displacements, alpha=decay)


def _adam(parts: Parts, rows: Tensor, before: Tensor, group: Values, state: Values) -> Tensor:
    lr, (beta1, beta2), steps = float(group["lr"]), map(float, group["betas"]), float(state["step"])
    decay, decoupled = group["weight_decay"], group["decoupled_weight_decay"]
    if decay and not decoupled:
        rows[0] += decay * before
    parts.momenta.lerp_(rows, 1 - beta1)
    # The optimiser has stepped already: its second moment and step count are those that normalised this update.
    second = state["max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"]
    denominator = (second / (1 - beta2**steps)).sqrt_().add_(group["eps"])
    moves = (parts.momenta / denominator).mul_(-lr / (1 - beta1**steps))
    return moves.sub_(parts.displacements, alpha=lr * decay) if decoupled else moves


RULES: dict[type[Optimizer], Callable[[Parts, Tensor, Tensor, Values, Values], Tensor]] = {
    SGD: _sgd,
    DecoupledSGD: _decoupled_sgd,
    Adam: _adam,
    AdamW: _adam,
}
