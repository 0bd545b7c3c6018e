"""Datasets: examples in memory, and the sources that load them.

Shapes: N examples, C channels, H rows, W columns, T tokens, K classes of an output.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast

import numpy as np
import torch
from torch import Tensor, device

from explorer.errors import DataError

Modality = Literal["image", "text", "volume", "tabular"]
TaskName = Literal["classification", "language", "segmentation", "regression", "multilabel"]
Fitted = Mapping[Literal["normalisation", "tokeniser"], str]
"""Parts of a preparation that were computed from the training examples, in words: a deletion does not reach them."""


MEASURES: Mapping[TaskName, tuple[str, ...]] = {
    "regression": ("rmse", "mae", "r2"),
    "multilabel": ("mean_average_precision", "micro_f1", "nll"),
    "segmentation": ("mean_iou", "dice", "pixel_accuracy"),
}
"""Metrics of what a parameter can ask for in place of classes; the first is the quality of a run."""


NO_BYTES = (torch.bfloat16,)  # types that numpy lacks


class Rows(ABC):
    """A tensor that is read when it is indexed: one column of data that does not fit into memory."""

    shape: tuple[int, ...]  # N x the shape of an example
    dtype: torch.dtype

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, index: Any) -> Tensor:
        """Return the rows with these numbers (int64), of this slice, or of this number. Raises `DataError`."""

    @abstractmethod
    def content(self, index: int) -> bytes:
        """Return the bytes of one row, as they are kept. Raises `DataError`."""

    def numel(self) -> int:
        return math.prod(self.shape)

    def element_size(self) -> int:
        return self.dtype.itemsize


class Blank(Rows):
    """Rows of which some are gone: zeros take their place, and they are not read."""

    def __init__(self, rows: Rows, gone: np.ndarray) -> None:
        """`gone`: N, bool."""
        self._rows, self.gone = rows, gone
        self.shape, self.dtype = rows.shape, rows.dtype

    def __getitem__(self, index: Any) -> Tensor:
        if isinstance(index, int):
            return self[torch.tensor([index])][0]
        numbers = torch.arange(len(self))[index]
        here = ~torch.from_numpy(self.gone[numbers.numpy()])
        rows = torch.zeros((len(numbers), *self.shape[1:]), dtype=self.dtype)
        rows[here] = self._rows[numbers[here]]
        return rows

    def content(self, index: int) -> bytes:
        """Return the bytes of one row, zeros for one that is gone."""
        return self[index].numpy().tobytes() if self.gone[index] else self._rows.content(index)


Check = Callable[[int, bytes], None]  # of the number and the content of an example; it raises for a wrong one


class Blocks(NamedTuple):
    """Examples that are kept together: the order of training visits a few blocks at a time."""

    ends: np.ndarray  # int64: the number of the first example behind each block
    window: int  # blocks of a class whose examples are shuffled with each other


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """Examples of one side of the split: tensors, or `Rows` in place of them."""

    inputs: Tensor  # N x the shape of an example, uint8
    labels: Tensor
    """N, int64. Of text N T, uint8: the byte after each. Of segmentation N H W, uint8. Of regression N, float32: in
    units of `Dataset.scale`. Of several labels N K, float32: 1 for a label that an example has."""

    def __len__(self) -> int:
        return len(self.labels)

    def check(self) -> None:
        """Raise `DataError` unless there are as many inputs as labels, on the CPU, of types that numpy has."""
        for what, tensor in (("inputs", self.inputs), ("labels", self.labels)):
            if isinstance(tensor, Rows):
                continue
            given = f"{type(tensor).__name__}"
            if isinstance(tensor, Tensor):
                given = f"{tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}"
                if tensor.device.type == "cpu" and tensor.ndim and tensor.dtype not in NO_BYTES:
                    continue
            raise DataError(f"{what}: found {given}, expected examples in a tensor on the CPU, of a type of numpy's")
        if len(self.inputs) != len(self.labels):
            raise DataError(f"found {len(self.inputs)} inputs and {len(self.labels)} labels, expected a label for each")

    def content(self, index: int) -> bytes:
        """Return the bytes of one example, input and then label: what its tag commits to."""
        return _bytes(self.inputs, index) + _bytes(self.labels, index)


def split_of(inputs: Rows, labels: Rows) -> Split:
    """Return examples that are read when they are indexed. They take the place of tensors, whose type they do not have:
    a tensor has hundreds of methods, and rows have those that reading needs."""
    return Split(inputs=cast(Tensor, inputs), labels=cast(Tensor, labels))


def _bytes(column: Tensor | Rows, index: int) -> bytes:
    return column.content(index) if isinstance(column, Rows) else column[index].numpy().tobytes()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Provenance:
    """Provenance of the training examples, as stated by the makers of the dataset. Tags can be made from it; it does
    not decide over training itself, since it is unsigned."""

    classes: tuple[str, ...]  # class paths of a taxonomy, sorted
    codes: np.ndarray  # N, int64: the index of each example's class among these
    sources: Sequence[str]  # N: "six 1.17.0: six.py"
    simulated: bool = False  # every view that shows it says so


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """Files, or rows of one, that were skipped for the same reason."""

    reason: str
    count: int
    names: tuple[str, ...]  # of the first few


@dataclass(frozen=True, kw_only=True, slots=True)
class TableColumn:
    """A column of a table that became features."""

    name: str
    features: tuple[str, ...]
    missing: int  # rows without a value


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Dataset(ABC):
    """A loaded dataset."""

    modality: ClassVar[Modality]
    task: ClassVar[TaskName]

    train: Split
    test: Split
    classes: int  # labels, or the vocabulary; 1 for a number: how many outputs a model has
    provenance: Provenance | None = None
    names: tuple[str, ...] = ()  # of the classes, where labels have names
    skipped: tuple[Skipped, ...] = ()
    columns: tuple[TableColumn, ...] = ()  # of a table: those that became features
    centre: float = 0.0  # of a number that is predicted: labels are (number - centre) / scale
    scale: float = 1.0
    blocks: Blocks | None = None  # of the training examples; None: they are in memory
    counts: tuple[tuple[int, ...], tuple[int, ...]] | None = None  # of each class, on both sides, where they are known
    text_bytes: int | None = None  # that the labels of the test side stand for, of text; None: one each
    separator: int | None = None  # the token that ends a document of text; None: not known

    @property
    def example_shape(self) -> tuple[int, ...]:
        """Shape of one input of the model: C H W, C D H W, or T."""
        return tuple(self.train.inputs.shape[1:])

    def checking(self, check: Check) -> Self:
        """Return the dataset with `check` called for each training example that is read. One in memory is returned as
        it is: all its examples were checked before."""
        return self

    def raw(self, numbers: Tensor) -> Any:
        """Return the training inputs with these numbers, as `augment` takes them."""
        return self.train.inputs[numbers]

    def expect(self, numbers: np.ndarray) -> None:  # noqa: B027
        """Learn which training examples are read soon, in this order."""

    def augment(self, inputs: Any, *, draws: np.random.Generator, slots: np.ndarray, batch_size: int) -> Tensor:
        """Augment raw training inputs at random; return inputs of the usual shape and type.

        Every slot of the nominal batch draws, whether or not its example is among these, so that leaving some out
        changes nothing for the others.
        """
        return inputs

    @abstractmethod
    def preparation(self, where: device) -> Callable[[Tensor], Tensor]:
        """Return a function from uint8 inputs to the model's inputs, on that device."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataFile:
    """A file that a dataset is read from."""

    path: str  # below the data directory, as it can be shown
    sha256: str
    media: str  # its media type


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSource(ABC):
    """A loadable dataset. The fields of a subclass are its parameters in a recipe."""

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    licence: ClassVar[str]
    modality: ClassVar[Modality]
    task: ClassVar[TaskName]
    fitted: ClassVar[Fitted]  # parts of the preparation that were computed from all training examples
    metrics: ClassVar[tuple[str, ...]]  # names in `run_files.METRICS`; the first is the quality of a run
    own_task: ClassVar[type[Any] | None] = None  # an `engine.task.Task` of another package, in place of that of `task`

    @property
    def aim(self) -> TaskName:
        """Return what is predicted with these parameters."""
        return self.task

    @property
    def measures(self) -> tuple[str, ...]:
        """Return the metrics of a run with these parameters; the first is its quality."""
        return self.metrics if self.aim == self.task else MEASURES[self.aim]

    @abstractmethod
    def load(self, data: Path | None) -> Dataset:
        """Load the dataset, from below the directory `data` unless it is embedded. Raises `DataError` if it is missing
        or damaged."""

    @abstractmethod
    def digest(self, data: Path | None) -> str:
        """Return the SHA-256 that names the content; cheap to compute. Raises `DataError` like `load`."""

    @classmethod
    def of_path(cls, place: Path) -> Self | None:
        """Return the dataset at a path, to be read below the directory above it; None where it holds another kind."""
        return None

    def fitted_on(self, data: Path | None) -> Fitted:
        """Return the parts of the preparation that were fitted, of this data. Raises `DataError` like `load`."""
        return self.fitted

    def with_classes(self, data: Path | None) -> Self:
        """Return the dataset with the parameter that gives its training examples provenance classes, if there is one.
        Raises `DataError` like `load`."""
        return self

    def files(self, data: Path | None) -> tuple[DataFile, ...]:
        """Return the files of the dataset, in order; none if it is embedded, installed or computed. Raises `DataError`
        like `load`."""
        return ()


# --- simulated provenance: a division by label, called simulated wherever it is shown --------------------------------

MAX_CLASSES = 64
SIMULATED = "simulated"  # the branch of such classes
FEW = 4  # classes of a division whose number was not chosen


def simulated(labels: Tensor, *, classes: int, name: str) -> Provenance | None:
    """Divide the examples into simulated provenance classes of equal size, to within one; None for 0 classes."""
    # In the order of labels, so that the classes differ in content, as real sources would.
    if classes == 0:
        return None
    order = np.argsort(labels.numpy(), kind="stable")
    codes = np.empty(len(order), np.int64)
    codes[order] = np.arange(len(order)) * classes // len(order)
    return Provenance(
        classes=tuple(f"{SIMULATED}/class-{number:02d}" for number in range(classes)),
        codes=codes,
        sources=tuple(f"{name}, example {number}" for number in range(len(order))),
        simulated=True,
    )
