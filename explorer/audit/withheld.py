"""What of a run's numbers cannot be looked at: erased, and an entry of the project's ledger says so; or sealed.

Numbers count as erased where an entry about this very ledger names their class: an `erasure`, or a `deletion`, which
lists them as to be destroyed. Those over several classes go with any class. The entry has to be in a project's ledger
that the caller believes as much as the run's. Blobs that are gone without such an entry were withheld, or lost, and
contradict the record: otherwise the numbers that convict a run could be dropped and called erased. Sealed numbers are
here, and the reader has no key.
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
    """What may be missing of a run's numbers, and why."""

    erased: Mapping[str, tuple[int, ...]]  # class -> the entries of the project's ledger that say so
    without: str  # why what is not in there counts as no erasure
    confidential: frozenset[str] = frozenset()  # classes that the policy has sealed

    def entries(self, name: str) -> tuple[int, ...]:
        """Return the entries that say that a blob of this name was erased; none: no entry does."""
        of = class_of(name)
        if of == JOINT:
            return tuple(sorted({index for entries in self.erased.values() for index in entries}))
        return self.erased.get(of, ()) if of is not None else ()

    def words(self, name: str) -> str:
        """In words: "erased: entry 3 of the project's ledger", or why it does not count as erased."""
        found = self.entries(name)
        if not found:
            return NoErasures(without=self.without).words(name)
        which = f"entry {found[0]}" if len(found) == 1 else f"entries {', '.join(map(str, found))}"
        return f"erased: {which} of the project's ledger"

    def tell(self, judgement: Judgement, name: str, why: Missing) -> None:
        """Say why a blob cannot be looked at. That one is missing without a reason is for another condition to find."""
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
    """Return what the project's ledger says was erased of a run with this ledger; nothing where it is not believed.
    Without a trust file nobody is, and its entries are taken as they are, as those of the run are."""
    runs, head = runs_of(ledger.path.parent), ledger.checkpoint()
    mine = LedgerState(origin=head.origin, size=head.size, root=head.root.hex())
    if not (runs / AUDIT / CHECKPOINT).exists():
        return Withheld(erased={}, without=f"{WITHOUT}: there is none in {runs / AUDIT}")
    erased: dict[str, tuple[int, ...]] = {}
    try:
        for each in read_project(runs):
            if isinstance(each.entry, Erasure | Deletion) and each.entry.ledger == mine:
                erased |= {path: (*erased.get(path, ()), each.index) for path in each.entry.classes}
        badge = project_badge(runs, trust=trust, now=now) if erased and trust is not None else None
    except ExplorerError as error:
        return Withheld(erased={}, without=f"{WITHOUT}: it cannot be read: {error}")
    if badge is not None and badge.findings:
        return Withheld(erased={}, without=f"{WITHOUT} and can be believed: {badge.findings[0]}")
    return Withheld(erased=erased, without=WITHOUT)
