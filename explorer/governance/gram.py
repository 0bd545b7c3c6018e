"""What the class gradients of a step have in common, layer by layer, from one matrix product a layer.

The gradients of k classes and the update that was made are the rows of one matrix (`Rows`), all parameters in the order
of the layers. Each number is copied once, while it is still in the cache, and then serves every product. Where a class
has no gradient its row is zero. Memory: k + 1 numbers for each parameter. The inner products of the rows over a layer's
columns hold everything that is recorded: norms, angles, and how far each class went along with the update. Shapes: R =
k + 1 rows, P numbers in a row, L layers.

Sketches: 64 numbers stand for a layer's gradient, so that directions can be compared across steps.

A matrix G (a filter is the matrix of its output channels by everything else) is projected from both sides onto 8 x 8,
P_o^T G P_i; a vector straight onto 64. A projection of n coordinates puts each into one column, with a sign. Both
follow from the seed and the parameter's name alone:

    words    SHAKE-256("explorer/sketch/v1" 00 seed in decimal 00 name 00 side), 8n bytes: one u64be a coordinate
    column   its place among the coordinates, ordered by their words, modulo 8 (modulo 64 for a vector)
    sign     minus where its word is odd                                          side: "out", "in" or "all"

A layer's sketch is the sum of its parameters'. It is linear: sketches of ranks, microbatches, steps add up. Over seeds
E<s(a), s(b)> = <a, b>. The cosine of two sketches has an error of about 0.13 (1/8); none for vectors of up to 64
numbers, and up to 0.35 for matrices of rank one that differ on one side only, of which no more than 8 numbers are seen.

Charikar, Chen, Farach-Colton, "Finding frequent items in data streams", 2002, with columns of equal size.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from explorer.entries.numbers import SKETCH, Floats, StepNumbers, diagonal


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Where the numbers of each parameter and of each layer stand in a row."""

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
    """Return the layout for these layers' parameters, both in this order."""
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
    """Return the numbers of a step from the inner products of its unweighted class gradients and, last, its update.

    Where the weight is 0 the numbers are 0 whatever the others are: infinity times zero says nothing there.
    """
    k = len(classes)
    weights = weights_kL.astype(np.float64).T
    gram = products_LRR[:, :k, :k] * weights[:, :, None] * weights[:, None, :]
    dots = products_LRR[:, :k, k] * weights
    norms = np.sqrt(np.diagonal(products_LRR, axis1=1, axis2=2)[:, :k])
    denied = weights == 0
    gram[denied], dots[denied], norms[denied] = 0, 0, 0
    gram.transpose(0, 2, 1)[denied] = 0
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


# --- rows ---


class Rows:
    """The class gradients of one step after the other and the update, in single precision at least."""

    def __init__(self, layout: Layout, parameters: Mapping[str, nn.Parameter]) -> None:
        """`parameters` by name, at least those of the layout."""
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
        """Begin a step with at most so many classes."""
        self._used = 0
        if len(self._matrix) < classes + 1:
            self._matrix = self._new(classes + 1)
            self._views = [list(self.layout.views(row).values()) for row in self._matrix]

    @torch.no_grad()
    def add(self, gradients: Mapping[str, Tensor]) -> None:
        """The next class's gradients, by name."""
        views = self._views[self._used]
        places = [self._names[name] for name in gradients]
        absent = set(range(len(views))).difference(places)
        _copy([views[place] for place in places], list(gradients.values()))
        _zero([views[place] for place in absent])
        self._used += 1

    def scale(self, factors: Mapping[str, Tensor]) -> None:
        """Every class's gradients of these parameters times a factor, one number or as many as the parameter has."""
        for name, factor in factors.items():
            self.of(name)[0].mul_(factor)

    @torch.no_grad()
    def before_update(self) -> None:
        """Remember what the parameters are."""
        _copy(self._views[self._used], self._parameters)
        self._matrix[self._used].neg_()

    @torch.no_grad()
    def after_update(self) -> None:
        """The update is what they are now less what they were."""
        torch._foreach_add_(self._views[self._used], self._parameters)  # pyright: ignore[reportPrivateImportUsage]

    def _new(self, count: int) -> Tensor:
        like = self._parameters[0]
        dtype = torch.promote_types(like.dtype, torch.float32)
        return torch.empty(count, self.layout.width, dtype=dtype, device=like.device)


def _copy(to: list[Tensor], of: list[Tensor]) -> None:
    if to:
        torch._foreach_copy_(to, of)  # pyright: ignore[reportPrivateImportUsage]


def _zero(tensors: list[Tensor]) -> None:
    if tensors:
        torch._foreach_zero_(tensors)  # pyright: ignore[reportPrivateImportUsage]


# --- sketches ---

SIDE = math.isqrt(SKETCH)


@dataclass(frozen=True, kw_only=True, slots=True)
class Projection:
    """How one parameter is projected: a matrix from the left and the right, a vector from the right alone."""

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
    """Return a projection: in each row one 1 or -1; see the module's docstring."""
    stream = b"\x00".join((b"explorer/sketch/v1", str(seed).encode(), name.encode(), side.encode()))
    words = np.frombuffer(hashlib.shake_256(stream).digest(8 * rows), dtype=">u8")
    order = np.argsort(words, kind="stable")
    signs = np.zeros((rows, columns))
    signs[order, np.arange(rows) % columns] = np.where(words[order] % 2, -1.0, 1.0)
    return signs
