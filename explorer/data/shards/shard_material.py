"""Material for shards: any dataset, and images as they are encoded.

Examples are written in a random order that is always the same, so that shards of sorted data are no shards of one label
each. Rows of Parquet files, of which there may be too many to jump about in, keep their order.
"""

import hashlib
import io
import json
import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from explorer.data.batches import shuffled
from explorer.data.dataset import Dataset, DataSource, Rows, TaskName
from explorer.data.labelled import FORMATS, MAX_ENCODED_BYTES, MAX_PIXELS, LabelledImages, Listing, Reader, Side
from explorer.data.local import MAX_NAMES, Fault
from explorer.data.progress_line import watched
from explorer.data.shards.shard_index import Inputs, Labels, Origin, Passed, SideName
from explorer.data.shards.shard_writer import WAITING, Material, Row, ahead
from explorer.data.shards.shards import Shards
from explorer.data.streams import stream
from explorer.data.targets import divided
from explorer.errors import DataError
from explorer.schema import given

# What the datasets in shards read.
AIMS: dict[str, tuple[TaskName, ...]] = {
    "image": ("classification", "regression", "multilabel", "segmentation"),
    "text": ("language",),
    "volume": ("segmentation",),
}
SHARE = 0.05  # for the test side of images that are not divided


def material_of(source: DataSource, data: Path | None) -> Material:
    """Return what to write of a dataset: encoded images as they are, everything else as arrays.

    Raises `DataError` for a dataset that cannot be read or has no shards of its kind.
    """
    if isinstance(source, LabelledImages):
        return _images(source, source.listing(data), data)
    return _arrays(source, source.load(data), data)


def origin_of(source: DataSource, data: Path | None) -> Origin:
    """Return what the index says about the source."""
    written = json.dumps({source.name: given(source)}, sort_keys=True)
    return Origin(dataset=written[:2_000], digest=source.digest(data), licence=source.licence)


# --- datasets in memory ----------------------------------------------------------------------------------------------


def _arrays(source: DataSource, dataset: Dataset, data: Path | None) -> Material:
    sharded = isinstance(source, Shards)
    if sharded or source.aim not in AIMS.get(dataset.modality, ()):
        raise DataError(
            f"dataset {source.name!r}: found {'shards' if sharded else f'{dataset.modality}, {source.aim}'}: expected"
            " images, text to continue, or volumes with a class for each voxel"
        )
    labels = dataset.train.labels
    passed = tuple(Passed(reason=s.reason, count=s.count, names=s.names) for s in dataset.skipped)
    return Material(
        modality=dataset.modality,
        task=dataset.task,
        inputs=Inputs(encoding="array", dtype=_type(dataset.train.inputs), shape=dataset.example_shape),
        labels=Labels(dtype=_type(labels), shape=tuple(labels.shape[1:])),
        classes=dataset.classes,
        names=dataset.names,
        origin=origin_of(source, data),
        rows=lambda finished: _rows_of(dataset),
        count=len(dataset.train) + len(dataset.test),
        simulated=dataset.provenance is not None and dataset.provenance.simulated,
        centre=dataset.centre,
        scale=dataset.scale,
        skipped=passed,
    )


def _rows_of(dataset: Dataset) -> Iterator[Row]:
    made = dataset.provenance
    sides: tuple[SideName, SideName] = ("train", "test")
    for side in sides:
        split = dataset.train if side == "train" else dataset.test
        scalar = len(split.labels.shape) == 1
        order = np.arange(len(split))
        # What lies together, such as the slices of a volume, is read together; nothing learns from the test side.
        if side == "train" or dataset.blocks is None:
            order = shuffled(order, dataset.blocks, stream(0, "shards", side))
        for number in order.tolist():
            yield Row(
                slot=number,
                name=f"{side}, example {number}",
                side=side,
                tag=made.classes[made.codes[number]] if side == "train" and made is not None else None,
                label=split.labels[number].item() if scalar else partial(_content, split.labels, number),
                read=partial(_content, split.inputs, number),
            )


def _content(inputs: Tensor | Rows, number: int) -> bytes:
    return inputs[number].numpy().tobytes()


