"""Blobs of entries, opened where they are sealed and the reader has the key."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from explorer.entries.fields import Blob
from explorer.errors import LedgerError, ProvenanceError
from explorer.ledger.storage import blob_path, read_blob
from explorer.provenance.sealing import MAGIC, OVERHEAD, is_sealed, open_sealed
from explorer.runlog.keys import JOINT

_OF_A_CLASS = ("numbers", "sketches", "evidence")
_JOINT = "joint"

Key = Callable[[str, str, int], bytes | None]  # `Keys.of`


class Missing(StrEnum):
    """Why there is no content."""

    NOT_HERE = "not here"  # never was, or was erased or left behind
    SEALED = "sealed: needs a grant"


def class_of(name: str) -> str | None:
    """The class whose numbers a blob of this name holds, * for several; None for a blob that is nobody's.

    >>> class_of("numbers/open/mit"), class_of("joint"), class_of("slots")
    ('open/mit', '*', None)
    """
    what, _, path = name.partition("/")
    return path if path and what in _OF_A_CLASS else JOINT if name == _JOINT else None


def claims_seal(ledger: Path, sha256: str) -> bool:
    """Whether a blob is here and begins as a sealed one does. Raises `LedgerError` for one that cannot be read."""
    try:
        with (ledger / blob_path(sha256)).open("rb") as file:
            return is_sealed(file.read(len(MAGIC)))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise LedgerError(f"cannot read blob {sha256}: {error.strerror or error}") from error


def read_content(
    ledger: Path, name: str, blob: Blob, *, key: Key, kind: str, first: int, max_bytes: int
) -> bytes | Missing:
    """The content of a blob of a ledger, its digest checked. `kind` and `first` are those of its reading key, which
    `key` is asked for where the blob is sealed.

    Raises `LedgerError` for one that is damaged, larger than it can be, or sealed with another key.
    """
    if not (ledger / blob_path(blob.sha256)).exists():
        return Missing.NOT_HERE
    if blob.size > max_bytes + OVERHEAD:
        raise LedgerError(f"blob {name} of {blob.size} bytes, at most {max_bytes}")
    content, path = read_blob(ledger, blob.sha256), class_of(name)
    if path is not None and is_sealed(content):
        opening = key(path, kind, first)
        if opening is None:
            return Missing.SEALED
        try:
            content = open_sealed(opening, content, kind=kind, name=name, first=first)
        except ProvenanceError as error:
            raise LedgerError(f"blob {error}") from error
    if len(content) > max_bytes:
        raise LedgerError(f"blob {name} of {len(content)} bytes, at most {max_bytes}")
    return content
