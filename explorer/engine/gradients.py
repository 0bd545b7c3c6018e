"""Gradients of a model for one share of a step after the other, and nobody else's.

Autograd sees the parameters that a share may change and no others: for the rest it neither saves nor computes
anything. What a share may not change does not change in its passes either (engine/guard.py). What no share reaches
keeps `None` for a gradient, since with a zero an optimiser would still move it.
"""

from collections.abc import Collection
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from explorer.engine.guard import Guard, Open
from explorer.engine.state import Share


class Gradients:
    """The parameters of one model, by name, and the way from losses to `.grad`."""

    def __init__(self, model: nn.Module) -> None:
        self.guard = Guard(model)
        self.parameters = self.guard.parameters
        self._summed: set[str] = set()  # whose `.grad` is a tensor of its own, and no share's

    @property
    def buffers(self) -> dict[str, Tensor]:
        """The buffers as they are now, by name."""
        return self.guard.buffers

    def clear(self) -> None:
        """Forget the step before."""
        for parameter in self.parameters.values():
            parameter.grad = None
        self._summed.clear()

    def admit(self, share: Share) -> dict[str, nn.Parameter]:
        """Let autograd see the share's parameters only; return them."""
        self.allow(share.parameters)
        return {name: parameter for name, parameter in self.parameters.items() if name in share.parameters}

    def allow(self, names: Collection[str]) -> None:
        """Let autograd see these parameters only."""
        for name, parameter in self.parameters.items():
            if parameter.requires_grad != (name in names):
                parameter.requires_grad_(name in names)

    def guarding(self, share: Share) -> AbstractContextManager[None]:
        """Around the share's forward and backward passes, which hold on to buffers: what it may not change is put
        back at the end. Raises `TrainingError` for a parameter that changed."""
        may = Open(share.parameters, share.buffers, strict=bool(share.name))
        return self.guard.passing(share.name, may)

    def take(self, loss: Tensor, admitted: dict[str, nn.Parameter], total: dict[str, Tensor]) -> None:
        """Add the loss's gradients to a share's sums; the first one assigns."""
        found = torch.autograd.grad(loss, list(admitted.values()), allow_unused=True)
        for (name, parameter), gradient in zip(admitted.items(), found, strict=True):
            if gradient is not None:
                gradient = _in_layout_of(parameter, gradient)
                before = total.get(name)
                total[name] = gradient if before is None else before + gradient

    def add(self, share: Share, gradients: dict[str, Tensor]) -> None:
        """Add a share's gradients, weighted, to those of the shares before it; the first one assigns."""
        sums: list[Tensor] = []
        terms: list[Tensor] = []
        for name, gradient in gradients.items():
            parameter, weight = self.parameters[name], share.weights.get(name, 1.0)
            weighted = gradient if weight == 1.0 else gradient * weight
            before = parameter.grad
            if before is None:
                parameter.grad = weighted
            elif name in self._summed:
                sums.append(before)
                terms.append(weighted)
            else:  # the first share's own tensor is left as it is
                parameter.grad = before + weighted
                self._summed.add(name)
        if sums:
            torch._foreach_add_(sums, terms)  # pyright: ignore[reportPrivateImportUsage]


def _in_layout_of(parameter: nn.Parameter, gradient: Tensor) -> Tensor:
    """The gradient with the parameter's strides: fused optimisers walk both in memory order."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter, requires_grad=False).copy_(gradient)
