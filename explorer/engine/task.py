"""Tasks: the losses and metrics with which models are trained and evaluated.

Shapes: B examples, T tokens, H rows, W columns, K classes.
"""

import inspect
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.data.batches import Batches
from explorer.data.dataset import Dataset, DataSource, TaskName
from explorer.errors import RecipeError, unknown
from explorer.run_files import METRICS, PLAIN, TRAIN_LOSS, Metric

EVALUATION_BATCH = 512  # examples
EVALUATION_NUMBERS = 2**24  # in them
EVALUATION_TOKENS = 16_384  # of sequences
EVALUATION_LOGITS = 2**27  # of sequences: half a gigabyte
EVALUATION_PIXELS = 2**19  # of images with a class for each pixel


@dataclass(frozen=True, kw_only=True, slots=True)
class Task(ABC):
    """A loss for each example, and metrics on the test side."""

    classes: int

    axis: ClassVar[int | None] = None  # the class axis of the outputs; None: the outputs are not logits
    declares: ClassVar[tuple[Metric, ...]] = ()  # metrics of a task of another package, which are not in METRICS
    loss_unit: ClassVar[str] = PLAIN  # of `loss`, as curves and tables show it

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

    def at_once(self, dataset: Dataset) -> int:
        """Return how many examples of the test side a forward pass takes: few where they are large."""
        return max(1, min(EVALUATION_BATCH, EVALUATION_NUMBERS // math.prod(dataset.example_shape)))

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each example, B.

        With another parameter, `smoothing`, it moves class numbers this share of the way to uniform by itself. Without
        one, label smoothing gives it distributions over the classes.
        """

    @abstractmethod
    def evaluate(self, model: nn.Module, batches: Batches) -> dict[str, float]:
        """Return the metrics on the test side, with the model in evaluation mode, fp32 and sums in float64."""


@cache
def smooths(task: type[Task]) -> bool:
    """Return whether the loss of a task smooths class numbers by itself."""
    return "smoothing" in inspect.signature(task.loss).parameters


@dataclass(frozen=True, kw_only=True, slots=True)
class Classification(Task):
    """One label for each example: cross-entropy; accuracy (fraction) and negative log-likelihood (nats)."""

    loss_unit: ClassVar[str] = "nats"
    axis: ClassVar[int | None] = 1

    def loss(self, outputs: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Return the loss for outputs B K and targets as indices (B) or distributions (B K)."""
        return F.cross_entropy(outputs, targets, reduction="none", label_smoothing=smoothing)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, batches: Batches) -> dict[str, float]:
        model.eval()
        test = batches.dataset.test
        right = 0
        nll = 0.0
        count = self.at_once(batches.dataset)
        for start in range(0, len(test), count):
            rows = slice(start, start + count)
            labels = test.labels[rows].to(batches.device)
            logits = model(batches.prepare(test.inputs[rows])).to(torch.float64)
            right += int((logits.argmax(1) == labels).sum())
            nll += float(F.cross_entropy(logits, labels, reduction="sum"))
        return {"accuracy": right / len(test), "nll": nll / len(test)}


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageModelling(Task):
    """The next token at every place: cross-entropy; bits per byte of the text, whatever the tokens are.

    The loss of a sequence is its mean over all T places, so the sum is divided by the same T B in every step.
    """

    loss_unit: ClassVar[str] = "nats"
    axis: ClassVar[int | None] = -1

    def at_once(self, dataset: Dataset) -> int:
        tokens = min(EVALUATION_TOKENS, EVALUATION_LOGITS // self.classes)
        return max(1, tokens // dataset.test.inputs.shape[1])

    def loss(self, outputs: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Return the loss for outputs B T K and targets as indices (B T) or distributions (B T K)."""
        flat_outputs, flat_targets = outputs.flatten(0, 1), targets.flatten(0, 1)
        losses = F.cross_entropy(flat_outputs, flat_targets, reduction="none", label_smoothing=smoothing)
        return losses.view(outputs.shape[:2]).mean(1)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, batches: Batches) -> dict[str, float]:
        model.eval()
        test = batches.dataset.test
        count = self.at_once(batches.dataset)
        nll = 0.0
        for start in range(0, len(test), count):
            rows = slice(start, start + count)
            labels = test.labels[rows].to(batches.device).to(torch.int64)
            logits = model(batches.prepare(test.inputs[rows]))
            nll += float(F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").double().sum())
        return {"bits_per_byte": nll / (batches.dataset.text_bytes or test.labels.numel()) / math.log(2)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Segmentation(Task):
    """A class for each pixel: cross-entropy; mean intersection over union, Dice and accuracy, over all pixels.

    The loss of an example is the mean over its pixels. The mean intersection over union leaves out classes that are
    neither on the test side nor predicted. So does Dice, 2 TP / (2 TP + FP + FN) of each class over all test pixels
    together, whose mean also leaves out the background, class 0: that is how tumours are judged (Menze et al., "The
    Multimodal Brain Tumor Image Segmentation Benchmark", 2015). It is 1 where there is nothing but background.
    """

    loss_unit: ClassVar[str] = "nats"
    axis: ClassVar[int | None] = 1

    def at_once(self, dataset: Dataset) -> int:
        return max(1, EVALUATION_PIXELS // dataset.test.labels[0].numel())

    def loss(self, outputs: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Return the loss for outputs B K H W and targets as indices (B H W) or distributions (B H W K); with depth
        likewise."""
        flat = targets.flatten(1, -2).flatten(0, 1) if targets.is_floating_point() else targets.flatten()
        flat_outputs = outputs.movedim(1, -1).flatten(0, -2)
        losses = F.cross_entropy(flat_outputs, flat, reduction="none", label_smoothing=smoothing)
        return losses.view(len(outputs), -1).mean(1)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, batches: Batches) -> dict[str, float]:
        model.eval()
        test = batches.dataset.test
        confusion = torch.zeros(self.classes, self.classes, dtype=torch.int64)  # true class, predicted class
        count = self.at_once(batches.dataset)
        for start in range(0, len(test), count):
            rows = slice(start, start + count)
            predicted = model(batches.prepare(test.inputs[rows])).argmax(1).cpu()
            pairs = test.labels[rows].to(torch.int64) * self.classes + predicted
            confusion += torch.bincount(pairs.flatten(), minlength=self.classes**2).view_as(confusion)
        both = confusion.diagonal().to(torch.float64)
        either = confusion.sum(0) + confusion.sum(1) - confusion.diagonal()
        there = either > 0
        dice = (2 * both / (either + both))[1:][there[1:]]
        return {
            "mean_iou": float((both[there] / either[there]).mean()),
            "dice": float(dice.mean()) if len(dice) else 1.0,
            "pixel_accuracy": float(both.sum() / confusion.sum()),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Regression(Task):
    """A number for each example: squared error; RMSE, MAE and the coefficient of determination R2.

    The loss is in squared standard deviations of the training numbers, the metrics are in the number's own unit. R2 is
    1 minus the squared error over that of the test numbers' mean: 1 is perfect, 0 is no better than a constant.
    """

    loss_unit: ClassVar[str] = "squared SD"  # standard deviations, of the training numbers

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss for outputs B 1 and targets B."""
        return (outputs.squeeze(1) - targets).square()

    @torch.no_grad()
    def evaluate(self, model: nn.Module, batches: Batches) -> dict[str, float]:
        dataset = batches.dataset
        predicted, truth = (
            predictions(model, batches, self.at_once(dataset)).squeeze(1),
            dataset.test.labels[:].to(torch.float64),
        )
        error = predicted - truth
        squares = float(error.square().mean())
        spread = float((truth - truth.mean()).square().mean())
        return {
            "rmse": math.sqrt(squares) * dataset.scale,
            "mae": float(error.abs().mean()) * dataset.scale,
            "r2": 1 - squares / spread,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Multilabel(Task):
    """Any number of labels for each example: binary cross-entropy; mean average precision, micro F1 and the loss.

    Mean average precision is the mean over the labels that a test example has (Everingham et al., "The PASCAL Visual
    Object Classes (VOC) Challenge", 2010, with the area of every step, not of eleven). Micro F1 counts all pairs of
    example and label together, with a label predicted from a probability of one half on.
    """

    loss_unit: ClassVar[str] = "nats"

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss for outputs B K and targets B K, from 0 to 1: mean over the labels."""
        return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(1)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Return the entropy of the prediction for each example in nats, mean over the labels, B."""
        return -(F.logsigmoid(outputs) * outputs.sigmoid() + F.logsigmoid(-outputs) * (-outputs).sigmoid()).mean(1)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, batches: Batches) -> dict[str, float]:
        dataset = batches.dataset
        logits, truth = predictions(model, batches, self.at_once(dataset)), dataset.test.labels[:].to(torch.float64)
        chosen, there = logits >= 0, truth > 0
        right = int((chosen & there).sum())
        present = there.any(0)
        return {
            "mean_average_precision": float(average_precision(logits[:, present], there[:, present]).mean()),
            "micro_f1": 2 * right / max(1, int(chosen.sum()) + int(there.sum())),
            "nll": float(F.binary_cross_entropy_with_logits(logits, truth)),
        }


@torch.no_grad()
def predictions(model: nn.Module, batches: Batches, count: int) -> Tensor:
    """Return the outputs for the test side, N K in float64 on the CPU, with the model in evaluation mode; `count`
    examples are passed at once."""
    model.eval()
    inputs = batches.dataset.test.inputs
    rows = (inputs[start : start + count] for start in range(0, len(inputs), count))
    return torch.cat([model(batches.prepare(some)).to("cpu", torch.float64) for some in rows])


def average_precision(scores: Tensor, truth: Tensor) -> Tensor:
    """Return the average precision of each label, K, for scores N K and truth N K; every label occurs in a row.

    It is the sum over thresholds of the precision times the growth of the recall. Examples of equal score are above a
    threshold together, so their order does not matter.
    """
    averages = []
    for score, there in zip(scores.T, truth.T, strict=True):
        order = score.argsort(descending=True, stable=True)
        ranked, hits = score[order], there[order].to(torch.float64).cumsum(0)
        # The last of equal scores: only there does a threshold lie.
        last = torch.cat((ranked[1:] != ranked[:-1], torch.ones(1, dtype=torch.bool)))
        above = torch.arange(1, len(ranked) + 1, dtype=torch.float64)[last]
        grown = torch.diff(hits[last], prepend=torch.zeros(1, dtype=torch.float64))
        averages.append((grown * hits[last] / above).sum() / hits[-1])
    return torch.stack(averages)


TASKS: dict[TaskName, type[Task]] = {
    "classification": Classification,
    "language": LanguageModelling,
    "segmentation": Segmentation,
    "regression": Regression,
    "multilabel": Multilabel,
}


def task_class(source: DataSource) -> type[Task]:
    """Return the task of a dataset: one of ours, or that of its own package.

    Raises `RecipeError` for a class that is no task, and for metrics that are undeclared or mean something else.
    """
    own = source.own_task
    if own is None:
        return TASKS[source.aim]
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
    for name in source.measures:
        if name not in known:
            raise RecipeError(f"dataset {source.name!r}: {unknown('metric', name, known)}: expected it in `declares`")
    return own


def declared_by(source: DataSource) -> tuple[Metric, ...]:
    """Return the metrics that runs on a dataset declare: those of its own task, and the loss where it is not in nats.

    Raises `RecipeError` like `task_class`.
    """
    task, loss = task_class(source), METRICS[TRAIN_LOSS]
    if task.loss_unit == loss.unit or any(metric.name == TRAIN_LOSS for metric in task.declares):
        return task.declares
    return (*task.declares, replace(loss, unit=task.loss_unit))
