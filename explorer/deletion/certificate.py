"""The certificate of a deletion, made from the two run directories: every claim in it is derived, none is handed in.

What a certificate says is what the two ledgers show, and it is verified as a stranger would before anyone gets it: one
that verification would refuse is never signed into the world.
"""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer import rundir
from explorer.deletion.claims import Outcome, artefacts, replay_of, structure_of
from explorer.deletion.evidence import FILE, Case, RecordsList, keep_list, name_of, open_whole
from explorer.deletion.verify_deletion import unreached, verify
from explorer.errors import ProvenanceError, RunError
from explorer.provenance.deletion_certificate import (
    FORMAT,
    MEANS,
    UNREACHED,
    Certificate,
    Deleted,
    NotReached,
    Replay,
    RunAt,
    Structure,
    sign_certificate,
)
from explorer.provenance.envelope import Envelope
from explorer.provenance.spellings import format_time
from explorer.provenance.trust import Trust
from explorer.runlog.model_file import MODEL, ModelFile
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Origin, read_origin

DETAIL = "as with every deletion"  # of what a signer has no more to say about


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
    """Return the certificate of the deletion that made the run `new` out of the run `old`, as `origin.json` in it says.

    `keys` are those of a trainer and of others who vouch for it. `request` is a salted commitment to the request that
    is answered; `not_reached` is what the signer knows that the deletion did not reach, besides what no deletion
    reaches. Where single records were deleted, their list is left in the new run's private directory: it opens the
    commitment to it.

    Raises `RunError` for a run that no deletion made, and for an old one of which more than the ledger is gone: what is
    to be destroyed is listed from its directory. Raises `ProvenanceError` with the claim that does not hold.
    """
    origin = read_origin(new)
    if origin is None:
        raise RunError(f"{new}: made by no deletion: there is no {rundir.ORIGIN}")
    if not (old / rundir.GOVERNANCE).is_dir():
        raise RunError(f"{old}: not the old run's own directory: there is no {rundir.GOVERNANCE!r} in it")
    runs = [open_whole(place, papers=new, trust=trust, now=now) for place in (old, new)]
    listed = keep_list(new, origin.target.records) if origin.target.records else None
    model = ModelFile(new / rundir.MODEL / MODEL).sha256
    draft = _draft(origin, runs, listed, request=request, issued=format_time(now), expires=expires)
    case = Case(certificate=draft, model=model, old=runs[0], new=runs[1], old_place=old, trust=trust, listed=listed)
    value = _with_claims(case, [*not_reached, *_owed(case, not_reached)])
    envelope = sign_certificate(value, model=model, keys=keys, trust=trust, now=now)
    records = None if listed is None else new / FILE
    found = verify(envelope.content, old=old, new=new, trust=trust, now=now, records=records)
    for check in found.checks:
        if check.outcome is not Outcome.HELD:
            raise ProvenanceError(f"not certified: {check.says}: {check.outcome}: {check.why}")
    return envelope


def _draft(
    origin: Origin,
    runs: list[RunLedger],
    listed: RecordsList | None,
    *,
    request: str | None,
    issued: str,
    expires: str,
) -> Certificate:
    """Whom and what it is about; nothing of it is a claim yet."""
    old, new = (RunAt(run=run.genesis.run, ledger=name_of(run)) for run in runs)
    genesis, target = runs[0].genesis, origin.target
    records = None if listed is None else listed.listed
    return Certificate(
        format=FORMAT,
        level=origin.level,
        means=MEANS[origin.level],
        old=old,
        new=new,
        target=Deleted(classes=target.classes, authorities=target.authorities, records=records),
        request=request,
        structure=None,
        replay=None,
        not_reached=(),
        to_destroy=(),
        taxonomy=genesis.taxonomy or "",
        policy=genesis.policy or "",
        trust=genesis.trust or "",
        issued=issued,
        expires=expires,
    )


def _with_claims(case: Case, not_reached: Collection[NotReached]) -> Certificate:
    """Return what both ledgers show."""
    structure: Structure | None = None
    replay: Replay | None = None
    if case.certificate.level == "G2":
        structure, _ = structure_of(case)
    else:
        replay = replay_of(case)
    return replace(
        case.certificate,
        structure=structure,
        replay=replay,
        not_reached=tuple(sorted(not_reached, key=lambda each: list(UNREACHED).index(each.what))),
        to_destroy=artefacts(case.old, case.reach),
    )


def _owed(case: Case, said: Collection[NotReached]) -> list[NotReached]:
    """Return what this deletion cannot have reached, where the signer has said nothing of it."""
    known = {each.what for each in said}
    return [NotReached(what=what, detail=DETAIL) for what in unreached(case) if what not in known]
