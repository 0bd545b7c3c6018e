"""The blobs that the entries of a ledger name: whether each is there, or else on record as erased.

Nothing of an entry's meaning is needed for that, and little is loaded: `explorer ledger verify` asks it of any ledger.
"""

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from explorer.entries.heads import BlobReference, Head, read_head
from explorer.errors import LedgerError
from explorer.ledger.storage import LedgerDirectory, blob_path

MOST = 20  # missing blobs that are named
NO_BLOBS = b'{"blobs":{},'  # how most entries begin: they name none, and need not be parsed
WITHOUT = "no entry of the project's ledger says that it was erased"


class Erasures(Protocol):
    """What was erased on record."""

    def entries(self, name: str) -> tuple[int, ...]:
        """Return the entries of the project's ledger that say that a blob of this name was erased; none: no entry
        does."""
        ...

    def words(self, name: str) -> str:
        """Return why a blob of this name is not there."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class NoErasures:
    """Where no erasure counts."""

    without: str = WITHOUT  # why not

    def entries(self, name: str) -> tuple[int, ...]:
        return ()

    def words(self, name: str) -> str:
        return f"missing, and {self.without}"


NONE = NoErasures()


@dataclass(frozen=True, kw_only=True, slots=True)
class Blobs:
    """The blobs that entries name and that are not there with the size they are said to have."""

    missing: int = 0  # and no erasure on record covers them
    first: tuple[str, ...] = ()  # the first of these, in words
    erased: int = 0  # on record
    by: tuple[int, ...] = ()  # the entries of the project's ledger that say so
    strange: int = 0  # entries that are not Explorer's: what they name is not known


ALL_HERE = Blobs()


def look_for_blobs(ledger: LedgerDirectory, *, erasures: Erasures = NONE) -> Blobs:
    """Return whether the blobs that entries name are there; nothing else of the entries is judged. Nothing is said of a
    log whose first entry is not Explorer's. Raises `LedgerError` if the ledger itself cannot be read."""
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
    """Counts the blobs that entries name and that are not there."""

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
        """Return the result; `strange`: how many entries could not be looked at."""
        return Blobs(
            missing=self._missing,
            first=tuple(self._first),
            erased=self._erased,
            by=tuple(sorted(self._by)),
            strange=strange,
        )

    def _is_there(self, blob: BlobReference) -> bool:
        """Return whether its content is what its name says is for the ledger's verification."""
        try:
            found = (self._directory / blob_path(blob.sha256)).lstat()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise LedgerError(f"cannot look for blob {blob.sha256}: {error.strerror or error}") from error
        return stat.S_ISREG(found.st_mode) and found.st_size == blob.size
