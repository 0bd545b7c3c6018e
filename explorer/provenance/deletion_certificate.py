"""The certificate of a deletion: one in-toto statement in a DSSE envelope, signed by who trained both models.

    subject    the new model's safetensors file, by its SHA-256
    predicate  the level, both runs and their ledgers, the target, and what the level rests on (below)

There are two levels, and no certificate can be made of less. G2, exact by structure: the target's sealed regions are
dropped, `structure` names their tensors and the roots over all others. G3, exact by replay: `replay` names the state
that was gone on from and the first step in which the target could have moved anything. What is to be deleted is told by
class or authority; single records as a salted commitment to their list and how many they are.

Whoever has both ledgers and the new run derives all of that again (`explorer.deletion.verify`), but for what the fields
say that are the signer's word (deletion_claims.py).
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import PurePosixPath

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer.errors import ProvenanceError
from explorer.provenance.claim import check_trainers, read_claim
from explorer.provenance.deletion_claims import ALWAYS, FORMER, Certificate
from explorer.provenance.deletion_claims import FORMAT as FORMAT
from explorer.provenance.deletion_claims import MEANS as MEANS
from explorer.provenance.deletion_claims import NEVER_HAD as NEVER_HAD
from explorer.provenance.deletion_claims import UNREACHED as UNREACHED
from explorer.provenance.deletion_claims import NotReached as NotReached
from explorer.provenance.deletion_claims import What as What
from explorer.provenance.envelope import Envelope, sign_envelope
from explorer.provenance.require import require
from explorer.provenance.roles import Role
from explorer.provenance.statement import PAYLOAD_TYPE, Statement, Subject, make_statement, type_of
from explorer.provenance.times import format_time, parse_time
from explorer.provenance.trust import Authority, Trust
from explorer.schema import from_json, to_json

PREDICATE_TYPE = type_of("deletion/v1")
SUBJECT = "model.safetensors"


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """A certificate that somebody who may has signed; none of its claims is checked yet."""

    value: Certificate
    model: str  # SHA-256 of the new model's file
    authorities: tuple[Authority, ...]  # the trainers that signed
    digest: str  # SHA-256 of what was signed


def sign_certificate(
    value: Certificate, *, model: str, keys: Collection[Ed25519PrivateKey], trust: Trust, now: int
) -> Envelope:
    """Sign a certificate for the model with this SHA-256; its claims are the caller's (`explorer.deletion.certify`).

    The keys are those of trainers, and of others who stand by it. Raises `ProvenanceError` for a certificate that could
    not be read again, and for a key that may not sign now.
    """
    where = "the certificate"
    predicate = to_json(value)
    check(from_json(Certificate, predicate, where=where, error=ProvenanceError), where=where)
    if now >= parse_time(value.expires):
        raise ProvenanceError(f"{where}: expired {value.expires}, and now it is {format_time(now)}: nobody believes it")
    check_trainers(keys, issued=value.issued, trust=trust, now=now, where=where)
    subject = Subject(name=SUBJECT, sha256=model)
    statement = make_statement([subject], predicate_type=PREDICATE_TYPE, predicate=predicate)
    return sign_envelope(statement.payload, PAYLOAD_TYPE, keys)


def open_certificate(content: bytes, *, trust: Trust, now: int, where: str) -> Opened:
    """Read a certificate that a trainer has signed, within its time. Raises `ProvenanceError` with the reason."""
    claim = read_claim(
        content,
        Certificate,
        predicate_type=PREDICATE_TYPE,
        subjects=lambda statement: _check_subject(statement, where),
        trust=trust,
        where=where,
    )
    value, envelope = claim.value, claim.envelope
    span = {"issued": value.issued, "expires": value.expires}
    signed = require(envelope, trust=trust, role=Role.TRAINER, now=now, where=where, **span)
    check(value, where=where)
    return Opened(
        value=value,
        model=claim.statement.subjects[0].sha256,
        authorities=signed,
        digest=claim.digest,
    )


def check(value: Certificate, *, where: str) -> None:
    """Check what a certificate says within itself. Raises `ProvenanceError` that begins with `where`."""
    if value.means not in (MEANS[value.level], FORMER[value.level]):
        raise ProvenanceError(f"{where}: means: not what {value.level} means; expected {MEANS[value.level]!r}")
    parts = {"G2": value.structure, "G3": value.replay}
    if [name for name, part in parts.items() if part is not None] != [value.level]:
        raise ProvenanceError(
            f"{where}: {value.level}: expected 'structure' of G2 or 'replay' of G3, and not the other"
        )
    target = value.target
    if bool(target.classes) + bool(target.authorities) + (target.records is not None) != 1:
        raise ProvenanceError(f"{where}: target: expected classes, authorities or records, one of the three")
    if any(len({*each}) != len(each) for each in (target.classes, target.authorities)):
        raise ProvenanceError(f"{where}: target: {target.words:.200}: one of them twice")
    if missing := [each for each in ALWAYS if each not in {one.what for one in value.not_reached}]:
        raise ProvenanceError(f"{where}: not_reached: leaves out what no deletion reaches: {', '.join(missing)}")
    for index, artefact in enumerate(value.to_destroy):
        path = PurePosixPath(artefact.path)
        if path.is_absolute() or ".." in path.parts or str(path) != artefact.path:
            raise ProvenanceError(f"{where}: to_destroy[{index}]: {artefact.path!r} is no path in the run's directory")


def _check_subject(statement: Statement, where: str) -> None:
    if [each.name for each in statement.subjects] != [SUBJECT]:
        names = ", ".join(each.name for each in statement.subjects) or "none"
        raise ProvenanceError(f"{where}: subjects: {names:.200}; expected one, {SUBJECT}, the new model's file")
