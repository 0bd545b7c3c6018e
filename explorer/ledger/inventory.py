"""Every other file of a ledger's directory: whether it may be there, and whether a blob is what its name says.

Of tiles and bundles only the names are looked at here; `rebuild` compares what is in them.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from explorer.errors import LedgerError
from explorer.ledger.blobs import MAX_BLOB, blob_path
from explorer.ledger.findings import Findings
from explorer.ledger.tiles import belongs, parse_path

UNSIGNED = "unsigned"
DEEPEST = 10  # directories; a tile has at most six groups of digits, and its .p directory
CHUNK = 2**20

_KNOWN = re.compile(r"checkpoint|policy\.tlog-policy|witness/[^/]+\.note|\.lock|witness/\.lock")
_TEMPORARY = re.compile(r"\..+\.tmp")


@dataclass(kw_only=True, slots=True)
class Inventory:
    """What the directory holds besides the tree of its checkpoint."""

    blobs: int = 0  # that were hashed
    beyond: int = 0  # tiles and bundles beyond the checkpoint
    unfinished: int = 0  # temporary files of a writer
    set_aside: bool = False  # whether a writer has found such files after a crash and kept them in `unsigned/`


def take_inventory(directory: Path, *, size: int, findings: Findings) -> Inventory:
    """Look at every file below the directory; what may not be there and blobs that are damaged are findings."""
    found = Inventory()
    for path in _files(directory, findings):
        if file := parse_path(path):
            found.beyond += not belongs(file, size)
        elif _TEMPORARY.fullmatch(path.rpartition("/")[2]):
            found.unfinished += 1
        elif path.startswith("blobs/"):
            found.blobs += 1
            _check_blob(directory, path, findings)
        elif path == UNSIGNED:
            found.set_aside = True
        elif not _KNOWN.fullmatch(path):
            findings.add(path, "unexpected: no such file belongs to a ledger")
    return found


def _files(directory: Path, findings: Findings) -> Iterator[str]:
    """The paths of all regular files, and `unsigned` for what is in there; links and the like are findings."""
    levels = [("", os.scandir(directory))]
    while levels:
        prefix, entries = levels[-1]
        entry = next(entries, None)
        if entry is None:
            levels.pop()
            continue
        path = f"{prefix}{entry.name}"
        is_directory = entry.is_dir(follow_symlinks=False)
        if entry.is_file(follow_symlinks=False) or (path == UNSIGNED and is_directory):
            yield path
        elif not is_directory:
            findings.add(path, "a link" if entry.is_symlink() else "neither a file nor a directory")
        elif len(levels) == DEEPEST:
            findings.add(path, "unexpected: no directory of a ledger lies so deep")
        else:
            try:
                levels.append((f"{path}/", os.scandir(entry.path)))
            except FileNotFoundError:
                continue  # a writer at work removes directories of partials
            except OSError as error:
                findings.add(path, f"cannot be read: {error.strerror or error}")


def _check_blob(directory: Path, path: str, findings: Findings) -> None:
    name = path.rpartition("/")[2]
    try:
        if blob_path(name) != path:
            raise LedgerError(f"unexpected: the blob {name} belongs at {blob_path(name)}")
    except LedgerError as error:
        findings.add(path, str(error))
        return
    digest = hashlib.sha256()
    try:
        with os.fdopen(os.open(directory / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            if (size := os.fstat(file.fileno()).st_size) > MAX_BLOB:
                findings.add(path, f"a blob of {size} bytes; at most {MAX_BLOB} are read")
                return
            while chunk := file.read(CHUNK):
                digest.update(chunk)
    except OSError as error:
        findings.add(path, f"cannot be read: {error.strerror or error}")
        return
    if digest.hexdigest() != name:
        findings.add(path, "the blob was altered: its name is its digest", expected=name, found=digest.hexdigest())
