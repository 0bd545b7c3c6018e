"""What the class gradients of a step have in common, layer by layer, from one matrix product a layer.

The gradients of k classes and the update that was made are the rows of one matrix, all parameters side by side in the
order of the layers. The inner products of the rows over a layer's columns hold everything that is recorded: norms,
angles, and how far each class went along with the update. Shapes: R = k + 1 rows, P numbers in a row, L layers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from explorer.entries.numbers import Floats, StepNumbers, diagonal


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
        """A row as the tensors that it holds, by parameter. Writing to them writes to the row."""
        return {name: row[place].view(self.shapes[name]) for name, place in self.parameters.items()}


def lay_out(layers: Mapping[str, Mapping[str, Tensor]]) -> Layout:
    """The layout for these layers' parameters, both in this order."""
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
    """The inner products of the rows over each layer's columns, L R R, in the precision of the rows."""
    products = rows_RP.new_empty(len(spans), len(rows_RP), len(rows_RP))
    for span, out in zip(spans, products, strict=True):
        columns = rows_RP[:, span]
        torch.mm(columns, columns.T, out=out)
    return products


@np.errstate(over="ignore", invalid="ignore")  # what overflowed is recorded as it was
def step_numbers(
    products_LRR: NDArray[np.float64], weights_kL: Floats, *, classes: tuple[int, ...], exact_kL: Floats | None = None
) -> StepNumbers:
    """The numbers of a step from the inner products of its unweighted class gradients and, last, its update.

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
