"""What a finished model carries: an in-toto statement that says what went into it, signed by its trainer.

    subject    model.safetensors and model.json, by their SHA-256
    predicate  the run and its ledger, with the signed checkpoint verbatim, cosignatures included; what determined the
               run, by digest; which class trained which layer how often; what deleting each class would take; what was
               deleted already; the models that it goes on from; issued and expires

    {"run": "resnet8-digits-fast-ssr1-s0-3f9c2a7d",
     "ledger": {"origin": "example.com/trainer/resnet8-...", "size": 1204, "root": "5f..."},
     "checkpoint": "example.com/trainer/resnet8-...\\n1204\\n...",
     "facts": {"recipe": "8c...", "data": "01...", "taxonomy": "77...", "policy": "e3...", "trust": "4a...", ...},
     "layers": [{"name": "stem", "depth": 0}, ...],
     "classes": [{"path": "open/mit", "confidential": false, "examples": 51200,
                  "trained": [{"layer": "stem", "steps": 800, "examples": 51200, "share": 0.41}, ...],
                  "deletable": {"level": "G3", "steps": 800}}, ...],
     "deletions": [], "parents": [], "issued": ..., "expires": ...}

"Trained" means: in so many steps the class had examples, the policy admitted it to the layer, and the layer was
updated. A class without such a step in a layer did not train it; one that has them trained it at most so often, since
what decides during a run can only hold back. Every claim follows from the run's ledger, so that whoever has the ledger
can compute it again (`explorer.release.claims`).
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field

from explorer.errors import ProvenanceError
from explorer.provenance.envelope import Envelope, sign_envelope
from explorer.provenance.levels import Level
from explorer.provenance.regions import Share
from explorer.provenance.signing import check_span, check_trainers, read_claim, require
from explorer.provenance.spellings import Ascii, ClassPath, Digest, LedgerName, Time, Whole
from explorer.provenance.statement import PAYLOAD_TYPE, Statement, Subject, make_statement, type_of
from explorer.provenance.trust import Authority, Name, Role, Trust
from explorer.schema import from_json, record, to_json

PREDICATE_TYPE = type_of("model/v1")
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
    share: float | None  # of the layer's summed gradient; None: it could be told from no number that all may see


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
    """A run that this one goes on from: itself, but for what was deleted, or one whose model it begins with."""

    kind: Literal["deletion", "model"]
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Attested:
    """An attestation that is believed, and who vouches for it."""

    value: ModelAttestation
    model: str  # SHA-256 of the safetensors file
    card: str  # SHA-256 of model.json
    digest: str  # of the payload
    authorities: tuple[Authority, ...]
    envelope: Envelope


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
    """Sign for a model with keys of trainers, and of others who stand by it.

    Raises `ProvenanceError` for a key that may not sign now, and where none is a trainer's.
    """
    statement = make_statement(
        [Subject(name=MODEL, sha256=model), Subject(name=CARD, sha256=card)],
        predicate_type=PREDICATE_TYPE,
        predicate=to_json(value),
    )
    check_span(from_json(ModelAttestation, statement.predicate, where=where, error=ProvenanceError), where)
    check_trainers(keys, issued=value.issued, trust=trust, now=now, where=where)
    return sign_envelope(statement.payload, PAYLOAD_TYPE, keys)


def open_model(content: bytes, *, trust: Trust, now: int, where: str) -> Attested:
    """Read an attestation. Raises `ProvenanceError` unless the trust file says that it is believed."""
    claim = read_claim(
        content,
        ModelAttestation,
        predicate_type=PREDICATE_TYPE,
        subjects=lambda statement: _check_subjects(statement, where),
        trust=trust,
        where=where,
    )
    value, envelope = claim.value, claim.envelope
    authorities = require(
        envelope, trust=trust, role=Role.TRAINER, issued=value.issued, expires=value.expires, now=now, where=where
    )
    return Attested(
        value=value,
        model=claim.statement.subjects[0].sha256,
        card=claim.statement.subjects[1].sha256,
        digest=claim.digest,
        authorities=authorities,
        envelope=envelope,
    )


def _check_subjects(statement: Statement, where: str) -> None:
    if [subject.name for subject in statement.subjects] != [MODEL, CARD]:
        raise ProvenanceError(f"{where}: subject: expected {MODEL} and {CARD}, in this order")
