"""MixUp: train on weighted averages of two examples and of their targets.

Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018, arXiv:1710.09412.
Shapes: B examples, K classes.
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from explorer.data.batches import dense
from explorer.data.dataset import Modality
from explorer.data.streams import stream
from explorer.engine.method import Kind, Method
from explorer.engine.state import State


def mix(values: Tensor, *, partners: Tensor, weight: float) -> Tensor:
    """Return `weight * values + (1 - weight) * values[partners]`, row by row."""
    return torch.lerp(values[partners], values, weight)


def draw_weight(draws: np.random.Generator, *, alpha: float) -> float:
    """The share of the first example: the larger side of a Beta(alpha, alpha) draw, in [1/2, 1]; 1 for alpha 0."""
    if alpha == 0:
        return 1.0
    drawn = float(draws.beta(alpha, alpha))
    return max(drawn, 1 - drawn)


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


@dataclass(frozen=True, kw_only=True, slots=True)
class MixUp(Method):
    """Mix each example with another one of the batch, targets too; one weight for the whole batch."""

    name: ClassVar[str] = "mixup"
    kind: ClassVar[Kind] = Kind.MIX
    summary: ClassVar[str] = "Trains on weighted averages of two examples and of their targets."
    source: ClassVar[str] = "Zhang et al. 2018, arXiv:1710.09412"
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image"})

    alpha: Annotated[float, Field(ge=0, le=100, description="both parameters of the Beta distribution; 0 is off")] = 0.2

    def change_batch(self, state: State) -> None:
        assert state.batch is not None
        if not self.alpha:
            return
        batch = state.batch
        draws = stream(state.seed, self.name, state.step)
        weight = draw_weight(draws, alpha=self.alpha)
        partners = draw_partners(draws, slots=batch.slots, codes=batch.codes, batch_size=state.batch_size)
        targets = dense(batch.targets, classes=state.classes)
        state.batch = replace(
            batch,
            inputs=mix(batch.inputs, partners=partners, weight=weight),
            targets=mix(targets, partners=partners, weight=weight),
        )

    def neutral(self) -> Self:
        return replace(self, alpha=0.0)
