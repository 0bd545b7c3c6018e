"""What a transformer does at each place alone: the perceptron and its gated form, either in the other's place.

Shazeer, "GLU Variants Improve Transformer", 2020, arXiv:2002.05202 (GEGLU). Shapes: B examples, T places, D width.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from explorer.models.linear import Linear


class Perceptron(nn.Module):
    """Two affine maps with GELU between them: B T D in and out."""

    def __init__(self, width: int, *, hidden: int, branches: int) -> None:
        super().__init__()
        self.width, self.hidden, self.branches = width, hidden, branches
        self.up = Linear(width, hidden)
        self.down = Linear(hidden, width, branches=branches)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x_BTD)))


class GatedPerceptron(nn.Module):
    """down(GELU(gate(x)) * up(x)), three matrices and no biases: B T D in and out."""

    def __init__(self, width: int, *, hidden: int, branches: int) -> None:
        super().__init__()
        self.width, self.hidden, self.branches = width, hidden, branches
        self.gate = Linear(width, hidden, bias=False)
        self.up = Linear(width, hidden, bias=False)
        self.down = Linear(hidden, width, branches=branches, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.down(F.gelu(self.gate(x_BTD)) * self.up(x_BTD))


def gated_hidden(hidden: int) -> int:
    """How wide three matrices are that hold what two of this width hold: 2/3 of it, to the nearest multiple of 8.

    >>> gated_hidden(4 * 768)
    2048
    """
    return max(8, round(hidden / 12) * 8)
