"""The deletion certificates that are about a run, each verified.

They are collected from two sources: the directories of the runs that deletions made, and the project's ledger, which
names certificates by digest. Each is checked against both ledgers, as a stranger would check it. A certificate that
the ledger names and no directory has was moved elsewhere; one that no entry names was never put on record.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from explorer import rundir
from explorer.deletion.evidence import RECORDS_FILE
from explorer.deletion.finish import CERTIFICATE
from explorer.deletion.verify_deletion import Verified, verify
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

MOST = 2_000  # files that are read
VERIFIED = 20  # certificates that are verified; each costs reading two ledgers
NO_TRUST = "not verified: no trust file was given"


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownCertificate:
    """A certificate that is about the run."""

    path: Path | None  # None: no directory here has it; the project's ledger names it
    digest: str  # of what was signed
    side: Literal["had", "without"]  # the run had the target; a deletion made the run, without it
    claimed: Certificate | None  # its content, whether or not its signature is believed; None: it is not here
    verified: Verified | None  # its claims, checked; None: without a trust file, or its signature is not believed
    fault: str | None  # why it was not verified
    entry: int | None  # of the project's ledger that names it; None: none does
    deletion: Deletion | None  # that entry

    @property
    def deleted(self) -> bool:
        """Return whether every claim held, signed by those whom the reader believes. Only then "deleted" may be
        used."""
        return self.verified is not None and self.verified.deleted

    @property
    def remaining(self) -> tuple[str, ...]:
        """Return the files to destroy that still exist; none where the certificate was not verified."""
        return () if self.verified is None else self.verified.remaining


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificates:
    """All certificates about a run."""

    known: tuple[KnownCertificate, ...]  # those that the project's ledger names first, in its order
    damaged: tuple[str, ...]  # files that are named like certificates and are none, and why


@dataclass(frozen=True, kw_only=True, slots=True)
class _File:
    path: Path
    claimed: Certificate


def certificates(run: RunLedger, *, trust: Trust | None, now: int) -> Certificates:
    """Return the certificates that are about a run. `now` is in seconds since 1970.

    Raises `LedgerError` for a project's ledger that is damaged.
    """
    # Both sources, by digest: an entry and a file with the same digest are the same certificate.
    origin, named = run.ledger.checkpoint().origin, deletions_of(run)
    files, damaged = _files(runs_of(run.run))
    here = {
        digest: file
        for digest, file in files.items()
        if origin in (file.claimed.old.ledger.origin, file.claimed.new.ledger.origin)
    }

    known: list[KnownCertificate] = []
    for digest in dict.fromkeys([*named, *here]):
        file, (index, deletion) = here.get(digest), named.get(digest, (None, None))
        verified, fault = None, "not below the directory of runs: ask its owner for the certificate with this digest"
        if file is not None:
            verified, fault = _verified(file, run, trust, now=now, more=len(known) < VERIFIED)
        old = file.claimed.old.ledger if file is not None else deletion.ledger if deletion is not None else None
        known.append(
            KnownCertificate(
                path=None if file is None else file.path,
                digest=digest,
                side="had" if old is not None and old.origin == origin else "without",
                claimed=None if file is None else file.claimed,
                verified=verified,
                fault=fault,
                entry=index,
                deletion=deletion,
            )
        )
    return Certificates(known=tuple(known), damaged=damaged)


def deletions_of(run: RunLedger) -> dict[str, tuple[int, Deletion]]:
    """Return the entries of the project's ledger about deletions from or to a run, by the digest of their certificate.

    Raises `LedgerError` for a project's ledger that is damaged.
    """
    origin = run.ledger.checkpoint().origin
    return {
        entry.entry.evidence.get("certificate", ""): (entry.index, entry.entry)
        for entry in read_project(runs_of(run.run))
        if isinstance(entry.entry, Deletion) and origin in _origins(entry.entry)
    }


def _origins(entry: Deletion) -> set[str]:
    return {entry.ledger.origin, *([] if entry.result is None else [entry.result.origin])}


def _files(runs: Path) -> tuple[dict[str, _File], tuple[str, ...]]:
    """Return the certificates below a directory of runs, by digest, and the faults of files that are none."""
    files: dict[str, _File] = {}
    damaged: list[str] = []
    # Signatures are not checked yet: a certificate whose signer is not believed is listed too, with that fault.
    for path in sorted(runs.glob(f"[!_.]*/*/{CERTIFICATE}"))[:MOST]:
        try:
            envelope = parse_envelope(_content(path), where=str(path))
            statement = parse_statement(envelope.payload, predicate_type=PREDICATE_TYPE, where=str(path))
            claimed = from_json(Certificate, statement.predicate, where=str(path), error=ProvenanceError)
            check(claimed, where=str(path))
        except ProvenanceError as error:
            damaged.append(str(error))
        else:
            files[hashlib.sha256(envelope.payload).hexdigest()] = _File(path=path, claimed=claimed)
    return files, tuple(damaged)


def _content(path: Path) -> bytes:
    return rundir.read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)


def _verified(
    file: _File, run: RunLedger, trust: Trust | None, *, now: int, more: bool
) -> tuple[Verified | None, str | None]:
    """Return the certificate with its claims checked, or why they were not."""
    if trust is None:
        return None, NO_TRUST
    if not more:
        return None, f"only {VERIFIED} are verified here: `explorer delete verify` verifies the others"
    new, records = file.path.parent, file.path.parent / RECORDS_FILE
    try:
        old = _old(file.claimed, run)
        listed = records if records.exists() else None
        return verify(
            _content(file.path), old=old, new=new, trust=trust, now=now, records=listed, where=file.path.name
        ), None
    except ExplorerError as error:
        return None, str(error)


def _old(claimed: Certificate, run: RunLedger) -> Path:
    """Return the directory of the run that had the target. Raises `RunError` where the project has none."""
    name, origin = claimed.old.run, claimed.old.ledger.origin
    if run.ledger.checkpoint().origin == origin:
        return run.run
    runs = runs_of(run.run)
    if (old := find_by_origin(runs, name, origin)) is None:
        raise RunError(f"the run that had it, {name}, is not below {runs}: name it with `explorer delete verify --old`")
    return old


def find_by_origin(runs: Path, name: str, origin: str) -> Path | None:
    """Return the directory of the run of this name whose ledger has this origin; None where the project has none."""
    # The name is from a file whose signature is not checked yet: it must not lead out of the directory of runs.
    sweeps = sorted(runs.glob("[!.]*")) if "/" not in name and name not in (".", "..") else []
    for ledger in (sweep / name / rundir.LEDGER for sweep in sweeps):
        if (ledger / CHECKPOINT).exists() and LedgerDirectory(ledger).checkpoint().origin == origin:
            return ledger.parent
    return None
