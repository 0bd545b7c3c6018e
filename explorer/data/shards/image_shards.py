"""`image_shards`: labelled images in shards, decoded, cropped and mirrored while a run trains.

    {image_shards: {path: imagenet, size: 224}}          below --data
    {image_shards: {path: s3://bucket/imagenet, size: 224}}

Encoded images keep their size in the shards. For training, a rectangle of random area and shape is cut from each and
brought to `size` (Szegedy et al., "Going Deeper with Convolutions", 2014, arXiv:1409.4842, section 6), and half of them
are mirrored. For evaluation it is the middle: 7/8 of the shorter side. JPEG is decoded at the smallest scale that has
enough pixels for the rectangle, of 1, 1/2, 1/4 and 1/8.

Images that were written as arrays have one size; they are padded by an eighth, cropped back and mirrored, as elsewhere.
Where every pixel has a class, they are not: picture and labels would have to move together.

Shapes: B examples, C channels, S rows and columns.
"""

import io
import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from PIL import Image
from pydantic import Field
from torch import Tensor

from explorer.data.dataset import Blank, Check, Modality, TaskName
from explorer.data.images import Images
from explorer.data.labelled import FORMATS, MAX_PIXELS, in_channels
from explorer.data.shards.shard_files import Opened, ShardFiles
from explorer.data.shards.shard_index import Index, Labels
from explorer.data.shards.shard_rows import KeptRows, ShardRows, by_shard, checked
from explorer.data.shards.shards import Opening, Shards
from explorer.data.targets import AIMS, Aim, kind_for
from explorer.errors import DataError
from explorer.schema import LATER

AREA = (0.25, 1.0)  # of the rectangle, as a share of the image
SHAPE = (3 / 4, 4 / 3)  # its width over its height
MIDDLE = 7 / 8  # of the shorter side, for evaluation
COLOUR = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and deviation of photographs, by custom
GREY = (0.449, 0.226)  # the means of these
PREDICT = "what the labels are: class, number, labels (any number of them), or pixels (a class for each)"
PREDICTED: dict[TaskName, Aim] = {task: aim for aim, task in AIMS.items()}

GONE = memoryview(b"")  # in place of an image that a deletion has left out

Box = tuple[float, float, float, float]  # left, upper, right, lower


# --- decoding --------------------------------------------------------------------------------------------------------


def middle(width: int, height: int) -> Box:
    """Return the square in the middle, 7/8 of the shorter side."""
    side = MIDDLE * min(width, height)
    left, upper = (width - side) / 2, (height - side) / 2
    return left, upper, left + side, upper + side


def random_box(draws: np.ndarray, width: int, height: int, area: tuple[float, float] = AREA) -> Box:
    """Return a rectangle of the image by four numbers from 0 to 1: area, shape, and place.

    Its area is uniform and the logarithm of its shape is, as far as the image allows; a side that would be longer than
    the image's is cut.
    """
    share = area[0] + (area[1] - area[0]) * draws[0]
    shape = math.exp(math.log(SHAPE[0]) + (math.log(SHAPE[1]) - math.log(SHAPE[0])) * draws[1])
    wide = min(width, math.sqrt(share * width * height * shape))
    high = min(height, math.sqrt(share * width * height / shape))
    left, upper = draws[2] * (width - wide), draws[3] * (height - high)
    return left, upper, left + wide, upper + high


def decode(content: bytes | memoryview, box: Box | np.ndarray | None, *, size: int, channels: int) -> np.ndarray:
    """Return a part of an image, S S C in uint8; `box`: a rectangle, the draws of one, or None for the middle.

    Raises ValueError for what is no image, or too large a one. The orientation in its metadata is ignored, as it is
    where images are cropped at random.
    """
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise ValueError(f"an image of {width} x {height} pixels: at most {MAX_PIXELS} are decoded")
            place = middle(width, height) if box is None else box
            if isinstance(place, np.ndarray):
                place = random_box(place, width, height)
            return _scaled(image, place, size=size, channels=channels)
    except ValueError:
        raise
    except Exception as error:  # decoders of hostile input raise anything
        raise ValueError(f"an image that cannot be decoded: {type(error).__name__}: {error}") from error


def _scaled(image: Image.Image, box: Box, *, size: int, channels: int) -> np.ndarray:
    width, height = image.size
    # A JPEG is decoded by a factor smaller where that leaves `size` pixels a side of the rectangle: a quarter of the
    # work for half of the size.
    least = min(box[2] - box[0], box[3] - box[1])
    if image.format == "JPEG" and least >= 2 * size:
        image.draft(
            "L" if channels == 1 else "RGB", (math.ceil(width * size / least), math.ceil(height * size / least))
        )
    across, down = image.width / width, image.height / height
    picture = in_channels(image, channels)
    part = (box[0] * across, box[1] * down, min(box[2] * across, image.width), min(box[3] * down, image.height))
    small = picture.resize((size, size), Image.Resampling.BILINEAR, box=part, reducing_gap=2.0)
    return np.asarray(small).reshape(size, size, -1)


