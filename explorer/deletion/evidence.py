"""The evidence for a certificate: both ledgers, whole and signed, the new run's directory, the target, and its records.

Of the old run its ledger is enough. Where its documents are not next to it, those of the new run are read: the genesis
of either ledger names them by digest.

A certificate commits to deleted records and does not show them, because rows of a tag table are people: it has
SHA-256(salt || the list in canonical JSON). The list stays with its owner, who shows it to whom they choose:

    {"format": "explorer/deleted-records/v1", "records": [17, 4711], "salt": "..."}
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from explorer import rundir
from explorer.canonical import canonical
from explorer.entries.fields import Digest, LedgerState, Whole
from explorer.entries.heads import check_sequence, read_head
from explorer.errors import LedgerError, ProvenanceError, RunError
from explorer.ledger.storage import CHECKPOINT, read_checkpoint
from explorer.ledger.verify import verify
from explorer.provenance.commitments import commit, new_salt
from explorer.provenance.deletion_certificate import Certificate, Deleted, Listed, RunAt
from explorer.provenance.keys import write_private
from explorer.provenance.policy import RoutingPolicy
from explorer.provenance.spellings import LedgerName
from explorer.provenance.trust import Trust
from explorer.run_files import read_plan
from explorer.rundir import PRIVATE, read_bytes
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.documents import read_policy
from explorer.runlog.influence import Presence, Reach, reach_of
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import MAX_RECORDS, Target
from explorer.runlog.tensors import Ended, read_ended
from explorer.schema import from_json, parse_json, record, to_json

# --- the list of deleted records ---

FORMAT = "explorer/deleted-records/v1"
RECORDS_FILE = f"{PRIVATE}/deleted.json"  # in the new run's directory
MAX_BYTES = 2**24


@record
class RecordsList:
    """The file."""

    format: Literal["explorer/deleted-records/v1"]
    salt: Digest
    records: Annotated[tuple[Whole, ...], Field(min_length=1, max_length=MAX_RECORDS)]  # ascending

    @property
    def listed(self) -> Listed:
        """Return what the certificate says of it."""
        content = canonical(list(self.records))
        return Listed(commitment=commit(bytes.fromhex(self.salt), content).hex(), number=len(self.records))


def read_list(path: Path) -> RecordsList:
    """Read the file. Raises `ProvenanceError` for what is not one."""
    content = read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)
    value = parse_json(content, where=str(path), error=ProvenanceError, max_bytes=MAX_BYTES)
    return from_json(RecordsList, value, where=str(path), error=ProvenanceError)


def keep_list(run: Path, records: tuple[int, ...]) -> RecordsList:
    """Return the list in a new run's directory, made with a fresh salt where there is none yet.

    Raises `ProvenanceError` for a file of other records, `RunError` if the disk refuses.
    """
    path = run / RECORDS_FILE
    if path.exists():
        found = read_list(path)
        if found.records != records:
            raise ProvenanceError(f"{path}: lists {len(found.records)} other records than were deleted")
        return found
    made = RecordsList(format=FORMAT, salt=new_salt().hex(), records=records)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make {path.parent}: {error.strerror or error}") from error
    write_private(path, canonical(to_json(made)))
    return made


# --- the evidence ---


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A certificate and what is here to hold it against."""

    certificate: Certificate
    model: str  # SHA-256 of the new model's file, as it is certified
    old: RunLedger
    new: RunLedger
    old_place: Path  # where the old ledger is; next to it there may be nothing
    trust: Trust
    listed: RecordsList | None  # of a target of single records

    @cached_property
    def target(self) -> Target:
        """Return what was deleted. Raises `ProvenanceError` where the list of records is needed and is not here, or is
        another one."""
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
        """Return the steps of the old run."""
        return Presence(self.old)

    @cached_property
    def reach(self) -> Reach:
        """Return what the target influenced in the old run, by its ledger."""
        return reach_of(self.presence, self.target)

    @property
    def unseen(self) -> str | None:
        """Return why nobody can tell from here what methods looked at, where it matters; None: that can be told."""
        if (self.target.classes and not self.old.begins) or read_plan(self.old_place) is not None:
            return None
        names = f"{rundir.RUN} or {rundir.LOOP}"
        return f"which methods looked at single examples, the old run's {names} says, and neither is here"

    @cached_property
    def policy(self) -> RoutingPolicy:
        """Return the policy of the old run. Raises `LedgerError` where it has none."""
        found = read_policy(self.old)
        if found is None:
            raise LedgerError("the old run had no policy: nothing was sealed, and nothing can be left out of it")
        return found

    @cached_property
    def ended(self) -> tuple[Ended, Ended]:
        """Return what the old run ended with, and the new one."""
        return read_ended(self.old), read_ended(self.new)


def place_of(path: Path) -> Path:
    """Return the run's directory; the path may be that of the ledger in it."""
    return path.resolve().parent if path.name == rundir.LEDGER and (path / CHECKPOINT).exists() else path


def open_whole(place: Path, *, papers: Path, trust: Trust, now: int) -> RunLedger:
    """Read a finished run's ledger, verified whole, and signed by those whom the trust file names.

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
    """Return a ledger as its checkpoint names it."""
    checkpoint = run.ledger.checkpoint()
    return LedgerName(origin=checkpoint.origin, size=checkpoint.size, root=checkpoint.root.hex())


def state_of(named: LedgerName) -> LedgerState:
    """The same, as entries name it."""
    return LedgerState(origin=named.origin, size=named.size, root=named.root)


def _words(named: LedgerName) -> str:
    return f"{named.origin}, {named.size} entries, root {named.root[:16]}"
