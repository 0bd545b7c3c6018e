"""The numbers of a run that cannot be read: erased with an entry in the project's ledger, or sealed.

Numbers count as erased where an entry about this very ledger names their class: an `erasure`, or a `deletion`, which
lists them for destruction. Numbers over several classes go with any class. The entry has to be in a project's ledger
that the caller believes as much as the run's. Blobs that are gone without such an entry were withheld or lost, and
contradict the record: otherwise the numbers that convict a run could be dropped and called erased. Sealed numbers
exist, but the reader has no key.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from explorer.audit.badges import project_badge
from explorer.audit.conditions import Cause, Judgement
from explorer.audit.named_blobs import WITHOUT, NoErasures
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Deletion, Erasure
from explorer.errors import ExplorerError
from explorer.ledger.storage import CHECKPOINT, LedgerDirectory
from explorer.project import AUDIT, read_project, runs_of
from explorer.provenance.trust import Trust
from explorer.runlog.run_keys import JOINT
from explorer.runlog.run_ledger import Missing, class_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Withheld:
    """The numbers of a run that may be missing, with the reasons."""

    erased: Mapping[str, tuple[int, ...]]  # class -> entries of the project's ledger that record it
    without: str  # the reason why any other missing blob does not count as erased
    confidential: frozenset[str] = frozenset()  # classes that the policy seals

    def entries(self, name: str) -> tuple[int, ...]:
        """Return the entries by which a blob of this name was erased; empty: none."""
        # Numbers over several classes go with the first class: it could be computed from them.
        of = class_of(name)
        if of == JOINT:
            return tuple(sorted({index for entries in self.erased.values() for index in entries}))
        return self.erased.get(of, ()) if of is not None else ()

    def words(self, name: str) -> str:
        """Return the reason: "erased: entry 3 of the project's ledger", or why the blob does not count as erased."""
        entries = self.entries(name)
        if not entries:
            return NoErasures(without=self.without).words(name)
        which = f"entry {entries[0]}" if len(entries) == 1 else f"entries {', '.join(map(str, entries))}"
        return f"erased: {which} of the project's ledger"

    def tell(self, judgement: Judgement, name: str, why: Missing) -> None:
        """Add to a judgement why a blob cannot be read. A blob that is missing without a reason is only a gap here: the
        condition that requires it reports the contradiction."""
        of = class_of(name)
        if why is Missing.SEALED:
            classes = sorted(self.confidential) if of == JOINT else [of or JOINT]
            judgement.untold(f"{name}: {why}", cause=Cause.SEALED, classes=classes)
        elif self.entries(name):
            classes = sorted(self.erased) if of == JOINT else [of or JOINT]
            judgement.untold(f"{name}: {self.words(name)}", cause=Cause.ERASED, classes=classes)
        else:
            judgement.untold(f"{name}: {self.words(name)}")


def read_withheld(ledger: LedgerDirectory, *, trust: Trust | None, now: int) -> Withheld:
    """Read the erasures of this run from the project's ledger; without effect where that ledger is not believed.

    Without a trust file no signer is believed, and its entries count as they are, like those of the run.
    """
    # Only entries about exactly this ledger count: those of an earlier checkpoint do not excuse later blobs.
    runs, head = runs_of(ledger.path.parent), ledger.checkpoint()
    mine = LedgerState(origin=head.origin, size=head.size, root=head.root.hex())
    if not (runs / AUDIT / CHECKPOINT).exists():
        return Withheld(erased={}, without=f"{WITHOUT}: there is none in {runs / AUDIT}")
    erased: dict[str, tuple[int, ...]] = {}
    try:
        for placed in read_project(runs):
            if isinstance(placed.entry, Erasure | Deletion) and placed.entry.ledger == mine:
                erased |= {path: (*erased.get(path, ()), placed.index) for path in placed.entry.classes}
        # Verifying the project's ledger is slow, and pointless while it excuses nothing.
        badge = project_badge(runs, trust=trust, now=now) if erased and trust is not None else None
    except ExplorerError as error:
        return Withheld(erased={}, without=f"{WITHOUT}: it cannot be read: {error}")
    if badge is not None and badge.findings:
        return Withheld(erased={}, without=f"{WITHOUT} and can be believed: {badge.findings[0]}")
    return Withheld(erased=erased, without=WITHOUT)
