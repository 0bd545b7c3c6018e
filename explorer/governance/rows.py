"""The class gradients of a step and the update that came of them, side by side in one matrix: what is measured.

Each number is copied once, while it is still in the cache, and then serves every product (gram.py, sketch.py). Where a
class has no gradient its row is zero. Memory: k + 1 numbers for each parameter, k classes in the step.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from explorer.governance.gram import Layout


class Rows:
    """The rows of one step after the other, in single precision at least."""

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
        """The gradients of the classes so far, k P."""
        return self._matrix[: self._used]

    @property
    def everything(self) -> Tensor:
        """The classes and the update, k + 1 P."""
        return self._matrix[: self._used + 1]

    def of(self, name: str) -> tuple[Tensor, Tensor]:
        """One parameter's gradients, k and its shape, and its update."""
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
