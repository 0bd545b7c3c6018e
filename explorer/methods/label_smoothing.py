"""Label smoothing: move every target a little way towards uniform.

Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2016, arXiv:1512.00567.
Shapes: targets are ... K: K classes, whatever they are of (examples, tokens, pixels).
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor

from explorer.data.batches import dense
from explorer.data.dataset import Modality
from explorer.engine.method import Kind, Method, Unit
from explorer.engine.state import State


def smooth_labels(targets: Tensor, *, smoothing: float) -> Tensor:
    """Return `(1 - smoothing) * targets + smoothing / K`, for targets ... K. Zero returns the targets.

    Every row keeps its sum: one, or zero where a loss is to ignore it.
    """
    if smoothing == 0:
        return targets
    return torch.add((1 - smoothing) * targets, targets.sum(-1, keepdim=True), alpha=smoothing / targets.size(-1))


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelSmoothing(Method):
    """Smooth the targets that the loss sees. Metrics keep the true labels."""

    name: ClassVar[str] = "label_smoothing"
    kind: ClassVar[Kind] = Kind.TARGET
    summary: ClassVar[str] = "Mixes every loss target with the uniform distribution."
    source: ClassVar[str] = "Szegedy et al. 2016, arXiv:1512.00567"
    formula: ClassVar[str] = "t' = (1 - smoothing) t + smoothing / K, K classes"
    changes: ClassVar[str] = "the targets of the loss; metrics keep the true labels"
    needs: ClassVar[str] = "any model; a loss that takes distributions over the classes for targets"
    routing: ClassVar[str] = "Every target is smoothed by itself."
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image", "text", "volume"})

    smoothing: Annotated[
        float, Field(ge=0, lt=1, description="weight of the uniform distribution; 0 is off"), Unit("share of a target")
    ] = 0.1

    def before_loss(self, state: State) -> None:
        assert state.loss_targets is not None
        if self.smoothing:
            targets = dense(state.loss_targets, classes=state.classes)
            state.loss_targets = smooth_labels(targets, smoothing=self.smoothing)

    def neutral(self) -> Self:
        return replace(self, smoothing=0.0)
