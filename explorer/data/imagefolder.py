"""`imagefolder`: the user's own images, in a directory for each class.

    photos/train/cat/1.jpg    photos/cat/1.jpg
    photos/train/dog/2.jpg    photos/dog/2.jpg
    photos/test/cat/3.jpg     with `test: 0.1`: a tenth of each class is the test side

Without a directory `test`, the first of `validation`, `valid`, `val` and `dev` is the test side.

PNG, JPEG and WebP, at any depth below the directory of their class. Unreadable files are skipped and listed in the
dataset's card; a class without a readable image is an error. Hidden files and directories are left out. `provenance`
names a table of provenance classes, or is `folders` (local.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from explorer import canonical
from explorer.data.dataset import DataFile
from explorer.data.labelled import MAX_ENCODED_BYTES, TESTS, Entry, LabelledImages, Listing, Side
from explorer.data.local import (
    FOLDERS,
    HIDDEN,
    Fault,
    LocalFile,
    below,
    classes_of,
    data_files,
    listed,
    matching,
    named_classes,
    read_class_table,
    shown,
)
from explorer.data.progress_line import watched
from explorer.data.targets import Target
from explorer.errors import DataError

TEST = "share of each class for the test side; null: train and test have directories of their own"
EXAMPLES = "training images to use, the first of each class; null: all"
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")  # of the files by which a directory of images is recognised
SHARE = 0.2  # for the test side of images that are not divided


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageFolder(LabelledImages):
    """Images in a directory for each class, below `path`.

    Each is cut to the square in its middle and brought to `size`. `test` divides what has no `train` and `test`
    directories. `augment` crops (an eighth of the size) and mirrors the training images at random. `provenance` is a
    table below the data directory that gives every image a class, or `folders`: the directory of a label is a class.
    """

    name: ClassVar[str] = "imagefolder"
    summary: ClassVar[str] = "images of your own, in a directory for each class"
    source: ClassVar[str] = "a directory of yours"

    path: Annotated[str, Field(min_length=1, max_length=1000, description="directory below --data")]
    size: Annotated[int, Field(ge=8, le=512, description="side of the square that images are brought to")] = 32
    channels: Annotated[Literal[1, 3], Field(description="1: grey, 3: colour")] = 3
    test: Annotated[float | None, Field(gt=0, le=0.5, description=TEST)] = None
    augment: Annotated[bool, Field(description="crop and mirror training images at random")] = True
    examples: Annotated[int | None, Field(ge=2, description=EXAMPLES)] = None
    provenance: Annotated[
        str | None, Field(min_length=1, max_length=1000, description="table of provenance classes below --data")
    ] = None

    def listing(self, data: Path | None) -> Listing:
        root, table = self._root(data), self._table(data)
        files = [file for file in listed(root) if file.path != table]
        sides = _sides(root)
        placed = {file.name: place for file in files if (place := self._place(file.name, sides))}
        images = [file for file in files if file.name in placed]
        tags: list[str] | list[None] = [None] * len(images)
        if table is not None:
            tags = classes_of([file.name for file in images], read_class_table(table), where=str(table))
        elif self.provenance == FOLDERS:
            spelt = named_classes(placed[file.name][1] for file in images)
            tags = [spelt[placed[file.name][1]] for file in images]
        entries = [
            Entry(name=file.name, side=placed[file.name][0], label=placed[file.name][1], tag=tag)
            for file, tag in zip(images, tags, strict=True)
        ]
        labels = [entry.label for entry in entries]
        return Listing(
            entries=entries,
            target=Target.of_classes(labels, self._labels(root, sides, used={*labels})),
            key=canonical.digest(_contents(images)),
            readers=lambda: [partial(file.read, max_bytes=MAX_ENCODED_BYTES) for file in images],
            misplaced=[(file.name, file.fault or Fault.MISPLACED) for file in files if file.name not in placed],
        )

    @classmethod
    def of_path(cls, place: Path) -> Self | None:
        divided = bool(_sides(place))
        levels = "*/*/*" if divided else "*/*"
        if not place.is_dir() or not any(path.suffix.lower() in SUFFIXES for path in matching(place, levels)):
            return None
        return cls(path=place.name, test=None if divided else SHARE)

    def with_classes(self, data: Path | None) -> Self:
        return replace(self, provenance=self.provenance or FOLDERS)

    def digest(self, data: Path | None) -> str:
        table = self._table(data)
        rows = [] if table is None else sorted(read_class_table(table).items())
        return canonical.digest([_contents(listed(self._root(data))), [list(row) for row in rows]])

    def files(self, data: Path | None) -> tuple[DataFile, ...]:
        root = self._root(data)
        files = [file for file in listed(root) if self._place(file.name, _sides(root))]
        return data_files(self.path, files, media=None, max_bytes=MAX_ENCODED_BYTES)

    def _root(self, data: Path | None) -> Path:
        """Return the directory. Raises `DataError` if it is missing, or not divided as the parameters say."""
        root = below(data, self.path, dataset=self.name)
        if not root.is_dir():
            raise DataError(f"dataset {self.name!r}: no directory {root}: expected it below the directory of --data")
        divided = _sides(root)
        if self.test is None and not divided:
            raise DataError(
                f"dataset {self.name!r}: {root} has no directories 'train' and 'test' (or 'validation'): expected both,"
                " or a share of the images for the test side, such as test: 0.1"
            )
        if self.test is not None and divided:
            names = " and ".join(map(repr, divided))
            raise DataError(f"dataset {self.name!r}: {root} is divided into {names}: leave 'test' out")
        return root

    def _table(self, data: Path | None) -> Path | None:
        return None if self.provenance in (None, FOLDERS) else below(data, self.provenance, dataset=self.name)

    def _place(self, name: str, sides: Mapping[str, Side]) -> tuple[Side | None, str] | None:
        """Return the side and class of a file; None outside the classes' directories."""
        parts = name.split("/")
        if self.test is not None:
            return (None, parts[0]) if len(parts) > 1 else None
        return (sides[parts[0]], parts[1]) if len(parts) > 2 and parts[0] in sides else None

    def _labels(self, root: Path, sides: Mapping[str, Side], *, used: set[str]) -> list[str]:
        """Return the names of the classes' directories, of either side. Raises `DataError` for a class without a file;
        `used` are those of the files."""
        # A class without an image has to be reported, not to vanish from the model's outputs.
        above = [root] if self.test is not None else [root / side for side in sides]
        try:
            entries = [path for parent in above for path in parent.iterdir() if not path.name.startswith(HIDDEN)]
            directories = {shown(path.name): path for path in entries if path.is_dir() and not path.is_symlink()}
        except OSError as error:
            raise DataError(f"cannot read {error.filename}: {error.strerror or error}") from error
        if empty := sorted(directories.keys() - used):
            raise DataError(
                f"dataset {self.name!r}: class {empty[0]!r}: found no file in its folder"
                f" {shown(str(directories[empty[0]]))}: expected images there, or no such folder"
            )
        return sorted(directories)


def _sides(root: Path) -> dict[str, Side]:
    """Return the side of each directory that is one; none if the images are not divided."""
    tests = [name for name in TESTS if (root / name).is_dir()]
    return {"train": "train", tests[0]: "test"} if tests and (root / "train").is_dir() else {}


def _contents(files: list[LocalFile]) -> list[list[str]]:
    """Return the names of files and the digests of their contents."""
    hashed = watched(files, "hashing files", total=len(files))
    return [[file.name, file.digest(max_bytes=MAX_ENCODED_BYTES)] for file in hashed]
