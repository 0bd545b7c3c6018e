"""Installed distributions: their files, and their declared licences as classes of data (`open/permissive/mit`).

**Licences** are read from three places, of which the first that is present decides: the SPDX expression
(`License-Expression`, PEP 639), the classifiers, and the first line of the `License` text. An expression with licences
of one family has the class of that family; one that mixes families, by AND or by OR, is `open/mixed`, because both are
declared, and a policy that forbids one of them has to be able to forbid it. Unknown and closed licences have no class.

**Files.** Distributions are read from their `*.dist-info` directories only. `RECORD` lists the shipped files, each with
its size and SHA-256; a file is checked against both, so that its bytes are those that the distribution shipped.
Metadata may be hostile: names, sizes and depths are bounded, and no path leads out of the directory in which the
distribution is installed.
"""

import base64
import binascii
import csv
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from explorer import rundir
from explorer.errors import DataError

# --- licences --------------------------------------------------------------------------------------------------------

MIXED = "open/mixed"
POOLED = "open/pooled"  # for families with too few files
MAX_TEXT = 200  # characters of an expression or of the first line of a text


class Family(NamedTuple):
    """Licences that a taxonomy holds for one class."""

    path: str
    identifiers: str  # SPDX, without `-only`, `-or-later` and `+`
    classifiers: str  # what follows "License :: OSI Approved :: ", "; " between them
    names: str  # usual spellings, reduced by `_reduced`


FAMILIES = (
    Family("open/permissive/mit", "MIT MIT-0", "MIT License; MIT No Attribution License (MIT-0)", "mit; expat"),
    Family(
        "open/permissive/bsd",
        "BSD-2-Clause BSD-3-Clause",
        "BSD License",
        "bsd; new bsd; modified bsd; revised bsd; simplified bsd; bsd 3; bsd 2; "
        "bsd 3 clause; bsd 2 clause; 3 clause bsd; 2 clause bsd",
    ),
    Family("open/permissive/apache", "Apache-2.0", "Apache Software License", "apache; apache 2; apache 2.0; asl 2.0"),
    Family("open/permissive/isc", "ISC", "ISC License (ISCL)", "isc; iscl"),
    Family(
        "open/permissive/psf",
        "PSF-2.0 Python-2.0",
        "Python Software Foundation License; Python License (CNRI Python License)",
        "psf; psfl; python foundation",
    ),
    Family("open/permissive/zlib", "Zlib", "zlib/libpng License", "zlib; zlib libpng"),
    Family("open/permissive/boost", "BSL-1.0", "Boost Software License 1.0 (BSL-1.0)", "boost; boost 1.0"),
    Family(
        "open/permissive/hpnd",
        "HPND MIT-CMU",
        "Historical Permission Notice and Disclaimer (HPND); CMU License (MIT-CMU)",
        "hpnd; mit cmu",
    ),
    Family(
        "open/copyleft/mpl",
        "MPL-1.1 MPL-2.0",
        "Mozilla Public License 1.1 (MPL 1.1); Mozilla Public License 2.0 (MPL 2.0)",
        "mpl; mpl 2.0; mpl 1.1; mozilla public 2.0; mozilla public 2.0 mpl",
    ),
    Family(
        "open/copyleft/lgpl",
        "LGPL-2.0 LGPL-2.1 LGPL-3.0",
        "GNU Library or Lesser General Public License (LGPL); GNU Lesser General Public License v2 (LGPLv2); "
        "GNU Lesser General Public License v2 or later (LGPLv2+); GNU Lesser General Public License v3 (LGPLv3); "
        "GNU Lesser General Public License v3 or later (LGPLv3+)",
        "lgpl; gnu lgpl; lgplv2; lgplv3; lgpl 2.1; lgpl 3",
    ),
    Family(
        "open/copyleft/gpl",
        "GPL-2.0 GPL-3.0",
        "GNU General Public License (GPL); GNU General Public License v2 (GPLv2); "
        "GNU General Public License v2 or later (GPLv2+); GNU General Public License v3 (GPLv3); "
        "GNU General Public License v3 or later (GPLv3+)",
        "gpl; gnu gpl; gplv2; gplv3; gpl 2; gpl 3",
    ),
    Family(
        "open/copyleft/agpl",
        "AGPL-3.0",
        "GNU Affero General Public License v3; GNU Affero General Public License v3 or later (AGPLv3+)",
        "agpl; agplv3; agpl 3",
    ),
    Family("open/copyleft/epl", "EPL-2.0", "Eclipse Public License 2.0 (EPL-2.0)", "epl; epl 2.0"),
    Family(
        "open/unconditional",
        "0BSD Unlicense CC0-1.0",
        "The Unlicense (Unlicense); Zero-Clause BSD (0BSD)",
        "unlicense; 0bsd; cc0; cc0 1.0",
    ),
)

IDENTIFIERS = {name.lower(): family.path for family in FAMILIES for name in family.identifiers.split()}
CLASSIFIERS = {name: family.path for family in FAMILIES for name in family.classifiers.split("; ")}
NAMES = {name: family.path for family in FAMILIES for name in family.names.split("; ")}
PATHS = (*(family.path for family in FAMILIES), MIXED, POOLED)
"""Every class that a licence can have."""

APPROVED = "License :: OSI Approved"
NOISE = frozenset({"the", "license", "licence", "version", "software", "v"})


