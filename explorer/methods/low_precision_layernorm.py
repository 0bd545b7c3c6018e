"""Low-precision layer normalisation, in the number format of autocast (`LowPrecision` in engine/modules.py)."""

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from explorer.data.dataset import Modality
from explorer.engine.method import Kind, Method, Planned
from explorer.engine.modules import LowPrecision, check_precision, lower
from explorer.engine.state import State


class LowPrecisionLayerNormLayer(LowPrecision):
    """Behaviour of layer normalisation in the number format of autocast, where autocast is on."""

    normalized_shape: tuple[int, ...]
    eps: float

    def normalised(self, input: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, weight, bias, self.eps)


def apply_low_precision_layernorm(model: nn.Module) -> list[str]:
    """Run every layer normalisation in the format of autocast, in place; return the names of the changed layers.

    Raises `RecipeError` if there is none.

    In a loop:

        functional.low_precision_layernorm(model)
        for x, y in text_batches:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):  # or "cuda": it acts only here
                loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            loss.backward()
            optimizer.step()
    """
    by, method = LowPrecisionLayerNormLayer, LowPrecisionLayerNorm.name
    return lower(model, nn.LayerNorm, by, method=method, target="layer normalisation")


@dataclass(frozen=True, kw_only=True, slots=True)
class LowPrecisionLayerNorm(Method):
    """Changes training in bf16 and fp16 only; evaluation is always in fp32."""

    name: ClassVar[str] = "low_precision_layernorm"
    kind: ClassVar[Kind] = Kind.SURGERY
    summary: ClassVar[str] = "Runs layer normalisation in bf16 or fp16 where autocast would run it in fp32."
    source: ClassVar[str] = "no paper"
    formula: ClassVar[str] = "y = layer_norm(round(x), round(gain), round(shift)), rounded to the format of autocast"
    changes: ClassVar[str] = "the model, in training"
    needs: ClassVar[str] = (
        "layer normalisation, as in transformers, and precision bf16 or fp16; saves time only on GPUs"
    )
    routing: ClassVar[str] = "Works: each row is normalised by itself."
    after: ClassVar[tuple[str, ...]] = ("factorize", "alibi", "gated_linear_units")
    modalities: ClassVar[frozenset[Modality]] = frozenset({"text", "image"})

    def any_length(self) -> bool:
        return True

    def check(self, planned: Planned) -> None:
        check_precision(planned)

    def change_model(self, state: State) -> None:
        apply_low_precision_layernorm(state.model)
