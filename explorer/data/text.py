"""`text`: the user's own file, or all text files of a directory, byte by byte.

A single file is read as it is. Of a directory, all UTF-8 files are read in the order of their names, separated by zero
bytes; others are skipped and listed in the dataset's card, and hidden ones left out. The last tenth is the test side.

The digest of a directory covers the names of its files below `path`, and their contents: the order of the names is that
of the stream, so another name may make other examples. Where `path` itself is makes no difference.

`provenance` names a table of provenance classes, or is `folders` (local.py): each folder is a class, and so is a file
that is in none. The files of each class then form a stream of their own, whose last tenth is the test side, so that
every example has one class.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, ClassVar, Self

import numpy as np
import torch
from pydantic import Field

from explorer import canonical, rundir
from explorer.data.dataset import DataFile, Dataset, DataSource, Fitted, Modality, Provenance, TaskName
from explorer.data.local import (
    FOLDERS,
    Fault,
    LocalFile,
    below,
    classes_of,
    data_files,
    first_of_each,
    listed,
    matching,
    named_classes,
    read_class_table,
    shown,
    skipped,
)
from explorer.data.progress_line import watched
from explorer.data.sequences import Text, cut_blocks
from explorer.data.source import SEPARATOR
from explorer.errors import DataError

MAX_BYTES = 2**30
TEST = 10  # the last tenth
SUFFIXES = (".txt", ".md", ".rst", ".py", ".json", ".jsonl", ".tex")  # by which text is recognised


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalText(DataSource):
    """A file as it is, or the text files of a directory, in blocks of `context` bytes.

    `provenance` is a table below the data directory that gives every file a class, or `folders`: each folder is one.
    """

    name: ClassVar[str] = "text"
    summary: ClassVar[str] = "text of your own, a file or a directory, byte by byte; its last tenth is the test side"
    source: ClassVar[str] = "a file or directory of yours"
    licence: ClassVar[str] = "whatever holds for the text"
    modality: ClassVar[Modality] = "text"
    task: ClassVar[TaskName] = "language"
    fitted: ClassVar[Fitted] = {}  # read byte by byte
    metrics: ClassVar[tuple[str, ...]] = ("bits_per_byte",)

    path: Annotated[str, Field(min_length=1, max_length=1000, description="file or directory below --data")]
    context: Annotated[int, Field(ge=8, le=4096, description="bytes of an example")] = 128
    provenance: Annotated[
        str | None, Field(min_length=1, max_length=1000, description="table of provenance classes below --data")
    ] = None
    examples: Annotated[
        int | None, Field(ge=1, description="training examples to use, the first of each class; null: all")
    ] = None

    def load(self, data: Path | None) -> Dataset:
        contents, faults = self._contents(data)
        classes = self._classes(data, list(contents))
        train, test, sources, codes = [], [], [], []
        for code, path in enumerate(sorted(set(classes))):
            names = [name for name, own in zip(contents, classes, strict=True) if own == path]
            sides, origins = self._sides(names, [contents[name] for name in names], path)
            train.append(sides[0])
            test.append(sides[1])
            sources += origins
            codes += [code] * len(origins)
        chosen = first_of_each(np.asarray(codes, dtype=np.int64), self.examples, dataset=self.name)
        provenance = Provenance(
            classes=tuple(sorted(set(classes))),
            codes=np.asarray(codes, dtype=np.int64)[chosen],
            sources=tuple(sources[place] for place in chosen),
        )
        return Text.of(
            torch.cat(train)[torch.from_numpy(chosen)],
            torch.cat(test),
            provenance=None if self.provenance is None else provenance,
            skipped=skipped(faults),
        )

    @classmethod
    def of_path(cls, place: Path) -> Self | None:
        texts = [place] if place.is_file() else [*matching(place, "*"), *matching(place, "*/*")]
        return cls(path=place.name) if any(path.suffix in SUFFIXES for path in texts) else None

    def with_classes(self, data: Path | None) -> Self:
        return replace(self, provenance=self.provenance or FOLDERS)

    def digest(self, data: Path | None) -> str:
        root = below(data, self.path, dataset=self.name)
        rows = sorted(self._table(data).items())
        if root.is_dir():
            files = listed(root)
            hashed = watched(files, "hashing files", total=len(files))
            named = [[file.name, file.digest(max_bytes=MAX_BYTES)] for file in hashed]
            return canonical.digest([named, [list(row) for row in rows]])
        content = hashlib.sha256(_whole(root)).hexdigest()
        return canonical.digest([content, [list(row) for row in rows]]) if rows else content

    def files(self, data: Path | None) -> tuple[DataFile, ...]:
        root = below(data, self.path, dataset=self.name)
        if root.is_dir():
            return data_files(self.path, listed(root), media="text/plain", max_bytes=MAX_BYTES)
        content = hashlib.sha256(_whole(root)).hexdigest()
        return (DataFile(path=shown(self.path), sha256=content, media="text/plain"),)

    def _contents(self, data: Path | None) -> tuple[dict[str, bytes], list[tuple[str, Fault]]]:
        """Return the content of every readable file, by name, and the faults of the others."""
        root = below(data, self.path, dataset=self.name)
        if not root.is_dir():
            return {shown(root.name): _whole(root)}, []
        table = self._place_of_table(data)
        contents: dict[str, bytes] = {}
        faults: list[tuple[str, Fault]] = []
        left = MAX_BYTES
        files = listed(root)
        for file in watched(files, "reading texts", total=len(files)):
            if file.path == table:
                continue
            content = _text(file, max_bytes=MAX_BYTES)
            if isinstance(content, Fault):
                faults.append((file.name, content))
            else:
                contents[file.name] = content
                left -= len(content) + len(SEPARATOR)
            if left < 0:
                raise DataError(f"{root}: too large: at most {MAX_BYTES} bytes are read")
        if not contents:
            example = f", such as {faults[0][0]}: {faults[0][1]}" if faults else ""
            raise DataError(f"dataset {self.name!r}: no text in {root} ({len(faults)} files skipped{example})")
        return contents, faults

    def _table(self, data: Path | None) -> dict[str, str]:
        table = self._place_of_table(data)
        return {} if table is None else read_class_table(table)

    def _place_of_table(self, data: Path | None) -> Path | None:
        return None if self.provenance in (None, FOLDERS) else below(data, self.provenance, dataset=self.name)

    def _classes(self, data: Path | None, names: list[str]) -> list[str]:
        """Return the provenance class of each file; an empty one for all without a table."""
        if self.provenance == FOLDERS:
            folders = [PurePosixPath(name).parts[0] for name in names]
            return [*map(named_classes(folders).__getitem__, folders)]
        return classes_of(names, self._table(data), where=self.provenance) if self.provenance else [""] * len(names)

    def _sides(self, names: list[str], contents: list[bytes], path: str) -> tuple[Sequence[torch.Tensor], list[str]]:
        """Return both sides of a stream in blocks, and the file in which each training block begins."""
        stream = SEPARATOR.join(contents)
        middle = len(stream) - len(stream) // TEST
        train, test = (cut_blocks(side, context=self.context) for side in (stream[:middle], stream[middle:]))
        if not len(train) or not len(test):
            what = f"class {path!r} of {self.path}" if path else self.path
            least = TEST * (self.context + 1)
            raise DataError(f"dataset {self.name!r}: {what}: {len(stream)} bytes, expected {least} or more")
        starts = np.cumsum([0, *(len(content) + len(SEPARATOR) for content in contents[:-1])])
        within = np.searchsorted(starts, np.arange(len(train)) * self.context, side="right") - 1
        return (train, test), [names[index] for index in within]


def _whole(path: Path) -> bytes:
    """Read a file as it is."""
    if not path.is_file():  # opening a pipe would block
        raise DataError(f"dataset 'text': no file {path}: expected it below the directory of --data")
    return rundir.read_bytes(path, max_bytes=MAX_BYTES, error=DataError)


def _text(file: LocalFile, *, max_bytes: int) -> bytes | Fault:
    """Read a file of a directory. Anything but text is a fault."""
    content = file.read(max_bytes=max_bytes)
    if isinstance(content, Fault):
        return content
    try:
        content.decode()
    except UnicodeDecodeError:
        return Fault.NO_TEXT
    return content
