"""`mds`: images of the user's own in shards of MosaicML Streaming (shards/mds_format.py).

    photos/train/index.json, photos/train/shard.00000.mds, ...    train and test (or validation, valid, val, dev), or
    photos/index.json, photos/shard.00000.mds, ...                with `test: 0.1`: a tenth of each class

An image is a column of JPEG, PNG, encoded bytes, raw pixels (`pil`), or arrays of uint8, H W or H W 3. The label is a
number, a text, JSON or an array; with `predict: number` any number, with `predict: labels` a list or a text such as
red|round (targets.py). The column `tag`, if there is one, has the provenance class of every sample. Samples without a
readable image are skipped and listed in the dataset's card. The digest covers the names and contents of all files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field

from explorer import canonical
from explorer.data.dataset import DataFile, TaskName
from explorer.data.labelled import TESTS, Entry, LabelledImages, Listing, Reader, Side
from explorer.data.local import Fault, below, data_files
from explorer.data.progress_line import watched
from explorer.data.shards.mds_format import INDEX, MAX_SHARD, PICTURES, VALUES, MdsDirectory, image_of, is_mds, value_of
from explorer.data.table_file import TAGS, TARGETS, named, tags_of
from explorer.data.targets import AIMS, PREDICT, Predict, guess, read_target
from explorer.errors import DataError

TEST = "share of each class for the test side; null: train and test have directories of their own"
EXAMPLES = "training images to use, the first of each class; null: all"
IMAGES = ("image", "img", "jpg", "jpeg", "png", "x", "pixels", "data")  # usual names of columns
LABELS = (*TARGETS, "fine_label", "cls", "label_id")
SHARE = 0.2  # for the test side of images that are not divided
SAMPLE = 500  # values that are looked at to guess what is predicted


@dataclass(frozen=True, kw_only=True, slots=True)
class MdsImages(LabelledImages):
    """Images in MDS shards in the directory `path`; `image`, `label` and `tag` are the names of columns.

    Each image is cut to the square in its middle and brought to `size`. `test` divides what has no `train` and `test`
    directories. `augment` crops (an eighth of the size) and mirrors the training images at random. `predict` is
    `class`, `number` (regression) or `labels` (any number of them in a sample).
    """

    name: ClassVar[str] = "mds"
    summary: ClassVar[str] = "images of your own, in shards of MosaicML Streaming (MDS)"
    source: ClassVar[str] = "files of yours"

    path: Annotated[str, Field(min_length=1, max_length=1000, description="directory below --data")]
    image: Annotated[str, Field(min_length=1, max_length=200, description="column of the images")] = "image"
    label: Annotated[str, Field(min_length=1, max_length=200, description="column of the labels")] = "label"
    tag: Annotated[
        str | None, Field(min_length=1, max_length=200, description="column of the provenance classes; null: none")
    ] = None
    size: Annotated[int, Field(ge=8, le=512, description="side of the square that images are brought to")] = 32
    channels: Annotated[Literal[1, 3], Field(description="1: grey, 3: colour")] = 3
    test: Annotated[float | None, Field(gt=0, le=0.5, description=TEST)] = None
    augment: Annotated[bool, Field(description="crop and mirror training images at random")] = True
    examples: Annotated[int | None, Field(ge=2, description=EXAMPLES)] = None
    predict: Annotated[Predict, Field(description=PREDICT)] = "class"

    @property
    def aim(self) -> TaskName:
        return AIMS[self.predict]

    def listing(self, data: Path | None) -> Listing:
        directories = self._directories(data)
        columns = [self.label] if self.tag in (None, self.label) else [self.label, self.tag or ""]
        for _, directory in directories:
            if directory.encoding(self.image).partition(":")[0] not in PICTURES:
                raise DataError(
                    f"{directory.place}: column {self.image!r} is {directory.encoding(self.image)!r:.40}: expected"
                    f" images, as {', '.join(PICTURES)}"
                )
        rows: list[tuple[Side | None, str, list[Any]]] = [
            (side, name, values)
            for side, directory in directories
            for name, values in _values(directory, columns, prefix=_prefix(directory, directories))
        ]
        target = read_target(
            [values[0] for *_, values in rows],
            self.predict,
            column=self.label,
            where=f"dataset {self.name!r}: ",
            name=lambda place: rows[place][1],
        )
        tags: Sequence[str | None] = [None] * len(rows)
        if self.tag is not None:
            table = pa.table({self.tag: [str(values[-1]) for *_, values in rows]})
            tags = tags_of(table, self.tag, target=self.label, values=target)
        return Listing(
            entries=[
                Entry(name=name, label=label, side=side, tag=tag)
                for (side, name, _), label, tag in zip(rows, target.groups, tags, strict=True)
            ],
            target=target,
            key=canonical.digest([self.image, _contents(directories)]),
            readers=lambda: _readers(directories, self.image),
        )

    @classmethod
    def of_path(cls, place: Path) -> Self | None:
        divided = _sides(place)
        if not divided and not is_mds(place):
            return None
        directory = MdsDirectory.at(place / next(iter(divided)) if divided else place)
        kinds = {name: encoding.partition(":")[0] for name, encoding in directory.encodings.items()}
        images = [name for name, kind in kinds.items() if kind in PICTURES]
        labels = [name for name, kind in kinds.items() if VALUES.fullmatch(kind)]
        # The usual names first; else the only column that can be it.
        image = named(images, IMAGES) or (images[0] if len(images) == 1 else cls.image)
        labels = [name for name in labels if name != image]
        tag = named([name for name in labels if kinds[name] == "str"], TAGS)
        labels = [name for name in labels if name != tag]
        label = named(labels, LABELS) or (labels[0] if len(labels) == 1 else cls.label)
        source = cls(path=place.name, image=image, label=label, tag=tag, test=None if divided else SHARE)
        if label not in labels:
            return source
        first = [values[0] for (_, values), _ in zip(_values(directory, [label]), range(SAMPLE), strict=False)]
        # Whole numbers under a usual name are classes, however many.
        numbers = label in LABELS and all(isinstance(value, int) for value in first)
        return replace(source, predict="class" if numbers else guess(first))

    def with_classes(self, data: Path | None) -> Self:
        (_, directory), *_ = self._directories(data)
        return replace(self, tag=self.tag or named(list(directory.encodings), TAGS) or self.label)

    def digest(self, data: Path | None) -> str:
        return canonical.digest(_contents(self._directories(data)))

    def files(self, data: Path | None) -> tuple[DataFile, ...]:
        directories = self._directories(data)
        return tuple(
            file
            for _, directory in directories
            for file in data_files(
                f"{self.path}/{_prefix(directory, directories)}".rstrip("/"),
                directory.files,
                media="application/octet-stream",
                max_bytes=MAX_SHARD,
            )
        )

    def _directories(self, data: Path | None) -> list[tuple[Side | None, MdsDirectory]]:
        """Return the directory of each side, or the one of both. Raises `DataError` if they are not as `test` says."""
        root = below(data, self.path, dataset=self.name)
        divided = _sides(root)
        if self.test is None and not divided:
            raise DataError(
                f"dataset {self.name!r}: {root} has no directories 'train' and 'test' (or 'val') with an {INDEX}:"
                " expected both, or a share of the samples for the test side, such as test: 0.1"
            )
        if self.test is not None and divided:
            names = " and ".join(map(repr, divided))
            raise DataError(f"dataset {self.name!r}: {root} is divided into {names}: leave 'test' out")
        if not divided:
            return [(None, MdsDirectory.at(root))]
        return [(side, MdsDirectory.at(root / name)) for name, side in divided.items()]


def _sides(root: Path) -> dict[str, Side]:
    """Return the side of each directory that is one; none if the samples are not divided."""
    there = [name for name in ("train", *TESTS) if is_mds(root / name)]
    return {"train": "train", there[1]: "test"} if there[:1] == ["train"] and len(there) > 1 else {}


def _prefix(directory: MdsDirectory, directories: Sequence[tuple[Side | None, MdsDirectory]]) -> str:
    return f"{directory.place.name}/" if len(directories) > 1 else ""


def _values(directory: MdsDirectory, columns: Sequence[str], *, prefix: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Yield the name of each sample, and what some columns have."""
    encodings = [directory.encoding(column) for column in columns]
    samples = watched(directory.samples(columns), "reading labels", total=len(directory))
    for name, contents in samples:
        where = f"{prefix}{name}"
        yield where, [value_of(one, kind, where=where) for one, kind in zip(contents, encodings, strict=True)]


def _readers(directories: Sequence[tuple[Side | None, MdsDirectory]], column: str) -> Iterator[Reader]:
    for _, directory in directories:
        encoding = directory.encoding(column)
        for _, (content,) in directory.samples([column]):
            yield partial(image_of, content, encoding)


def _contents(directories: Sequence[tuple[Side | None, MdsDirectory]]) -> list[list[str]]:
    """Return the name and digest of each file. Raises `DataError` for one that is not there."""
    contents = []
    for _, directory in directories:
        prefix = _prefix(directory, directories)
        for file in directory.files:
            digest = file.digest(max_bytes=MAX_SHARD)
            if digest in {*Fault}:
                raise DataError(f"{directory.place}/{file.name}: {digest}: expected the file that the index names")
            contents.append([f"{prefix}{file.name}", digest])
    return contents
