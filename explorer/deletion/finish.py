"""The end of a deletion: its certificate, the list of files to destroy, its entry in the project's ledger.

In the new run's directory:

    certificate.json    signed by the trainer, and verified before it is written
    destroy.json        files of the old run, by path and digest, that still hold the target, and why

Every claim of a certificate is derived from the two run directories; callers pass in none. The certificate is then
verified as a stranger would verify it, so one that verification refuses is never written.

Each file is made once: after an interruption the same command completes the rest, and existing files stay as they are.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer import rundir
from explorer.deletion.claims import Outcome, artefacts, replay_of, structure_of
from explorer.deletion.deletion_plan import REQUEST_FILE, read_request
from explorer.deletion.evidence import RECORDS_FILE, Case, keep_list, name_of, open_whole
from explorer.deletion.verify_deletion import unreached, verify
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Deletion
from explorer.errors import ProvenanceError, RunError
from explorer.project import Project, runs_of
from explorer.provenance.deletion_certificate import (
    FORMAT,
    MEANS,
    UNREACHED,
    Certificate,
    Deleted,
    NotReached,
    Opened,
    Replay,
    RunAt,
    Structure,
    What,
    open_certificate,
    sign_certificate,
)
from explorer.provenance.envelope import MAX_BYTES, Envelope, write_envelope
from explorer.provenance.spellings import format_time
from explorer.provenance.trust import Trust
from explorer.runlog.model_file import MODEL, ModelFile
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Origin, read_origin
from explorer.schema import record, to_json

CERTIFICATE, DESTROY = "certificate.json", "destroy.json"
DETAIL = "as with every deletion"  # for limits that the signer gives no detail of

WHY: dict[What, str] = {
    "model": "it learned from the target; compared with the new model it shows what that was",
    "checkpoint": "a state of training that the target had moved",
    "secret": "it opens the commitments to the target's numbers",
    "numbers": "numbers of the target, or of several classes that the target is among",
    "spool": "numbers of the target in its rows",
    "notebook": "it may show what was measured with the target",
    "measurements": "measured while the target trained",
}

# --- certificate ---


def certify(
    old: Path,
    new: Path,
    *,
    keys: Collection[Ed25519PrivateKey],
    trust: Trust,
    now: int,
    expires: str,
    request: str | None = None,
    not_reached: Collection[NotReached] = (),
) -> Envelope:
    """Certify the deletion that made the run `new` out of the run `old`, as `origin.json` in `new` states.

    Args:
        old, new: run directories.
        keys: of a trainer, and of others who vouch for the certificate.
        trust: trust file that the certificate is verified with before it is returned.
        now: time of issue, in seconds since 1970.
        expires: time at which the certificate expires.
        request: salted commitment to the request that the deletion answers.
        not_reached: limits known to the signer, in addition to those of every deletion.

    Where single records were deleted, their list stays in the new run's private directory: it opens the commitment.

    Raises `RunError` for a run that no deletion made, and for an old directory without `governance/`: the files to
    destroy are listed from there. Raises `ProvenanceError` with the claim that does not hold.
    """
    origin = read_origin(new)
    if origin is None:
        raise RunError(f"{new}: made by no deletion: there is no {rundir.ORIGIN}")
    # A bare ledger is enough to verify, but not to certify: it would list no file to destroy, and seem complete.
    if not (old / rundir.GOVERNANCE).is_dir():
        raise RunError(f"{old}: not the old run's own directory: there is no {rundir.GOVERNANCE!r} in it")
    old_run, new_run = (open_whole(path, papers=new, trust=trust, now=now) for path in (old, new))

    # Names and digests come first, because the claims are derived through the draft: its target, level and trust.
    listed = keep_list(new, origin.target.records) if origin.target.records else None
    model = ModelFile(new / rundir.MODEL / MODEL).sha256
    draft = Certificate(
        format=FORMAT,
        level=origin.level,
        means=MEANS[origin.level],
        old=RunAt(run=old_run.genesis.run, ledger=name_of(old_run)),
        new=RunAt(run=new_run.genesis.run, ledger=name_of(new_run)),
        target=Deleted(
            classes=origin.target.classes,
            authorities=origin.target.authorities,
            records=None if listed is None else listed.listed,
        ),
        request=request,
        structure=None,
        replay=None,
        not_reached=(),
        to_destroy=(),
        taxonomy=old_run.genesis.taxonomy or "",
        policy=old_run.genesis.policy or "",
        trust=old_run.genesis.trust or "",
        issued=format_time(now),
        expires=expires,
    )
    case = Case(certificate=draft, model=model, old=old_run, new=new_run, old_place=old, trust=trust, listed=listed)
    value = _with_claims(case, [*not_reached, *_limits_of_all(case, not_reached)])
    envelope = sign_certificate(value, model=model, keys=keys, trust=trust, now=now)

    # Verification runs from the signed bytes, not from `value`: a fault in signing would be refused here too.
    records = None if listed is None else new / RECORDS_FILE
    for check in verify(envelope.content, old=old, new=new, trust=trust, now=now, records=records).checks:
        if check.outcome is not Outcome.HELD:
            raise ProvenanceError(f"not certified: {check.says}: {check.outcome}: {check.why}")
    return envelope


def _with_claims(case: Case, not_reached: Collection[NotReached]) -> Certificate:
    """Complete a draft with what both ledgers show."""
    structure: Structure | None = None
    replay: Replay | None = None
    if case.certificate.level == "G2":
        structure, _ = structure_of(case)
    else:
        replay = replay_of(case)
    order = list(UNREACHED)
    return replace(
        case.certificate,
        structure=structure,
        replay=replay,
        not_reached=tuple(sorted(not_reached, key=lambda limit: order.index(limit.what))),
        to_destroy=artefacts(case.old, case.reach),
    )


def _limits_of_all(case: Case, stated: Collection[NotReached]) -> list[NotReached]:
    """Return the limits of every such deletion that the signer has not stated."""
    known = {limit.what for limit in stated}
    return [NotReached(what=what, detail=DETAIL) for what in unreached(case) if what not in known]


# --- certificate, list and entry ---


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
    """Results of a deletion."""

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
    """Certify the deletion that made the run `new` out of the run `old`, and record it in the ledger of the old run's
    project.

    `name` and `key` are the trainer's; the other arguments are those of `certify`. Raises `RunError` for a run that
    answers no request (deletion_plan.py), and `ProvenanceError` with the claim that does not hold.
    """
    origin = read_origin(new)
    if origin is None:
        raise RunError(f"{new}: made by no deletion: there is no {rundir.ORIGIN}")
    commitment = read_request(new)
    if commitment is None:
        raise RunError(f"{new}: answers no request: there is no {REQUEST_FILE}")

    # The certificate is first: both other results are derived from it, so an interruption leaves nothing unfounded.
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
        raise ProvenanceError(f"{path}: answers another request than the run; move it away to certify again")

    destroy = Destroy(
        format="explorer/destroy/v1",
        run=origin.run,
        files=tuple(
            ToDestroy(what=file.what, path=file.path, sha256=file.sha256, part=file.part, why=WHY[file.what])
            for file in certificate.value.to_destroy
        ),
    )
    rundir.write_json(new / DESTROY, to_json(destroy))

    # A ledger cannot take back an entry, so one that an interrupted call has appended already is not repeated.
    entry = _entry(origin, RunLedger(new), certificate, commitment)
    with Project.open(runs_of(old), key=key, name=name) as project:
        index = next((known.index for known in project.entries() if known.entry == entry), None)
        if index is None:
            index = project.append(entry)
    return Concluded(certificate=certificate, destroy=destroy, entry=index)


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
