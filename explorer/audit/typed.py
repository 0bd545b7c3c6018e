"""The second condition: every example was typed by an authority.

The slots of every step are rows of the tag table, which the authorities that the trust file names have signed. The root
in the step's entry follows from these rows; as many of them are of each class as the entry counts; those that no
believed authority vouches for, or that the run set aside for another reason, are counted as quarantined. A class
without examples trained nothing.
"""

import numpy as np
from numpy.typing import NDArray

from explorer.audit.conditions import Judgement
from explorer.audit.judge import Audited, Judge
from explorer.entries.kinds import Step
from explorer.entries.slots import slots_root
from explorer.errors import LedgerError
from explorer.provenance.tag_attestation import VerifiedTags
from explorer.provenance.tags import leaf
from explorer.provenance.taxonomy import QUARANTINE
from explorer.runlog.documents import quarantine_of
from explorer.runlog.run_ledger import Placed, RunLedger, Segment
from explorer.runlog.segments import SegmentNumbers, read_rows

TAG_BYTES = 40  # of a zero tag, which an example without a tag counts as


class Typed(Judge):
    """Judge of the tags of examples."""

    name = "typed"
    says = "every example was typed by an authority: it has a signed tag, and counts as what the tag says"

    def __init__(self, audited: Audited, judgement: Judgement) -> None:
        super().__init__(audited, judgement)
        self._classes: NDArray[np.int64] | None = None  # of each row; None: the tags are not believed
        if audited.tags is not None:
            with judgement.reading(0):
                self._classes = class_of_rows(audited.run, audited.tags)
                self._leaves = leaves_of(audited.run, audited.tags)

    def segment(self, segment: Segment, numbers: SegmentNumbers) -> None:
        if self._classes is None:
            return
        with self._judgement.reading(segment.state.index):
            rows = read_rows(self._run, segment, numbers.steps)
            if rows is None:
                steps = f"steps {segment.first} to {segment.stop - 1}"
                self._judgement.contradict(segment.state.index, f"{steps}: which examples they had is not here")
                return
            for placed, mine in zip(numbers.steps, rows, strict=True):
                self._step(placed, mine)
        self._trained(numbers)

    def _step(self, placed: Placed[Step], rows: NDArray[np.int64]) -> None:
        assert self._classes is not None
        step = placed.entry
        self._judgement.count("steps")
        self._judgement.count("examples", len(rows))
        with self._judgement.reading(placed.index):
            root = slots_root(rows, self._leaves).hex()
            if root != step.slots:
                self._judgement.contradict(
                    placed.index,
                    f"step {step.step}: the tags of its examples do not lead to the root in its entry",
                    expected=step.slots,
                    found=root,
                )
            counts = np.bincount(self._classes[rows], minlength=len(self._run.genesis.classes) + 1).tolist()
            names = (*self._run.genesis.classes, QUARANTINE)
            for path, said, found in zip(names, (*step.examples, step.quarantined), counts, strict=True):
                if said != found:
                    self._judgement.contradict(
                        placed.index,
                        f"step {step.step}: {path}: counted otherwise than its examples are tagged",
                        expected=f"{found} of {path}",
                        found=f"{said}",
                    )

    def _trained(self, numbers: SegmentNumbers) -> None:
        """A class trained in the steps in which it has examples."""
        for index, path in enumerate(self._run.genesis.classes):
            committed = [placed.entry for placed in numbers.steps if placed.entry.numbers[index] is not None]
            why = numbers.missing.get(f"numbers/{path}")
            if why is not None and not all(step.examples[index] for step in committed):
                self._withheld.tell(self._judgement, f"numbers/{path}", why)
                continue
            with self._judgement.looking():
                found = numbers.of_class(index)
                for placed in numbers.steps:
                    step = placed.entry
                    if not step.examples[index] and step.step in found and found[step.step][:, 0].any():
                        fault = f"step {step.step}: {path} trained without an example of it"
                        self._judgement.contradict(placed.index, fault)


def class_of_rows(run: RunLedger, tags: VerifiedTags) -> NDArray[np.int64]:
    """Return the number of each row's class in the genesis; of the quarantine, the number behind the last.

    Raises `LedgerError` for tags of classes that the run does not have.
    """
    nowhere = len(run.genesis.classes)
    for path in run.genesis.classes:
        if path not in tags.codes or path == QUARANTINE:
            raise LedgerError(f"the genesis lists a class that is not one of the taxonomy's: {path}")
    numbers = np.full(max(tags.codes.values()) + 1, -1, np.int64)
    numbers[tags.codes[QUARANTINE]] = nowhere
    for index, path in enumerate(run.genesis.classes):
        numbers[tags.codes[path]] = index
    found = numbers[tags.tags.classes]
    for authority, path in tags.doubts:
        by = tags.tags.authorities == tags.table.authorities.index(authority)
        found[by & (tags.tags.classes == tags.codes[path])] = nowhere
    aside = quarantine_of(run)
    beyond = sorted(row for row in aside if row >= len(found))
    if beyond != list(range(len(found), len(found) + len(beyond))):
        raise LedgerError("entry 0: quarantine: rows behind the tag table with a gap between them")
    found = np.append(found, np.full(len(beyond), nowhere))
    found[list(aside)] = nowhere
    if (found < 0).any():
        row = int(np.flatnonzero(found < 0)[0])
        raise LedgerError(f"row {row} of the tag table: of a class that the genesis does not list")
    return found


def leaves_of(run: RunLedger, tags: VerifiedTags) -> NDArray[np.uint8]:
    """Return the leaf of each row's tag, rows x 32; of a row without tag, which is in quarantine, that of the zero
    tag."""
    rows = range(len(tags.tags), len(class_of_rows(run, tags)))
    zero = np.frombuffer(b"".join(leaf(row, bytes(TAG_BYTES)) for row in rows), np.uint8)
    return np.concatenate([tags.tags.leaves, zero.reshape(-1, 32)])
