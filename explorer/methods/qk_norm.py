"""Normalised queries and keys: each is brought to the same length before it is compared.

Henry et al., "Query-Key Normalization for Transformers", 2020, arXiv:2010.04245; without a learned scale, as in
Dehghani et al., "Scaling Vision Transformers to 22 Billion Parameters", 2023, arXiv:2302.05442, and the records of
modded-nanogpt. No score of a head of width d is larger than sqrt(d), so attention cannot saturate.

Shapes: B examples, H heads, T places, d width of a head.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from explorer.data.dataset import Modality
from explorer.engine.method import Kind, Method
from explorer.engine.query_changes import ATTENTIONS, change_queries
from explorer.engine.state import State


class Normalise:
    """Change of queries and keys: each has a root mean square of 1."""

    def __call__(self, query_BHTd: Tensor, key_BHTd: Tensor) -> tuple[Tensor, Tensor]:
        width = query_BHTd.shape[-1:]
        return F.rms_norm(query_BHTd, width), F.rms_norm(key_BHTd, width)


def apply_qk_norm(model: nn.Module) -> list[str]:
    """Normalise the queries and keys of every self-attention, in place; return the names of the attentions.

    Raises `RecipeError` if there is none. An attention of another package whose queries cannot be reached raises it in
    its first pass, with its name.

    In a loop:

        functional.qk_norm(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in text_batches:
            optimizer.zero_grad()
            F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
            optimizer.step()
    """
    return change_queries(model, Normalise(), method=QKNorm.name, target=ATTENTIONS)


@dataclass(frozen=True, kw_only=True, slots=True)
class QKNorm(Method):
    """Changes the model for good, at inference too. Adds no parameters."""

    name: ClassVar[str] = "qk_norm"
    kind: ClassVar[Kind] = Kind.SURGERY
    summary: ClassVar[str] = "Brings the queries and keys of attention to one length before they are compared."
    source: ClassVar[str] = "Henry et al. 2020, arXiv:2010.04245; Dehghani et al. 2023, arXiv:2302.05442"
    formula: ClassVar[str] = "scores = q' k' / sqrt(d), x' = x / sqrt(mean(x^2)) over the d features of a head"
    changes: ClassVar[str] = "the model"
    needs: ClassVar[str] = "self-attention, as in a GPT"
    routing: ClassVar[str] = "Works: it has no parameters, and each place is normalised by itself."
    modalities: ClassVar[frozenset[Modality]] = frozenset({"text"})

    def any_length(self) -> bool:
        return True

    def change_model(self, state: State) -> None:
        apply_qk_norm(state.model)
