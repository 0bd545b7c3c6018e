"""The numbers of a segment of steps, from the blobs of the state that closes it, and what the steps committed to.

Each class's numbers are a blob of their own. Where one was erased, or was never given to whoever reads, the others can
still be read and checked; what takes several classes at once (the Gram matrix) takes all of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from explorer import rundir
from explorer.entries.numbers import (
    Floats,
    StepNumbers,
    class_bytes,
    decode_class,
    decode_segment,
    joint_bytes,
    split_class,
    split_joint,
)
from explorer.entries.run import Step
from explorer.entries.slots import decode_slots
from explorer.errors import LedgerError
from explorer.provenance.commitments import commit, derived_salt
from explorer.provenance.salts import Salts, read_salts
from explorer.recorded.run_ledger import Placed, RunLedger, Segment

JOINT = "*"  # stands where a class path would: numbers over several classes


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SegmentNumbers:
    """What is here of a segment's numbers. L layers."""

    steps: tuple[Placed[Step], ...]
    contents: dict[int, bytes]  # by class
    joint: bytes | None
    missing: tuple[str, ...]  # names of the blobs that the steps commit to and that are not here
    exact: bool
    layers: int

    def of_class(self, class_: int) -> dict[int, Floats]:
        """A class's numbers by step, each L columns: weight, norm, dot and, in exact mode, exact. Empty where they are
        not here. Raises `LedgerError` for content of another size."""
        if class_ not in self.contents:
            return {}
        rows = decode_class(self.contents[class_], layers=self.layers, exact=self.exact)
        trained = [placed.entry.step for placed in self.steps if placed.entry.numbers[class_] is not None]
        if len(trained) != len(rows):
            raise LedgerError(f"numbers of {len(rows)} steps, and {len(trained)} commit to any")
        return dict(zip(trained, rows, strict=True))

    def by_step(self) -> Iterator[tuple[Placed[Step], StepNumbers]]:
        """The numbers of each step that has any. Raises `LedgerError` where a blob is missing, and for numbers that no
        step can have."""
        if self.missing:
            raise LedgerError(f"not here: {', '.join(self.missing)}")
        steps = [placed for placed in self.steps if placed.entry.joint is not None]
        having = [tuple(_having(placed.entry)) for placed in steps]
        numbers = decode_segment(self.contents, self.joint or b"", steps=having, layers=self.layers, exact=self.exact)
        return zip(steps, numbers, strict=True)


def read_numbers(run: RunLedger, segment: Segment) -> SegmentNumbers:
    """Read a segment's blobs. Raises `LedgerError` for one that is damaged or of a size that it cannot have."""
    steps, layers = tuple(run.read_steps(segment.steps)), len(run.genesis.layers)
    contents: dict[int, bytes] = {}
    missing: list[str] = []
    exact = False
    for index, path in enumerate(run.genesis.classes):
        count = sum(placed.entry.numbers[index] is not None for placed in steps)
        if not count:
            continue
        name = f"numbers/{path}"
        content = run.blob(segment.state, name, max_bytes=count * class_bytes(layers, exact=True))
        if content is None:
            missing.append(name)
            continue
        exact = exact or len(content) == count * class_bytes(layers, exact=True)
        contents[index] = content
    joint = None
    if any(placed.entry.joint is not None for placed in steps):
        most = sum(joint_bytes(layers, len(_having(placed.entry))) for placed in steps)
        joint = run.blob(segment.state, "joint", max_bytes=most)
        missing += [] if joint is not None else ["joint"]
    return SegmentNumbers(
        steps=steps, contents=contents, joint=joint, missing=tuple(missing), exact=exact, layers=layers
    )


def read_rows(run: RunLedger, segment: Segment, steps: tuple[Placed[Step], ...]) -> list[NDArray[np.int64]] | None:
    """The row of the tag table in each slot of each step; None where the blob is not here. Raises `LedgerError`."""
    counts = [sum(placed.entry.examples) + placed.entry.quarantined for placed in steps]
    content = run.blob(segment.state, "slots", max_bytes=4 * (sum(counts) + len(counts)))
    return None if content is None else decode_slots(content, counts=counts)


def read_secrets(run: RunLedger) -> Salts | None:
    """The secrets of the run's classes, and the joint one after them; None where they are not here.

    Raises `LedgerError` for secrets of another number of classes, `ProvenanceError` for a file that others can read.
    """
    path = run.run / rundir.SECRETS
    if not path.exists():
        return None
    secrets, expected = read_salts(path), len(run.genesis.classes) + 1
    if len(secrets) != expected:
        raise LedgerError(f"{path}: {len(secrets)} secrets; the run's classes and the joint one are {expected}")
    return secrets


def open_commitments(run: RunLedger, found: SegmentNumbers, secrets: Salts) -> Iterator[tuple[int, str, str, str]]:
    """Hold every content that is here against its commitment: entry, class path, what was committed, what was found.

    Classes whose secret was destroyed are passed over. Raises `LedgerError` for content of a size that does not fit.
    """
    classes = run.genesis.classes
    for index, content in found.contents.items():
        steps = [placed for placed in found.steps if placed.entry.numbers[index] is not None]
        parts = split_class(content, layers=found.layers, exact=found.exact)
        if len(parts) != len(steps):
            raise LedgerError(f"numbers of {classes[index]}: {len(parts)} steps, and {len(steps)} commit to any")
        for placed, part in zip(steps, parts, strict=True):
            yield from _opened(placed, classes[index], placed.entry.numbers[index], secrets.of(index), part)
    if found.joint is not None:
        steps = [placed for placed in found.steps if placed.entry.joint is not None]
        counts = [len(_having(placed.entry)) for placed in steps]
        for placed, part in zip(steps, split_joint(found.joint, layers=found.layers, counts=counts), strict=True):
            yield from _opened(placed, JOINT, placed.entry.joint, secrets.of(len(classes)), part)


def _opened(
    placed: Placed[Step], path: str, committed: str | None, secret: bytes | None, content: bytes
) -> Iterator[tuple[int, str, str, str]]:
    if secret is not None and committed is not None:
        salt = derived_salt(secret, kind=Step.KIND, class_path=path, step=placed.entry.step)
        yield placed.index, path, committed, commit(salt, content).hex()


def _having(step: Step) -> list[int]:
    """The classes that have numbers in a step."""
    return [index for index, committed in enumerate(step.numbers) if committed is not None]