def declared(*, expression: str | None, classifiers: Sequence[str], text: str | None) -> str | None:
    """Return the class that the metadata of a distribution declares, or None without a recognised licence.

    >>> declared(expression="Apache-2.0 OR BSD-2-Clause", classifiers=[], text=None)
    'open/mixed'
    """
    licences = [line for line in classifiers if line.startswith("License ::") and line != APPROVED]
    if expression is not None:
        return _of_expression(expression)
    if licences:
        return _together([CLASSIFIERS.get(line.removeprefix(f"{APPROVED} :: ")) for line in licences])
    first = (text or "").strip().partition("\n")[0]
    return _of_expression(first) or NAMES.get(_reduced(first))


def _of_expression(expression: str) -> str | None:
    """Return the class of an SPDX expression."""
    # Brackets only group, and an exception (`WITH`) only permits more, so neither changes the families.
    words = expression[: MAX_TEXT + 1].replace("(", " ").replace(")", " ").split()
    operands, operators = words[::2], ["AND", *words[1::2]]
    if len(expression) > MAX_TEXT or len(words) % 2 == 0 or not set(operators) <= {"AND", "OR", "WITH"}:
        return None
    paths = [
        IDENTIFIERS.get(re.sub(r"(-only|-or-later|\+)$", "", name.lower()))
        for name, operator in zip(operands, operators, strict=True)
        if operator != "WITH"
    ]
    return _together(paths)


def _together(paths: Sequence[str | None]) -> str | None:
    """Return the class of something under all of these licences; None if one of them is unknown."""
    if None in paths:
        return None
    return paths[0] if len(set(paths)) == 1 else MIXED


def _reduced(name: str) -> str:
    """Return the distinctive words of a licence's name.

    >>> _reduced("Apache License, Version 2.0"), _reduced("The MIT License (MIT)")
    ('apache 2.0', 'mit')
    """
    words = re.findall(r"[a-z0-9][a-z0-9.+]*", name[:MAX_TEXT].lower())
    return " ".join(dict.fromkeys(word for word in words if word not in NOISE))


# --- distributions and their files -----------------------------------------------------------------------------------

SUFFIX = ".dist-info"
MAX_METADATA_BYTES = 2**22
MAX_RECORD_BYTES = 2**26
MAX_FILE_BYTES = 2**20  # larger Python files are generated tables
MAX_PATH = 300
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]{0,99}")
EDITABLE = "__editable__"  # in file names of editable installations: pointers to sources that are not listed


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
    root: Path  # the directory in which it is installed
    licence: str | None  # class path; None: no recognised licence
    files: tuple[PythonFile, ...]

    @property
    def key(self) -> str:
        """The normalised name (PEP 503): "Foo.Bar_baz" and "foo-bar-baz" are the same distribution."""
        return re.sub(r"[-_.]+", "-", self.name).lower()


def installed(search: Iterable[Path]) -> tuple[Distribution, ...]:
    """Return the distributions in these directories, by name; the first of a name is the one that Python imports.

    A directory without metadata or without a list of files is ignored. Raises `DataError` for damaged metadata.
    """
    distributions: dict[str, Distribution] = {}
    for root in search:
        for directory in sorted(root.glob(f"*{SUFFIX}")) if root.is_dir() else ():
            metadata, record = directory / "METADATA", directory / "RECORD"
            if metadata.is_file() and record.is_file():
                distribution = _distribution(root, directory, (_stamp(metadata), _stamp(record)))
                distributions.setdefault(distribution.key, distribution)
    return tuple(distributions[key] for key in sorted(distributions))


def read(distribution: Distribution, file: PythonFile) -> bytes:
    """Return the file's content. Raises `DataError` if it differs from the distribution's list."""
    path, who = distribution.root / file.path, f"{distribution.name} {distribution.version}"
    try:
        if not path.resolve(strict=True).is_relative_to(distribution.root.resolve(strict=True)):
            raise DataError(f"{path}: leads out of the directory in which {who} is installed")
        if not path.is_file():  # opening a pipe would block
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
    """Return values that change whenever the file is written or replaced."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


@lru_cache(maxsize=10_000)
def _distribution(root: Path, directory: Path, stamps: tuple[tuple[int, int, int], ...]) -> Distribution:
    """Read a distribution, once a process as long as its files are unchanged, since every planned run needs it."""
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
    """Yield the listed Python files that have a size and a digest and are in the directory of the installation."""
    try:
        for row in csv.reader(_text(record, max_bytes=MAX_RECORD_BYTES).splitlines(), strict=True):
            if len(row) == 3 and row[0].endswith(".py") and _inside(row[0]):
                digest, size = _sha256(row[1]), _size(row[2])
                if digest and 0 < size <= MAX_FILE_BYTES:
                    yield PythonFile(path=row[0], digest=digest, size=size)
    except csv.Error as error:
        raise DataError(f"{record}: damaged: not a list of files ({error})") from error


def _inside(path: str) -> bool:
    """Return whether an entry names a file of the distribution below the directory of the installation."""
    plain = len(path) <= MAX_PATH and path.isprintable() and "\\" not in path
    return plain and not path.startswith(("/", EDITABLE)) and ".." not in path.split("/")


def _size(written: str) -> int:
    """Return the number of bytes; 0 if it is missing."""
    return int(written) if written.isdecimal() and len(written) < 12 else 0


def _sha256(written: str) -> str | None:
    """Return the digest of "sha256=<URL-safe base64 without padding>" in hexadecimal."""
    kind, _, value = written.partition("=")
    if kind != "sha256" or len(value) != 43:
        return None
    try:
        return base64.b64decode(value.encode() + b"=", altchars=b"-_", validate=True).hex()
    except (binascii.Error, UnicodeEncodeError):
        return None


def _text(path: Path, *, max_bytes: int) -> str:
    return rundir.read_bytes(path, max_bytes=max_bytes, error=DataError).decode("utf-8", errors="replace")
