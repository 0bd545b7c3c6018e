"""A segment: the steps since the last `state` entry, whose numbers become its blobs and one file of the spool."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from explorer.entries.numbers import SKETCH, Floats, StepNumbers, encode_class, encode_joint, encode_sketches
from explorer.entries.slots import encode_slots

NUMBERS, SKETCHES, JOINT, SLOTS = "numbers", "sketches", "joint", "slots"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RecordedStep:
    """What a segment keeps of a step."""

    step: int
    rows: NDArray[np.int64]  # of the tag table, in the order of the slots
    examples: tuple[int, ...]  # of each class of the genesis
    numbers: StepNumbers | None


@dataclass(slots=True)
class Segment:
    """The steps so far, and the sums that no single step needs."""

    classes: Sequence[str]  # of the genesis
    first: int  # the step that it begins with
    steps: list[RecordedStep] = field(default_factory=list)
    tables: set[str] = field(default_factory=set)  # digests of the admission tables that an entry has named
    _sketches: dict[int, Floats] = field(default_factory=dict)  # by class: layers x 64

    def add(self, step: RecordedStep, sketches: Floats | None) -> None:
        """One step more; `sketches` are of its classes with numbers, k L 64."""
        self.steps.append(step)
        if sketches is None or step.numbers is None:
            return
        assert sketches.shape == (len(step.numbers.classes), len(step.numbers.updates), SKETCH)
        for index, sketch in zip(step.numbers.classes, sketches, strict=True):
            self._sketches[index] = self._sketches[index] + sketch if index in self._sketches else sketch.copy()

    def blobs(self) -> dict[str, bytes]:
        """The content of every blob by its name; what is empty is left out."""
        numbers = [each.numbers for each in self.steps if each.numbers is not None]
        found: dict[str, list[bytes]] = {}
        for each in numbers:
            for place, index in enumerate(each.classes):
                found.setdefault(f"{NUMBERS}/{self.classes[index]}", []).append(encode_class(each, place))
        blobs = {name: b"".join(contents) for name, contents in found.items()}
        blobs[JOINT] = b"".join(map(encode_joint, numbers))
        blobs |= {f"{SKETCHES}/{self.classes[i]}": encode_sketches(sketch) for i, sketch in self._sketches.items()}
        blobs[SLOTS] = encode_slots(each.rows for each in self.steps)
        return {name: content for name, content in blobs.items() if content}
