"""Rotary positions: queries and keys are turned by angles that grow with their place, so that a score depends on the
distance; embeddings of positions go.

Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, arXiv:2104.09864. Features are paired
as in GPT-NeoX and Llama, the first with the one half a head further on.

Shapes: B examples, H heads, T places of queries, S places of keys, d width of a head.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from explorer.data.dataset import Modality
from explorer.engine.architectures import silence_positions
from explorer.engine.forms import checked
from explorer.engine.method import Kind, Method
from explorer.engine.query_changes import ATTENTIONS, change_queries
from explorer.engine.state import State


class Turn:
    """Change of queries and keys: each is turned by its place. No parameters; the angles of the longest row so far are
    kept, and all layers of a model can share them."""

    def __init__(self, base: float) -> None:
        self.base = base
        self._kept = (torch.empty(0, 0), torch.empty(0, 0))

    def __call__(self, query_BHTd: Tensor, key_BHSd: Tensor) -> tuple[Tensor, Tensor]:
        places = key_BHSd.shape[-2]
        cosines, sines = self._angles(key_BHSd)
        first = places - query_BHTd.shape[-2]  # with a cache of keys, queries are the last places
        return (
            turned(query_BHTd, cosines[first:places], sines[first:places]),
            turned(key_BHSd, cosines[:places], sines[:places]),
        )

    def _angles(self, key_BHSd: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines for these keys, S or more by d / 2."""
        kept, (places, width) = self._kept[0], key_BHSd.shape[-2:]
        described = (kept.shape[1], kept.dtype, kept.device)
        if len(kept) < places or described != (width // 2, key_BHSd.dtype, key_BHSd.device):
            self._kept = self._made(key_BHSd, places, width // 2)
        return self._kept

    @torch.inference_mode(False)  # an inference tensor that is kept could not be used in training later
    def _made(self, key_BHSd: Tensor, places: int, pairs: int) -> tuple[Tensor, Tensor]:
        # Computed in fp32 and rounded once: bfloat16 cannot represent all whole numbers beyond 256.
        exact = {"device": key_BHSd.device, "dtype": torch.promote_types(key_BHSd.dtype, torch.float32)}
        speeds = self.base ** (torch.arange(pairs, **exact) / -pairs)
        angles = torch.arange(places, **exact)[:, None] * speeds
        return angles.cos().to(key_BHSd.dtype), angles.sin().to(key_BHSd.dtype)


def turned(x_BHTd: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Return vectors of which the pair (i, i + d / 2) is turned; the last feature of an odd number stays."""
    pairs = cosines.shape[-1]
    one, other, odd = x_BHTd.split((pairs, pairs, x_BHTd.shape[-1] - 2 * pairs), dim=-1)
    return torch.cat((one * cosines - other * sines, one * sines + other * cosines, odd), dim=-1)


def apply_rotary(model: nn.Module, *, base: float = 10_000.0) -> list[str]:
    """Turn the queries and keys of every self-attention by their places and remove the positions from the embeddings,
    in place; return the names of the changed attentions and embeddings.

    Raises `RecipeError` if there is no such attention. One of another package whose queries cannot be reached raises it
    in its first pass, with its name.

    Args:
        model: the model to change.
        base: the slowest pair of a head turns by about 1 / base a place, the fastest by 1.

    In a loop:

        functional.rotary(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in text_batches:
            optimizer.zero_grad()
            F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
            optimizer.step()
    """
    checked(Rotary, base=base)
    names = change_queries(model, Turn(base), method=Rotary.name, target=ATTENTIONS)
    # Positions go only once attention has changed: a model without known attention must keep them.
    return names + silence_positions(model)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rotary(Method):
    """Replaces positions in the model for good, at inference too. Rows can be longer than those of training, but the
    model has not learned their distances."""

    name: ClassVar[str] = "rotary"
    kind: ClassVar[Kind] = Kind.SURGERY
    summary: ClassVar[str] = "Turns queries and keys by their place, instead of embedding positions."
    source: ClassVar[str] = "Su et al. 2021, arXiv:2104.09864"
    formula: ClassVar[str] = (
        "the features i and i + d / 2 of a query or key at place t, as a point in the plane, are turned by the angle"
        " t `base`^(-2i / d), i < d / 2; no embeddings of positions"
    )
    changes: ClassVar[str] = "the model"
    needs: ClassVar[str] = "self-attention, as in a GPT"
    routing: ClassVar[str] = "Works: the angles have no parameters; embeddings of positions, which it removes, had."
    conflicts_with: ClassVar[dict[str, str]] = {"alibi": "each tells attention the distance of places"}
    modalities: ClassVar[frozenset[Modality]] = frozenset({"text"})

    base: Annotated[float, Field(ge=10, le=1e7, description="how slowly the last pair of a head turns")] = 10_000.0

    def any_length(self) -> bool:
        return True

    def change_model(self, state: State) -> None:
        apply_rotary(state.model, base=self.base)
