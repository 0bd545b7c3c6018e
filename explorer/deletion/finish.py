"""The end of a deletion: its certificate, the list of files to destroy, its entry in the project's ledger.

In the new run's directory:

    certificate.json    signed by the trainer, and verified before it is written
    destroy.json        files of the old run, by path and digest, that still hold the target, and why

Each is made once: after an interruption the same command completes it, and what exists stays as it is.

Certificates that speak of a run are found in the directories of the runs that deletions made; the project's ledger
names them by digest. Each is checked against both ledgers, as a stranger would. One that is named and missing was moved
elsewhere; one that exists and is not named was never put on record.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer import rundir
from explorer.deletion.certificate import certify
from explorer.deletion.deletion_plan import FILE, read_request
from explorer.deletion.evidence import FILE as RECORDS
from explorer.deletion.verify_deletion import Verified, verify
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Deletion
from explorer.errors import ExplorerError, ProvenanceError, RunError
from explorer.ledger.storage import CHECKPOINT, LedgerDirectory
from explorer.project import Project, read_project, runs_of
from explorer.provenance.deletion_certificate import (
    PREDICATE_TYPE,
    Certificate,
    NotReached,
    Opened,
    What,
    check,
    open_certificate,
)
from explorer.provenance.envelope import MAX_BYTES, parse_envelope, write_envelope
from explorer.provenance.statement import parse_statement
from explorer.provenance.trust import Trust
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Origin, read_origin
from explorer.schema import from_json, record, to_json

CERTIFICATE, DESTROY = "certificate.json", "destroy.json"

WHY: dict[What, str] = {
    "model": "it learned from the target; beside the new model it shows what that was",
    "checkpoint": "a state of training that the target had moved",
    "secret": "it opens the commitments to the target's numbers",
    "numbers": "numbers of the target, or of several classes that the target is among",
    "spool": "numbers of the target in its rows",
    "notebook": "it may show what was measured with the target",
    "measurements": "measured while the target trained",
}


@record
class ToDestroy:
    """A file of the old run, or a part of it."""

    what: What
    path: str  # seen from the run's directory
    sha256: str | None  # None: of a file that a part of stays
    part: str | None  # None: all of it
    why: str


@record
class Destroy:
    """`destroy.json`."""

    format: Literal["explorer/destroy/v1"]
    run: str  # the old one
    files: tuple[ToDestroy, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Concluded:
    """What a deletion came to."""

    certificate: Opened
    destroy: Destroy
    entry: int  # in the project's ledger


def conclude(
    old: Path,
    new: Path,
    *,
    name: str,
    key: Ed25519PrivateKey,
    trust: Trust,
    now: int,
    expires: str,
    not_reached: tuple[NotReached, ...] = (),
) -> Concluded:
    """Certify what made the run `new` out of the run `old`, and say so in the ledger of the old run's project.

    `name` and `key` are the trainer's; `not_reached` is what the deletion did not reach. Raises `RunError` for a run
    that answers no request (request.py), and `ProvenanceError` with the claim that does not hold.
    """
    origin = read_origin(new)
    if origin is None:
        raise RunError(f"{new}: made by no deletion: there is no {rundir.ORIGIN}")
    commitment = read_request(new)
    if commitment is None:
        raise RunError(f"{new}: answers no request: there is no {FILE}")
    path = new / CERTIFICATE
    if not path.exists():
        envelope = certify(
            old,
            new,
            keys=[key],
            trust=trust,
            now=now,
            expires=expires,
            request=commitment,
            not_reached=not_reached,
        )
        write_envelope(path, envelope)
    content = rundir.read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)
    certificate = open_certificate(content, trust=trust, now=now, where=str(path))
    if certificate.value.request != commitment:
        raise ProvenanceError(f"{path}: answers another request than the run; move it away to certify anew")
    destroy = Destroy(
        format="explorer/destroy/v1",
        run=origin.run,
        files=tuple(
            ToDestroy(what=each.what, path=each.path, sha256=each.sha256, part=each.part, why=WHY[each.what])
            for each in certificate.value.to_destroy
        ),
    )
    rundir.write_json(new / DESTROY, to_json(destroy))
    entry = _entry(origin, RunLedger(new), certificate, commitment)
    with Project.open(runs_of(old), key=key, name=name) as project:
        known = (each.index for each in project.entries() if each.entry == entry)
        number = next(known, None)
        return Concluded(
            certificate=certificate, destroy=destroy, entry=project.append(entry) if number is None else number
        )


def _entry(origin: Origin, new: RunLedger, certificate: Opened, commitment: str) -> Deletion:
    head, target = new.ledger.checkpoint(), origin.target
    return Deletion(
        ledger=origin.ledger,
        result=LedgerState(origin=head.origin, size=head.size, root=head.root.hex()),
        request=commitment,
        classes=target.classes,
        authorities=target.authorities,
        records=len(target.records),
        level=origin.level,
        evidence={"certificate": certificate.digest},
        blobs={},
    )


# --- certificates that speak of a run ---

MOST = 2_000  # files that are looked at
VERIFIED = 20  # certificates that are verified; each reads two ledgers


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A certificate that speaks of the run."""

    path: Path | None  # None: it is not here; the project's ledger names it
    digest: str  # of what was signed
    side: Literal["had", "without"]  # the run had the target; a deletion made the run, without it
    claimed: Certificate | None  # its content, whether or not its signature is believed; None: it is not here
    verified: Verified | None  # what came of its claims; None: nobody was asked, or nobody believes it
    fault: str | None  # why it was not verified
    entry: int | None  # of the project's ledger that names it; None: none does
    deletion: Deletion | None  # that entry

    @property
    def deleted(self) -> bool:
        """Return whether every claim held, by those whom the reader believes. Nothing else is called so."""
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
    """Return the certificates that speak of a run. `now` is in seconds since 1970.

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
    """Return the certificates below a directory of runs, by the digest of what was signed; and what is wrong with
    others."""
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
    """Return what came of its claims, or why nobody looked at them."""
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
    """Return the directory of the run that had the target. Raises `RunError` where it is not among those of the
    project."""
    name, origin = claimed.old.run, claimed.old.ledger.origin
    if run.ledger.checkpoint().origin == origin:
        return run.run
    runs = runs_of(run.run)
    sweeps = sorted(runs.glob("[!.]*")) if "/" not in name and name not in (".", "..") else []
    for ledger in (sweep / name / rundir.LEDGER for sweep in sweeps):
        if (ledger / CHECKPOINT).exists() and LedgerDirectory(ledger).checkpoint().origin == origin:
            return ledger.parent
    raise RunError(f"the run that had it, {name}, is not below {runs}: `explorer delete verify --old` says where it is")
