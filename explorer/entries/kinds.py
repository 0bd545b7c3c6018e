"""The kinds of entries: the records of a run's ledger and of a project's, their table, their encoding and decoding.

`step` everywhere is the number of optimiser steps done before: the first entry `step` has 0, and entries after it have
1. Classes are class paths of the run's taxonomy. Entries have only commitments to numbers; the numbers are in the blobs
of the next `state`, which closes a segment of steps:

    numbers/<class>    the class's content of each step that it trained in, in order              (numbers.py)
    joint              the content over the classes of each step, in order                        (numbers.py)
    sketches/<class>   the sketch of the class's weighted gradient, summed over the steps, which
                       the state itself commits to                                                (numbers.py)
    slots              the row of the tag table in each slot of each step, in order               (slots.py)
    tensors            the leaf of every tensor of that state, by name                            (runlog/tensors.py)

The genesis names the `tensors` of the state before step 0, so that changes are known for the first segment too, and
`owners`: the layer of each tensor whose name begins with another layer's, as a shared one does. Where another key than
the trainer's signs the ledger, its blob `delegation` is the signed statement (provenance/delegation.py). Ledgers of
earlier versions name tensors only at the end. A blob that would be empty is left out. A layer is a layer of the model
or an adapter of one, in the order of the genesis.
"""

from dataclasses import asdict, dataclass, fields
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from explorer.entries.fields import Blobs, ByClass, ByName, Digest, Float, LedgerState, Line, Name, Whole, read_float
from explorer.entries.heads import Head, read_head, write_entry
from explorer.errors import LedgerError
from explorer.provenance.spellings import ClassPath
from explorer.schema import from_json, record

# --- a run's ledger ---

Flags = Annotated[str, Field(pattern=r"^[01]*$", max_length=20_000)]
"""A 1 or a 0 for every layer, in the order of the genesis."""


@record
class Sources:
    """The tagged data that the run was given: the tag table's Merkle root, and the attestation that vouches for it."""

    root: Digest
    attestation: Digest  # SHA-256 of the attestation's payload


@record
class TrainingState:
    """The state of training, each part as a Merkle root over its tensors in the order of their names.

    A leaf is SHA-256(0x00 || name | type | shape in brackets \\n || the values, little-endian, in row order), such as
    `conv.weight|torch.float32|(8, 2, 3, 3)`. Large tensors are hashed by chunks (runlog/tensors.py).
    """

    parameters: Digest
    buffers: Digest
    optimizer: Digest  # what optimisers and methods remember
    random: Digest  # SHA-256 of {"seed", "step"} in RFC 8785 form: every stream of random numbers follows from them


@record
class Parent:
    """A run that this one goes on from, as its ledger was then."""

    kind: Literal["deletion", "model"]  # the same run without some of its examples; or one that begins with its model
    ledger: LedgerState
    model: Digest | None  # SHA-256 of the safetensors file that this run begins with; None: a deletion
    attestation: Digest | None  # of the payload that vouches for that file
    admitted: ByClass[Float]  # with which weight each class of the model is let in; empty: a deletion

    @property
    def words(self) -> str:
        """For people."""
        if self.kind == "deletion":
            return f"{self.ledger.origin}, by a deletion"
        admitted = ", ".join(f"{path} {read_float(weight):g}" for path, weight in self.admitted.items())
        return f"the model of {self.ledger.origin}, of which it admits {admitted or 'no class'}"


@record
class Shared:
    """A layer whose tensors the model holds under other names too."""

    layer: Line
    also: Annotated[tuple[Line, ...], Field(min_length=1)]


@record
class Traits:
    """What a method can do to a run that its steps do not record. The method's class states it
    (`engine.method.Method.traits`), the genesis carries it, and no reader has a list of methods."""

    probes: bool = False  # what layers make of examples of a class decides about other classes
    remembers: Literal["nothing", "classes", "model"] = "nothing"  # classes: a record of them, and no part of training
    averages: bool = False  # the run ends with other weights than its last step left


@record
class Lanes:
    """The parts in which the rows of a step are added, and the processes that were to make their passes."""

    count: Whole
    ranks: Annotated[tuple[Whole, ...], Field(min_length=1)]  # the first lane of each process, in their order


