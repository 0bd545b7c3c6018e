"""The numbers of a segment of steps, from the blobs of the state that closes it, and the steps' commitments to them.

Each class's numbers are a blob of their own. Where one was erased, was never given to the reader, or is sealed and the
reader has no key, the others can still be read and checked. Numbers over several classes (the Gram matrix) need all of
them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from explorer.entries.kinds import Step
from explorer.entries.numbers import (
    Floats,
    StepNumbers,
    class_bytes,
    decode_class,
    decode_segment,
    joint_bytes,
    sketch_bytes,
    split_class,
    split_joint,
)
from explorer.entries.slots import decode_slots
from explorer.errors import LedgerError
from explorer.provenance.commitments import commit
from explorer.provenance.encryption import salt_of
from explorer.runlog.run_keys import JOINT, Keys
from explorer.runlog.run_ledger import Missing, Placed, RunLedger, Segment


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SegmentNumbers:
    """The readable numbers of a segment. L layers."""

    steps: tuple[Placed[Step], ...]
    contents: dict[int, bytes]  # by class
    joint: bytes | None
    missing: dict[str, Missing]  # blobs that the steps commit to and that cannot be read, by name
    first: int  # step of the segment
    classes: tuple[str, ...]  # of the genesis
    layers: int

    def of_class(self, class_: int) -> dict[int, Floats]:
        """Return a class's numbers by step, each L 2: weight, norm. Empty where they cannot be read. Raises
        `LedgerError` for content of another size."""
        if class_ not in self.contents:
            return {}
        rows = decode_class(self.contents[class_], layers=self.layers)
        trained = [placed.entry.step for placed in self.steps if placed.entry.numbers[class_] is not None]
        if len(trained) != len(rows):
            raise LedgerError(f"numbers of {len(rows)} steps, and {len(trained)} commit to any")
        return dict(zip(trained, rows, strict=True))

    def by_step(self) -> Iterator[tuple[Placed[Step], StepNumbers]]:
        """Return the numbers of each step that has any. Raises `LedgerError` for a missing blob and for impossible
        numbers."""
        if self.missing:
            raise LedgerError(missing_words(self.missing))
        steps = [placed for placed in self.steps if placed.entry.joint is not None]
        present = [tuple(having(placed.entry)) for placed in steps]
        numbers = decode_segment(self.contents, self.joint or b"", steps=present, layers=self.layers)
        return zip(steps, numbers, strict=True)


def read_numbers(run: RunLedger, segment: Segment) -> SegmentNumbers:
    """Read a segment's blobs. Raises `LedgerError` for one that is damaged, of a size that it cannot have, or sealed
    with another key than the reader's."""
    # The steps say which classes have numbers, and how many: that bounds every blob before it is read.
    steps, layers = tuple(run.steps_of(segment)), len(run.genesis.layers)
    contents: dict[int, bytes] = {}
    missing: dict[str, Missing] = {}
    for index, path in enumerate(run.genesis.classes):
        count = sum(placed.entry.numbers[index] is not None for placed in steps)
        if count:
            name = f"numbers/{path}"
            content = run.find(segment.state, name, max_bytes=count * class_bytes(layers))
            if isinstance(content, Missing):
                missing[name] = content
            else:
                contents[index] = content
    joint = None
    if any(placed.entry.joint is not None for placed in steps):
        most = sum(joint_bytes(layers, len(having(placed.entry)), exact=True) for placed in steps)
        joint = run.find(segment.state, "joint", max_bytes=most)
        if isinstance(joint, Missing):
            missing["joint"], joint = joint, None
    return SegmentNumbers(
        steps=steps,
        contents=contents,
        joint=joint,
        missing=missing,
        first=segment.first,
        classes=run.genesis.classes,
        layers=layers,
    )


def missing_words(missing: Mapping[str, Missing]) -> str:
    """List the blobs that cannot be read, by reason: "not here: numbers/open; sealed: needs a grant: joint"."""
    return "; ".join(
        f"{why}: {', '.join(name for name, reason in missing.items() if reason == why)}"
        for why in Missing
        if why in missing.values()
    )


def read_rows(run: RunLedger, segment: Segment, steps: tuple[Placed[Step], ...]) -> list[NDArray[np.int64]] | None:
    """Read the row of the tag table in each slot of each step; None where the blob is not here. Raises
    `LedgerError`."""
    counts = [sum(placed.entry.examples) + placed.entry.quarantined for placed in steps]
    content = run.blob(segment.state, "slots", max_bytes=4 * (sum(counts) + len(counts)))
    return None if content is None else decode_slots(content, counts=counts)


def open_commitments(numbers: SegmentNumbers, keys: Keys) -> Iterator[tuple[int, str, str, str]]:
    """Open the commitment to every content that can be read; yield entry, class path, commitment in the entry,
    commitment computed from the content.

    Classes without a key are skipped. Raises `LedgerError` for content of a size that does not fit.
    """
    for index, content in numbers.contents.items():
        steps = [placed for placed in numbers.steps if placed.entry.numbers[index] is not None]
        parts = split_class(content, layers=numbers.layers)
        if len(parts) != len(steps):
            words = f"{len(parts)} steps, and {len(steps)} commit to any"
            raise LedgerError(f"numbers of {numbers.classes[index]}: {words}")
        committed = [placed.entry.numbers[index] for placed in steps]
        yield from _opened(steps, numbers.classes[index], committed, parts, keys=keys, first=numbers.first)
    if numbers.joint is not None:
        steps = [placed for placed in numbers.steps if placed.entry.joint is not None]
        counts = [len(having(placed.entry)) for placed in steps]
        parts = split_joint(numbers.joint, layers=numbers.layers, counts=counts)
        joint = [placed.entry.joint for placed in steps]
        yield from _opened(steps, JOINT, joint, parts, keys=keys, first=numbers.first)


def open_sketches(run: RunLedger, segment: Segment, keys: Keys) -> Iterator[tuple[int, str, str, str]]:
    """Open the commitments to the sketches of a segment, which are in its state, and yield like `open_commitments`.

    Ledgers of earlier versions have none. Raises `LedgerError` for commitments of another number of classes, and for a
    blob that is damaged, larger than it can be, or sealed with another key than the reader's.
    """
    state, classes = segment.state, run.genesis.classes
    if len(state.entry.sketches) not in (0, len(classes)):
        count = len(state.entry.sketches)
        raise LedgerError(f"entry {state.index}: {count} commitments to sketches for the {len(classes)} classes")
    for path, committed in zip(classes, state.entry.sketches, strict=False):
        key = None if committed is None else keys.of(path, Step.KIND, segment.first)
        if committed is not None and key is not None:
            content = run.blob(state, f"sketches/{path}", max_bytes=sketch_bytes(len(run.genesis.layers)))
            if content is not None:
                yield state.index, path, committed, commit(salt_of(key, state.entry.step), content).hex()


def _opened(
    steps: Sequence[Placed[Step]],
    path: str,
    committed: Sequence[str | None],
    contents: Sequence[bytes],
    *,
    keys: Keys,
    first: int,
) -> Iterator[tuple[int, str, str, str]]:
    key = keys.of(path, Step.KIND, first)
    if key is None:
        return
    for placed, expected, content in zip(steps, committed, contents, strict=True):
        if expected is not None:
            yield placed.index, path, expected, commit(salt_of(key, placed.entry.step), content).hex()


def having(step: Step) -> list[int]:
    """Return the classes that have numbers in a step."""
    return [index for index, committed in enumerate(step.numbers) if committed is not None]
