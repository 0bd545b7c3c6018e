"""What happened to a run after its ledger was closed: deletions, observations, grants and reads, from the project's
ledger beside it, and the certificates of its deletions.

Somebody who has a run and not its project knows only of the certificates that came along; what else there was, is then
said to be unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from explorer.entries.fields import LedgerState, read_float
from explorer.entries.project import Access, Deletion, GrantUse, Observation
from explorer.errors import LedgerError, ProvenanceError
from explorer.ledger.storage import LedgerDirectory
from explorer.ledger.verify import verify
from explorer.project import AUDIT, Recorded, read_project, runs_of
from explorer.provenance.trust import Trust
from explorer.report.run_certificates import Certified, certificates
from explorer.report.run_references import Reference, refer
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.run_ledger import RunLedger

UNVERIFIED = "not verified"


@dataclass(frozen=True, kw_only=True, slots=True)
class DeletionLine:
    """A deletion: on the project's record, or certified, or both."""

    target: str
    level: str
    is_result: bool  # this run is what came out of it
    other: str  # the origin of the other run's ledger
    certificate: Certified | None
    digest: str | None  # of the certificate that the entry names
    reference: Reference | None  # None: the project's ledger is not here


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservationLine:
    """Something that was said about the run's model; by whom, its statement says."""

    role: str
    admitted: str
    statement: str  # digest
    reference: Reference


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """All of it."""

    judged: str | None  # how far the project's ledger is to be believed; None: there is none that can be read
    fault: str | None  # why the one beside the run cannot be read; None: it can, or there is none
    entries: int  # in it
    deletions: tuple[DeletionLine, ...]
    observations: tuple[ObservationLine, ...]
    grants: int  # that keys of this run were wrapped for
    reads: int  # through a grant
    disclosed: Reference | None  # where these stand
    unbelieved: tuple[str, ...]  # certificates that are not believed, and why

    @property
    def unknown(self) -> str:
        """Why nothing is known from the project's ledger; empty: it can be read."""
        if self.fault:
            return f"the project's ledger, which cannot be read: {self.fault}"
        return "the project's ledger, which is not beside this run" if self.judged is None else ""


def history_of(run: RunLedger, *, trust: Trust | None, own: Trust | None, now: int) -> History:
    """Read the project's ledger and the certificates. `own` is the run's trust file, for a reader who brought none."""
    origin, runs = run.ledger.checkpoint().origin, runs_of(run.run)
    recorded, fault = _read(runs)
    believed, faults = certificates(run, origin, trust=trust or own, now=now)
    mine = [(each.index, each.entry) for each in recorded if _is_about(each.entry, origin)]
    lines = [_recorded(index, entry, origin, believed) for index, entry in mine if isinstance(entry, Deletion)]
    named = {line.digest for line in lines}
    lines += [_certified(each, run.genesis.run) for digest, each in believed.items() if digest not in named]
    disclosed = [index for index, entry in mine if isinstance(entry, GrantUse | Access)]
    return History(
        judged=_judged(runs / AUDIT, trust=trust, now=now) if recorded else None,
        fault=fault,
        entries=len(recorded),
        deletions=tuple(lines),
        observations=tuple(_observed(index, entry) for index, entry in mine if isinstance(entry, Observation)),
        grants=sum(isinstance(entry, GrantUse) for _, entry in mine),
        reads=sum(isinstance(entry, Access) for _, entry in mine),
        disclosed=_of_project(disclosed) if disclosed else None,
        unbelieved=tuple(faults),
    )


def _read(runs: Path) -> tuple[list[Recorded], str | None]:
    """The entries of the project's ledger, or why they cannot be read."""
    try:
        return list(read_project(runs)), None
    except LedgerError as error:
        return [], str(error)


def _is_about(entry: object, origin: str) -> bool:
    ledgers: list[LedgerState | None] = []
    if isinstance(entry, Deletion | GrantUse | Access | Observation):
        ledgers = [entry.ledger, entry.result if isinstance(entry, Deletion) else None]
    return any(each is not None and each.origin == origin for each in ledgers)


def _of_project(indices: list[int]) -> Reference:
    found = refer(indices)
    return Reference(first=found.first, last=found.last, of="project")


def _recorded(index: int, entry: Deletion, origin: str, believed: Mapping[str, Certified]) -> DeletionLine:
    is_result = entry.result is not None and entry.result.origin == origin
    other = entry.ledger if is_result else entry.result
    asked = [", ".join(entry.classes)] if entry.classes else []
    asked += [f"what {', '.join(entry.authorities)} vouches for"] if entry.authorities else []
    asked += [f"{entry.records} single records"] if entry.records else []
    digest = entry.evidence.get("certificate")
    return DeletionLine(
        target="; ".join(asked),
        level=entry.level,
        is_result=is_result,
        other=other.origin if other else "",
        certificate=believed.get(digest or ""),
        digest=digest,
        reference=_of_project([index]),
    )


def _certified(each: Certified, run: str) -> DeletionLine:
    is_result = each.new == run
    return DeletionLine(
        target=each.target,
        level=each.level,
        is_result=is_result,
        other=each.old if is_result else each.new,
        certificate=each,
        digest=each.digest,
        reference=None,
    )


def _observed(index: int, entry: Observation) -> ObservationLine:
    admitted = ", ".join(f"{path} {read_float(weight):g}" for path, weight in entry.admitted.items())
    return ObservationLine(
        role=entry.role, admitted=admitted, statement=entry.statement, reference=_of_project([index])
    )


def _judged(directory: Path, *, trust: Trust | None, now: int) -> str:
    if trust is None:
        return "not checked against anybody"  # as the run's own ledger is then, which the head of the report says
    try:
        anchor = anchor_of_trust(trust, origin=LedgerDirectory(directory).checkpoint().origin)
        found = verify(directory, anchor=anchor, now=now)
    except (LedgerError, ProvenanceError) as error:
        return f"{UNVERIFIED}: {error}"
    return "verified" if found.ok else f"{UNVERIFIED}: {found.findings[0].message}"
