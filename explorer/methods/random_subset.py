"""Random subset: train on a random part of each batch. The control for methods that choose their examples.

It keeps as many examples as `selective_backprop` with the same parameters, in the same steps, with the same weight in
the loss, but without looking at them. The benefit of choosing is the gain over this control. Kaddour et al., "No Train
No Gain", 2023, arXiv:2307.06440, found none.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from explorer.engine.forms import check_rows, checked
from explorer.engine.state import State
from explorer.engine.subset import CHOSEN, Subset, draw_rows


def random_subset(
    inputs: Tensor, targets: Tensor, *, draws: np.random.Generator, keep: float = 0.5
) -> tuple[Tensor, Tensor]:
    """Return the share `keep` of the inputs B ... and their targets B ..., rounded down and at least one, at random.

    The control for `selective_backprop`: as many examples, chosen without looking at them.

    In a loop:

        draws = np.random.default_rng(0)
        for x, y in batches:
            x, y = functional.random_subset(x, y, draws=draws, keep=0.5)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    """
    checked(RandomSubset, keep=keep)
    check_rows(inputs, targets, form=RandomSubset.name)
    alike = torch.zeros(len(inputs), dtype=torch.float64, device=inputs.device)
    rows = draw_rows(draws, log_weights=alike, keep=keep)
    return inputs[rows], targets[rows]


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomSubset(Subset):
    """Keeps as many examples as `selective_backprop`, in the same steps, whatever their losses."""

    name: ClassVar[str] = "random_subset"
    summary: ClassVar[str] = "Trains on a random part of each batch: the control for methods that choose."
    source: ClassVar[str] = "as a control: Kaddour et al. 2023, arXiv:2307.06440"
    formula: ClassVar[str] = "floor(keep N) of the N examples, all equally likely; the loss is the mean over them"
    changes: ClassVar[str] = "the batch: some of its examples are dropped"
    needs: ClassVar[str] = "any model"
    routing: ClassVar[str] = (
        "Works: each class keeps a share of its own examples, and leaving a class out changes no other's."
    )
    conflicts_with: ClassVar[dict[str, str]] = {"governed_selective_backprop": CHOSEN, "selective_backprop": CHOSEN}

    def log_weights(self, state: State) -> Tensor:
        assert state.batch is not None
        # Equal weights: the draw of `Subset` is then uniform, from a stream under this method's own name.
        return torch.zeros(len(state.batch), dtype=torch.float64, device=state.batch.slots.device)
