"""What a certificate of a deletion says: the predicate of its statement, and the words that it has for what it says.

Three of its fields nobody can derive from the ledgers: what the deletion did not reach, what is to be destroyed, and
which request it answers. They are the signer's word, and are called so wherever they are shown.
"""

from typing import Annotated, Literal

from pydantic import Field

from explorer.provenance.branches import Path as ClassPath
from explorer.provenance.levels import Level
from explorer.provenance.lines import Line
from explorer.provenance.named import Ascii, Digest, LedgerName, Whole
from explorer.provenance.times import Time
from explorer.provenance.trust import Name
from explorer.schema import record

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
"""What a certificate of each level says, in a sentence that is the same everywhere: what both ledgers show, no more."""

NEVER_HAD = f"Bit for bit that of a run that never had the target, which was trained here from its first step. {_SAME}"
"""What may be said beyond that where the counterfactual was trained and compared."""

FORMER: dict[Level, str] = {
    "G2": "Same plan, the target's slots empty; how many there were remains known. The regions that belonged to the "
    "target alone are dropped; the rest is bit for bit what it would be had they never been trained.",
    "G3": "Same plan, the target's slots empty; how many there were remains known. Trained again without the target "
    "from a state that it had not moved; the result is bit for bit that of never having had it.",
}
"""What certificates of before say. They are read, and shown with the sentence of today: theirs is wider than what is
computed."""

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
"""What a deletion may not have reached: all words that a certificate has for it, and what they mean."""

ALWAYS: tuple[Unreached, ...] = ("number", "hyper-parameters", "published-copies", "backups")
"""What no deletion reaches: a certificate that leaves one of them out says too much."""

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
