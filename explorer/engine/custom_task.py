"""Custom tasks in three functions: `batch` returns examples by number, `loss` the loss of each, `metrics` the quality
of the model.

With them any `nn.Module` trains in the loop of this package, with its methods: reproducible, resumable and measured.

Shapes: B examples.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from explorer import schema
from explorer.canonical import digest
from explorer.data.batches import Batch, Batches, check_labels
from explorer.data.dataset import Dataset, Modality, Split, TaskName
from explorer.data.pace import Pace
from explorer.engine.task import Task
from explorer.errors import DataError, TrainingError
from explorer.run_files import FRACTION, METRICS, Metric

LOOKED_AT = 2048  # examples whose labels are checked before training; the others are checked as they are read


class OwnTask(Protocol):
    """The task of a custom run: any object with these three functions."""

    def batch(self, numbers: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of the training examples with these numbers (B, int64, from 0), a row each.

        The same numbers always give the same rows. Inputs are what the model takes. Targets are what `loss` takes:
        indices (int64) if a method is to smooth or mix them, -100 for places that the loss ignores.
        """
        ...

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each example, B. Targets are as `batch` gave them, or distributions (one dimension more,
        float32) where a method smooths or mixes them; torch's `cross_entropy(..., reduction="none")` takes both."""
        ...

    def metrics(self, model: nn.Module) -> dict[str, float]:
        """Return the metrics by name; the first is the quality of the run. The model is in evaluation mode, without
        gradients.

        A name in `run_files.METRICS` has the meaning that it has there. Others are declared in the optional attribute
        `declared_metrics`: `[Metric(name="my_f1", unit="fraction", higher_is_better=True, format=".3f")]`."""
        ...


def declared_metrics(task: OwnTask) -> tuple[Metric, ...]:
    """Return the metrics that the task declares in `declared_metrics`, in order; none without that attribute.

    Raises `TrainingError` for values other than `Metric`, for an invalid field, for a name declared twice, and for one
    with another meaning in `run_files.METRICS`.
    """
    declared = getattr(task, "declared_metrics", ())
    if not isinstance(declared, list | tuple) or not all(isinstance(metric, Metric) for metric in declared):
        raise TrainingError(f"declared_metrics: found {declared!r:.80}, expected a list of explorer.Metric")
    checked = tuple(_checked(metric) for metric in declared)
    names = [metric.name for metric in checked]
    if twice := [name for name in names if names.count(name) > 1]:
        raise TrainingError(f"declared_metrics: found {twice[0]!r} twice, expected each name once")
    for metric in checked:
        if metric != (known := METRICS.get(metric.name, metric)):
            better = "higher" if known.higher_is_better else "lower"
            raise TrainingError(
                f"declared_metrics: {metric.name!r} is known already: unit {known.unit}, {better} is better;"
                " expected another name for another meaning"
            )
    return checked


def _checked(metric: Metric) -> Metric:
    where = f"declared_metrics: {metric.name!r:.80}"
    return schema.from_json(Metric, schema.to_json(metric), where=where, error=TrainingError)


def function_digests(task: OwnTask) -> dict[str, str]:
    """Return a digest of the source of each of the three functions, by name, without comments and blank lines. A
    function without known source has none. Functions that these call are not part of it."""
    digests = {}
    for name in ("batch", "loss", "metrics"):
        try:
            lines = [line.strip() for line in inspect.getsource(getattr(task, name)).splitlines()]
        except (OSError, TypeError):
            continue
        digests[name] = digest([line for line in lines if line and not line.startswith("#")])
    return digests


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OwnExamples(Dataset):
    """Placeholder for examples that only the task can produce: shapes and types without content."""

    modality: ClassVar[Modality] = "image"  # read of sources in recipes only; see `modality_of`
    task: ClassVar[TaskName] = "classification"

    def preparation(self, where: torch.device) -> Callable[[Tensor], Tensor]:
        """Return a function that moves inputs to the device, in the type that `batch` returns."""
        kind = self.train.inputs.dtype
        return lambda inputs: inputs.to(where, kind, non_blocking=True)


