"""Who is mixed with whom: a partner for every example, within its provenance class.

Shapes: B examples.
"""

import numpy as np
import torch
from torch import Tensor


def draw_partners(draws: np.random.Generator, *, slots: Tensor, codes: Tensor, batch_size: int) -> Tensor:
    """A random partner for every row, of the same provenance class: B row numbers, a permutation.

    Every slot of the nominal batch draws a number, whether its example is here or not. Within a class the rows are
    chained in a circle by those numbers, so leaving another class out changes no pair.
    """
    numbers = torch.from_numpy(draws.random(batch_size)).to(slots.device)[slots]
    order = torch.argsort(numbers, stable=True)
    order = order[torch.argsort(codes[order], stable=True)]
    partners = torch.empty_like(order)
    for code in torch.unique(codes):
        circle = order[codes[order] == code]
        partners[circle] = circle.roll(1)
    return partners
