"""Tasks: the losses and metrics with which models are trained and evaluated.

Shapes: B examples, T tokens, H rows, W columns, K classes.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.data.batches import Batches
from explorer.data.dataset import DataSource, TaskName
from explorer.errors import RecipeError, unknown
from explorer.run_files import METRICS, Metric

EVALUATION_BATCH = 512  # images
EVALUATION_TOKENS = 16_384  # of sequences
EVALUATION_PIXELS = 2**19  # of images with a class for each pixel


@dataclass(frozen=True, kw_only=True, slots=True)
class Task(ABC):
    """A loss for each example, and metrics on the test side."""

    classes: int

    axis: ClassVar[int | None] = None  # the class axis of the outputs; None: the outputs are not logits
    declares: ClassVar[tuple[Metric, ...]] = ()  # metrics of a task of another package, which are not in METRICS

    def entropy(self, outputs: Tensor) -> Tensor:
        """Return the entropy of the prediction for each example in nats, mean over places or tokens, B.

        Raises `RecipeError` for a task whose outputs are not logits.
        """
        if self.axis is None:
            raise RecipeError(
                f"{type(self).__name__}: its outputs are no logits, so predictions have no entropy; expected a policy"
                " that ranks examples by loss"
            )
        logs = F.log_softmax(outputs, self.axis)
        return -(logs.exp() * logs).sum(self.axis).reshape(len(outputs), -1).mean(1)

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each example, B."""

    @abstractmethod
    def evaluate(self, model: nn.Module, batches: Batches) -> dict[str, float]:
        """Return the metrics on the test side, with the model in evaluation mode, fp32 and sums in float64."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Classification(Task):
    """One label for each example: cross-entropy; accuracy (fraction) and negative log-likelihood (nats)."""

    axis: ClassVar[int | None] = 1

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss for outputs B K and targets as indices (B) or distributions (B K)."""
        return F.cross_entropy(outputs, targets, reduction="none")

    @torch.no_grad()
    def evaluate(self, model: nn.Module, batches: Batches) -> dict[str, float]:
        model.eval()
        test = batches.dataset.test
        right = 0
        nll = 0.0
        for start in range(0, len(test), EVALUATION_BATCH):
            rows = slice(start, start + EVALUATION_BATCH)
            labels = test.labels[rows].to(batches.device)
            logits = model(batches.prepare(test.inputs[rows])).to(torch.float64)
            right += int((logits.argmax(1) == labels).sum())
            nll += float(F.cross_entropy(logits, labels, reduction="sum"))
        return {"accuracy": right / len(test), "nll": nll / len(test)}


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageModelling(Task):
    """The next token at every place: cross-entropy; bits per byte, since tokens are bytes.

    The loss of a sequence is its mean over all T places, so the sum is divided by the same T B in every step.
    """

    axis: ClassVar[int | None] = -1

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss for outputs B T K and targets as indices (B T) or distributions (B T K)."""
        flat = F.cross_entropy(outputs.flatten(0, 1), targets.flatten(0, 1), reduction="none")
        return flat.view(outputs.shape[:2]).mean(1)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, batches: Batches) -> dict[str, float]:
        model.eval()
        test = batches.dataset.test
        count = max(1, EVALUATION_TOKENS // test.inputs.shape[1])
        nll = 0.0
        for start in range(0, len(test), count):
            rows = slice(start, start + count)
            labels = test.labels[rows].to(batches.device).to(torch.int64)
            logits = model(batches.prepare(test.inputs[rows]))
            nll += float(F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").double().sum())
        return {"bits_per_byte": nll / test.labels.numel() / math.log(2)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Segmentation(Task):
    """A class for each pixel: cross-entropy; mean intersection over union and accuracy, over all pixels.

    The loss of an example is the mean over its pixels. The mean intersection over union leaves out classes that are
    neither on the test side nor predicted.
    """

    axis: ClassVar[int | None] = 1

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss for outputs B K H W and targets as indices (B H W) or distributions (B H W K); with depth
        likewise."""
        flat = targets.flatten(1, -2).flatten(0, 1) if targets.is_floating_point() else targets.flatten()
        losses = F.cross_entropy(outputs.movedim(1, -1).flatten(0, -2), flat, reduction="none")
        return losses.view(len(outputs), -1).mean(1)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, batches: Batches) -> dict[str, float]:
        model.eval()
        test = batches.dataset.test
        confusion = torch.zeros(self.classes, self.classes, dtype=torch.int64)  # true class, predicted class
        count = max(1, EVALUATION_PIXELS // test.labels[0].numel())
        for start in range(0, len(test), count):
            rows = slice(start, start + count)
            predicted = model(batches.prepare(test.inputs[rows])).argmax(1).cpu()
            pairs = test.labels[rows].to(torch.int64) * self.classes + predicted
            confusion += torch.bincount(pairs.flatten(), minlength=self.classes**2).view_as(confusion)
        both = confusion.diagonal().to(torch.float64)
        either = confusion.sum(0) + confusion.sum(1) - confusion.diagonal()
        there = either > 0
        return {
            "mean_iou": float((both[there] / either[there]).mean()),
            "pixel_accuracy": float(both.sum() / confusion.sum()),
        }


TASKS: dict[TaskName, type[Task]] = {
    "classification": Classification,
    "language": LanguageModelling,
    "segmentation": Segmentation,
}


def task_class(source: DataSource) -> type[Task]:
    """Return the task of a dataset: one of ours, or that of its own package.

    Raises `RecipeError` for a class that is no task, and for metrics that are undeclared or mean something else.
    """
    own = source.own_task
    if own is None:
        return TASKS[source.task]
    if not (isinstance(own, type) and issubclass(own, Task)):
        raise RecipeError(
            f"dataset {source.name!r}: own_task: found {own!r:.80}, expected a subclass of engine.task.Task"
        )
    for metric in own.declares:
        if metric != METRICS.get(metric.name, metric):
            raise RecipeError(
                f"dataset {source.name!r}: metric {metric.name!r} is one of Explorer's: expected another name"
            )
    known = {*METRICS, *(metric.name for metric in own.declares)}
    for name in source.metrics:
        if name not in known:
            raise RecipeError(f"dataset {source.name!r}: {unknown('metric', name, known)}: expected it in `declares`")
    return own
