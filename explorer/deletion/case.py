"""What a certificate is held against: both ledgers, whole and signed, the new run's directory, and the target.

Of the old run its ledger is enough. Where its documents are not beside it, those of the new run are read: the genesis
of either ledger names them by digest.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from explorer import rundir
from explorer.deletion.records_list import RecordsList
from explorer.entries.fields import LedgerState
from explorer.entries.heads import check_sequence, read_head
from explorer.errors import LedgerError, ProvenanceError
from explorer.ledger.storage import CHECKPOINT, read_checkpoint
from explorer.ledger.verify import verify
from explorer.provenance.deletion_certificate import Certificate, Deleted, RunAt
from explorer.provenance.policy import RoutingPolicy
from explorer.provenance.spellings import LedgerName
from explorer.provenance.trust import Trust
from explorer.run_files import read_plan
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.documents import read_policy
from explorer.runlog.influence import Presence, Reach, reach_of
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target
from explorer.runlog.tensors import Ended, read_ended


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A certificate and what is here to hold it against."""

    certificate: Certificate
    model: str  # SHA-256 of the new model's file, as it is certified
    old: RunLedger
    new: RunLedger
    old_place: Path  # where the old ledger is; beside it there may be nothing
    trust: Trust
    listed: RecordsList | None  # of a target of single records

    @cached_property
    def target(self) -> Target:
        """What was deleted. Raises `ProvenanceError` where the list of records is needed and is not here, or is another
        one."""
        deleted: Deleted = self.certificate.target
        if deleted.records is None:
            return Target(classes=deleted.classes, authorities=deleted.authorities)
        if self.listed is None:
            raise ProvenanceError("the list of the deleted records is not here")
        if self.listed.listed != deleted.records:
            raise ProvenanceError(
                f"the list of {len(self.listed.records)} records does not open the commitment "
                f"{deleted.records.commitment} to {deleted.records.number}"
            )
        return Target(records=self.listed.records)

    @cached_property
    def presence(self) -> Presence:
        """The steps of the old run."""
        return Presence(self.old)

    @cached_property
    def reach(self) -> Reach:
        """What the target touched in the old run, by its ledger."""
        return reach_of(self.presence, self.target)

    @property
    def unseen(self) -> str | None:
        """Why nobody can tell from here what methods looked at, where it matters; None: that can be told."""
        if (self.target.classes and not self.old.begins) or read_plan(self.old_place) is not None:
            return None
        names = f"{rundir.RUN} or {rundir.LOOP}"
        return f"which methods looked at single examples, the old run's {names} says, and neither is here"

    @cached_property
    def policy(self) -> RoutingPolicy:
        """The policy of the old run. Raises `LedgerError` where it has none."""
        found = read_policy(self.old)
        if found is None:
            raise LedgerError("the old run had no policy: nothing was sealed, and nothing can be left out of it")
        return found

    @cached_property
    def ended(self) -> tuple[Ended, Ended]:
        """What the old run ended with, and the new one."""
        return read_ended(self.old), read_ended(self.new)


def place_of(path: Path) -> Path:
    """The run's directory; the path may be that of the ledger in it."""
    return path.resolve().parent if path.name == rundir.LEDGER and (path / CHECKPOINT).exists() else path


def open_whole(place: Path, *, papers: Path, trust: Trust, now: int) -> RunLedger:
    """A finished run's ledger, verified whole, and signed by those whom the trust file names.

    `place` is the run's directory; where no documents are in it, `papers` is. Raises `LedgerError` with the first
    finding, for entries that cannot stand where they do, for kinds that are not known here, and for a run that has not
    ended.
    """
    directory = place / rundir.LEDGER
    _, checkpoint = read_checkpoint(directory)
    found = verify(directory, anchor=anchor_of_trust(trust, origin=checkpoint.origin), now=now)
    if not found.ok:
        first = found.findings[0]
        raise LedgerError(f"{directory}: {first.path}: {first.message}")
    run = RunLedger(place)
    order = check_sequence(map(read_head, run.ledger.entries()))
    if not order.finished or order.unknown:
        fault = f"{order.unknown} entries of kinds that are not known here" if order.finished else "no end: unfinished"
        raise LedgerError(f"{directory}: {fault}")
    if not (place / rundir.GOVERNANCE).is_dir():
        run.run = papers
    return run


def check_named(run: RunLedger, named: RunAt) -> None:
    """Raise `LedgerError` unless a certificate means this run and all of this ledger."""
    if run.genesis.run != named.run:
        raise LedgerError(f"this is the ledger of run {run.genesis.run}; certified is {named.run}")
    found = name_of(run)
    if found != named.ledger:
        raise LedgerError(f"this ledger is {_words(found)}; certified is {_words(named.ledger)}")


def name_of(run: RunLedger) -> LedgerName:
    """A ledger as its checkpoint names it."""
    checkpoint = run.ledger.checkpoint()
    return LedgerName(origin=checkpoint.origin, size=checkpoint.size, root=checkpoint.root.hex())


def state_of(named: LedgerName) -> LedgerState:
    """The same, as entries name it."""
    return LedgerState(origin=named.origin, size=named.size, root=named.root)


def _words(named: LedgerName) -> str:
    return f"{named.origin}, {named.size} entries, root {named.root[:16]}"
