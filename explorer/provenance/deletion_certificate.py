"""The certificate of a deletion: one in-toto statement in a DSSE envelope, signed by the trainer of both models.

    subject    the new model's safetensors file, by its SHA-256
    predicate  the level, both runs and their ledgers, the target, and the evidence for the level (below)

There are two levels, and nothing less gets a certificate. G2, exact by structure: the target's sealed regions are
dropped; `structure` names their tensors and the roots over all others. G3, exact by replay: `replay` names the state
from which training continued, and the first step in which the target could have moved anything. The target is named by
class or authority; single records by a salted commitment to their list and by their number.

A reader of both ledgers and the new run derives all of this again (`explorer.deletion.verify_deletion`), except for the
fields that are the signer's word.
"""

from collections.abc import Collection
from pathlib import PurePosixPath
from typing import Annotated, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field

from explorer.errors import ProvenanceError
from explorer.provenance.envelope import Envelope
from explorer.provenance.levels import Level
from explorer.provenance.signing import Kind, Signed, open_document, sign_document
from explorer.provenance.spellings import (
    Ascii,
    ClassPath,
    Digest,
    LedgerName,
    Line,
    Time,
    Whole,
)
from explorer.provenance.trust import Name, Role, Trust
from explorer.schema import record

# ---------------------------------------------------------------- what a certificate says: the predicate, and its words

FORMAT = "explorer/deletion/v1"
Unreached = Literal[
    "number",
    "hyper-parameters",
    "published-copies",
    "descendants",
    "base-model",
    "backups",
    "measurements",
    "data",
    "tokeniser",
    "normalisation",
    "architecture",
]
_SAME = "Same plan, the target's slots empty; how many there were remains known."
MEANS: dict[Level, str] = {
    "G2": "The old model without the regions that were the target's alone, compared tensor by tensor; that training "
    f"kept these regions apart is the trainer's word. {_SAME}",
    "G3": "Trained again without the target from a recorded state that it had not moved; that each step was done as "
    f"the ledgers say is the trainer's word. {_SAME}",
}
"""The sentence of each level, the same in every certificate. It claims only what both ledgers show."""

NEVER_HAD = f"Bit for bit that of a run that never had the target, which was trained here from its first step. {_SAME}"
"""The stronger claim that is allowed where the counterfactual was trained and compared."""

FORMER: dict[Level, str] = {
    "G2": "Same plan, the target's slots empty; how many there were remains known. The regions that belonged to the "
    "target alone are dropped; the rest is bit for bit what it would be had they never been trained.",
    "G3": "Same plan, the target's slots empty; how many there were remains known. Trained again without the target "
    "from a state that it had not moved; the result is bit for bit that of never having had it.",
}
"""The sentences of certificates by earlier versions. These are read, but shown with today's sentence, since theirs
claims more than what is computed."""

UNREACHED: dict[Unreached, str] = {
    "number": "how many examples of the target there were, and in which slots",
    "hyper-parameters": "choices that people made after they had seen results of runs with the target",
    "published-copies": "copies of the old model and of its checkpoints that left this place",
    "descendants": "models that were trained further from the old one",
    "base-model": "what the model that the old run began with had learned before",
    "backups": "backups, and disks that keep what was written over",
    "measurements": "what was measured of the old run and shown: reports, tables, stores",
    "data": "the examples themselves, wherever they are kept",
    "tokeniser": "a tokeniser, if it was fitted on the target too",
    "normalisation": "constants of normalisation, if they were computed over the target too",
    "architecture": "the shape of the model, if it was chosen for the target",
}
"""Everything that a deletion may not reach: the words of certificates, and their meanings."""

ALWAYS: tuple[Unreached, ...] = ("number", "hyper-parameters", "published-copies", "backups")
"""The items that no deletion reaches: a certificate that omits one of them claims too much."""

_MOST = 50_000  # of a list
Text = Annotated[Line, Field(max_length=500)]
What = Literal["model", "checkpoint", "secret", "numbers", "spool", "notebook", "measurements"]


@record
class RunAt:
    """A run and all of its ledger."""

    run: Ascii
    ledger: LedgerName


@record
class Listed:
    """Single records: SHA-256(salt || their list in canonical JSON), and how many they are."""

    commitment: Digest
    number: Annotated[int, Field(ge=1, lt=2**53)]


