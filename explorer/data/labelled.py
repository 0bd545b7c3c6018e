"""Labelled images of the user's own: decoded to one size, and made into a dataset with every class on both sides.

Files that are not images, or are too large, are skipped and reported with the dataset.

If the images are not divided, the test side is a share of each class: the images with the smallest SHA-256 of their
pixels. Images that are added later move few others, and equal images are always on the same side.

Shapes: N images, C channels, S rows and columns.
"""

import hashlib
import io
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from explorer import canonical
from explorer.data.cache import cached
from explorer.data.dataset import SIMULATED, DataSource, Fitted, Modality, Provenance, Split, TaskName
from explorer.data.images import Images
from explorer.data.local import Fault, first_of_each, skipped
from explorer.data.progress_line import watched
from explorer.data.targets import Side, Target, divided, kind_for, sampled
from explorer.errors import DataError

MAX_CLASSES = 10_000

TESTS = ("test", "validation", "valid", "val", "dev")
"""What the test side is called, in the order in which one is chosen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """An image without its pixels: name, label, side and provenance class."""

    name: str  # the file, or the file and row
    label: str
    side: Side | None  # None: not divided yet
    tag: str | None = None  # path of its provenance class


Reader = Callable[[], bytes | Fault]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Listing:
    """A list of images, none of them decoded yet."""

    entries: list[Entry]
    target: Target
    key: str  # digest of their contents
    readers: Callable[[], Iterable[Reader]]  # of the encoded image of each entry, in order; a pass may be made once
    misplaced: Sequence[tuple[str, Fault]] = ()  # files that belong to no class


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledImages(DataSource, ABC):
    """Labelled images of the user's own: of classes, or, where a source has `predict`, of numbers or several labels."""

    licence: ClassVar[str] = "whatever holds for the images"
    modality: ClassVar[Modality] = "image"
    task: ClassVar[TaskName] = "classification"
    fitted: ClassVar[Fitted] = {"normalisation": "mean and standard deviation by channel over all training images"}
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "nll")

    if TYPE_CHECKING:  # parameters of every source, each with a place among its own
        size: int
        channels: Literal[1, 3]
        test: float | None
        augment: bool
        examples: int | None

    @abstractmethod
    def listing(self, data: Path | None) -> Listing:
        """Return the images, not decoded. Raises `DataError` if they are missing or damaged."""

    def load(self, data: Path | None) -> Images:
        listing = self.listing(data)
        pixels, faults = decoded(
            f"{self.name}-{canonical.digest([list(Fault), self.size, self.channels, listing.key])[:16]}",
            (read() for read in listing.readers()),
            count=len(listing.entries),
            size=self.size,
            channels=self.channels,
        )
        return labelled(
            self.name,
            listing.entries,
            pixels,
            faults,
            target=listing.target,
            misplaced=listing.misplaced,
            test=self.test,
            augment=self.augment,
            examples=self.examples,
        )


