"""Label smoothing: move every target a little way towards uniform.

Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2016, arXiv:1512.00567, section 7.
Shapes: targets are ... K: K classes of examples, tokens or pixels.
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor

from explorer.engine.forms import checked, distributions
from explorer.engine.method import Kind, Method, Planned, Unit
from explorer.engine.state import State
from explorer.engine.task import Multilabel, Task, smooths
from explorer.errors import RecipeError


def smooth_labels(targets: Tensor, *, smoothing: float = 0.1, classes: int | None = None) -> Tensor:
    """Return `(1 - smoothing) * targets + smoothing / K`, for targets ... K. Zero returns the targets.

    Every row keeps its sum: one, or zero for a label that the loss ignores. Class numbers (integers) become
    distributions over `classes` first; without `classes` they raise `TrainingError`. Where nothing else needs these,
    torch's own `F.cross_entropy(..., label_smoothing=0.1)` has the same loss in less time and memory.

    >>> smooth_labels(torch.tensor([0, 3]), smoothing=0.2, classes=4)
    tensor([[0.8500, 0.0500, 0.0500, 0.0500],
            [0.0500, 0.0500, 0.0500, 0.8500]])

    In a loop:

        for x, y in batches:
            soft = functional.label_smoothing(y, smoothing=0.1, classes=10)
            optimizer.zero_grad()
            F.cross_entropy(model(x), soft).backward()
            optimizer.step()
    """
    checked(LabelSmoothing, smoothing=smoothing)
    targets = distributions(targets, classes=classes, form=LabelSmoothing.name)
    if smoothing == 0:
        return targets
    # The uniform part is scaled by the row's sum, so that a row of zeros, which the loss ignores, stays one.
    return torch.add((1 - smoothing) * targets, targets.sum(-1, keepdim=True), alpha=smoothing / targets.size(-1))


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelSmoothing(Method):
    """Acts on the targets of the loss only: metrics use the true labels, so losses of smoothed runs do not compare."""

    name: ClassVar[str] = "label_smoothing"
    kind: ClassVar[Kind] = Kind.TARGET
    summary: ClassVar[str] = "Mixes every loss target with the uniform distribution."
    source: ClassVar[str] = "Szegedy et al. 2016, arXiv:1512.00567"
    formula: ClassVar[str] = (
        "t' = (1 - smoothing) t + smoothing / K, K classes; t = 0 for a label that the loss ignores (-100)\n"
        "several labels an example: t' = (1 - smoothing) t + smoothing / 2, for each label by itself"
    )
    changes: ClassVar[str] = "the targets of the loss; metrics keep the true labels"
    needs: ClassVar[str] = "any model; a loss that takes distributions over the classes for targets"
    routing: ClassVar[str] = "Works: every target is smoothed by itself."
    makes_dense: ClassVar[bool] = True

    smoothing: Annotated[
        float, Field(ge=0, lt=1, description="weight of the uniform distribution; 0 is off"), Unit("share of a target")
    ] = 0.1

    def any_length(self) -> bool:
        return True

    def check(self, planned: Planned) -> None:
        if planned.task == "regression":
            raise RecipeError(
                "found a number as the target: expected classes, for a number has no uniform distribution to move to"
            )

    def before_loss(self, state: State) -> None:
        assert state.loss_targets is not None
        if not self.smoothing:
            return
        targets, task = state.loss_targets, state.resources.get(Task)
        if isinstance(task, Multilabel):
            # Each label is a question of its own, with two answers: uniform is one half.
            state.loss_targets = torch.lerp(targets, torch.full_like(targets, 0.5), self.smoothing)
        elif task is not None and smooths(type(task)) and not targets.is_floating_point():
            # By the loss itself: the distributions of 8 rows of 1024 tokens over 50,257 of them take 1.5 GiB.
            state.smoothing = self.smoothing
        else:
            state.loss_targets = smooth_labels(targets, smoothing=self.smoothing, classes=state.classes)

    def neutral(self) -> Self:
        return replace(self, smoothing=0.0)
