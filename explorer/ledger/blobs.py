"""Blobs: content too large for an entry, addressed by its SHA-256 at blobs/sha256/<first two digits>/<digest>.

An entry that names a digest thereby authenticates the blob. A blob is written once and never changed.
"""

import hashlib
import re
from pathlib import Path

from explorer.errors import LedgerError, RunError
from explorer.ledger.files import read_file
from explorer.rundir import flush_directory, write_bytes

MAX_BLOB = 2**30
_DIGEST = re.compile(r"[0-9a-f]{64}")


def blob_path(digest: str) -> str:
    """Where a blob stands below the ledger's directory. Raises `LedgerError` for what is no digest."""
    if not _DIGEST.fullmatch(digest):
        raise LedgerError(f"not a digest: {digest[:80]!r}; expected 64 hexadecimal digits in lower case")
    return f"blobs/sha256/{digest[:2]}/{digest}"


def write_blob(directory: Path, content: bytes) -> str:
    """Store the content and return its digest; it is on the disk when this returns. Storing it again does nothing.

    Raises `LedgerError` if it is larger than 1 GiB, if the disk refuses, or if what is stored there is damaged.
    """
    if len(content) > MAX_BLOB:
        raise LedgerError(f"a blob of {len(content)} bytes; at most {MAX_BLOB} are stored")
    digest = hashlib.sha256(content).hexdigest()
    path = directory / blob_path(digest)
    try:
        if _read(directory, digest) is None:
            write_bytes(path, content)
        else:  # perhaps of a writer that died before the names on the way were on the disk
            for parent in list(path.parents)[:4]:
                flush_directory(parent)
    except RunError as error:
        raise LedgerError(str(error)) from error
    except OSError as error:
        raise LedgerError(f"cannot write {path}: {error.strerror or error}") from error
    return digest


def read_blob(directory: Path, digest: str) -> bytes:
    """The content with this digest. Raises `LedgerError` if it is not there or is not what the digest says."""
    content = _read(directory, digest)
    if content is None:
        raise LedgerError(f"{directory / blob_path(digest)}: the blob is missing")
    return content


def _read(directory: Path, digest: str) -> bytes | None:
    content = read_file(directory, blob_path(digest), max_bytes=MAX_BLOB)
    if content is not None and (found := hashlib.sha256(content).hexdigest()) != digest:
        raise LedgerError(f"{directory / blob_path(digest)}: the blob is damaged: its digest is {found}")
    return content
