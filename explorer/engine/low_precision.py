"""Normalisation layers in the number format of autocast.

Autocast on GPUs runs normalisation in fp32 and hands fp32 on. Here input, gain and shift are rounded to the format of
autocast first and the result stays in it; the kernel's own sums are fp32 either way. Where autocast is off, as in every
evaluation, nothing changes. On CPUs autocast leaves what comes in bf16 to such a layer in bf16 by itself, so only what
comes in fp32 is new there, and no time is saved.
"""

from abc import abstractmethod

import torch
from torch import Tensor, nn

from explorer.engine.behaviour import change_modules, mix_in
from explorer.engine.method import Planned
from explorer.engine.precision import autocast_type
from explorer.errors import RecipeError


class LowPrecision(nn.Module):
    """What is mixed into a normalisation layer; a subclass says how that kind of layer normalises."""

    weight: Tensor | None
    bias: Tensor | None

    @abstractmethod
    def normalised(self, input: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """The layer's output, all tensors in one number format."""

    def forward(self, input: Tensor) -> Tensor:
        dtype = autocast_type(input.device)
        if dtype is None:
            return super().forward(input)
        weight, bias = (None if each is None else each.to(dtype) for each in (self.weight, self.bias))
        with torch.autocast(input.device.type, enabled=False):
            return self.normalised(input.to(dtype), weight, bias)


def lower(model: nn.Module, kind: type[nn.Module], by: type[LowPrecision], *, method: str, target: str) -> list[str]:
    """Mix `by` into every layer of that kind, in place; return the names of those changed.

    Raises `RecipeError` if there is none.
    """

    def change(module: nn.Module, name: str) -> bool:
        if not isinstance(module, kind) or isinstance(module, by):
            return False
        mix_in(by, module)
        return True

    return change_modules(model, change, method=method, target=target)


def check_precision(planned: Planned) -> None:
    """Raise `RecipeError` for a run in fp32, in which nothing would change."""
    if planned.precision != "bf16":
        raise RecipeError(f"found precision {planned.precision}, where it changes nothing: expected bf16")
