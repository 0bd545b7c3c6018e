"""`digits`: 1,797 handwritten digits, 8x8 pixels, embedded in scikit-learn.

The file is ordered by writer, so the first half (training) and the second half (test) have digits of different people:
the test measures generalisation to new handwriting.

The file is read where scikit-learn keeps it, without importing scikit-learn, which would double the start-up time of a
process.
"""

import gzip
import hashlib
import importlib.util
import io
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field

from explorer.data.dataset import FEW, MAX_CLASSES, DataSource, Fitted, Modality, Split, TaskName, simulated
from explorer.data.images import Images
from explorer.data.local import first_of_each
from explorer.errors import DataError
from explorer.schema import LATER

TRAIN = 899  # of 1,797


@dataclass(frozen=True, kw_only=True, slots=True)
class Digits(DataSource):
    """Handwritten digits; `size` enlarges the images, bilinearly, for models that need room."""

    name: ClassVar[str] = "digits"
    summary: ClassVar[str] = "1,797 handwritten digits, half train, half test (other writers)"
    source: ClassVar[str] = "UCI Optical Recognition of Handwritten Digits (Alpaydin, Kaynak 1998), in scikit-learn"
    licence: ClassVar[str] = "CC BY 4.0"
    modality: ClassVar[Modality] = "image"
    task: ClassVar[TaskName] = "classification"
    fitted: ClassVar[Fitted] = {"normalisation": "mean and standard deviation over all training images of digits"}
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "nll")

    size: Literal[8, 16, 32] = 8
    simulated_classes: Annotated[int, Field(ge=0, le=MAX_CLASSES)] = 0  # of provenance, which the digits do not have
    examples: Annotated[
        int | None, Field(ge=10, le=TRAIN, description="training images to use, the first of each digit; null: all")
    ] = field(default=None, metadata=LATER)

    def load(self, data: Path | None) -> Images:
        table = np.loadtxt(io.BytesIO(gzip.decompress(_content())), delimiter=",")  # 64 pixels from 0 to 16, the label
        images = torch.from_numpy(table[:, :-1].astype(np.float32)).reshape(-1, 1, 8, 8) * (255 / 16)
        if self.size != 8:
            images = F.interpolate(images, size=(self.size, self.size), mode="bilinear", align_corners=False)
        images = images.round().to(torch.uint8)
        labels = torch.from_numpy(table[:, -1].astype(np.int64))
        train = images[:TRAIN].double() / 255
        chosen = torch.from_numpy(first_of_each(labels[:TRAIN].numpy(), self.examples, dataset=self.name))
        return Images(
            train=Split(inputs=images[chosen], labels=labels[chosen]),
            test=Split(inputs=images[TRAIN:], labels=labels[TRAIN:]),
            classes=10,
            names=tuple("0123456789"),
            mean=(round(train.mean().item(), 4),),
            std=(round(train.std().item(), 4),),
            provenance=simulated(labels[chosen], classes=self.simulated_classes, name=self.name),
        )

    def with_classes(self, data: Path | None) -> Self:
        return replace(self, simulated_classes=self.simulated_classes or FEW)

    def digest(self, data: Path | None) -> str:
        return hashlib.sha256(_content()).hexdigest()


@cache
def _path() -> Path:
    """Return the compressed file in the installed scikit-learn. It is looked for once: a plan asks for every run."""
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise DataError(
            "the dataset 'digits' is part of scikit-learn, which is not installed: pip install scikit-learn"
        )
    return Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"


def _content() -> bytes:
    path = _path()
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}; reinstall scikit-learn") from error