class OwnBatches(Batches):
    """Batches of a custom task: the usual order of examples, with content from `batch`."""

    rows_apart: ClassVar[bool] = False  # `batch` may pad its rows to the longest one

    def __init__(
        self,
        task: OwnTask,
        *,
        examples: int,
        batch_size: int,
        seed: int,
        device: torch.device,
        pace: Pace,
    ) -> None:
        self._task = task
        self.labels_for: str | None = None  # a method that makes distributions of class numbers; None: none does
        first, label = self._first()
        # Meta tensors have no content: a read of the dataset that bypasses the task fails instead of returning
        # nonsense.
        inputs = torch.empty(examples, *first.shape[1:], dtype=first.dtype, device="meta")
        labels = torch.empty(examples, *label.shape[1:], dtype=label.dtype, device="meta")
        dataset = OwnExamples(
            train=Split(inputs=inputs, labels=labels),
            test=Split(inputs=inputs[:0], labels=labels[:0]),
            classes=0,  # follows from the model; see `training.custom`
        )
        super().__init__(dataset, batch_size=batch_size, seed=seed, device=device, pace=pace)

    def read(self, examples: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the task's rows for these numbers. Raises `DataError` for a label that the method `labels_for` cannot
        work on."""
        inputs, labels = self._rows(examples)
        if self.labels_for is not None:
            check_labels(labels, examples, classes=self.dataset.classes, method=self.labels_for)
        return inputs, labels

    def plain(self, examples: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the task's rows: it has no augmentation of ours."""
        return self.read(examples)

    def look_through(self) -> None:
        """Read up to `LOOKED_AT` examples, spread evenly: invalid labels are reported before training starts."""
        count = len(self.dataset.train)
        numbers = np.unique(np.linspace(0, count - 1, min(count, LOOKED_AT)).round().astype(np.int64))
        for start in range(0, len(numbers), self.batch_size):
            self.read(numbers[start : start + self.batch_size])

    def transfer(self, inputs: Tensor, labels: Tensor, *, slots: np.ndarray, code: int) -> Batch:
        """Return the batch on the training device, with the task's targets."""
        labels = labels.to(self.device, non_blocking=True)
        return Batch(
            inputs=self.prepare(inputs),
            targets=labels,
            labels=labels,
            slots=torch.from_numpy(slots).to(self.device, non_blocking=True),
            codes=torch.full((len(slots),), code, dtype=torch.int64, device=self.device),
        )

    def _first(self) -> tuple[Tensor, Tensor]:
        """Return the first example, read twice and compared."""
        # A `batch` that answers differently the second time could be neither resumed nor replayed.
        once, again = (self._rows(np.zeros(1, np.int64)) for _ in range(2))
        for one, other in zip(once, again, strict=True):
            if one.dtype != other.dtype or not torch.equal(one.nan_to_num(), other.nan_to_num()):
                raise DataError("batch: found another example 0 when it was asked for again: expected the same rows")
        return once

    def _rows(self, numbers: np.ndarray) -> tuple[Tensor, Tensor]:
        rows = self._task.batch(numbers)
        tensors = isinstance(rows, tuple) and len(rows) == 2 and all(isinstance(tensor, Tensor) for tensor in rows)
        if not tensors or any(tensor.ndim == 0 or len(tensor) != len(numbers) for tensor in rows):
            shown = [tuple(tensor.shape) for tensor in rows] if tensors else f"{type(rows).__name__}"
            raise DataError(f"batch: found {shown}, expected inputs and targets, tensors of {len(numbers)} rows each")
        return rows


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnLoss(Task):
    """The task's `loss` and `metrics`, checked, in the form that the loop calls."""

    own: OwnTask
    quality: str | None = None  # the metric that every evaluation has to return; None: any

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the task's loss, checked."""
        losses = self.own.loss(outputs, targets)
        # One value an example, not their mean: methods rank, weigh and drop examples.
        if not isinstance(losses, Tensor) or losses.shape != (len(outputs),):
            shown = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise TrainingError(
                f'loss: found {shown}, expected one value for each of {len(outputs)} examples: reduction="none"'
            )
        if torch.is_grad_enabled() and not losses.requires_grad:
            raise TrainingError(
                "loss: found values that depend on no parameter that trains: expected the outputs' loss, not detached"
            )
        return losses

    @torch.no_grad()
    def evaluate(self, model: nn.Module, batches: Batches) -> dict[str, float]:
        """Return the task's metrics."""
        model.eval()
        metrics = self.own.metrics(model)
        if not isinstance(metrics, dict) or not metrics:
            raise TrainingError(f"metrics: found {type(metrics).__name__} {metrics!r:.80}, expected a value by name")
        names = ", ".join(map(repr, metrics))
        if self.quality is not None and self.quality not in metrics:
            raise TrainingError(
                f"metrics: found {names:.200} without {self.quality!r}, which is the quality of the run"
            )
        numbers = {str(name): _number(value, name) for name, value in metrics.items()}
        if self.quality is not None:
            check_numbers(numbers, declared_metrics(self.own))
        return numbers


def check_numbers(numbers: Mapping[str, float], declared: Sequence[Metric]) -> None:
    """Check that every declared metric is there and that fractions lie in [0, 1]. Raises `TrainingError`."""
    known = {**METRICS, **{metric.name: metric for metric in declared}}
    for metric in declared:
        if metric.name not in numbers:
            names = ", ".join(map(repr, numbers))
            raise TrainingError(f"metrics: found {names:.200} without {metric.name!r}, which is declared")
    for name, number in numbers.items():
        if name in known and known[name].unit == FRACTION and (number < 0 or number > 1):
            raise TrainingError(
                f"metrics: {name!r}: found {number:g}, expected a number from 0 to 1: its unit is {FRACTION}"
            )


def _number(value: object, name: object) -> float:
    try:
        return float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError) as error:
        raise TrainingError(f"metrics: {name!r:.80}: found {type(value).__name__}, expected a number") from error


def modality_of(inputs: Tensor) -> Modality | None:
    """Return the modality of inputs of this shape and type, which decides what methods apply; None if unknown."""
    if inputs.is_floating_point():
        return {4: "image", 5: "volume"}.get(inputs.ndim)  # pyright: ignore[reportReturnType]
    return "text" if inputs.ndim == 2 else None
