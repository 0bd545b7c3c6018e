"""Files of the user's own below the data directory: found, read and named, whatever they are.

They may be anybody's. A path never leads out of the directory; pipes and devices are not opened; a name that would
steer a terminal is written out. What cannot be used is no error but a fault, which the dataset's card lists.
"""

import hashlib
import mimetypes
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path, PurePosixPath

import numpy as np

from explorer.data.dataset import DataFile, Skipped
from explorer.errors import DataError

MAX_FILES = 10**6
MAX_NAMES = 5  # of each fault, in a card


class Fault(StrEnum):
    """Why a file, or a row of one, is passed over."""

    OUTSIDE = "a link that leads out of the directory"
    LINKED = "a link to a directory"
    SPECIAL = "neither a file nor a directory"
    UNREADABLE = "cannot be read"
    TOO_LARGE = "too large"
    MISPLACED = "in no class's directory"
    MISSING = "no image in the row"
    NO_IMAGE = "not a PNG, JPEG or WebP image"
    TOO_MANY_PIXELS = "too many pixels"
    DAMAGED = "damaged or cut short"
    NO_TEXT = "not UTF-8 text"


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalFile:
    """A file below a directory, or what stands in the place of one."""

    name: str  # its path below the directory with "/", as it can be shown
    path: Path
    fault: Fault | None = None

    def read(self, *, max_bytes: int) -> bytes | Fault:
        """The content, or why there is none."""
        if self.fault is not None:
            return self.fault
        try:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                return Fault.TOO_LARGE if size > max_bytes else file.read(size)
        except OSError:
            return Fault.UNREADABLE

    def digest(self, *, max_bytes: int) -> str:
        """SHA-256 of the content, or the words of the fault. Computed once as long as the file is the same."""
        if self.fault is not None:
            return self.fault
        try:
            found = self.path.stat()
        except OSError:
            return Fault.UNREADABLE
        if found.st_size > max_bytes:
            return Fault.TOO_LARGE
        return _hashed(self.path, (found.st_ino, found.st_size, found.st_ctime_ns))


def data_files(root: str, files: Iterable[LocalFile], *, media: str | None, max_bytes: int) -> tuple[DataFile, ...]:
    """The files that can be read, as a description lists them; without a media type each has that of its name."""
    found = []
    for file in files:
        digest = file.digest(max_bytes=max_bytes)
        if digest not in {*Fault}:
            kind = media or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            found.append(DataFile(path=f"{shown(root)}/{file.name}", sha256=digest, media=kind))
    return tuple(found)


def below(data: Path | None, path: str, *, dataset: str) -> Path:
    """The path below the data directory. Raises `DataError` if it leads out of it, or nobody said where that is."""
    if data is None:
        raise DataError(f"dataset {dataset!r}: give the directory that holds {path!r:.80} by --data or EXPLORER_DATA")
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\0" in path:
        raise DataError(
            f"dataset {dataset!r}: {path!r:.200} leaves the data directory: expected a path below it, the same on every"
            f" machine; the directory itself, {str(data)!r:.200} now, is given by --data or EXPLORER_DATA"
        )
    return data / pure


def listed(root: Path) -> list[LocalFile]:
    """Everything below the directory that is not a directory, by name. Links to files within it are followed.

    Raises `DataError` if there are more than a million.
    """
    inside = root.resolve()
    found: list[LocalFile] = []

    def add(path: Path, fault: Fault | None) -> None:
        found.append(LocalFile(name=shown(path.relative_to(root).as_posix()), path=path, fault=fault))
        if len(found) > MAX_FILES:
            raise DataError(f"{root}: more than {MAX_FILES} files")

    def refused(error: OSError) -> None:
        add(Path(str(error.filename)), Fault.UNREADABLE)

    for directory, folders, files in os.walk(root, onerror=refused):
        for name in folders:
            if (path := Path(directory, name)).is_symlink():
                add(path, Fault.LINKED)
        for name in files:
            path = Path(directory, name)
            add(path, _fault(path, inside))
    return sorted(found, key=lambda file: file.name)


def first_of_each(codes: np.ndarray, count: int | None, *, dataset: str) -> np.ndarray:
    """The places of `count` examples, ascending: the first of every class, then the second of every class, and so on,
    until there are enough. None: all. Raises `DataError` for fewer than there are classes, and for more than there are
    examples."""
    if count is None:
        return np.arange(len(codes))
    classes = len(np.unique(codes))
    if not classes <= count <= len(codes):
        raise DataError(
            f"dataset {dataset!r}: found examples: {count}, expected {classes} (one of each class) to {len(codes)}"
        )
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], codes[order])
    turns = np.empty(len(codes), np.int64)
    turns[order] = np.arange(len(codes)) - starts  # how many of its class come before it
    return np.sort(np.lexsort((np.arange(len(codes)), turns))[:count])


def shown(name: str) -> str:
    """The name with every character written out that cannot be printed, such as line ends and broken UTF-8."""
    return name if name.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in name)


def skipped(faults: Iterable[tuple[str, Fault]]) -> tuple[Skipped, ...]:
    """What was passed over, by reason: how many, and the first few names."""
    counts: Counter[Fault] = Counter()
    names: dict[Fault, list[str]] = {}
    for name, fault in faults:
        counts[fault] += 1
        if len(first := names.setdefault(fault, [])) < MAX_NAMES:
            first.append(name)
    return tuple(Skipped(reason=f.value, count=counts[f], names=tuple(names[f])) for f in Fault if f in counts)


def _fault(path: Path, inside: Path) -> Fault | None:
    try:
        if path.is_symlink() and not path.resolve(strict=True).is_relative_to(inside):
            return Fault.OUTSIDE
        return None if path.is_file() else Fault.SPECIAL
    except (OSError, RuntimeError):  # a link to nothing, or to itself
        return Fault.UNREADABLE


@lru_cache(maxsize=200_000)
def _hashed(path: Path, stamp: tuple[int, int, int]) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return Fault.UNREADABLE
