"""What somebody who evaluates, fine-tunes or deploys a model says about it: an in-toto statement, signed by them.

    subject    model.safetensors, by its SHA-256
    predicate  {"role": "evaluator", "run": ..., "ledger": {origin, size, root}, "attestation": its digest,
                "metrics": {"accuracy": 0.93}, "note": "held-out set of May", "admitted": {"open/mit": 1},
                "issued": ..., "expires": ...}

The file beside the model is named for the digest of what was signed. Who may say what follows from the trust file: an
evaluator signs as `evaluator`, a fine-tuner trains and signs as `trainer`, and a deployer bears the risk and signs as
`model-risk`. What it says is its signer's word and no more, of the model as it was attested then: beside another
attestation, with another card perhaps, it counts for nothing. `admitted` says with which weight the observer lets a
class of the model through; it is for whoever goes on from the model.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field

from explorer.errors import ProvenanceError
from explorer.provenance.envelope import Envelope, sign_envelope
from explorer.provenance.keys import public_bytes
from explorer.provenance.model_attestation import MODEL, ByClass
from explorer.provenance.signing import check_signer, check_span, read_claim, require
from explorer.provenance.spellings import Ascii, Digest, LedgerName, Line, Time
from explorer.provenance.statement import PAYLOAD_TYPE, Statement, Subject, make_statement, type_of
from explorer.provenance.trust import Authority, Role, Trust
from explorer.schema import from_json, record, to_json

PREDICATE_TYPE = type_of("observation/v1")
MAX_METRICS = 1_000


class Observer(StrEnum):
    """As what somebody says something about a model."""

    EVALUATOR = "evaluator"
    FINE_TUNER = "fine-tuner"
    DEPLOYER = "deployer"


SIGNS_AS: dict[Observer, Role] = {
    Observer.EVALUATOR: Role.EVALUATOR,
    Observer.FINE_TUNER: Role.TRAINER,
    Observer.DEPLOYER: Role.MODEL_RISK,
}
Metric = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=64)]


@record
class Observation:
    """The predicate."""

    role: Observer
    run: Ascii
    ledger: LedgerName  # of the run that made the model
    attestation: Digest  # of the payload that the observer had verified
    metrics: Annotated[dict[Metric, float], Field(max_length=MAX_METRICS)]
    note: Annotated[Line, Field(max_length=2_000)] | None
    admitted: ByClass
    issued: Time
    expires: Time


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """An observation that is believed, and who made it."""

    value: Observation
    model: str  # SHA-256 of the safetensors file
    digest: str  # of the payload
    authorities: tuple[Authority, ...]


def sign_observation(
    value: Observation, *, model: str, keys: Collection[Ed25519PrivateKey], trust: Trust, now: int, where: str
) -> Envelope:
    """Sign what was observed. Raises `ProvenanceError` for a key whose role may not say so now."""
    statement = make_statement(
        [Subject(name=MODEL, sha256=model)], predicate_type=PREDICATE_TYPE, predicate=to_json(value)
    )
    check_span(from_json(Observation, statement.predicate, where=where, error=ProvenanceError), where)
    role = SIGNS_AS[value.role]
    for key in keys:
        check_signer(public_bytes(key), trust=trust, role=role, issued=value.issued, now=now, where=where)
    return sign_envelope(statement.payload, PAYLOAD_TYPE, keys)


def open_observation(content: bytes, *, trust: Trust, now: int, where: str) -> Observed:
    """Read an observation. Raises `ProvenanceError` unless the trust file says that its signers may make it."""
    claim = read_claim(
        content,
        Observation,
        predicate_type=PREDICATE_TYPE,
        subjects=lambda statement: _check_subject(statement, where),
        trust=trust,
        where=where,
    )
    value, envelope = claim.value, claim.envelope
    span = {"issued": value.issued, "expires": value.expires}
    authorities = require(envelope, trust=trust, role=SIGNS_AS[value.role], now=now, where=where, **span)
    return Observed(
        value=value,
        model=claim.statement.subjects[0].sha256,
        digest=claim.digest,
        authorities=authorities,
    )


def _check_subject(statement: Statement, where: str) -> None:
    if len(statement.subjects) != 1:
        raise ProvenanceError(f"{where}: {len(statement.subjects)} subjects; expected one, the model's file")
