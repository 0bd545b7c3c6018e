"""What stands at a transformer's ends: vectors for tokens and places, and the way back to tokens.

Shapes: B examples, T places, D width, K tokens in the vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.models.attention import Documents
from explorer.models.linear import STD


class Tokens(nn.Embedding):
    """A vector for each token: B T in, B T D out; `unembed` is the way back."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=STD)

    def unembed(self, x_BTD: Tensor) -> Tensor:
        """Logits, B T K."""
        return F.linear(x_BTD, self.weight)


class Positions(nn.Module):
    """A vector for each place, added to what stands there."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(context, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=STD)

    def forward(self, x_BTD: Tensor, documents: Documents | None = None) -> Tensor:
        """Places are counted from the start of the row, or of each document."""
        if documents is None:
            return x_BTD + self.weight[: x_BTD.shape[1]]
        return x_BTD + F.embedding(documents.places_BT, self.weight)


class NoPositions(nn.Module):
    """Stands where places are not marked: what comes in goes on."""

    def forward(self, x_BTD: Tensor, documents: Documents | None = None) -> Tensor:
        return x_BTD


class Embedding(nn.Module):
    """Tokens and places as vectors: B T in, B T D out."""

    def __init__(self, tokens: int, context: int, width: int) -> None:
        super().__init__()
        self.tokens = Tokens(tokens, width)
        self.positions: nn.Module = Positions(context, width)

    def forward(self, tokens_BT: Tensor, documents: Documents | None = None) -> Tensor:
        return self.positions(self.tokens(tokens_BT), documents)
