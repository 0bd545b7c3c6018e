"""The distributions that are installed beside us, read from their `*.dist-info` directories and from nothing else.

What `RECORD` lists is what the distribution shipped, each file with its size and SHA-256; a file is read against both,
so that its bytes are those that the distribution answers for. Metadata may be anybody's: names, sizes and depths are
bounded, and no path leads out of the directory in which the distribution is installed.
"""

import base64
import binascii
import csv
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from functools import lru_cache
from pathlib import Path

from explorer import rundir
from explorer.data.licences import declared
from explorer.errors import DataError

SUFFIX = ".dist-info"
MAX_METADATA_BYTES = 2**22
MAX_RECORD_BYTES = 2**26
MAX_FILE_BYTES = 2**20  # larger Python files are generated tables
MAX_PATH = 300
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]{0,99}")
EDITABLE = "__editable__"  # what an editable installation leaves: a pointer to sources that it does not list


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonFile:
    """A Python file that a distribution lists."""

    path: str  # below the directory of the installation, with "/"
    digest: str  # SHA-256
    size: int  # bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """An installed distribution."""

    name: str
    version: str
    root: Path  # where it is installed
    licence: str | None  # class path; None where no licence is declared that is understood
    files: tuple[PythonFile, ...]

    @property
    def key(self) -> str:
        """The name as it is compared: "Foo.Bar_baz" and "foo-bar-baz" are the same distribution."""
        return re.sub(r"[-_.]+", "-", self.name).lower()


def installed(search: Iterable[Path]) -> tuple[Distribution, ...]:
    """The distributions in these directories, by name; the first of a name is the one that Python imports.

    A directory without metadata or without a list of files is not a distribution that can be read. Raises `DataError`
    for metadata that is damaged.
    """
    found: dict[str, Distribution] = {}
    for root in search:
        for directory in sorted(root.glob(f"*{SUFFIX}")) if root.is_dir() else ():
            metadata, record = directory / "METADATA", directory / "RECORD"
            if metadata.is_file() and record.is_file():
                distribution = _distribution(root, directory, (_stamp(metadata), _stamp(record)))
                found.setdefault(distribution.key, distribution)
    return tuple(found[key] for key in sorted(found))


def read(distribution: Distribution, file: PythonFile) -> bytes:
    """The file's content. Raises `DataError` if it is not what the distribution lists."""
    path, who = distribution.root / file.path, f"{distribution.name} {distribution.version}"
    try:
        if not path.resolve(strict=True).is_relative_to(distribution.root.resolve(strict=True)):
            raise DataError(f"{path}: leads out of the directory in which {who} is installed")
        if not path.is_file():  # a pipe would be waited for
            raise DataError(f"{path}, which {who} lists: not a file; reinstall {distribution.name}")
        with path.open("rb") as opened:
            content = opened.read(file.size + 1)
    except OSError as error:
        raise DataError(
            f"cannot read {path}, which {who} lists: {error.strerror or error}; reinstall {distribution.name}"
        ) from error
    if len(content) != file.size or hashlib.sha256(content).hexdigest() != file.digest:
        raise DataError(f"{path}: changed since {who} was installed; reinstall {distribution.name}")
    return content


def _stamp(path: Path) -> tuple[int, int, int]:
    """Changes when the file is written or replaced."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


@lru_cache(maxsize=10_000)
def _distribution(root: Path, directory: Path, stamps: tuple[tuple[int, int, int], ...]) -> Distribution:
    """Read once by a process as long as the files are the same: every run that is planned asks anew."""
    text = _text(directory / "METADATA", max_bytes=MAX_METADATA_BYTES)
    metadata = HeaderParser().parsestr(text.replace("\r\n", "\n").partition("\n\n")[0])
    name, version = str(metadata.get("Name", "")), str(metadata.get("Version", ""))
    if not NAME.fullmatch(name) or not VERSION.fullmatch(version):
        raise DataError(f"{directory}: damaged: found name {name!r:.80} and version {version!r:.80}")
    return Distribution(
        name=name,
        version=version,
        root=root,
        licence=declared(
            expression=metadata.get("License-Expression"),
            classifiers=metadata.get_all("Classifier") or [],
            text=metadata.get("License"),
        ),
        files=tuple(_listed(directory / "RECORD")),
    )


def _listed(record: Path) -> Iterator[PythonFile]:
    """The Python files of the list that have a size and a digest and lie where the distribution is installed."""
    try:
        for row in csv.reader(_text(record, max_bytes=MAX_RECORD_BYTES).splitlines(), strict=True):
            if len(row) == 3 and row[0].endswith(".py") and _inside(row[0]):
                digest, size = _sha256(row[1]), _size(row[2])
                if digest and 0 < size <= MAX_FILE_BYTES:
                    yield PythonFile(path=row[0], digest=digest, size=size)
    except csv.Error as error:
        raise DataError(f"{record}: damaged: not a list of files ({error})") from error


def _inside(path: str) -> bool:
    """Whether it names a file below the directory of the installation, one that the distribution wrote."""
    plain = len(path) <= MAX_PATH and path.isprintable() and "\\" not in path
    return plain and not path.startswith(("/", EDITABLE)) and ".." not in path.split("/")


def _size(written: str) -> int:
    """The number of bytes; 0 where none is written."""
    return int(written) if written.isdecimal() and len(written) < 12 else 0


def _sha256(written: str) -> str | None:
    """The digest of "sha256=<URL-safe base64 without padding>" in hexadecimal."""
    kind, _, value = written.partition("=")
    if kind != "sha256" or len(value) != 43:
        return None
    try:
        return base64.b64decode(value.encode() + b"=", altchars=b"-_", validate=True).hex()
    except (binascii.Error, UnicodeEncodeError):
        return None


def _text(path: Path, *, max_bytes: int) -> str:
    return rundir.read_bytes(path, max_bytes=max_bytes, error=DataError).decode("utf-8", errors="replace")