@record
class Deleted:
    """What was deleted: exactly one of the three."""

    classes: Annotated[tuple[ClassPath, ...], Field(max_length=_MOST)] = ()
    authorities: Annotated[tuple[Name, ...], Field(max_length=_MOST)] = ()
    records: Listed | None = None

    @property
    def words(self) -> str:
        """For people."""
        if self.records is not None:
            return f"{self.records.number} record{'s' * (self.records.number != 1)}"
        vouched = f"what {', '.join(self.authorities)} vouches for"
        return ", ".join(self.classes) if self.classes else vouched


@record
class Roots:
    """Merkle roots over tensors by name, as in a run's `end` entry."""

    parameters: Digest
    buffers: Digest
    optimizer: Digest


@record
class Structure:
    """What G2 rests on."""

    dropped: Annotated[tuple[Text, ...], Field(max_length=_MOST)]  # names of tensors, ascending; none: it had no region
    kept: Roots  # over all others, but for what governed methods remember about classes


@record
class Start(Roots):
    """The state of training that was gone on from."""

    random: Digest


@record
class Replay:
    """What G3 rests on."""

    begins: Whole  # steps of the old run that the new one takes over
    start: Start | None  # the state then; None: none, it begins with the initial parameters
    steps: Annotated[int, Field(ge=1, lt=2**53)]  # that were done again
    influence: Whole  # the first step of the old run in which the target could have moved anything


@record
class NotReached:
    """Something that the deletion did not reach, as the signer says."""

    what: Unreached
    detail: Text


@record
class Artefact:
    """Something of the old run that holds what was deleted, and is to be destroyed."""

    what: What
    path: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f\\]+$", max_length=500)]  # in the old run's directory
    sha256: Digest | None  # of the file; None: a part of it goes, or it is secret
    part: Text | None  # of the file; None: all of it


@record
class Certificate:
    """The predicate of the statement."""

    format: Literal["explorer/deletion/v1"]
    level: Level
    means: Text
    old: RunAt
    new: RunAt
    target: Deleted
    request: Digest | None  # a salted commitment: a request names a person
    structure: Structure | None  # of G2
    replay: Replay | None  # of G3
    not_reached: Annotated[tuple[NotReached, ...], Field(max_length=1000)]
    to_destroy: Annotated[tuple[Artefact, ...], Field(max_length=_MOST)]
    taxonomy: Digest
    policy: Digest
    trust: Digest  # the file that the old run was judged by
    issued: Time
    expires: Time


# ------------------------------------------------------------------------------------------------------ the certificate

SUBJECT = "model.safetensors"


def check(value: Certificate, *, where: str) -> None:
    """Check that a certificate is consistent in itself. Raises `ProvenanceError` that begins with `where`."""
    # A fixed sentence: otherwise a signed certificate could promise in words what its evidence does not show.
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
    if any(len({*what}) != len(what) for what in (target.classes, target.authorities)):
        raise ProvenanceError(f"{where}: target: {target.words:.200}: one of them twice")
    if missing := [what for what in ALWAYS if what not in {one.what for one in value.not_reached}]:
        raise ProvenanceError(f"{where}: not_reached: leaves out what no deletion reaches: {', '.join(missing)}")
    # People delete by this list, so no path may lead out of the run's directory.
    for index, artefact in enumerate(value.to_destroy):
        path = PurePosixPath(artefact.path)
        if path.is_absolute() or ".." in path.parts or str(path) != artefact.path:
            raise ProvenanceError(f"{where}: to_destroy[{index}]: {artefact.path!r} is no path in the run's directory")


CERTIFICATE = Kind(
    name="deletion/v1",
    record=Certificate,
    role=Role.TRAINER,
    check=lambda value, where: check(value, where=where),
    about=(SUBJECT,),
    joint=True,
)
PREDICATE_TYPE = CERTIFICATE.predicate_type
Opened = Signed[Certificate]
"""A certificate with checked signatures; none of its claims is checked yet."""


def sign_certificate(
    value: Certificate, *, model: str, keys: Collection[Ed25519PrivateKey], trust: Trust, now: int
) -> Envelope:
    """Sign a certificate for the model with this SHA-256; its claims are the caller's (`explorer.deletion.finish`).

    The keys are those of trainers, and of others who vouch for it. Raises `ProvenanceError` for a certificate that
    could not be read again, and for a key that may not sign now.
    """
    return sign_document(value, CERTIFICATE, keys, about=(model,), trust=trust, now=now, where="the certificate")


def open_certificate(content: bytes, *, trust: Trust, now: int, where: str) -> Opened:
    """Read a certificate that a trainer has signed, within its time. Raises `ProvenanceError` with the reason."""
    return open_document(content, CERTIFICATE, trust=trust, now=now, where=where)