@cache
def _decoders() -> ThreadPoolExecutor:
    """Return the threads that decode: Pillow leaves the interpreter to others meanwhile."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="decoders")


# --- the dataset -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ImagesInShards(Images):
    """Images that are read as they are needed. `encoded`: they are decoded then too."""

    files: ShardFiles
    encoded: bool

    def checking(self, check: Check) -> Self:
        train, files = checked(self.train, self.files, check)
        return replace(self, train=train, files=files)

    def raw(self, numbers: Tensor) -> Tensor | list[memoryview]:
        """Return the encoded images with these numbers, or the pixels where they are kept as arrays."""
        if not self.encoded:
            return self.train.inputs[numbers]
        images: list[memoryview] = [GONE] * len(numbers)
        here = np.arange(len(numbers))
        if isinstance(self.train.inputs, Blank):
            here = here[~self.train.inputs.gone[numbers.numpy()]]
        for _, opened, among, rows in by_shard(self.files, numbers.numpy()[here]):
            places = here[among]
            for place, row in zip(places.tolist(), rows.tolist(), strict=True):
                images[place] = opened.input(row)
        return images

    def expect(self, numbers: np.ndarray) -> None:
        self.files.expect_examples(numbers)

    def augment(
        self, inputs: Tensor | Sequence[memoryview], *, draws: np.random.Generator, slots: np.ndarray, batch_size: int
    ) -> Tensor:
        """Decode a random part of each image, and mirror half of them, with draws for every slot of the batch."""
        if isinstance(inputs, Tensor):
            return Images.augment(self, inputs, draws=draws, slots=slots, batch_size=batch_size)
        boxes = draws.random((batch_size, 4))[slots] if self.crop else [None] * len(slots)
        mirrored = (draws.random(batch_size) < 0.5)[slots] if self.flip else np.zeros(len(slots), bool)
        channels, size, _ = self.example_shape
        pixels = np.empty((len(slots), size, size, channels), np.uint8)

        def put(place: int) -> None:
            if inputs[place] is GONE:
                pixels[place] = 0
                return
            part = decode(inputs[place], boxes[place], size=size, channels=channels)
            pixels[place] = part[:, ::-1] if mirrored[place] else part

        try:
            list(_decoders().map(put, range(len(slots))))
        except ValueError as error:
            raise DataError(f"{self.files.objects.url}: {error}") from error
        return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageShards(Shards):
    """Labelled images in the shards of `path`, made by `explorer data shard`.

    Encoded images are brought to `size`, by random crops for training; `augment: false` takes the middle. Images with a
    class for each pixel (`predict: pixels`) are arrays, and are not augmented. `window` is the number of shards of a
    class whose examples are shuffled with each other. `mean` and `std` scale the channels, of 0..1; by default they are
    the usual ones of photographs.
    """

    name: ClassVar[str] = "image_shards"
    summary: ClassVar[str] = "images in shards, decoded while a run trains: any number of them, also in a bucket"
    modality: ClassVar[Modality] = "image"
    task: ClassVar[TaskName] = "classification"
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "nll")

    size: Annotated[int, Field(ge=8, le=1024, description="side of the square that images are brought to")] = 32
    channels: Annotated[Literal[1, 3, 4], Field(description="1: grey, 3: colour; 4: of arrays only")] = 3
    augment: Annotated[bool, Field(description="crop and mirror training images at random")] = True
    mean: Annotated[tuple[float, ...] | None, Field(description="of each channel; null: that of photographs")] = None
    std: Annotated[tuple[float, ...] | None, Field(description="of each channel; null: that of photographs")] = None
    predict: Annotated[Aim, Field(description=PREDICT)] = field(default="class", metadata=LATER)

    @property
    def aim(self) -> TaskName:
        return AIMS[self.predict]

    @classmethod
    def parameters(cls, index: Index) -> dict[str, Any]:
        """Return the size of images that are kept as arrays, and what is predicted if it is no class."""
        shape = index.inputs.shape
        size = {"size": shape[-1], "channels": shape[0]} if index.inputs.encoding == "array" else {}
        return size if index.task == cls.task else {**size, "predict": PREDICTED[index.task]}

    def dataset(self, index: Index, opening: Opening) -> ImagesInShards:
        encoded = index.inputs.encoding == "image"
        shape = (self.channels, self.size, self.size)
        if not encoded and index.inputs.shape != shape:
            raise DataError(
                f"dataset {self.name!r}: {opening.url} has images of {index.inputs.shape}: expected"
                f" {{size: {index.inputs.shape[-1]}, channels: {index.inputs.shape[0]}}}"
            )
        if encoded and (self.channels == 4 or self.predict == "pixels"):
            raise DataError(
                f"dataset {self.name!r}: {opening.url} has encoded images: expected channels: 1 or 3, and predict:"
                " class, number or labels"
            )
        if self.predict == "pixels" and index.labels != Labels(dtype="uint8", shape=shape[1:]):
            raise DataError(
                f"dataset {self.name!r}: {opening.url} has labels of {index.labels.dtype}, {index.labels.shape}:"
                f" expected uint8, {shape[1:]}"
            )
        means = COLOUR if self.channels == 3 else [(number,) * self.channels for number in GREY]
        mean, std = self.mean or means[0], self.std or means[1]
        if len(mean) != self.channels or len(std) != self.channels or min(std) <= 0:
            raise DataError(f"dataset {self.name!r}: mean and std: expected a number for each channel, std above 0")
        moves = self.augment and self.predict != "pixels"

        def taken(opened: Opened, rows: np.ndarray) -> Tensor:
            if not encoded:
                return torch.from_numpy(opened.inputs(np.dtype(np.uint8), shape)[rows])
            size, channels = self.size, self.channels
            middles = _decoders().map(lambda row: decode(opened.input(row), None, size=size, channels=channels), rows)
            return torch.from_numpy(np.stack(list(middles))).permute(0, 3, 1, 2)

        train, test = opening.splits(KeptRows if encoded else ShardRows, taken, shape=shape, dtype=torch.uint8)
        return kind_for(ImagesInShards, self.predict)(
            train=train,
            test=test,
            files=opening.train,
            encoded=encoded,
            mean=mean,
            std=std,
            crop=self.size // 8 if moves else 0,
            flip=moves,
            **opening.facts(self.window),
        )
