"""What a dataset is: labelled images in memory, the card that describes them, and the source that loads them.

Shapes: N examples, C channels, H rows, W columns.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """Examples of one side of the split."""

    images: Tensor  # N C H W, uint8
    labels: Tensor  # N, int64

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """A loaded dataset. `mean` and `std` belong to images scaled to 0..1, by channel, from the training side."""

    train: Split
    test: Split
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop: int = 0  # training images are padded by this many pixels and cropped back at random
    flip: bool = False  # training images are mirrored at random

    @property
    def example_shape(self) -> tuple[int, int, int]:
        channels, height, width = self.train.images.shape[1:]
        return channels, height, width


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSource(ABC):
    """Where a dataset comes from. The fields of a subclass are its parameters in a recipe."""

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    licence: ClassVar[str]
    metrics: ClassVar[tuple[str, ...]]  # names in `records.METRICS`; the first is the quality of a run

    @abstractmethod
    def load(self, data: Path | None) -> Dataset:
        """Load it, from below the directory `data` if it is not embedded. Raises `DataError` if absent or damaged."""

    @abstractmethod
    def digest(self, data: Path | None) -> str:
        """SHA-256 that names the content, cheap to compute. Raises `DataError` like `load`."""
