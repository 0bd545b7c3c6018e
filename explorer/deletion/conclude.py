"""The end of a deletion: its certificate, the list of what is to be destroyed, its entry in the project's ledger.

In the new run's directory:

    certificate.json    signed by the trainer, and verified before it is written
    destroy.json        of the old run, by path and digest: what still holds the target, and why

Each is made once: whoever is interrupted does the same again, and what is there stays as it is.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer import rundir
from explorer.deletion.certificate import certify
from explorer.deletion.request import FILE, read_request
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Deletion
from explorer.errors import ProvenanceError, RunError
from explorer.project import Project, runs_of
from explorer.provenance.deletion_certificate import NotReached, Opened, What, open_certificate
from explorer.provenance.envelope import MAX_BYTES, write_envelope
from explorer.provenance.trust import Trust
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Origin, read_origin
from explorer.schema import record, to_json

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
