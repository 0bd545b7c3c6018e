"""State that a governed run shares between its methods, next to their hyper-parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from explorer.entries.entropy_profile import LayerProfiles
from explorer.entries.numbers import Floats, StepNumbers
from explorer.provenance.regions import Layer
from explorer.provenance.routing_weights import Admission, Routing
from explorer.provenance.tag_attestation import VerifiedTags
from explorer.runlog.tensors import CHUNK

if TYPE_CHECKING:
    from explorer.governance.journal import Journal


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionNote:
    """Decision of a method in this step, which becomes a `decision` entry (entries/kinds.py)."""

    action: str  # of `entries.kinds.Decision`
    rule: str
    parameters: Mapping[str, float]  # of the rule: its thresholds
    subjects: tuple[str, ...]  # class paths; none: all
    layers: tuple[str, ...]  # none: all
    evidence: Mapping[str, bytes]  # class path -> the canonical bytes of the numbers that decided
    condition: str | None = None  # of the policy, that is switched on


@dataclass(slots=True, kw_only=True)
class Notes:
    """Notes that the methods of one step leave for the recorder."""

    admission: Admission | None = None  # by routing
    examples: Mapping[str, int] = field(default_factory=dict)  # by routing: slots of each class, filled or empty
    numbers: StepNumbers | None = None  # by contributions
    sketches: Floats | None = None  # by contributions: of the classes with numbers, k L 64
    estimated: bool = False  # by contributions: the numbers follow from the sketches
    decisions: list[DecisionNote] = field(default_factory=list)
    profiles: list[LayerProfiles] = field(default_factory=list)  # by entropy
    scores: dict[str, Floats] = field(default_factory=dict)  # by routing: of the current share's examples, by class


@dataclass(slots=True, kw_only=True)
class Session:
    """Verified provenance of the data, the policy in force, the ledger, and the notes of the current step."""

    classes: tuple[str, ...]  # with examples, in the order of their codes, without the quarantine
    codes: Mapping[str, int]  # of every class of the taxonomy, by path
    tags: VerifiedTags | None = None
    routing: Routing | None = None
    quarantine: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # reason -> numbers of examples
    absent: frozenset[str] = frozenset()  # classes all of whose slots stay empty
    gone: NDArray[np.bool_] | None = None  # by number of the example: whether it is left out; None: no example is
    journal: Journal | None = None
    chunk: int | None = CHUNK  # by which the state's tensors are hashed; a replay has that of the record
    layers: tuple[Layer, ...] = ()  # after `change_model`, by routing: the model's, then adapters
    conditions: set[str] = field(default_factory=set)  # of the policy, switched on by decisions
    notes: Notes = field(default_factory=Notes)  # the recorder begins new ones after each step
