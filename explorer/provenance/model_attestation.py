"""Attestations of finished models: in-toto statements about what went into a model, signed by its trainer.

    subject    model.safetensors and model.json, by their SHA-256
    predicate  the run and its ledger, with the signed checkpoint verbatim, cosignatures included; the inputs of the run
               by digest; which class trained which layer how often; the cost of deleting each class; earlier deletions;
               the models that it continues; issued and expires

    {"run": "resnet8-digits-fast-ssr1-s0-3f9c2a7d",
     "ledger": {"origin": "example.com/trainer/resnet8-...", "size": 1204, "root": "5f..."},
     "checkpoint": "example.com/trainer/resnet8-...\n1204\n...",
     "facts": {"recipe": "8c...", "data": "01...", "taxonomy": "77...", "policy": "e3...", "trust": "4a...", ...},
     "layers": [{"name": "stem", "depth": 0}, ...],
     "classes": [{"path": "open/mit", "confidential": false, "examples": 51200,
                  "trained": [{"layer": "stem", "steps": 800, "examples": 51200, "share": 0.41}, ...],
                  "deletable": {"level": "G3", "steps": 800}}, ...],
     "deletions": [], "parents": [], "issued": ..., "expires": ...}

"Trained" counts the steps in which the class had examples, the policy admitted it to the layer, and the layer was
updated. A class without such a step in a layer did not train it; otherwise the number is an upper bound, since
decisions during a run can only hold back. Every claim follows from the run's ledger, so that a reader of the ledger can
compute it again (`explorer.release.model_claims`).

An observation is what an evaluator, a fine-tuner or a deployer signs about a model, as an in-toto statement too:

    subject    model.safetensors, by its SHA-256
    predicate  {"role": "evaluator", "run": ..., "ledger": {origin, size, root}, "attestation": its digest,
                "metrics": {"accuracy": 0.93}, "note": "held-out set of May", "admitted": {"open/mit": 1},
                "issued": ..., "expires": ...}

Its file, next to the model, is named for the digest of what was signed. The trust file decides who may sign: an
evaluator signs as `evaluator`, a fine-tuner, who trains, as `trainer`, and a deployer, who bears the risk, as
`model-risk`. An observation is its signer's word and no more, about the model as it was attested then: under another
attestation, for example with another card, it counts for nothing. `admitted` is the weight with which the observer
admits each class of the model; it is for runs that continue from the model.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import Annotated, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field

from explorer.provenance.envelope import Envelope
from explorer.provenance.levels import Level
from explorer.provenance.regions import Share
from explorer.provenance.signing import Kind, Signed, check_span, open_document, sign_document
from explorer.provenance.spellings import Ascii, ClassPath, Digest, LedgerName, Line, Time, Whole
from explorer.provenance.trust import Name, Role, Trust
from explorer.schema import record

MODEL, CARD = "model.safetensors", "model.json"  # the names of its subjects
MAX_CHECKPOINT = 2**20

ByClass = Annotated[dict[ClassPath, Share], Field(max_length=10_000)]


@record
class Facts:
    """What determined the run, as the first entry of its ledger names it."""

    recipe: Digest
    code: Digest
    environment: Digest
    data: Digest
    tags: dict[Ascii, Digest]  # roots of the tag tables, by the name of the dataset or shard
    taxonomy: Digest
    policy: Digest
    trust: Digest
    judged: Whole  # the moment for which documents and keys were judged, in seconds since 1970


@record
class LayerDepth:
    """A layer; 0 is the input, 1 the output. The adapter of a sealed region lies at its layer's depth."""

    name: Ascii
    depth: Share


@record
class Trained:
    """How often a class trained a layer."""

    layer: Ascii
    steps: Whole
    examples: Whole
    share: float | None  # of the layer's summed gradient; None: no public number gives it


@record
class Deletable:
    """What deleting a class would take when this was issued."""

    level: Level | None  # the best exact one that there is; None: none
    steps: Whole  # to be replayed for it


@record
class ClassClaim:
    """What is said of a class that the run had."""

    path: ClassPath
    confidential: bool  # the policy has its numbers sealed
    examples: Whole  # that stood in batches, whether they trained or were denied
    trained: tuple[Trained, ...]  # layers in their order; none: it trained nothing
    deletable: Deletable


@record
class Deleted:
    """A deletion that came before this model, and the certificate that proves it."""

    certificate: Digest  # of the payload
    level: Level
    ledger: LedgerName  # of the run that had what was deleted
    classes: tuple[ClassPath, ...]
    authorities: tuple[Name, ...]
    records: Whole  # how many single ones


@record
class Ancestor:
    """A run that this one goes on from: itself, but for what was deleted, one whose model it begins with, or one that
    made its first steps."""

    kind: Literal["deletion", "model", "trunk"]
    ledger: LedgerName
    model: Digest | None
    attestation: Digest | None
    admitted: ByClass  # with which weight each of its classes was let in


@record
class ModelAttestation:
    """The predicate."""

    run: Ascii
    ledger: LedgerName
    checkpoint: Annotated[str, Field(max_length=MAX_CHECKPOINT)]  # a signed note, with its cosignatures
    facts: Facts
    steps: Whole
    layers: tuple[LayerDepth, ...]
    classes: tuple[ClassClaim, ...]  # in the order of the run
    deletions: tuple[Deleted, ...]
    parents: tuple[Ancestor, ...]
    issued: Time
    expires: Time


ATTESTATION = Kind(
    name="model/v1", record=ModelAttestation, role=Role.TRAINER, check=check_span, about=(MODEL, CARD), joint=True
)
PREDICATE_TYPE = ATTESTATION.predicate_type
Attested = Signed[ModelAttestation]


def sign_model(
    value: ModelAttestation,
    *,
    model: str,
    card: str,
    keys: Collection[Ed25519PrivateKey],
    trust: Trust,
    now: int,
    where: str,
) -> Envelope:
    """Sign the attestation of a model.

    Args:
        value: the attestation.
        model, card: SHA-256 of the model's two files.
        keys: keys of trainers, at least one, and of others who vouch for it.
        trust: the trust file that says which keys may sign.
        now: seconds since 1970.
        where: the attestation's name in messages.

    Raises `ProvenanceError` for a key that may not sign now, and if none is a trainer's.
    """
    return sign_document(value, ATTESTATION, keys, about=(model, card), trust=trust, now=now, where=where)


def open_model(content: bytes, *, trust: Trust, now: int, where: str) -> Attested:
    """Read an attestation. Raises `ProvenanceError` unless it is valid under the trust file."""
    return open_document(content, ATTESTATION, trust=trust, now=now, where=where)


# --- observations ---

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
Observed = Signed[Observation]


def sign_observation(
    value: Observation, *, model: str, keys: Collection[Ed25519PrivateKey], trust: Trust, now: int, where: str
) -> Envelope:
    """Sign an observation of the model with this SHA-256. Raises `ProvenanceError` for a key whose role may not
    sign."""
    return sign_document(value, OBSERVATION, keys, about=(model,), trust=trust, now=now, where=where)


def open_observation(content: bytes, *, trust: Trust, now: int, where: str) -> Observed:
    """Read an observation. Raises `ProvenanceError` unless its signers may make it under the trust file."""
    return open_document(content, OBSERVATION, trust=trust, now=now, where=where)
