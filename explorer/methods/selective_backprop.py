"""Selective backprop: score each example by its loss without a gradient, and train mostly on those with larger losses.

Jiang et al., "Accelerating Deep Learning by Focusing on the Biggest Losers", 2019, arXiv:1910.00762. The example of
rank r of N by its loss, the smallest first, is drawn with probability in proportion to ((r - 1/2) / N)^(1 / keep - 1):
the hardest is likely to train, but not certain to. Scores come from the present model, in evaluation mode and in the
number formats of training, without side effects (engine/probing.py).

The gradient is biased towards hard examples, and so towards mislabelled ones. `random_subset` is the control.

Shapes: N examples of a share.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from explorer.data.batches import UNTYPED, Batches
from explorer.data.images import resize
from explorer.engine.forms import check_places, check_rows, checked
from explorer.engine.method import Planned, Unit
from explorer.engine.probing import observed, undisturbed
from explorer.engine.state import State
from explorer.engine.subset import CHOSEN, Subset, draw_rows
from explorer.engine.task import Task
from explorer.errors import RecipeError, TrainingError
from explorer.methods.random_subset import RandomSubset

ROUTED = "its choices are not recorded: governed_selective_backprop chooses within each class and records its choices"


def log_weights(losses_N: Tensor, *, keep: float) -> Tensor:
    """Return the logarithm of each example's weight in the draw, float64, by the rank of its loss."""
    # Stable sorts: of equal losses the first ranks lower, on every device.
    ranks = losses_N.argsort(stable=True).argsort() + 1
    return (1 / keep - 1) * ((ranks.double() - 0.5) / len(losses_N)).log()


def shrunk(images_BCHW: Tensor, *, scale: float) -> Tensor:
    """Return the images at that share of their sides, to the nearest pixel."""
    rows, columns = (max(1, int(side * scale + 0.5)) for side in images_BCHW.shape[-2:])
    return resize(images_BCHW, size=(rows, columns))


def selective_backprop(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    *,
    loss: Callable[[Tensor, Tensor], Tensor],
    draws: np.random.Generator,
    keep: float = 0.5,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Return the share `keep` of the inputs B ... and their targets B ..., the hardest with the highest probability.

    The model scores them in evaluation mode without gradients, and is left as it was. `loss(outputs, targets)` returns
    a number for each example. With `scale` below 1, images B C H W are scored at that share of their sides.

    In a loop:

        loss = torch.nn.CrossEntropyLoss(reduction="none")
        draws = np.random.default_rng(0)
        for x, y in batches:
            x, y = functional.selective_backprop(model, x, y, loss=loss, draws=draws)
            optimizer.zero_grad()
            loss(model(x), y).mean().backward()
            optimizer.step()
    """
    checked(SelectiveBackprop, keep=keep, scale=scale)
    check_rows(inputs, targets, form=SelectiveBackprop.name)
    if scale != 1:
        check_places(inputs, form=SelectiveBackprop.name, axes=(2,))
    with observed(model):
        losses = loss(model(shrunk(inputs, scale=scale) if scale != 1 else inputs).float(), targets)
    if losses.shape != (len(inputs),):
        raise TrainingError(
            f"selective_backprop: found a loss of shape {tuple(losses.shape)} for {len(inputs)} examples: expected a"
            ' number for each, as with reduction="none"'
        )
    rows = draw_rows(draws, log_weights=log_weights(losses, keep=keep), keep=keep)
    return inputs[rows], targets[rows]


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectiveBackprop(Subset):
    """Hard examples are more likely to be kept than easy ones. Scoring takes an extra forward pass, smaller by
    `scale`."""

    name: ClassVar[str] = "selective_backprop"
    summary: ClassVar[str] = "Trains on the examples of a batch that the model finds harder."
    source: ClassVar[str] = "Jiang et al. 2019, arXiv:1910.00762"
    formula: ClassVar[str] = (
        "floor(keep N) of the N examples, drawn in proportion to ((r - 1/2) / N)^(1 / keep - 1)\n"
        "r: rank of the loss, the smallest first; the loss of the step is the mean over those drawn"
    )
    changes: ClassVar[str] = "the batch: some of its examples are dropped"
    needs: ClassVar[str] = "a loss for each example; for scale < 1 a model that takes images of any size"
    routing: ClassVar[str] = ""
    conflicts_with: ClassVar[dict[str, str]] = {"routing": ROUTED, "governed_selective_backprop": CHOSEN}

    scale: Annotated[
        float, Field(gt=0, le=1, description="size at which images are scored"), Unit("share of the side")
    ] = 1.0

    def check(self, planned: Planned) -> None:
        if self.scale != 1 and (planned.task != "classification" or len(planned.example_shape) != 3):
            raise RecipeError(
                f"scale: found {self.scale:g} for {planned.task} of examples {planned.example_shape}: expected 1 where"
                " examples are not images with one label each"
            )

    def before_fit(self, state: State) -> None:
        """Score two blank examples, so that a model that cannot score is refused before the first step."""
        # Zeros in the shapes of the data: a custom task returns content only by number.
        batches = state.resource(Batches)
        split = batches.dataset.train
        inputs, labels = (
            torch.zeros(2, *tensor.shape[1:], dtype=tensor.dtype) for tensor in (split.inputs, split.labels)
        )
        blank = batches.transfer(inputs, labels, slots=np.arange(2), code=UNTYPED)
        try:
            losses = self.losses(state, blank.inputs, blank.targets)
        except RuntimeError as error:
            size = f" of {tuple(inputs.shape[1:])} at scale {self.scale:g}"
            raise RecipeError(f"selective_backprop: the model cannot score examples{size}: {error}") from error
        if losses.shape != (2,):
            raise RecipeError(
                f"selective_backprop: found a loss of shape {tuple(losses.shape)} for 2 examples: expected one for each"
            )

    def log_weights(self, state: State) -> Tensor:
        assert state.batch is not None
        return log_weights(self.losses(state, state.batch.inputs, state.batch.targets), keep=self.keep)

    def losses(self, state: State, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each example, N, by the present model."""
        if self.scale != 1:
            inputs = shrunk(inputs, scale=self.scale)
        with undisturbed(state):
            with state.modes:
                outputs = state.model(inputs)
            return state.resource(Task).loss(outputs.float(), targets)

    def twin(self) -> RandomSubset:
        return RandomSubset(start=self.start, end=self.end, keep=self.keep, interrupt=self.interrupt)
