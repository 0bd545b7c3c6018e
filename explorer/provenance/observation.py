"""Statements of evaluators, fine-tuners and deployers about a model: in-toto statements that they sign.

    subject    model.safetensors, by its SHA-256
    predicate  {"role": "evaluator", "run": ..., "ledger": {origin, size, root}, "attestation": its digest,
                "metrics": {"accuracy": 0.93}, "note": "held-out set of May", "admitted": {"open/mit": 1},
                "issued": ..., "expires": ...}

The file next to the model is named for the digest of what was signed. Who may say what follows from the trust file: an
evaluator signs as `evaluator`, a fine-tuner trains and signs as `trainer`, and a deployer bears the risk and signs as
`model-risk`. What it says is its signer's word and no more, of the model as it was attested then: with another
attestation, with another card perhaps, it counts for nothing. `admitted` says with which weight the observer lets a
class of the model through; it is for runs that continue from the model.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import Annotated

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field

from explorer.provenance.envelope import Envelope
from explorer.provenance.model_attestation import MODEL, ByClass
from explorer.provenance.signing import Kind, Signed, check_span, open_document, sign_document
from explorer.provenance.spellings import Ascii, Digest, LedgerName, Line, Time
from explorer.provenance.trust import Role, Trust
from explorer.schema import record

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


OBSERVATION = Kind(
    name="observation/v1",
    record=Observation,
    role=lambda observation: SIGNS_AS[observation.role],
    check=check_span,
    about=(MODEL,),
)
PREDICATE_TYPE = OBSERVATION.predicate_type
Observed = Signed[Observation]


def sign_observation(
    value: Observation, *, model: str, keys: Collection[Ed25519PrivateKey], trust: Trust, now: int, where: str
) -> Envelope:
    """Sign what was observed. Raises `ProvenanceError` for a key whose role may not say so now."""
    return sign_document(value, OBSERVATION, keys, about=(model,), trust=trust, now=now, where=where)


def open_observation(content: bytes, *, trust: Trust, now: int, where: str) -> Observed:
    """Read an observation. Raises `ProvenanceError` unless the trust file says that its signers may make it."""
    return open_document(content, OBSERVATION, trust=trust, now=now, where=where)
