"""The affine map of the transformers, and how its weights start (GPT-2)."""

import math

from torch import nn

STD = 0.02  # of initial weights


class Linear(nn.Linear):
    """An affine map that starts without a shift. `branches` is the number of terms in the sum that it adds to."""

    def __init__(self, width_in: int, width_out: int, *, branches: int = 1, bias: bool = True) -> None:
        self.branches = branches  # first: the base class draws weights
        super().__init__(width_in, width_out, bias=bias)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=STD / math.sqrt(self.branches))
        if self.bias is not None:
            nn.init.zeros_(self.bias)
