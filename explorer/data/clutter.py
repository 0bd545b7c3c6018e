"""`clutter`: digits among pieces of other digits, with a class for each pixel; `clutter3d` makes volumes of it.

The digits are those of `digits`, and the test side has those of other writers. A scene is made in layers:

1. Pieces: squares cut from digits at three scales, each placed anywhere over the others.
2. Whole digits at the same scales, placed likewise.
3. Noise on top.

The label of a pixel is 1 + the whole digit whose stroke is visible there (at least half as bright as white), else 0.
Strokes of pieces look like those of digits, so that only the shape around a pixel determines its class. In a volume a
digit extends through half of the slices, while each slice has pieces and noise of its own.

Scenes are computed in whole numbers from fixed streams, so the pixels do not depend on the machine. The digest is that
of the pixels. Scenes are not augmented: moving a picture would have to move its labels.

Shapes: N scenes, M digits, C channels, D slices, H rows, W columns, S rows and columns of a square, s those of a patch.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from explorer.data.dataset import (
    FEW,
    MAX_CLASSES,
    MEASURES,
    Dataset,
    DataSource,
    Fitted,
    Modality,
    Split,
    TaskName,
    simulated,
)
from explorer.data.digits import Digits
from explorer.data.images import normalisation
from explorer.data.streams import stream

# --- scenes in memory ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scenes(Dataset, ABC):
    """Scenes in memory. `mean` and `std` are those of training inputs scaled to 0..1, by channel."""

    task: ClassVar[TaskName] = "segmentation"

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def preparation(self, where: torch.device) -> Callable[[Tensor], Tensor]:
        """Return a function from uint8 inputs to float32 of zero mean and unit variance."""
        return normalisation(self.mean, self.std, where=where)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Pictures(Scenes):
    """Flat scenes: inputs N C H W, labels N H W."""

    modality: ClassVar[Modality] = "image"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Volumes(Scenes):
    """Scenes in slices: inputs N C D H W, labels N D H W."""

    modality: ClassVar[Modality] = "volume"


# --- making scenes ---------------------------------------------------------------------------------------------------

CLASSES = 11  # the background, and ten digits
GRAIN = 8  # rows and columns of an original digit
STROKE = 128  # the least brightness of a stroke
NOISE = 64  # its brightness is uniform below this
TEST = 4  # the training side has this many times the scenes of the test side

Scale = tuple[np.ndarray, ...]  # the same digits at every scale: M s s, uint8
Place = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # scene, slice, row, column of each pixel of patches


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluttered(DataSource, ABC):
    """Scenes of digits among pieces of others, flat or in slices. `examples` is the number of training scenes; the test
    side has a quarter as many."""

    source: ClassVar[str] = f"made from {Digits.source}"
    licence: ClassVar[str] = Digits.licence
    task: ClassVar[TaskName] = "segmentation"
    fitted: ClassVar[Fitted] = {"normalisation": "mean and standard deviation over all training scenes"}
    metrics: ClassVar[tuple[str, ...]] = MEASURES["segmentation"]

    size: Literal[16, 32, 48, 64] = 32
    examples: Annotated[int, Field(ge=TEST, le=20_000)] = 1024
    digits: Annotated[int, Field(ge=1, le=4)] = 2
    clutter: Annotated[int, Field(ge=0, le=32)] = 8
    simulated_classes: Annotated[int, Field(ge=0, le=MAX_CLASSES)] = 0  # of provenance, by the first digit of a scene

    @property
    @abstractmethod
    def slices(self) -> int | None:
        """The number of slices of a scene; None: it is flat."""

    def load(self, data: Path | None) -> Scenes:
        return _made(self)

    def with_classes(self, data: Path | None) -> Self:
        return replace(self, simulated_classes=self.simulated_classes or FEW)

    def digest(self, data: Path | None) -> str:
        return _digest(self)


@lru_cache(maxsize=2)
def _made(source: Cluttered) -> Scenes:
    """Return both sides. Cached, since the digest and the dataset both need the scenes."""
    written, flat = Digits().load(None), source.slices is None
    sides = []
    for name, split, count in (
        ("train", written.train, source.examples),
        ("test", written.test, source.examples // TEST),
    ):
        digits, labels = split.inputs[:, 0].numpy(), split.labels[:].numpy().astype(np.uint8)
        sides.append(_scenes(source, digits, labels, count=count, depth=source.slices or 1, side=name))
    (train, first), (test, _) = sides
    brightness = np.bincount(train.inputs.numpy().reshape(-1), minlength=256) / train.inputs.numel()
    levels = np.arange(256) / 255
    mean = float(brightness @ levels)
    return (Pictures if flat else Volumes)(
        train=_flat(train) if flat else train,
        test=_flat(test) if flat else test,
        classes=CLASSES,
        names=("background", *"0123456789"),
        mean=(round(mean, 4),),
        std=(round(float(brightness @ (levels - mean) ** 2) ** 0.5, 4),),
        provenance=simulated(torch.from_numpy(first), classes=source.simulated_classes, name=source.name),
    )


@lru_cache(maxsize=8)
def _digest(source: Cluttered) -> str:
    made = _made(source)
    content = hashlib.sha256()
    for tensor in (made.train.inputs, made.train.labels, made.test.inputs, made.test.labels):
        content.update(f"{tuple(tensor.shape)}".encode() + tensor[:].numpy().tobytes())
    return content.hexdigest()


def _flat(volumes: Split) -> Split:
    """Return volumes of one slice as pictures."""
    return Split(inputs=volumes.inputs[:, :, 0], labels=volumes.labels[:, 0])


def _scenes(
    source: Cluttered, digits: np.ndarray, labels: np.ndarray, *, count: int, depth: int, side: str
) -> tuple[Split, np.ndarray]:
    """Draw volumes N 1 D S S and the classes of their pixels, N D S S, both uint8; return them and the first digit of
    each scene, N."""
    # Pieces, whole digits, noise: later layers cover earlier ones. Each piece, digit and slice has a stream of its own,
    # so that more clutter adds pieces without moving the others.
    scales = [source.size * eighths // 8 for eighths in (3, 4, 5)]
    patches = tuple(enlarged(digits, scale) for scale in scales)
    form = (count, depth, source.size, source.size)
    seen, classes = np.zeros(form, np.uint8), np.zeros(form, np.uint8)
    for number in range(source.clutter):
        for slice_ in range(depth):
            draws = stream(0, source.name, side, "piece", number, slice_)
            for place, ink in _pieces(patches, count, source.size, slice_, draws):
                seen[place] = ink
    chosen = stream(0, source.name, side, "digits").integers(0, len(labels), (source.digits, count))
    for number, which in enumerate(chosen):
        draws = stream(0, source.name, side, "digit", number)
        for place, ink, label in _wholes(patches, labels, which, source.size, depth, draws):
            seen[place] = ink
            classes[place] = np.where(ink >= STROKE, 1 + label[:, None, None], 0)
    noise = stream(0, source.name, side, "noise").integers(0, NOISE, form, np.uint8)
    inputs = np.where(seen > 255 - noise, 255, seen + noise).astype(np.uint8)
    return Split(inputs=torch.from_numpy(inputs)[:, None], labels=torch.from_numpy(classes)), labels[chosen[0]]


def enlarged(digits: np.ndarray, side: int) -> np.ndarray:
    """Return digits M 8 8 (uint8) at another scale, M s s: bilinear, in whole numbers, rounded half up."""
    # The centre of pixel i lies at (2 i + 1) 8 / (2 s) - 1/2 of the original: a whole number in units of 1 / (2 s).
    centres = (2 * np.arange(side) + 1) * GRAIN - side
    below, parts = centres // (2 * side), centres % (2 * side)
    weights = np.zeros((side, GRAIN), np.int64)
    np.add.at(weights, (np.arange(side), below.clip(0, GRAIN - 1)), 2 * side - parts)
    np.add.at(weights, (np.arange(side), (below + 1).clip(0, GRAIN - 1)), parts)
    total = weights @ digits.astype(np.int64) @ weights.T
    return ((total + 2 * side**2) // (2 * side) ** 2).astype(np.uint8)


def _pieces(
    patches: Scale, count: int, size: int, slice_: int, draws: np.random.Generator
) -> Iterator[tuple[Place, np.ndarray]]:
    """Yield a piece for each scene, in this slice: its place and its pixels, scale by scale."""
    side = size // 4
    which, scale = draws.integers(0, len(patches[0]), count), draws.integers(0, len(patches), count)
    corners = draws.integers(0, size - side + 1, (count, 2))
    for number, patch in enumerate(patches):
        cuts = draws.integers(0, len(patch[0]) - side + 1, (count, 2))
        scenes = np.flatnonzero(scale == number)
        piece = _place(which[scenes], np.zeros_like(scenes), cuts[scenes], side)
        yield _place(scenes, np.full_like(scenes, slice_), corners[scenes], side), patch[:, None][piece]


def _wholes(
    patches: Scale, labels: np.ndarray, which: np.ndarray, size: int, depth: int, draws: np.random.Generator
) -> Iterator[tuple[Place, np.ndarray, np.ndarray]]:
    """Yield a digit for each scene: its place, its pixels and its label, by scale and slice of its depth."""
    thickness = (depth + 1) // 2
    scale, start = draws.integers(0, len(patches), len(which)), draws.integers(0, depth - thickness + 1, len(which))
    for number, patch in enumerate(patches):
        corners = draws.integers(0, size - len(patch[0]) + 1, (len(which), 2))
        scenes = np.flatnonzero(scale == number)
        digits = which[scenes]
        for further in range(thickness):
            place = _place(scenes, start[scenes] + further, corners[scenes], len(patch[0]))
            yield place, patch[digits], labels[digits]


def _place(scenes: np.ndarray, slices: np.ndarray, corners: np.ndarray, side: int) -> Place:
    """Return an index of the pixels of a square of this side in each of the scenes, N s s."""
    rows, columns = (corners[:, axis, None] + np.arange(side) for axis in (0, 1))
    return scenes[:, None, None], slices[:, None, None], rows[:, :, None], columns[:, None, :]


# --- flat scenes -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Clutter(Cluttered):
    """Pictures of `size` rows and columns with `digits` whole digits and `clutter` pieces each.

    `examples` is the number of training scenes; the test side has a quarter as many.
    """

    name: ClassVar[str] = "clutter"
    summary: ClassVar[str] = "handwritten digits among pieces of others; a class for each pixel (test: other writers)"
    modality: ClassVar[Modality] = "image"

    @property
    def slices(self) -> None:
        return None
