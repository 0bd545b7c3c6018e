"""Whether a ledger that is here is the one that somebody names, as it was then or has become."""

from explorer import merkle
from explorer.entries.fields import LedgerState
from explorer.ledger.storage import LedgerDirectory
from explorer.provenance.named import LedgerName


def goes_on_from(ledger: LedgerDirectory, named: LedgerState | LedgerName) -> bool:
    """Whether the ledger has the name, and its first entries are all of those that the named state has.

    A state without entries says nothing of any ledger, and none goes on from it. Raises `LedgerError` for a damaged
    ledger.
    """
    here = ledger.checkpoint()
    if here.origin != named.origin or not 0 < named.size <= here.size:
        return False
    return merkle.root(named.size, ledger.read_hashes).hex() == named.root