def labelled(
    name: str,
    entries: Sequence[Entry],
    images: Tensor,
    faults: Sequence[Fault | None],
    *,
    target: Target,
    misplaced: Sequence[tuple[str, Fault]] = (),
    test: float | None,
    augment: bool,
    examples: int | None = None,
) -> Images:
    """Return the dataset of the entries without a fault.

    Args:
        name: the name of the dataset.
        entries: all entries.
        images: the images of the entries without a fault, N C S S, in order.
        faults: the fault of each entry, or None.
        target: what is predicted of each entry; its names are all expected classes.
        misplaced: files that were skipped before, with their faults.
        test: the share of the test side, if entries have no side.
        augment: crop and mirror training images at random.
        examples: number of training images to keep; None: all. The first of each class, or, of other targets, those
            with the smallest SHA-256.

    Raises `DataError` if a class has no image on a side.
    """
    passed = [*misplaced, *((entry.name, fault) for entry, fault in zip(entries, faults, strict=True) if fault)]
    places = [place for place, fault in enumerate(faults) if fault is None]
    kept, readable = [entries[place] for place in places], target.rows(places)
    by_class = target.predict == "class"
    if by_class and not 2 <= len(target.names) <= MAX_CLASSES:
        raise DataError(f"dataset {name!r}: found {len(target.names)} classes, expected 2 to {MAX_CLASSES}")
    sides: Sequence[Side | None] = [entry.side for entry in kept]
    if test is not None and kept:
        sides = divided(readable.groups, (image.tobytes() for image in images.numpy()), share=test)
    training, tested = (
        np.asarray([place for place, own in enumerate(sides) if own == side], dtype=np.int64)
        for side in ("train", "test")
    )
    # Every class on both sides: without training images it could not be learnt, without test images not measured.
    for side, there in (("train", training), ("test", tested)):
        if not by_class and not len(there):
            raise DataError(_missing(name, "it", side, passed, first="", split=test is not None))
        counts = torch.bincount(readable.values[there], minlength=len(target.names)).tolist() if by_class else ()
        if empty := [label for label, count in zip(target.names, counts, strict=False) if not count]:
            groups = zip(entries, faults, target.groups, strict=True)
            own = [(entry.name, fault) for entry, fault, group in groups if group == empty[0]]
            raise DataError(
                _missing(
                    name,
                    f"class {empty[0]!r}",
                    side,
                    [(entry, fault) for entry, fault in own if fault],
                    first=f"{own[0][0]} has label {empty[0]!r}" if own else "",
                    split=test is not None,
                )
            )
    if by_class:
        training = training[first_of_each(readable.values[training].numpy(), examples, dataset=name)]
    elif examples is not None:
        keys = [hashlib.sha256(image.tobytes()).digest() for image in images.numpy()]
        training = training[sampled(readable, training, keys, examples, dataset=name)]
    train = images[training]
    mean, std = _statistics(name, train)
    train_labels, test_labels, centre, scale = readable.sides(training, tested, dataset=name)
    return kind_for(Images, target.predict)(
        train=Split(inputs=train, labels=train_labels),
        test=Split(inputs=images[tested], labels=test_labels),
        classes=target.outputs,
        names=target.names,
        centre=centre,
        scale=scale,
        mean=mean,
        std=std,
        crop=images.shape[-1] // 8 if augment else 0,
        flip=augment,
        provenance=provenance_of([kept[place] for place in training.tolist()]),
        skipped=skipped(passed),
    )


def _missing(name: str, what: str, side: str, passed: Sequence[tuple[str, Fault]], *, first: str, split: bool) -> str:
    """Return the message for a class that is missing on a side; `passed` are its entries that were skipped, and `first`
    names the first of all."""
    there = f"dataset {name!r}: {what} has no readable image on the {side} side"
    example = f" ({len(passed)} skipped, such as {passed[0][0]}: {passed[0][1]})" if passed else ""
    least = "at least two different ones, to be divided" if split else "at least one of every class on both sides"
    where = f"; {first}" if first else ""
    return f"{there}{example}: expected {least}{where}"


