"""`image_table`: the user's own images, listed in a table with a column to predict.

    photos/metadata.csv:  file_name,price    {image_table: {path: photos/metadata.csv, target: price, predict: number}}
                          a/1.png,12.50
    photos/a/1.png

The table is CSV with names in its first line, or Parquet. Paths begin at the table's directory, or at `folder`, and
never lead out of it: such a row is an error. Rows without a readable image are skipped and listed in the dataset's
card. The column `tag`, if there is one, has the provenance class of every row.

The table is hostile like the files: its paths are resolved, links and all, before anything is opened.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field

from explorer import canonical
from explorer.data.dataset import DataFile, TaskName
from explorer.data.labelled import MAX_ENCODED_BYTES, Entry, LabelledImages, Listing
from explorer.data.local import Fault, LocalFile, below, data_files, shown
from explorer.data.progress_line import watched
from explorer.data.table_file import SUFFIXES, TAGS, TARGETS, content_of, media_of, named, read_table, tags_of, texts
from explorer.data.targets import AIMS, PREDICT, Predict, guess, read_target
from explorer.errors import DataError

EXAMPLES = "training images to use, the first of each class, or by their digests; null: all"
FOLDER = "directory below --data at which the paths begin; null: that of the table"
USUAL = "metadata.csv"  # the table of a directory, as on the Hugging Face hub
PICTURES = (".png", ".jpg", ".jpeg", ".webp")
SHARE = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageTable(LabelledImages):
    """Images whose paths are in a table (CSV or Parquet), in the column `image`; `target` is the column to predict.

    `predict` is `class` (whole numbers or texts), `number` (regression) or `labels` (any number of them in a row). Each
    image is cut to the square in its middle and brought to `size`. `augment` crops (an eighth of the size) and mirrors
    the training images at random. `tag` is the column of provenance classes.
    """

    name: ClassVar[str] = "image_table"
    summary: ClassVar[str] = "images of your own, with their paths and a column to predict in a table (CSV, Parquet)"
    source: ClassVar[str] = "files of yours"

    path: Annotated[str, Field(min_length=1, max_length=1000, description="table below --data")]
    target: Annotated[str, Field(min_length=1, max_length=200, description="column to predict")]
    image: Annotated[str, Field(min_length=1, max_length=200, description="column of the paths")] = "file_name"
    folder: Annotated[str | None, Field(min_length=1, max_length=1000, description=FOLDER)] = None
    tag: Annotated[
        str | None, Field(min_length=1, max_length=200, description="column of the provenance classes; null: none")
    ] = None
    size: Annotated[int, Field(ge=8, le=512, description="side of the square that images are brought to")] = 32
    channels: Annotated[Literal[1, 3], Field(description="1: grey, 3: colour")] = 3
    test: Annotated[float, Field(gt=0, le=0.5, description="share of each class for the test side")] = SHARE
    predict: Annotated[Predict, Field(description=PREDICT)] = "class"
    augment: Annotated[bool, Field(description="crop and mirror training images at random")] = True
    examples: Annotated[int | None, Field(ge=2, description=EXAMPLES)] = None

    @property
    def aim(self) -> TaskName:
        return AIMS[self.predict]

    def listing(self, data: Path | None) -> Listing:
        table = self._table(data)
        files = self._files(table, data)
        values = texts(table.column(self.target))
        target = read_target(values, self.predict, column=self.target, where=f"dataset {self.name!r}: ")
        tags = tags_of(table, self.tag, target=self.target, values=target)
        return Listing(
            entries=[
                Entry(name=file.name, label=label, side=None, tag=tag)
                for file, label, tag in zip(files, target.groups, tags, strict=True)
            ],
            target=target,
            key=canonical.digest(_contents(files)),
            readers=lambda: [partial(file.read, max_bytes=MAX_ENCODED_BYTES) for file in files],
        )

    @classmethod
    def of_path(cls, place: Path, target: str | None = None) -> Self | None:
        listing = place / USUAL if place.is_dir() else place
        if not listing.is_file() or listing.suffix.lower() not in SUFFIXES:
            return None
        table = read_table(listing, dataset=cls.name, columns=(target,))
        image = next((name for name in table.column_names if _are_paths(texts(table.column(name)))), None)
        others = [name for name in table.column_names if name not in (image, *TAGS)]
        if image is None or not others:
            return None
        target = target or named(others, TARGETS) or others[-1]
        path = listing.relative_to(place.parent).as_posix()
        return cls(path=path, image=image, target=target, predict=guess(texts(table.column(target))))

    def with_classes(self, data: Path | None) -> Self:
        return replace(self, tag=self.tag or named(self._table(data).column_names, TAGS) or self.target)

    def digest(self, data: Path | None) -> str:
        content = content_of(below(data, self.path, dataset=self.name), dataset=self.name)
        return canonical.digest([hashlib.sha256(content).hexdigest(), _contents(self._files(self._table(data), data))])

    def files(self, data: Path | None) -> tuple[DataFile, ...]:
        content = content_of(below(data, self.path, dataset=self.name), dataset=self.name)
        digest = hashlib.sha256(content).hexdigest()
        images = {file.name: file for file in self._files(self._table(data), data)}
        return (
            DataFile(path=shown(self.path), sha256=digest, media=media_of(Path(self.path))),
            *data_files(self._begin(), images.values(), media=None, max_bytes=MAX_ENCODED_BYTES),
        )

    def _begin(self) -> str:
        """Return the directory at which the paths begin."""
        return PurePosixPath(self.path).parent.as_posix() if self.folder is None else self.folder

    def _table(self, data: Path | None) -> pa.Table:
        place = below(data, self.path, dataset=self.name)
        return read_table(place, dataset=self.name, columns=(self.image, self.target, self.tag))

    def _files(self, table: pa.Table, data: Path | None) -> list[LocalFile]:
        """Return the file of every row. Raises `DataError` for a path that leads out of the directory."""
        root = below(data, self._begin(), dataset=self.name)
        if not root.is_dir():
            raise DataError(f"dataset {self.name!r}: no directory {root}: expected it below the directory of --data")
        inside = root.resolve()
        cells = enumerate(texts(table.column(self.image)), 1)
        return [_file(cell, root, inside, where=f"{shown(self.path)}, row {row}") for row, cell in cells]


def _file(cell: Any, root: Path, inside: Path, *, where: str) -> LocalFile:
    """Return the file at the path in a cell. Raises `DataError` that begins with `where`."""
    if cell is None or cell == "":
        return LocalFile(name=where, path=root, fault=Fault.MISSING)
    if not isinstance(cell, str):
        raise DataError(f"{where}: found {cell!s:.40}: expected the path of an image")
    pure = PurePosixPath(cell)
    if pure.is_absolute() or ".." in pure.parts or "\0" in cell:
        raise DataError(f"{where}: path {shown(cell)!r:.200} leaves {root}: expected one of an image below it")
    path = root / pure
    fault = None
    try:
        # Resolved as a whole: a directory on the way can be a link as well as the file.
        real = path.resolve(strict=True)
        if not real.is_relative_to(inside):
            raise DataError(f"{where}: path {shown(cell)!r:.200} is a link out of {root}: expected an image below it")
        if not real.is_file():
            fault = Fault.SPECIAL
    except (OSError, RuntimeError):  # no such file, or a link to itself
        fault = Fault.UNREADABLE
    return LocalFile(name=shown(pure.as_posix()), path=path, fault=fault)


def _contents(files: Sequence[LocalFile]) -> list[list[str]]:
    """Return the paths in the table and the digests of the files' contents."""
    hashed = watched(files, "hashing files", total=len(files))
    return [[file.name, file.digest(max_bytes=MAX_ENCODED_BYTES)] for file in hashed]


def _are_paths(cells: Sequence[Any]) -> bool:
    """Return whether every cell with something in it is the name of an image."""
    known = [cell for cell in cells if cell not in (None, "")]
    return bool(known) and all(isinstance(cell, str) and cell.lower().endswith(PICTURES) for cell in known)
