"""The entries of a run's ledger.

`step` everywhere is the number of optimiser steps done before: an entry `step` with 0 is the first one, and what is
written after it carries 1. Classes are class paths of the run's taxonomy; numbers of a class are commitments here and
stand in the blob `numbers/<class>`.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from explorer.entries.fields import Blobs, ByClass, ByName, Digest, Float, LedgerState, Line, Name, Whole
from explorer.provenance.branches import Path as ClassPath
from explorer.schema import record

Flags = Annotated[str, Field(pattern=r"^[01]*$", max_length=20_000)]
"""A 1 or a 0 for every layer, in the order of the genesis."""


@record
class Sources:
    """The tagged data that the run was given: the tag table's Merkle root, and the attestation that vouches for it."""

    root: Digest
    attestation: Digest  # SHA-256 of the attestation's payload


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
    strategy: Literal["plain", "microbatch", "fused"]
    seed: Whole
    initial: Digest  # the parameters before the first step
    classes: tuple[ClassPath, ...]  # in the order in which their gradients are summed
    layers: tuple[Line, ...]  # in the order of every `updated`
    parents: tuple[LedgerState, ...]  # ledgers of the models that this one starts from
    blobs: Blobs


@record
class ClassStep:
    """What one class did in one step."""

    examples: Whole
    outcome: Literal["trained", "denied"]  # denied: no layer admits it now; no forward, no backward
    commitment: Digest | None  # to the class's numbers of this step; None: it has none


@record
class Step:
    """One optimiser step."""

    KIND: ClassVar[str] = "step"
    VERSION: ClassVar[int] = 1

    step: Whole
    phase: Line
    examples: Digest  # Merkle root over slot u64be || tag leaf, in the order of the slots
    classes: ByClass[ClassStep]
    unknown: Whole  # examples in quarantine because nobody to be believed vouches for them
    policy: Digest | None
    weights: Digest | None  # the class by layer table of weights and buffer grants in force
    updated: Flags  # 0: the layer's parameters, buffers and optimiser state are bit for bit what they were
    blobs: Blobs


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
class TrainingState:
    """The state of training, each part as a Merkle root over its tensors by name."""

    parameters: Digest
    buffers: Digest
    optimizer: Digest
    random: Digest  # seeds and positions of the random streams


@record
class State:
    """What the run has come to, so that a replay can be compared with it."""

    KIND: ClassVar[str] = "state"
    VERSION: ClassVar[int] = 1

    step: Whole
    state: TrainingState
    blobs: Blobs


@record
class Decision:
    """Something that the run decided while it ran, the rule that did it, and commitments to the numbers behind it."""

    KIND: ClassVar[str] = "decision"
    VERSION: ClassVar[int] = 1

    step: Whole  # of a re-execution: the first step that is executed again
    action: Literal["freeze", "re-open", "override", "activation", "re-execution"]
    rule: Name
    parameters: ByName[Float]  # of the rule: its thresholds
    subjects: tuple[ClassPath, ...]  # the classes that it is about; none: all
    layers: tuple[Line, ...]  # that it is about; none: all
    evidence: ByClass[Digest]  # commitments to the numbers that decided: every class here influences the subjects
    blobs: Blobs


@record
class End:
    """The last entry: the run is done, and this is what came out."""

    KIND: ClassVar[str] = "end"
    VERSION: ClassVar[int] = 1

    step: Whole  # how many steps were done
    outcome: Literal["finished", "stopped"]
    state: TrainingState
    result: Digest  # of the result record
    blobs: Blobs
