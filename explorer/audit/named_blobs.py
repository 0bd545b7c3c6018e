"""The blobs that the entries of a ledger name: present, on record as erased, or missing.

This needs only the part that all entries have in common, and imports little: `explorer ledger verify` runs it on any
ledger.
"""

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from explorer.entries.heads import BlobReference, Head, read_head
from explorer.errors import LedgerError
from explorer.ledger.storage import LedgerDirectory, blob_path

MOST = 20  # missing blobs that are named
NO_BLOBS = b'{"blobs":{},'  # most entries begin like this: they name no blobs and are not parsed
WITHOUT = "no entry of the project's ledger says that it was erased"


class Erasures(Protocol):
    """The erasures on record."""

    def entries(self, name: str) -> tuple[int, ...]:
        """Return the entries of the project's ledger by which a blob of this name was erased; empty: none."""
        ...

    def words(self, name: str) -> str:
        """Return the reason why a blob of this name is missing."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class NoErasures:
    """No erasure on record."""

    without: str = WITHOUT  # the reason

    def entries(self, name: str) -> tuple[int, ...]:
        return ()

    def words(self, name: str) -> str:
        return f"missing, and {self.without}"


NONE = NoErasures()


@dataclass(frozen=True, kw_only=True, slots=True)
class Blobs:
    """The blobs that entries name and that do not exist with the size that the entry gives."""

    missing: int = 0  # without an erasure on record
    first: tuple[str, ...] = ()  # the first of these, in words
    erased: int = 0  # on record
    by: tuple[int, ...] = ()  # entries of the project's ledger that record the erasures
    strange: int = 0  # entries that are not Explorer's: their blobs are not known


ALL_HERE = Blobs()


def look_for_blobs(ledger: LedgerDirectory, *, erasures: Erasures = NONE) -> Blobs:
    """Look for the blobs that entries name; nothing else about the entries is judged. Raises `LedgerError` if the
    ledger itself cannot be read."""
    # A log whose first entry is not Explorer's belongs to other software, and is not judged at all.
    search, strange = BlobSearch(ledger.path, erasures), 0
    for index, leaf in enumerate(ledger.entries()):
        if leaf.startswith(NO_BLOBS):
            continue
        try:
            head = read_head(leaf)
        except LedgerError:
            if index == 0:
                return ALL_HERE
            strange += 1
            continue
        search.look(index, head)
    return search.close(strange)


class BlobSearch:
    """Counter of the missing blobs that entries name."""

    def __init__(self, directory: Path, erasures: Erasures) -> None:
        self._directory, self._erasures = directory, erasures
        self._missing, self._erased = 0, 0
        self._first: list[str] = []
        self._by = set[int]()

    def look(self, index: int, head: Head) -> None:
        """Look for the blobs of an entry. Raises `LedgerError` where the disk refuses."""
        for name, blob in head.blobs.items():
            if self._is_there(blob):
                continue
            if entries := self._erasures.entries(name):
                self._erased += 1
                self._by.update(entries)
                continue
            self._missing += 1
            if len(self._first) < MOST:
                self._first.append(f"entry {index}: {name}: {self._erasures.words(name)}")

    def close(self, strange: int = 0) -> Blobs:
        """Return the counts; `strange` is the number of entries that could not be read."""
        return Blobs(
            missing=self._missing,
            first=tuple(self._first),
            erased=self._erased,
            by=tuple(sorted(self._by)),
            strange=strange,
        )

    def _is_there(self, blob: BlobReference) -> bool:
        """Return whether the blob exists with its size. The ledger's verification checks its digest."""
        # No link is followed: a blob is a regular file in the ledger's own directory.
        try:
            status = (self._directory / blob_path(blob.sha256)).lstat()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise LedgerError(f"cannot look for blob {blob.sha256}: {error.strerror or error}") from error
        return stat.S_ISREG(status.st_mode) and status.st_size == blob.size
