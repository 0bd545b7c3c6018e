"""A signed claim: an in-toto statement in a DSSE envelope, whose predicate is one record in its canonical form.

What certificates of deletion, attestations of models and observations have in common when they are signed and read.
"""

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer.canonical import canonical
from explorer.errors import ProvenanceError
from explorer.provenance.envelope import Envelope, parse_envelope
from explorer.provenance.keys import public_bytes
from explorer.provenance.require import check_signed, check_signer
from explorer.provenance.roles import Role
from explorer.provenance.statement import PAYLOAD_TYPE, Statement, parse_statement
from explorer.provenance.trust import Trust
from explorer.schema import from_json, to_json

Predicate = TypeVar("Predicate")


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim(Generic[Predicate]):
    """A claim that somebody in the trust file has signed; whether they may make it is for `require` to say."""

    value: Predicate
    statement: Statement
    envelope: Envelope

    @property
    def digest(self) -> str:
        """SHA-256 of the payload, in hexadecimal."""
        return hashlib.sha256(self.envelope.payload).hexdigest()


def read_claim(
    content: bytes,
    record: type[Predicate],
    *,
    predicate_type: str,
    subjects: Callable[[Statement], None],
    trust: Trust,
    where: str,
) -> Claim[Predicate]:
    """Read a claim of this type. `subjects` raises `ProvenanceError` for a statement about other things.

    Raises `ProvenanceError` for what nobody in the trust file has signed, and for any form but the canonical one.
    """
    envelope = parse_envelope(content, where=where)
    check_signed(envelope, trust=trust, where=where)
    if envelope.payload_type != PAYLOAD_TYPE:
        raise ProvenanceError(f"{where}: holds {envelope.payload_type!r}, expected {PAYLOAD_TYPE!r}")
    statement = parse_statement(envelope.payload, predicate_type=predicate_type, where=where)
    subjects(statement)
    value = from_json(record, statement.predicate, where=f"{where}: predicate", error=ProvenanceError)
    if statement.payload != envelope.payload or canonical(to_json(value)) != canonical(statement.predicate):
        raise ProvenanceError(f"{where}: not in canonical form (RFC 8785, every key written out)")
    return Claim(value=value, statement=statement, envelope=envelope)


def check_trainers(keys: Collection[Ed25519PrivateKey], *, issued: str, trust: Trust, now: int, where: str) -> None:
    """Check keys that are to sign what a trainer answers for, and others who stand by it.

    Raises `ProvenanceError` for a key that may not sign now in its own role, and where none is a trainer's.
    """
    roles = []
    for key in keys:
        owner = trust.owner(public_bytes(key))
        roles.append(Role.TRAINER if owner is None else owner[0].role)
        check_signer(public_bytes(key), trust=trust, role=roles[-1], issued=issued, now=now, where=where)
    if Role.TRAINER not in roles:
        raise ProvenanceError(f"{where}: a trainer signs it; these keys are of: {', '.join(roles) or 'nobody'}")
