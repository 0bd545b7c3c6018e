"""MixUp: train on weighted averages of two examples and of their targets.

Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018, arXiv:1710.09412.
Shapes: B examples, K classes. Of targets that have a class for each pixel, every pixel is mixed: B H W K.
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from explorer.data.batches import dense, draw_partners
from explorer.data.dataset import Modality
from explorer.data.streams import stream
from explorer.engine.forms import check_rows, checked, distributions, partners_of
from explorer.engine.method import Kind, Method
from explorer.engine.state import State
from explorer.errors import TrainingError


def mix(values: Tensor, *, partners: Tensor, weight: float) -> Tensor:
    """Return `weight * values + (1 - weight) * values[partners]`, row by row. Raises `TrainingError` for integers."""
    if not values.is_floating_point():
        raise TrainingError(
            f"mix: found values of type {values.dtype}: expected floating-point numbers; class numbers become"
            " distributions by F.one_hot(labels, K).float()"
        )
    return torch.lerp(values[partners], values, weight)


def draw_weight(draws: np.random.Generator, *, alpha: float) -> float:
    """Return the share of the first example, in [1/2, 1]: the larger side of a Beta(alpha, alpha) draw; 1 for alpha
    0."""
    if alpha == 0:
        return 1.0
    # The larger side, so that the first example dominates. Beta(alpha, alpha) is symmetric and partners are random, so
    # pairs are distributed as in the paper.
    drawn = float(draws.beta(alpha, alpha))
    return max(drawn, 1 - drawn)


def mixup(
    inputs: Tensor, targets: Tensor, *, draws: np.random.Generator, alpha: float = 0.2, classes: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return inputs B ... and targets B ... K, each row mixed with that of a random partner.

    Class numbers (B ..., integers) become distributions over `classes` first. The loss has to take distributions, as
    `F.cross_entropy` does.

    In a loop:

        draws = np.random.default_rng(0)
        for x, y in batches:
            x, y = functional.mixup(x, y, draws=draws, classes=10)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    """
    checked(MixUp, alpha=alpha)
    check_rows(inputs, targets, form=MixUp.name)
    whole = distributions(targets, classes=classes, form=MixUp.name)
    if alpha == 0:
        return inputs, whole
    weight = draw_weight(draws, alpha=alpha)
    partners = partners_of(inputs, draws)
    return mix(inputs, partners=partners, weight=weight), mix(whole, partners=partners, weight=weight)


@dataclass(frozen=True, kw_only=True, slots=True)
class MixUp(Method):
    """Each example has a partner in its batch. The whole batch has the same weight, as in the paper's code."""

    name: ClassVar[str] = "mixup"
    kind: ClassVar[Kind] = Kind.MIX
    mixes: ClassVar[bool] = True
    turns: ClassVar[str] = "mix"
    summary: ClassVar[str] = "Trains on weighted averages of two examples and of their targets."
    source: ClassVar[str] = "Zhang et al. 2018, arXiv:1710.09412"
    formula: ClassVar[str] = (
        "x' = w x + (1 - w) x[partner], t' = w t + (1 - w) t[partner]\nw: max(z, 1 - z), z ~ Beta(alpha, alpha)\n"
        "t = 0 for a label that the loss ignores (-100)"
    )
    changes: ClassVar[str] = "images and targets"
    needs: ClassVar[str] = "any model; a loss that takes distributions over the classes for targets"
    routing: ClassVar[str] = "Works: partners have the same class, and leaving a class out changes no other pair."
    makes_dense: ClassVar[bool] = True
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image", "volume", "tabular"})

    alpha: Annotated[float, Field(ge=0, le=100, description="both parameters of the Beta distribution; 0 is off")] = 0.2

    def any_length(self) -> bool:
        return True

    def change_batch(self, state: State) -> None:
        assert state.batch is not None
        if not self.alpha:
            return
        batch = state.batch
        draws = stream(state.seed, self.name, state.step)
        weight = draw_weight(draws, alpha=self.alpha)
        partners = draw_partners(draws, slots=batch.slots, codes=batch.codes, batch_size=state.batch_size)
        # The targets of the batch, not only those of the loss: label smoothing comes later and smooths the mixture.
        targets = dense(batch.targets, classes=state.classes)
        state.batch = replace(
            batch,
            inputs=mix(batch.inputs, partners=partners, weight=weight),
            targets=mix(targets, partners=partners, weight=weight),
        )

    def neutral(self) -> Self:
        return replace(self, alpha=0.0)
