"""The certificates that speak of a run, as they are found here: each held against both ledgers, as a stranger would.

They stand in the directories of the runs that deletions made, and the project's ledger names them by digest. One that
is named and not here was taken elsewhere; one that is here and not named, nobody has put on record.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from explorer import rundir
from explorer.deletion.conclude import CERTIFICATE
from explorer.deletion.records_list import FILE as RECORDS
from explorer.deletion.verify import Verified, verify
from explorer.entries.kinds import Deletion
from explorer.errors import ExplorerError, ProvenanceError, RunError
from explorer.ledger.storage import CHECKPOINT, LedgerDirectory
from explorer.project import read_project, runs_of
from explorer.provenance.deletion_certificate import PREDICATE_TYPE, Certificate, check
from explorer.provenance.envelope import MAX_BYTES, parse_envelope
from explorer.provenance.statement import parse_statement
from explorer.provenance.trust import Trust
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import from_json

MOST = 2_000  # files that are looked at
VERIFIED = 20  # certificates that are verified; each reads two ledgers


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A certificate that speaks of the run."""

    path: Path | None  # None: it is not here; the project's ledger names it
    digest: str  # of what was signed
    side: Literal["had", "without"]  # the run had the target; a deletion made the run, without it
    claimed: Certificate | None  # what it says, whoever has signed it; None: it is not here
    verified: Verified | None  # what came of its claims; None: nobody was asked, or nobody believes it
    fault: str | None  # why it was not verified
    entry: int | None  # of the project's ledger that names it; None: none does
    deletion: Deletion | None  # that entry

    @property
    def deleted(self) -> bool:
        """Whether every claim held, by those whom the reader believes. Nothing else is called so."""
        return self.verified is not None and self.verified.deleted

    @property
    def remaining(self) -> tuple[str, ...]:
        """Of what is to be destroyed: files that are still there; none where nobody could look."""
        return () if self.verified is None else self.verified.remaining


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificates:
    """All that was found about a run: those first that the project's ledger names, in its order."""

    found: tuple[Found, ...]
    damaged: tuple[str, ...]  # files below the directory of runs that are named like one and are none, and why


def certificates(run: RunLedger, *, trust: Trust | None, now: int) -> Certificates:
    """The certificates that speak of a run. `now` is in seconds since 1970.

    Raises `LedgerError` for a project's ledger that is damaged.
    """
    runs, origin = runs_of(run.run), run.ledger.checkpoint().origin
    named = {
        each.entry.evidence.get("certificate", ""): (each.index, each.entry)
        for each in read_project(runs)
        if isinstance(each.entry, Deletion) and origin in _origins(each.entry)
    }
    here, damaged = _files(runs)
    here = {digest: file for digest, file in here.items() if origin in _ledgers(file.claimed)}
    found: list[Found] = []
    for digest in dict.fromkeys([*named, *here]):
        file, (entry, deletion) = here.get(digest), named.get(digest, (None, None))
        verified, fault = None, "not below the directory of runs: whoever has it can be asked by its digest"
        if file is not None:
            verified, fault = _verified(file, run, trust, now=now, more=len(found) < VERIFIED)
        old = file.claimed.old.ledger if file is not None else deletion.ledger if deletion is not None else None
        found.append(
            Found(
                path=None if file is None else file.path,
                digest=digest,
                side="had" if old is not None and old.origin == origin else "without",
                claimed=None if file is None else file.claimed,
                verified=verified,
                fault=fault,
                entry=entry,
                deletion=deletion,
            )
        )
    return Certificates(found=tuple(found), damaged=damaged)


@dataclass(frozen=True, kw_only=True, slots=True)
class _File:
    path: Path
    claimed: Certificate


def _origins(entry: Deletion) -> set[str]:
    return {entry.ledger.origin, *([] if entry.result is None else [entry.result.origin])}


def _ledgers(claimed: Certificate) -> set[str]:
    return {claimed.old.ledger.origin, claimed.new.ledger.origin}


def _files(runs: Path) -> tuple[dict[str, _File], tuple[str, ...]]:
    """The certificates below a directory of runs, by the digest of what was signed; and what is wrong with others."""
    found: dict[str, _File] = {}
    damaged: list[str] = []
    for path in sorted(runs.glob(f"[!_.]*/*/{CERTIFICATE}"))[:MOST]:
        try:
            envelope = parse_envelope(_content(path), where=str(path))
            statement = parse_statement(envelope.payload, predicate_type=PREDICATE_TYPE, where=str(path))
            claimed = from_json(Certificate, statement.predicate, where=str(path), error=ProvenanceError)
            check(claimed, where=str(path))
        except ProvenanceError as error:
            damaged.append(str(error))
        else:
            found[hashlib.sha256(envelope.payload).hexdigest()] = _File(path=path, claimed=claimed)
    return found, tuple(damaged)


def _content(path: Path) -> bytes:
    return rundir.read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)


def _verified(
    file: _File, run: RunLedger, trust: Trust | None, *, now: int, more: bool
) -> tuple[Verified | None, str | None]:
    """What came of its claims, or why nobody looked at them."""
    if trust is None:
        return None, "nobody was asked: name a trust file"
    if not more:
        return None, f"only {VERIFIED} are verified here: `explorer delete verify` does the others"
    new, records = file.path.parent, file.path.parent / RECORDS
    try:
        old = _old(file.claimed, run)
        listed = records if records.exists() else None
        return verify(
            _content(file.path), old=old, new=new, trust=trust, now=now, records=listed, where=file.path.name
        ), None
    except ExplorerError as error:
        return None, str(error)


def _old(claimed: Certificate, run: RunLedger) -> Path:
    """The directory of the run that had the target. Raises `RunError` where it is not among those of the project."""
    name, origin = claimed.old.run, claimed.old.ledger.origin
    if run.ledger.checkpoint().origin == origin:
        return run.run
    runs = runs_of(run.run)
    sweeps = sorted(runs.glob("[!.]*")) if "/" not in name and name not in (".", "..") else []
    for ledger in (sweep / name / rundir.LEDGER for sweep in sweeps):
        if (ledger / CHECKPOINT).exists() and LedgerDirectory(ledger).checkpoint().origin == origin:
            return ledger.parent
    raise RunError(f"the run that had it, {name}, is not below {runs}: `explorer delete verify --old` says where it is")
