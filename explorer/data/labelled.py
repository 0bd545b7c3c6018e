"""Labelled images of the user's own made into a dataset: two sides, every class on both, and what was passed over.

Where the images come undivided, a share of each class is the test side: those whose pixels have the smallest SHA-256.
Whatever is added later moves few of them, and equal pictures are on one side.

Shapes: N images, C channels, S rows and columns.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from explorer.data.dataset import Provenance, Split
from explorer.data.images import Images
from explorer.data.local import Fault, first_of_each, skipped
from explorer.errors import DataError

MAX_CLASSES = 10_000

Side = Literal["train", "test"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """Name, label, side and class of an image: all but its pixels."""

    name: str  # the file, or the file and row
    label: str
    side: Side | None  # None: not divided yet
    tag: str | None = None  # path of its provenance class


def labelled(
    name: str,
    entries: Sequence[Entry],
    images: Tensor,
    faults: Sequence[Fault | None],
    *,
    labels: Sequence[str],
    misplaced: Sequence[tuple[str, Fault]] = (),
    test: float | None,
    augment: bool,
    examples: int | None = None,
) -> Images:
    """Return the dataset of the entries without a fault, whose images, N C S S, follow in the same order.

    `labels`: all classes that should be there, in the order of their numbers. `misplaced`: what was passed over before.
    `test`: the share to divide off, where entries have no side. `examples`: so many of the training side, the first of
    each class; None: all. Raises `DataError` if a class has no image on a side.
    """
    passed = [*misplaced, *((entry.name, fault) for entry, fault in zip(entries, faults, strict=True) if fault)]
    kept = [entry for entry, fault in zip(entries, faults, strict=True) if fault is None]
    if not 2 <= len(labels) <= MAX_CLASSES:
        raise DataError(f"dataset {name!r}: found {len(labels)} classes, expected 2 to {MAX_CLASSES}")
    sides = [entry.side for entry in kept] if test is None else _divided(kept, images, share=test)
    codes = {label: code for code, label in enumerate(labels)}
    targets = torch.tensor([codes[entry.label] for entry in kept], dtype=torch.int64)
    places = {side: torch.tensor([name == side for name in sides], dtype=torch.bool) for side in ("train", "test")}
    for side, there in places.items():
        counts = torch.bincount(targets[there], minlength=len(labels))
        if empty := [label for label, count in zip(labels, counts.tolist(), strict=True) if not count]:
            first = next((entry.name for entry in entries if entry.label == empty[0]), "")
            raise DataError(_missing(name, empty[0], side, passed, first=first, split=test is not None))
    training = places["train"].nonzero().flatten()
    training = training[torch.from_numpy(first_of_each(targets[training].numpy(), examples, dataset=name))]
    train = images[training]
    mean, std = _statistics(name, train)
    return Images(
        train=Split(inputs=train, labels=targets[training]),
        test=Split(inputs=images[places["test"]], labels=targets[places["test"]]),
        classes=len(labels),
        names=tuple(labels),
        mean=mean,
        std=std,
        crop=images.shape[-1] // 8 if augment else 0,
        flip=augment,
        provenance=_provenance([kept[place] for place in training.tolist()]),
        skipped=skipped(passed),
    )


def _divided(entries: Sequence[Entry], images: Tensor, *, share: float) -> list[Side]:
    """Return the side of each image: the share of its class, at least one, with the smallest hashes; equal ones
    together."""
    keys = [hashlib.sha256(image.tobytes()).digest() for image in images.numpy()]
    classes: dict[str, list[bytes]] = {}
    for entry, key in zip(entries, keys, strict=True):
        classes.setdefault(entry.label, []).append(key)
    last = {label: sorted(hashes)[max(1, round(share * len(hashes))) - 1] for label, hashes in classes.items()}
    return ["test" if key <= last[entry.label] else "train" for entry, key in zip(entries, keys, strict=True)]


def _missing(name: str, label: str, side: str, passed: Sequence[tuple[str, Fault]], *, first: str, split: bool) -> str:
    """Return the words for a class that a side does not have; `first`: the first entry that has it, anywhere."""
    there = f"dataset {name!r}: class {label!r} has no readable image on the {side} side"
    example = f" ({len(passed)} skipped in all, such as {passed[0][0]}: {passed[0][1]})" if passed else ""
    least = "two different ones or more, to be divided" if split else "one or more of every class on both sides"
    where = f"; {first} has label {label!r}" if first else ""
    return f"{there}{example}: expected {least}{where}"


def _statistics(name: str, images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel, of 0..1, to four digits."""
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


def _provenance(entries: Sequence[Entry]) -> Provenance | None:
    tags = [entry.tag for entry in entries if entry.tag is not None]
    if not tags:
        return None
    classes = tuple(sorted(set(tags)))
    places = {path: place for place, path in enumerate(classes)}
    return Provenance(
        classes=classes,
        codes=np.asarray([places[tag] for tag in tags], dtype=np.int64),
        sources=tuple(entry.name for entry in entries),
    )
