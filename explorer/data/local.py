"""The user's own files below the data directory: listing and reading them, and a table of their provenance classes.

The files may be hostile. A path never leads out of the directory; pipes and devices are not opened; names with control
characters are escaped. A file that cannot be used is not an error but a fault, which the dataset's card lists.

A class table is CSV with a header, a path and its class in each row:

    path,class
    .,open/permissive/mit
    articles,licensed/news
    articles/0001.txt,personal/customer

A path is that of a file or a directory below the dataset's directory; `.` is all of it. A file has the class of the
longest path that contains it. The table has to cover every file, and every row has to cover a file: otherwise the files
of a misspelt row would silently get the class of a wider row.

Without a table, the word `folders` in its place makes a class of every folder: `folders/articles`.
"""

import csv
import hashlib
import io
import mimetypes
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path, PurePosixPath

import numpy as np

from explorer import rundir
from explorer.data.dataset import DataFile, Skipped
from explorer.errors import DataError
from explorer.provenance.spellings import CLASS_PATTERN, MAX_PATH

# --- files -----------------------------------------------------------------------------------------------------------

MAX_FILES = 10**7
MAX_NAMES = 5  # of each fault, in a card
HIDDEN = "."  # begins the names of files and folders that are left out


class Fault(StrEnum):
    """Reasons why a file, or a row of one, is skipped."""

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
    NO_DOCUMENT = "no text in the row"
    HELD_OUT = "a document of the test side too"


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalFile:
    """An entry below a directory: a file, or something else with a fault."""

    name: str  # its path below the directory with "/", safe to print
    path: Path
    fault: Fault | None = None

    def read(self, *, max_bytes: int) -> bytes | Fault:
        """Return the content, or a fault."""
        if self.fault is not None:
            return self.fault
        try:
            with self.path.open("rb") as file:
                # The size of the opened file, not of its path, which could be exchanged in between.
                size = os.fstat(file.fileno()).st_size
                return Fault.TOO_LARGE if size > max_bytes else file.read(size)
        except OSError:
            return Fault.UNREADABLE

    def digest(self, *, max_bytes: int) -> str:
        """Return the SHA-256 of the content, or the words of the fault. Computed once as long as the file is
        unchanged."""
        if self.fault is not None:
            return self.fault
        try:
            status = self.path.stat()
        except OSError:
            return Fault.UNREADABLE
        if status.st_size > max_bytes:
            return Fault.TOO_LARGE
        return _hashed(self.path, (status.st_ino, status.st_size, status.st_ctime_ns))


def data_files(root: str, files: Iterable[LocalFile], *, media: str | None, max_bytes: int) -> tuple[DataFile, ...]:
    """Return the readable files as a description lists them; without a media type, each has that of its name."""
    described = []
    for file in files:
        digest = file.digest(max_bytes=max_bytes)
        if digest not in {*Fault}:
            kind = media or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            described.append(DataFile(path=f"{shown(root)}/{file.name}", sha256=digest, media=kind))
    return tuple(described)


def below(data: Path | None, path: str, *, dataset: str) -> Path:
    """Return the path below the data directory. Raises `DataError` if it leads out of it, or no directory is given."""
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
    """Return everything below the directory except directories, by name. Links to files within it are followed. What is
    hidden, by a dot before its name, is left out: editors, notebooks and file managers put it there.

    Raises `DataError` if there are more than ten million.
    """
    # Links to directories are faults: they could lead in circles, and list files twice.
    inside = root.resolve()
    local: list[LocalFile] = []

    def add(path: Path, fault: Fault | None) -> None:
        local.append(LocalFile(name=shown(path.relative_to(root).as_posix()), path=path, fault=fault))
        if len(local) > MAX_FILES:
            raise DataError(f"{root}: more than {MAX_FILES} files")

    def refused(error: OSError) -> None:
        add(Path(str(error.filename)), Fault.UNREADABLE)

    for directory, folders, files in os.walk(root, onerror=refused):
        folders[:] = [name for name in folders if not name.startswith(HIDDEN)]
        for name in folders:
            if (path := Path(directory, name)).is_symlink():
                add(path, Fault.LINKED)
        for name in files:
            if not name.startswith(HIDDEN):
                path = Path(directory, name)
                add(path, _fault(path, inside))
    return sorted(local, key=lambda file: file.name)


def matching(root: Path, pattern: str) -> Iterator[Path]:
    """Yield the paths below the directory that fit a pattern, without what is hidden."""
    for path in root.glob(pattern):
        if not any(part.startswith(HIDDEN) for part in path.relative_to(root).parts):
            yield path


