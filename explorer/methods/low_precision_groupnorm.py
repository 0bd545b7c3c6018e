"""Low-precision group normalisation: run it in the number format of autocast.

Autocast on GPUs runs group normalisation in fp32 and hands fp32 on. Here input, gain and shift are rounded to the
format of autocast first and the result stays in it; the kernel's own sums are fp32 either way. Where autocast is off,
as in every evaluation, nothing changes. On CPUs autocast leaves what comes in bf16 to this layer in bf16 by itself, so
only what comes in fp32 is new there, and no time is saved.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.data.dataset import Modality
from explorer.engine.behaviour import change_modules, mix_in
from explorer.engine.method import Kind, Method, Planned
from explorer.engine.precision import autocast_type
from explorer.engine.state import State
from explorer.errors import RecipeError


class LowPrecision(nn.GroupNorm if TYPE_CHECKING else object):
    """Group normalisation in the number format of autocast, where that is on."""

    def forward(self, input: Tensor) -> Tensor:
        dtype = autocast_type(input.device)
        if dtype is None:
            return super().forward(input)
        weight = None if self.weight is None else self.weight.to(dtype)
        bias = None if self.bias is None else self.bias.to(dtype)
        with torch.autocast(input.device.type, enabled=False):
            return F.group_norm(input.to(dtype), self.num_groups, weight, bias, self.eps)


def apply_low_precision_groupnorm(model: nn.Module) -> list[str]:
    """Run every group normalisation in the format of autocast, in place; return the names of those changed.

    Raises `RecipeError` if there is none.
    """

    def change(module: nn.Module, name: str) -> bool:
        if not isinstance(module, nn.GroupNorm) or isinstance(module, LowPrecision):
            return False
        mix_in(LowPrecision, module)
        return True

    return change_modules(model, change, method=LowPrecisionGroupNorm.name, target="group normalisation")


@dataclass(frozen=True, kw_only=True, slots=True)
class LowPrecisionGroupNorm(Method):
    """Normalise in the number format of autocast. Changes training in bf16 alone."""

    name: ClassVar[str] = "low_precision_groupnorm"
    kind: ClassVar[Kind] = Kind.SURGERY
    summary: ClassVar[str] = "Runs group normalisation in bf16 where autocast would run it in fp32."
    source: ClassVar[str] = "no paper"
    formula: ClassVar[str] = "y = group_norm(round(x), round(gain), round(shift)), rounded to the format of autocast"
    changes: ClassVar[str] = "the model, in training"
    needs: ClassVar[str] = (
        "group normalisation, as in a ResNet with `norm: group`, and precision bf16; saves time on GPUs alone"
    )
    routing: ClassVar[str] = "Works: each row is normalised by itself."
    after: ClassVar[tuple[str, ...]] = ("factorize", "squeeze_excite", "blurpool")
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image", "volume"})

    def check(self, planned: Planned) -> None:
        if planned.precision != "bf16":
            raise RecipeError(f"found precision {planned.precision}, where it changes nothing: expected bf16")

    def change_model(self, state: State) -> None:
        apply_low_precision_groupnorm(state.model)
