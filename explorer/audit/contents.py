"""The contents of a ledger: the form and order of its entries, and the blobs that they name.

The ledger's own verification does not look into entries. This does: entries of known kinds must have their form and be
in an allowed order, and every blob that an entry names must exist, unless the project's ledger has its erasure
(withheld.py).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from explorer.audit.named_blobs import ALL_HERE, NONE, Blobs, BlobSearch, Erasures
from explorer.entries.heads import Head, Order, check_sequence, read_head
from explorer.entries.kinds import KINDS, decode
from explorer.errors import LedgerError
from explorer.ledger.storage import LedgerDirectory


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """The entries of one ledger."""

    order: Order | None  # None: they are not Explorer's, or not in an allowed order
    fault: str | None  # the first entry that is malformed or out of order
    blobs: Blobs


def examine_contents(ledger: LedgerDirectory, *, erasures: Erasures = NONE) -> Contents:
    """Read all entries, in constant memory. Raises `LedgerError` if the ledger itself cannot be read.

    A log whose first entry is not Explorer's belongs to other software, and is not judged.
    """
    size, reader = ledger.checkpoint().size, _Reader(BlobSearch(ledger.path, erasures))
    try:
        order = check_sequence(reader.heads(ledger.entries(0, size)))
    except LedgerError as error:
        if reader.foreign:
            return Contents(order=None, fault=None, blobs=ALL_HERE)
        return Contents(order=None, fault=str(error), blobs=reader.search.close())
    return Contents(order=order, fault=None, blobs=reader.search.close())


class _Reader:
    """Reader of the part that all kinds of entries have in common; known kinds are decoded as well."""

    def __init__(self, search: BlobSearch) -> None:
        self.search = search
        self.foreign = False  # the first entry is not Explorer's

    def heads(self, leaves: Iterable[bytes]) -> Iterator[Head]:
        for index, leaf in enumerate(leaves):
            try:
                head = read_head(leaf)
            except LedgerError as error:
                self.foreign = index == 0
                raise LedgerError(f"entry {index}: {str(error).removeprefix('entry: ')}") from error
            self.search.look(index, head)
            if (head.kind, head.version) in KINDS:
                try:
                    decode(leaf)
                except LedgerError as error:
                    raise LedgerError(f"entry {index}: {error}") from error
            yield head