def first_of_each(codes: np.ndarray, count: int | None, *, dataset: str) -> np.ndarray:
    """Return the indices of `count` examples, ascending: the first of every class, then the second of every class, and
    so on, until there are enough; None: all.

    Raises `DataError` for fewer examples than classes, and for more than there are.
    """
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
    """Return the name with every unprintable character escaped, such as line ends and invalid UTF-8."""
    return name if name.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in name)


def skipped(faults: Iterable[tuple[str, Fault]]) -> tuple[Skipped, ...]:
    """Return the skipped files, counted by reason, with the first few names."""
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


# --- class tables ----------------------------------------------------------------------------------------------------

MAX_BYTES = 2**24
MAX_ROWS = 10**5
MAX_SPELT = 80  # characters of a folder's name in the path of its class
ALL = "."
FOLDERS = "folders"  # in place of a table: every folder is a class


def read_class_table(path: Path) -> dict[str, str]:
    """Return the class of each path. Raises `DataError` that names file, row and fault."""
    if not path.is_file():
        raise DataError(f"no file {path}: expected a table of provenance classes below the data directory")
    return parse_class_table(rundir.read_bytes(path, max_bytes=MAX_BYTES, error=DataError), where=str(path))


def parse_class_table(content: bytes, *, where: str) -> dict[str, str]:
    """Return the class of each path. Raises `DataError` that begins with `where`."""
    try:
        rows = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        if next(rows, None) != ["path", "class"]:
            raise DataError(f"{where}: expected a table (CSV) that begins with the line: path,class")
        table: dict[str, str] = {}
        for number, row in enumerate(rows, start=2):
            if row:
                name, path_class = _checked(row, where=f"{where}, row {number}")
                if name in table:
                    raise DataError(f"{where}, row {number}: {name!r} is listed twice")
                table[name] = path_class
            if len(table) > MAX_ROWS:
                raise DataError(f"{where}: more than {MAX_ROWS} rows")
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{where}: damaged: not CSV in UTF-8 ({error})") from error
    return table


def classes_of(names: Sequence[str], table: Mapping[str, str], *, where: str) -> list[str]:
    """Return the class of each file. Raises `DataError` for a file without a row, and for a row without a file."""
    used: set[str] = set()
    classes = []
    for name in names:
        # From the file upwards: the longest path in the table decides.
        lineage = [name, *(parent.as_posix() for parent in PurePosixPath(name).parents)]
        row = next((above for above in lineage if above in table), None)
        if row is None:
            raise DataError(f"{where}: no row covers {name!r}: expected one, or a row {ALL!r} for all that is left")
        used.update(lineage)
        classes.append(table[row])
    if idle := sorted(table.keys() - used):
        raise DataError(f"{where}: {idle[0]!r} is no file or directory that is read: expected a path that is")
    return classes


def named_classes(names: Iterable[str], branch: str = FOLDERS) -> dict[str, str]:
    """Return a class on a branch for each name, such as `folders/my-cats` for "My Cats". Different names have different
    classes."""
    spelt: dict[str, str] = {}
    for name in sorted(set(names)):
        plain = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("._-")[:MAX_SPELT] or "unnamed"
        # Of two names that are spelt alike, the second one in the order of the names gets a part of its digest.
        if plain in spelt.values():
            plain += f"-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:6]}"
        spelt[name] = plain
    return {name: f"{branch}/{plain}" for name, plain in spelt.items()}


def check_class(path: object, *, where: str) -> str:
    """Return the path if it is a class path. Raises `DataError` that begins with `where`."""
    if not is_class(path):
        raise DataError(
            f"{where}: found class {path!r:.80}: expected a path as in a taxonomy, such as 'open/permissive/mit'"
        )
    return str(path)


def is_class(path: object) -> bool:
    """Return whether this is the path of a class."""
    return isinstance(path, str) and len(path) <= MAX_PATH and bool(re.fullmatch(CLASS_PATTERN.strip("^$"), path))


def _checked(row: list[str], *, where: str) -> tuple[str, str]:
    if len(row) != 2:
        raise DataError(f"{where}: found {len(row)} fields, expected path and class")
    name = PurePosixPath(row[0])
    if not row[0] or name.is_absolute() or ".." in name.parts:
        raise DataError(f"{where}: found path {row[0]!r:.80}: expected one below the dataset's directory")
    return name.as_posix(), check_class(row[1], where=where)
