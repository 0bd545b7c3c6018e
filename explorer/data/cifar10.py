"""`cifar10`: 60,000 colour photographs of ten kinds of things, 32x32 pixels, read from Parquet files.

The layout is that of the Hugging Face hub: `cifar10/train.parquet` and `cifar10/test.parquet` below the data directory,
with a column `img` (struct of encoded `bytes` and `path`) and a column `label`. The images are decoded once, into a
cache (cache.py) that is named by the files' digest.
"""

import hashlib
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image, UnidentifiedImageError
from pydantic import Field
from torch import Tensor

from explorer.data.cache import cached
from explorer.data.dataset import FEW, MAX_CLASSES, DataFile, DataSource, Fitted, Modality, Split, TaskName, simulated
from explorer.data.images import Images
from explorer.errors import DataError
from explorer.provenance.description import PARQUET

SIDES = ("train", "test")
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CLASSES = len(NAMES)
TRAIN = 50_000
MEAN = (0.4914, 0.4822, 0.4465)  # by channel over all training images; averaging pixels does not change it
STD = {32: (0.2470, 0.2435, 0.2616), 16: (0.2366, 0.2341, 0.2526)}
MAX_ENCODED_BYTES = 2**20  # of one image
MAX_EXAMPLES = 10**6


@dataclass(frozen=True, kw_only=True, slots=True)
class Cifar10(DataSource):
    """Photographs of ten kinds of things.

    `size` 16 halves them: each pixel is the average of four. `examples` takes so many of the training photographs, the
    first of each class in the file's order and as many of each; the test side stays whole. `augment` crops (an eighth
    of the size) and mirrors the training images at random.
    """

    name: ClassVar[str] = "cifar10"
    summary: ClassVar[str] = "50,000 training and 10,000 test photographs, 32x32 or 16x16, ten classes"
    source: ClassVar[str] = "Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009"
    licence: ClassVar[str] = "not stated by its authors"
    modality: ClassVar[Modality] = "image"
    task: ClassVar[TaskName] = "classification"
    fitted: ClassVar[Fitted] = {
        "normalisation": "mean and standard deviation by channel over all 50,000 training images of CIFAR-10,"
        " fixed in the code"
    }
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "nll")

    size: Literal[16, 32] = 32
    examples: Annotated[int, Field(ge=CLASSES, le=TRAIN, multiple_of=CLASSES)] | None = None  # None: all
    augment: bool = True
    simulated_classes: Annotated[int, Field(ge=0, le=MAX_CLASSES)] = 0  # of provenance, which the photographs lack

    def load(self, data: Path | None) -> Images:
        train, test = (_decoded(path, self.size) for path in _files(data))
        if self.examples is not None:
            train = _first_of_each(train, self.examples // CLASSES)
        return Images(
            train=train,
            test=test,
            classes=CLASSES,
            names=NAMES,
            mean=MEAN,
            std=STD[self.size],
            crop=self.size // 8 if self.augment else 0,
            flip=self.augment,
            provenance=simulated(train.labels[:], classes=self.simulated_classes, name=self.name),
        )

    def with_classes(self, data: Path | None) -> Self:
        return replace(self, simulated_classes=self.simulated_classes or FEW)

    def digest(self, data: Path | None) -> str:
        return hashlib.sha256("".join(_file_digest(path) for path in _files(data)).encode()).hexdigest()

    def files(self, data: Path | None) -> tuple[DataFile, ...]:
        return tuple(
            DataFile(path=f"cifar10/{path.name}", sha256=_file_digest(path), media=PARQUET) for path in _files(data)
        )


def _files(data: Path | None) -> list[Path]:
    where = "give the directory that holds 'cifar10/' by --data or EXPLORER_DATA"
    if data is None:
        raise DataError(f"dataset 'cifar10' is not embedded: {where}")
    paths = [data / "cifar10" / f"{side}.parquet" for side in SIDES]
    for path in paths:
        if not path.is_file():
            raise DataError(f"dataset 'cifar10': no file {path}: {where}, as train.parquet and test.parquet")
    return paths


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _decoded(path: Path, size: int) -> Split:
    """Return one side of the split, from the cache if it is there."""

    def make() -> dict[str, Tensor]:
        if size == 32:
            images, labels = _decode(path)
            return {"images": torch.from_numpy(images), "labels": torch.from_numpy(labels)}
        whole = _decoded(path, 32)
        return {"images": _halved(whole.inputs[:]), "labels": whole.labels[:]}

    forms = {"images": (torch.uint8, (3, size, size)), "labels": (torch.int64, ())}
    tensors = cached(f"cifar10-{size}-{_file_digest(path)[:16]}", forms, make)
    return Split(inputs=tensors["images"], labels=tensors["labels"])


def _halved(images: Tensor) -> Tensor:
    """Average squares of four pixels, rounded half up."""
    # In whole numbers, starting at 2 for the rounding, so that the pixels are the same on every machine.
    parts = images.numpy()
    total = np.full((*images.shape[:2], images.shape[2] // 2, images.shape[3] // 2), 2, dtype=np.uint16)
    for row in (0, 1):
        for column in (0, 1):
            total += parts[:, :, row::2, column::2]
    return torch.from_numpy((total // 4).astype(np.uint8))


def _first_of_each(split: Split, count: int) -> Split:
    """Return the first `count` examples of each class, in the order of the file."""
    places = [torch.nonzero(split.labels[:] == label)[:count, 0] for label in range(CLASSES)]
    for label, members in enumerate(places):
        if len(members) < count:
            raise DataError(
                f"dataset 'cifar10': {len(members)} training images have label {label}, expected {count} or more:"
                f" take {CLASSES * min(map(len, places))} examples or fewer"
            )
    kept = torch.cat(places).sort().values
    return Split(inputs=split.inputs[kept], labels=split.labels[kept])


def _decode(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the images, N 3 32 32 in uint8, and their labels, N in int64."""
    try:
        table = pq.read_table(path, columns=["img", "label"])
        encoded = table.column("img").combine_chunks().field("bytes").to_pylist()
        labels = np.asarray(table.column("label").cast(pa.int64()).to_pylist(), dtype=np.int64)
    except (OSError, KeyError, ValueError, TypeError, AttributeError, pa.ArrowException) as error:
        raise DataError(f"{path}: expected Parquet with columns img{{bytes, path}} and label: {error}") from error
    if not 0 < len(labels) <= MAX_EXAMPLES or labels.min() < 0 or labels.max() >= CLASSES:
        raise DataError(f"{path}: expected 1 to {MAX_EXAMPLES} examples with labels 0 to 9")
    images = np.empty((len(labels), 3, 32, 32), dtype=np.uint8)
    for index, content in enumerate(encoded):
        images[index] = _pixels(content, where=f"{path}, row {index}")
    return images, labels


def _pixels(content: bytes | None, *, where: str) -> np.ndarray:
    # Bounded before decoding, and by two formats only: a small file can unpack to gigabytes.
    if content is None or len(content) > MAX_ENCODED_BYTES:
        raise DataError(f"{where}: expected an encoded image of at most {MAX_ENCODED_BYTES} bytes")
    try:
        with Image.open(io.BytesIO(content), formats=("PNG", "JPEG")) as image:
            if image.size != (32, 32):
                raise DataError(f"{where}: image of {image.size[0]}x{image.size[1]} pixels, expected 32x32")
            return np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{where}: not a readable PNG or JPEG image: {error}") from error