def _type(tensor: Tensor | Rows) -> Any:
    return str(tensor.dtype).removeprefix("torch.")


# --- encoded images --------------------------------------------------------------------------------------------------


def _images(source: LabelledImages, listing: Listing, data: Path | None) -> Material:
    target, entries = listing.target, listing.entries
    predicted = target.predict
    if predicted == "number":
        target = replace(target, values=target.values.float())
    sides: list[Side] = [entry.side for entry in entries if entry.side is not None]
    if len(sides) < len(entries):
        sides = _sides(listing, share=source_share(source) or SHARE)
    faults: dict[Fault, list[str]] = {}
    for name, fault in listing.misplaced:
        faults.setdefault(fault, []).append(name)
    training = [place for place, side in enumerate(sides) if side == "train"]
    numbers = listing.target.values[training].double() if predicted == "number" else None
    centre, scale = (0.0, 1.0) if numbers is None else (float(numbers.mean()), float(numbers.std(correction=0)) or 1.0)
    values = listing.target.values if numbers is None else ((listing.target.values - centre) / scale).float()
    tags = [entry.tag for entry in entries]
    return Material(
        modality="image",
        task=source.aim,
        inputs=Inputs(encoding="image"),
        labels=Labels(dtype=_type(values), shape=tuple(values.shape[1:])),
        classes=target.outputs,
        names=target.names,
        origin=origin_of(source, data),
        rows=lambda finished: _entries(listing, values, sides),
        count=len(entries),
        simulated=any(tags) and all((tag or "").startswith("simulated/") for tag in tags),
        centre=centre,
        scale=scale,
        skipped=tuple(
            Passed(reason=fault.value, count=len(names), names=tuple(names[:MAX_NAMES]))
            for fault, names in faults.items()
        ),
    )


def source_share(source: LabelledImages) -> float | None:
    """Return the share of the test side that a source asks for."""
    return getattr(source, "test", None)


def _sides(listing: Listing, *, share: float) -> list[Side]:
    """Return the side of each image: test for a share of its class, and no image on both sides. Reads all of them."""
    sides: list[Side] = ["train"] * len(listing.entries)
    with warnings.catch_warnings(), ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="digests") as pool:
        warnings.simplefilter("ignore")  # of doubtful images
        made = ahead(pool, _digest, listing.readers(), WAITING)
        digests = dict(enumerate(watched(made, "dividing images", total=len(sides))))
    there = {place: digest for place, digest in digests.items() if not isinstance(digest, Fault)}
    groups = [listing.target.groups[place] for place in there]
    for place, side in zip(there, divided(groups, there.values(), share=share), strict=True):
        sides[place] = side
    return sides


def _digest(read: Reader) -> bytes | Fault:
    content = _checked(read)()
    return content if isinstance(content, Fault) else hashlib.sha256(content).digest()


def _entries(listing: Listing, values: Tensor, sides: Sequence[Side]) -> Iterator[Row]:
    readers = listing.readers()
    if isinstance(readers, list):
        order = stream(0, "shards").permutation(len(readers)).tolist()
        numbered: Iterator[tuple[int, Reader]] = ((number, readers[number]) for number in order)
    else:
        numbered = enumerate(readers)
    for number, read in numbered:
        entry, value = listing.entries[number], values[number]
        label = value.item() if value.ndim == 0 else partial(_content, values, number)
        yield Row(slot=number, name=entry.name, side=sides[number], tag=entry.tag, label=label, read=_checked(read))


def _checked(read: Reader) -> Reader:
    def checked() -> bytes | Fault:
        content = read()
        return content if isinstance(content, Fault) else image_fault(content) or content

    return checked


def image_fault(content: bytes) -> Fault | None:
    """Return why these bytes are no image that can be decoded to its end; None: they are one."""
    if len(content) > MAX_ENCODED_BYTES:
        return Fault.TOO_LARGE
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                return Fault.TOO_MANY_PIXELS
            image.draft(image.mode, (1, 1))  # at an eighth of the scale: every byte is read all the same
            image.load()
    except Image.UnidentifiedImageError:
        return Fault.NO_IMAGE
    except Exception:  # decoders of hostile input raise anything: no list of types would be complete
        return Fault.DAMAGED
    return None
