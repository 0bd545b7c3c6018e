"""Images of a bright bar, whose direction is the class."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from explorer.data.dataset import DataSource, Fitted, Modality, Split, TaskName
from explorer.data.images import Images

VERSION = b"bars 1"  # a change of the images is a change of the data: count it up


@dataclass(frozen=True, kw_only=True, slots=True)
class Bars(DataSource):
    """Noise with a bright bar across it: horizontal (class 0) or vertical (class 1). Computed from a seed."""

    name: ClassVar[str] = "bars"
    summary: ClassVar[str] = "images of a bar in noise, horizontal or vertical"
    source: ClassVar[str] = "computed"
    licence: ClassVar[str] = "CC0-1.0"
    modality: ClassVar[Modality] = "image"
    task: ClassVar[TaskName] = "classification"
    fitted: ClassVar[Fitted] = {}  # mean and deviation are fixed, not fitted
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "nll")

    size: Annotated[int, Field(ge=8, le=64, description="rows and columns")] = 8
    examples: Annotated[int, Field(ge=64, le=10**6, description="of the training side")] = 1024
    contrast: Annotated[int, Field(ge=1, le=155, description="brightness of the bar above the noise")] = 80

    def load(self, data: Path | None) -> Images:
        draws = torch.Generator().manual_seed(0)
        train, test = self._side(self.examples, draws), self._side(256, draws)
        return Images(train=train, test=test, classes=2, mean=(0.2,), std=(0.15,))

    def digest(self, data: Path | None) -> str:
        parameters = f"{self.size} {self.examples} {self.contrast}"
        return hashlib.sha256(VERSION + parameters.encode()).hexdigest()

    def _side(self, count: int, draws: torch.Generator) -> Split:
        inputs = torch.randint(0, 100, (count, 1, self.size, self.size), dtype=torch.uint8, generator=draws)
        labels = torch.randint(0, 2, (count,), generator=draws)
        places = torch.randint(0, self.size, (count,), generator=draws)
        for image, label, place in zip(inputs, labels.tolist(), places.tolist(), strict=True):
            (image[0, :, place] if label else image[0, place]).add_(self.contrast)
        return Split(inputs=inputs, labels=labels)
