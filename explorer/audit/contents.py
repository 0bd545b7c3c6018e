"""What the entries of a ledger come to: what they are, whether they may are in this order, and whether what they name
is there.

The ledger's own verification does not look into entries. This does: entries of known kinds have to have their form, and
every blob that an entry names has to be there, unless the project's ledger says that it was erased (withheld.py).
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

    order: Order | None  # None where they are not Explorer's, or are in no order that is allowed
    fault: str | None  # the first entry that cannot be what it is where it is
    blobs: Blobs


def examine_contents(ledger: LedgerDirectory, *, erasures: Erasures = NONE) -> Contents:
    """Read all entries, in memory that does not grow. Raises `LedgerError` if the ledger itself cannot be read.

    A log whose first entry is not one of Explorer's is another party's, and nothing is said about it.
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
    """Reads entries as far as all kinds are alike, and checks the form of those that are known."""

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
