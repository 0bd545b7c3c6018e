"""What the entries of a ledger come to: whether they may stand in this order, and whether what they name is there.

The ledger's own verification does not look into entries. This does, as far as it can without knowing every kind.
"""

import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from explorer.entries.envelope import BlobReference, Head, read_head
from explorer.entries.sequence import Order, check_sequence
from explorer.errors import LedgerError
from explorer.ledger.blobs import blob_path
from explorer.ledger.read import LedgerDirectory


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """The entries of one ledger."""

    order: Order | None  # None where they are not Explorer's, or stand in no order that is allowed
    fault: str | None  # the first entry that cannot be what it is where it is
    missing: int  # blobs that entries name and that are not here: erased, left behind, or lost


def examine_contents(ledger: LedgerDirectory) -> Contents:
    """Read all entries, in memory that does not grow. Raises `LedgerError` if the ledger itself cannot be read.

    A log whose first entry is not one of Explorer's is somebody else's, and nothing is said about it.
    """
    size = ledger.checkpoint().size
    blobs = _Blobs(ledger.path)
    try:
        order = check_sequence(blobs.watch(_heads(ledger.entries(0, size))))
    except LedgerError as error:
        return Contents(order=None, fault=None if blobs.entries == 0 and size else str(error), missing=blobs.missing)
    return Contents(order=order, fault=None, missing=blobs.missing)


def _heads(leaves: Iterable[bytes]) -> Iterator[Head]:
    for index, leaf in enumerate(leaves):
        try:
            yield read_head(leaf)
        except LedgerError as error:
            raise LedgerError(f"entry {index}: {str(error).removeprefix('entry: ')}") from error


class _Blobs:
    """Counts entries, and the blobs that they name and that are not there with the size they are said to have."""

    def __init__(self, directory: Path) -> None:
        self.entries = 0
        self.missing = 0
        self._directory = directory

    def watch(self, heads: Iterable[Head]) -> Iterator[Head]:
        for head in heads:
            self.entries += 1
            self.missing += sum(not self._is_there(blob) for blob in head.blobs.values())
            yield head

    def _is_there(self, blob: BlobReference) -> bool:
        """Whether its content is what its name says is for the ledger's verification."""
        try:
            found = (self._directory / blob_path(blob.sha256)).lstat()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise LedgerError(f"cannot look for blob {blob.sha256}: {error.strerror or error}") from error
        return stat.S_ISREG(found.st_mode) and found.st_size == blob.size
