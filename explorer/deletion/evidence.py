"""The evidence for a certificate: both ledgers, whole and signed, the new run's directory, the target and its records.

The old run is represented by its ledger. Where its documents are not next to the ledger, those of the new run are read:
the genesis of either ledger names them by digest.

A certificate commits to deleted records and does not show them, because rows of a tag table are people: it has
SHA-256(salt || the list in canonical JSON). The owner keeps the list, and chooses whom to show it:

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
from explorer.ledger.storage import CHECKPOINT, LedgerDirectory
from explorer.ledger.verify import verify
from explorer.provenance.commitments import commit, new_salt
from explorer.provenance.deletion_certificate import Certificate, Deleted, Listed, RunAt
from explorer.provenance.keys import write_private
from explorer.provenance.policy import RoutingPolicy
from explorer.provenance.spellings import LedgerName
from explorer.provenance.trust import Trust
from explorer.run_files import read_plan
from explorer.rundir import PRIVATE, read_bytes
from explorer.runlog.anchor import anchor_of_ledger
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
    """The file with the deleted records."""

    format: Literal["explorer/deleted-records/v1"]
    salt: Digest
    records: Annotated[tuple[Whole, ...], Field(min_length=1, max_length=MAX_RECORDS)]  # ascending

    @property
    def listed(self) -> Listed:
        """Return the commitment to the list that goes into the certificate."""
        content = canonical(list(self.records))
        return Listed(commitment=commit(bytes.fromhex(self.salt), content).hex(), number=len(self.records))


def read_list(path: Path) -> RecordsList:
    """Read the file. Raises `ProvenanceError` for any other file."""
    content = read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)
    value = parse_json(content, where=str(path), error=ProvenanceError, max_bytes=MAX_BYTES)
    return from_json(RecordsList, value, where=str(path), error=ProvenanceError)


def keep_list(run: Path, records: tuple[int, ...]) -> RecordsList:
    """Return the list in a new run's directory, made with a fresh salt where there is none yet.

    Raises `ProvenanceError` for a file of other records, `RunError` if the disk refuses.
    """
    # An existing list is kept: a fresh salt would no longer open a certificate that is issued already.
    path = run / RECORDS_FILE
    if path.exists():
        kept = read_list(path)
        if kept.records != records:
            raise ProvenanceError(f"{path}: lists {len(kept.records)} other records than were deleted")
        return kept
    made = RecordsList(format=FORMAT, salt=new_salt().hex(), records=records)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make {path.parent}: {error.strerror or error}") from error
    write_private(path, canonical(to_json(made)))
    return made


# --- the evidence ---


class Unlisted(ProvenanceError):
    """A certificate names records by a commitment, and the list that opens it was not given."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A certificate with the evidence to check it against."""

    certificate: Certificate
    model: str  # SHA-256 of the new model's file, as certified
    old: RunLedger
    new: RunLedger
    old_place: Path  # directory of the old ledger; it may have no other file
    trust: Trust
    listed: RecordsList | None  # for a target of single records; None: not given

    @cached_property
    def target(self) -> Target:
        """Return the target. Raises `Unlisted` where the list of records is needed and is missing, `ProvenanceError`
        for one that does not open the commitment."""
        deleted: Deleted = self.certificate.target
        if deleted.records is None:
            return Target(classes=deleted.classes, authorities=deleted.authorities)
        if self.listed is None:
            raise Unlisted(
                f"which records: the list that opens the commitment is missing; its owner has it in {RECORDS_FILE}"
            )
        if self.listed.listed != deleted.records:
            raise ProvenanceError(
                f"the list of {len(self.listed.records)} records does not open the commitment "
                f"{deleted.records.commitment} to {deleted.records.number}"
            )
        return Target(records=self.listed.records)

    @cached_property
    def presence(self) -> Presence:
        """Return the old run's steps in memory."""
        return Presence(self.old)

    @cached_property
    def reach(self) -> Reach:
        """Return the influence of the target in the old run, by its ledger."""
        return reach_of(self.presence, self.target)

    @property
    def unseen(self) -> str | None:
        """Return why it is unknown here which methods looked at the target's examples; None: it is known, or does not
        matter.

        For whole classes of a run from step 0 it does not matter: the probes go with the class, and entries name every
        decision that they drove. Otherwise the old run's plan, which lists its methods, must be present.
        """
        if (self.target.classes and not self.old.begins) or read_plan(self.old_place) is not None:
            return None
        return f"which methods looked at single examples: the old run's {rundir.RUN} or {rundir.LOOP} is missing"

    @cached_property
    def policy(self) -> RoutingPolicy:
        """Return the policy of the old run. Raises `LedgerError` where it has none."""
        policy = read_policy(self.old)
        if policy is None:
            raise LedgerError("the old run had no policy: nothing was sealed, and nothing can be left out of it")
        return policy

    @cached_property
    def ended(self) -> tuple[Ended, Ended]:
        """Return the ends of the old run and of the new one."""
        return read_ended(self.old), read_ended(self.new)


def place_of(path: Path) -> Path:
    """Return the run's directory; the path may be that of the ledger in it."""
    return path.resolve().parent if path.name == rundir.LEDGER and (path / CHECKPOINT).exists() else path


def open_whole(place: Path, *, papers: Path, trust: Trust, now: int) -> RunLedger:
    """Read a finished run's ledger, after verifying all of it and its signatures by the trust file.

    `place` is the run's directory; if it has no documents, those in the directory `papers` are read. Raises
    `LedgerError` with the first finding, for entries in an order that is not allowed, for unknown kinds of entries, and
    for a run that has not ended.
    """
    # Hashes and signatures first: only then the entries are worth reading.
    directory = place / rundir.LEDGER
    verification = verify(directory, anchor=anchor_of_ledger(LedgerDirectory(directory), trust), now=now)
    if not verification.ok:
        first = verification.findings[0]
        raise LedgerError(f"{directory}: {first.path}: {first.message}")
    # An unknown kind may record an influence that this version cannot see; without an end more steps may follow.
    run = RunLedger(place)
    order = check_sequence(map(read_head, run.ledger.entries()))
    if not order.finished or order.unknown:
        fault = f"{order.unknown} entries of kinds that are not known here" if order.finished else "no end: unfinished"
        raise LedgerError(f"{directory}: {fault}")
    if not (place / rundir.GOVERNANCE).is_dir():
        run.run = papers
    return run


def check_named(run: RunLedger, named: RunAt) -> None:
    """Raise `LedgerError` unless a certificate names this run and all of this ledger."""
    if run.genesis.run != named.run:
        raise LedgerError(f"this is the ledger of run {run.genesis.run}; certified is {named.run}")
    here = name_of(run)
    if here != named.ledger:
        raise LedgerError(f"this ledger is {_words(here)}; certified is {_words(named.ledger)}")


def name_of(run: RunLedger) -> LedgerName:
    """Return a ledger as its checkpoint names it."""
    checkpoint = run.ledger.checkpoint()
    return LedgerName(origin=checkpoint.origin, size=checkpoint.size, root=checkpoint.root.hex())


def state_of(named: LedgerName) -> LedgerState:
    """Return a ledger's name in the form that entries use."""
    return LedgerState(origin=named.origin, size=named.size, root=named.root)


def _words(named: LedgerName) -> str:
    return f"{named.origin}, {named.size} entries, root {named.root[:16]}"