@record
class Genesis:
    """The first entry: everything that determines the run, by digest."""

    KIND: ClassVar[str] = "genesis"
    VERSION: ClassVar[int] = 1

    run: Line
    recipe: Digest
    code: Digest
    environment: Digest
    data: Digest  # the dataset's manifest
    tags: ByName[Sources]  # by the name of the dataset or shard; empty: no provenance
    taxonomy: Digest | None  # None, like the next two: the run is not governed
    policy: Digest | None
    trust: Digest | None
    judged: Whole | None  # the moment for which documents and keys were judged, in seconds since 1970: an input
    strategy: Literal["plain", "microbatch", "fused"]
    seed: Whole
    initial: Digest  # the parameters before step 0
    begins: Whole  # steps done before the first one here: 0, or those of the run that a deletion continues
    start: TrainingState | None  # the state then; None: `begins` is 0
    classes: tuple[ClassPath, ...]  # in the order in which their gradients are summed
    layers: tuple[Line, ...]  # in the order of every `updated`
    parents: tuple[Parent, ...]  # runs whose state or model this one goes on from
    blobs: Blobs
    shared: tuple[Shared, ...] = ()  # left out of the entry where there are none
    methods: ByName[Traits] | None = None  # of the run, by name; None: an older ledger, or another writer's
    fitted: dict[Literal["normalisation", "tokeniser"], Line] | None = None  # on all examples; None: not known
    delegation: Digest | None = None  # of the payload that lets another key sign this ledger; None: the trainer's own
    lanes: Lanes | None = None  # None: one

    @property
    def other_names(self) -> dict[str, tuple[str, ...]]:
        """The other names of layers, by name."""
        return {shared.layer: shared.also for shared in self.shared}


@record
class Step:
    """One optimiser step. What is said of each class stands in the order of the genesis.

    A commitment is SHA-256(salt || content): the content is the class's part of the step (numbers.py), the salt that of
    the class's secret for kind "step" and this step. Of the numbers over several classes the secret is the joint one
    and the class path "*".
    """

    KIND: ClassVar[str] = "step"
    VERSION: ClassVar[int] = 1

    step: Whole
    phase: Line
    slots: Digest  # Merkle root over slot u64be || tag leaf, all slots of the batch in order
    examples: tuple[Whole, ...]  # of each class in the batch, whether it trained or was denied
    numbers: tuple[Digest | None, ...]  # commitments; None: denied everywhere, no rows, or nothing was measured
    joint: Digest | None  # commitment to the numbers over several classes; None: nothing was measured
    quarantined: Whole  # slots whose examples have no valid tag: never read
    weights: Digest | None  # of the blob `weights`, the admission table in force; None: no policy
    updated: Flags  # 0: the layer's parameters, buffers and optimiser state are bit for bit what they were
    blobs: Blobs  # `weights`, in the first step of each segment that the table is in force in
    estimated: bool = False  # the numbers follow from sketches of the gradients; left out where they are exact


@record
class Profile:
    """What the layers' representations tell about the classes, on a committed probe set."""

    KIND: ClassVar[str] = "profile"
    VERSION: ClassVar[int] = 1

    step: Whole
    probes: Digest
    classes: ByClass[Digest]  # commitment to the class's numbers, layer by layer
    joint: Digest  # commitment to the numbers over all classes: with all classes but one they give the last one away
    blobs: Blobs


@record
class State:
    """What the run has come to, so that a replay can be compared with it, and the numbers of the steps up to here.

    A class with numbers in a step of the segment has sketches too, in a run that makes any. The commitment to them is
    SHA-256(salt || content), the salt that of the class's secret for kind "step", the first step of the segment, and
    the step of this entry, which no step of the segment has.
    """

    KIND: ClassVar[str] = "state"
    VERSION: ClassVar[int] = 1

    step: Whole
    state: TrainingState
    blobs: Blobs
    # Commitments to the sketches, for each class in the order of the genesis; None: the class has none here. Left out
    # where no class has any, and in ledgers of earlier versions, which do not commit to sketches.
    sketches: tuple[Digest | None, ...] = ()


@record
class Decision:
    """Something that the run decided while it ran, the rule that did it, and commitments to the numbers behind it.

    The action `ranks` says that another number of processes makes the steps from here on. No bit depends on it.

    The action `loss-scale` says that this step changes the scale of fp16's losses, from `before` to `after`: by the
    rule `overflow`, because gradients of the classes in `evidence` were not finite, which the step is made without; or
    by `growth`.
    """

    KIND: ClassVar[str] = "decision"
    VERSION: ClassVar[int] = 1

    step: Whole  # of a re-execution: the first step that is executed again
    action: Literal["freeze", "re-open", "override", "activation", "selection", "re-execution", "ranks", "loss-scale"]
    rule: Name
    parameters: ByName[Float]  # of the rule: its thresholds
    condition: Name | None  # of the policy, that an activation switches on; None: nothing is switched
    subjects: tuple[ClassPath, ...]  # the classes that it is about; none: all
    layers: tuple[Line, ...]  # that it is about; none: all
    evidence: ByClass[Digest]  # commitments to the numbers that decided: every class here influences the subjects
    blobs: Blobs


@record
class Trunk:
    """The steps before this entry are those of a shorter run of the same recipe and seed, which made them.

    This run began with the state that the other one left, and recorded the contents of its entries under secrets of its
    own. They are whole here: the entry says where they come from, and nothing about them depends on the other ledger.
    """

    KIND: ClassVar[str] = "trunk"
    VERSION: ClassVar[int] = 1

    step: Whole  # how many steps; the state entry before this one has the same
    run: Line  # that made them
    ledger: LedgerState  # of that run, as it was when these steps were on record
    state: TrainingState  # that they led to
    blobs: Blobs

    @property
    def words(self) -> str:
        """For people."""
        return f"the first {'step' if self.step == 1 else f'{self.step:,} steps'} of {self.run}"