def _statistics(name: str, images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel, of 0..1, to four digits."""
    # From a histogram: exact whatever the number of images, and without a copy of them in floating point.
    levels = np.arange(256) / 255
    means, deviations = [], []
    for channel in images.numpy().transpose(1, 0, 2, 3):
        share = np.bincount(channel.reshape(-1), minlength=256) / channel.size
        mean = float(share @ levels)
        means.append(round(mean, 4))
        deviations.append(round(float(share @ (levels - mean) ** 2) ** 0.5, 4))
    if not all(deviations):
        raise DataError(f"dataset {name!r}: all pixels of a channel are equal: expected pictures of something")
    return tuple(means), tuple(deviations)


def provenance_of(entries: Sequence[Entry]) -> Provenance | None:
    """Return the provenance that the entries have as tags; None without tags."""
    tags = [entry.tag for entry in entries if entry.tag is not None]
    if not tags:
        return None
    classes = tuple(sorted(set(tags)))
    places = {path: place for place, path in enumerate(classes)}
    return Provenance(
        classes=classes,
        codes=np.asarray([places[tag] for tag in tags], dtype=np.int64),
        sources=tuple(entry.name for entry in entries),
        simulated=all(path.startswith(f"{SIMULATED}/") for path in classes),
    )


# --- decoding ---

FORMATS = ("PNG", "JPEG", "WEBP")
MAX_ENCODED_BYTES = 2**25
MAX_PIXELS = 2**25  # of an image before it is made smaller
MAX_DECODED_BYTES = 2**33  # of all images together
FAULTS = tuple(Fault)


def decode(content: bytes, *, size: int, channels: int) -> np.ndarray | Fault:
    """Return the pixels, C S S in uint8: upright by its EXIF data, the central square, antialiased, without
    transparency; or a fault."""
    # Sizes are checked on the encoded file and on its header, before anything is decompressed.
    if len(content) > MAX_ENCODED_BYTES:
        return Fault.TOO_LARGE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # doubtful metadata
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                if image.width * image.height > MAX_PIXELS:
                    return Fault.TOO_MANY_PIXELS
                return _pixels(image, size=size, channels=channels)
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):
            return Fault.TOO_MANY_PIXELS
        except Image.UnidentifiedImageError:
            return Fault.NO_IMAGE
        except Exception:  # decoders of hostile input raise anything: no list of types would be complete
            return Fault.DAMAGED


def decoded(
    name: str, contents: Iterable[bytes | Fault], *, count: int, size: int, channels: int
) -> tuple[Tensor, Sequence[Fault | None]]:
    """Return the images that could be decoded, N C S S, and the fault of each of the `count` contents, or None.

    They are cached under `name`, which must depend on contents, size and channels. Raises `DataError` if they would
    take too much memory.
    """
    if count * channels * size**2 > MAX_DECODED_BYTES:
        raise DataError(
            f"{count} images of {size}x{size} pixels take more than {MAX_DECODED_BYTES} bytes: choose a smaller size"
        )

    def make() -> dict[str, Tensor]:
        images = np.empty((count, channels, size, size), np.uint8)
        codes = np.zeros(count, np.uint8)  # 0, or 1 + the fault's place among all
        kept = 0
        for index, content in enumerate(watched(contents, "decoding images", total=count)):
            outcome = content if isinstance(content, Fault) else decode(content, size=size, channels=channels)
            if isinstance(outcome, Fault):
                codes[index] = 1 + FAULTS.index(outcome)
            else:
                images[kept] = outcome
                kept += 1
        return {"images": torch.from_numpy(images[:kept]), "faults": torch.from_numpy(codes)}

    forms = {"images": (torch.uint8, (channels, size, size)), "faults": (torch.uint8, ())}
    tensors = cached(name, forms, make)
    faults = [FAULTS[code - 1] if 0 < code <= len(FAULTS) else None for code in tensors["faults"].tolist()]
    if len(faults) != count or faults.count(None) != len(tensors["images"]):
        raise DataError(f"damaged cache {name}: delete it and try again (its numbers do not fit)")
    return tensors["images"], faults


def _pixels(image: Image.Image, *, size: int, channels: int) -> np.ndarray:
    ImageOps.exif_transpose(image, in_place=True)
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    # Cropped before scaling: with `resize(box=...)` the filter would blend in pixels from outside the square.
    square = in_channels(image.crop((left, top, left + side, top + side)), channels)
    small = square.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(small).reshape(size, size, channels).transpose(2, 0, 1)


def in_channels(image: Image.Image, channels: int) -> Image.Image:
    """Return an image with one channel, grey, or three, of 8 bits each."""
    if image.mode.startswith("I"):  # 16 bits, which Pillow's conversion would clip instead of scale
        image = Image.fromarray((np.asarray(image).astype(np.int64).clip(0, 2**16 - 1) >> 8).astype(np.uint8))
    mode = "L" if channels == 1 else "RGB"
    return image if image.mode == mode else image.convert(mode)  # converting always copies