@record
class End:
    """The last entry: the run is done, and this is what came out.

    `result.json` holds times too, which no replay arrives at; what of it can be repeated is here.
    """

    KIND: ClassVar[str] = "end"
    VERSION: ClassVar[int] = 1

    step: Whole  # how many steps were done
    outcome: Literal["finished", "stopped"]
    state: TrainingState
    metrics: ByName[Float]  # of the last evaluation
    blobs: Blobs  # `tensors`: the leaf of every tensor, by name (runlog/tensors.py)


# --- a project's ledger: it continues after the ledgers of its runs are closed, and refers to them ---


@record
class GrantUse:
    """What was done with a grant: the keys of a run were wrapped for its grantee, or it opens nothing any more."""

    KIND: ClassVar[str] = "grant"
    VERSION: ClassVar[int] = 1

    action: Literal["wrapped", "revoked"]
    owner: Line  # the authority that granted
    id: Line  # that the owner gave it
    grant: Digest  # of its payload
    ledger: LedgerState | None  # of the run whose keys were wrapped, as it was then; None: revoked, for every run
    blobs: Blobs


@record
class Access:
    """Somebody read what only a grant opens."""

    KIND: ClassVar[str] = "access"
    VERSION: ClassVar[int] = 1

    ledger: LedgerState  # that was read
    grant: Digest
    query: Digest  # of what was asked for
    blobs: Blobs


@record
class Deletion:
    """A request to delete what a model learned from some examples, and how far it was met."""

    KIND: ClassVar[str] = "deletion"
    VERSION: ClassVar[int] = 1

    ledger: LedgerState  # of the run that had them
    result: LedgerState | None  # of the run without them; None: below G2 there is none
    request: Digest  # a salted commitment: a request names a person
    classes: tuple[ClassPath, ...]  # what was asked for: these classes,
    authorities: tuple[Line, ...]  # or all that these vouch for,
    records: Whole  # or so many single records; which ones, the list with the certificate says
    level: Literal["G0", "G1", "G2", "G3"]  # inactive, localised and ablated, exact by structure, exact by replay
    evidence: ByName[Digest]  # `certificate`: of its payload
    blobs: Blobs


@record
class Erasure:
    """What a run's directory has recorded about some classes, or what links records to their tags, is destroyed.

    Of a class: its secret, its blobs, and its rows in the spool; with them the numbers over several classes. The entry
    is written before anything is destroyed. The model and the ledger of the run stay as they are.
    """

    KIND: ClassVar[str] = "erasure"
    VERSION: ClassVar[int] = 1

    ledger: LedgerState  # of the run, which is finished
    classes: tuple[ClassPath, ...]  # whose numbers are destroyed,
    records: Whole  # or of so many single records the salts; which ones is on no record
    blobs: Blobs


@record
class Observation:
    """What somebody who evaluates, fine-tunes or deploys a model says about it, signed by them."""

    KIND: ClassVar[str] = "observation"
    VERSION: ClassVar[int] = 1

    ledger: LedgerState  # of the run that made the model
    model: Digest
    role: Literal["evaluator", "fine-tuner", "deployer"]
    admitted: ByClass[Float]  # with which weight they let a class through
    statement: Digest  # of the payload of their signed statement
    blobs: Blobs


# --- the table of kinds ---

Entry = Genesis | Step | Profile | State | Decision | Trunk | End | Access | Deletion | Erasure | GrantUse | Observation

KINDS: dict[tuple[str, int], type[Entry]] = {
    (kind.KIND, kind.VERSION): kind
    for kind in (Genesis, Step, Profile, State, Decision, Trunk, End, Access, Deletion, Erasure, GrantUse, Observation)
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Unknown:
    """An entry of an unknown kind or version: kept as it is, and reported."""

    head: Head
    leaf: bytes


def encode(entry: Entry) -> bytes:
    """Return the bytes of an entry: canonical JSON, without the fields that have their default.

    Raises `LedgerError` for an entry that is too large or does not meet its schema.
    """
    # Fields with defaults were added after the format was published: without them the bytes are those of before.
    defaults = {field.name: field.default for field in fields(entry)}
    given = {name: value for name, value in asdict(entry).items() if value != defaults[name]}
    content = write_entry({**given, "kind": entry.KIND, "version": entry.VERSION})
    # Records are checked on reading only, so one that was made in Python is read once before it is written.
    decode(content)
    return content


def decode(leaf: bytes) -> Entry | Unknown:
    """Read an entry.

    Raises `LedgerError` for bytes that are no entry, and for an entry of a known kind with wrong fields.
    """
    head = read_head(leaf)
    kind = KINDS.get((head.kind, head.version))
    if kind is None:
        return Unknown(head=head, leaf=leaf)
    blobs = {name: {"sha256": blob.sha256, "size": blob.size} for name, blob in head.blobs.items()}
    where = f"{head.kind} entry"
    return from_json(kind, {**head.fields, "blobs": blobs}, where=where, error=LedgerError)
