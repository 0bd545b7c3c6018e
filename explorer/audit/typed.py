"""The second condition: every example was typed by an authority.

Checked for every step:

- its slots are rows of the tag table, which authorities of the trust file have signed, and lead to the root in its
  entry;
- its counts of examples are those of these rows, class by class; rows that no believed authority vouches for, or that
  the run set aside for another reason, count as quarantined;
- a class without examples trained nothing.
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

TAG_BYTES = 40  # size of the zero tag, which replaces the tag of an example without one


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
                self._judgement.contradict(segment.state.index, f"{steps}: the list of their examples is missing")
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
            for path, stated, actual in zip(names, (*step.examples, step.quarantined), counts, strict=True):
                if stated != actual:
                    self._judgement.contradict(
                        placed.index,
                        f"step {step.step}: {path}: the count of examples differs from their tags",
                        expected=f"{actual} of {path}",
                        found=f"{stated}",
                    )

    def _trained(self, numbers: SegmentNumbers) -> None:
        """Check that a class trained only in steps in which it has examples."""
        for index, path in enumerate(self._run.genesis.classes):
            # Missing numbers matter only where the class had a step without examples: elsewhere it may train.
            committed = [placed.entry for placed in numbers.steps if placed.entry.numbers[index] is not None]
            why = numbers.missing.get(f"numbers/{path}")
            if why is not None and not all(step.examples[index] for step in committed):
                self._withheld.tell(self._judgement, f"numbers/{path}", why)
                continue
            with self._judgement.looking():
                rows = numbers.of_class(index)
                for placed in numbers.steps:
                    step = placed.entry
                    if not step.examples[index] and step.step in rows and rows[step.step][:, 0].any():
                        fault = f"step {step.step}: {path} trained without an example of it"
                        self._judgement.contradict(placed.index, fault)


def class_of_rows(run: RunLedger, tags: VerifiedTags) -> NDArray[np.int64]:
    """Return the index of each row's class in the genesis; the number of classes for rows in quarantine.

    Raises `LedgerError` for tags of classes that the run does not have.
    """
    # Codes of the taxonomy become indices of the genesis, which has its own order.
    nowhere = len(run.genesis.classes)
    for path in run.genesis.classes:
        if path not in tags.codes or path == QUARANTINE:
            raise LedgerError(f"the genesis lists a class that is not one of the taxonomy's: {path}")
    numbers = np.full(max(tags.codes.values()) + 1, -1, np.int64)
    numbers[tags.codes[QUARANTINE]] = nowhere
    for index, path in enumerate(run.genesis.classes):
        numbers[tags.codes[path]] = index
    kinds = numbers[tags.tags.classes]
    # Tags that no believed authority vouches for count as quarantine, whether or not the run set them aside.
    for authority, path in tags.doubts:
        by = tags.tags.authorities == tags.table.authorities.index(authority)
        kinds[by & (tags.tags.classes == tags.codes[path])] = nowhere
    # The run may set aside examples without a tag, too; they follow the rows of the table.
    aside = quarantine_of(run)
    beyond = sorted(row for row in aside if row >= len(kinds))
    if beyond != list(range(len(kinds), len(kinds) + len(beyond))):
        raise LedgerError("entry 0: quarantine: rows after the tag table with a gap between them")
    kinds = np.append(kinds, np.full(len(beyond), nowhere))
    kinds[list(aside)] = nowhere
    if (kinds < 0).any():
        row = int(np.flatnonzero(kinds < 0)[0])
        raise LedgerError(f"row {row} of the tag table: of a class that the genesis does not list")
    return kinds


def leaves_of(run: RunLedger, tags: VerifiedTags) -> NDArray[np.uint8]:
    """Return the leaf of each row's tag, rows x 32. A row without a tag, which is in quarantine, has the leaf of the
    zero tag."""
    rows = range(len(tags.tags), len(class_of_rows(run, tags)))
    zero = np.frombuffer(b"".join(leaf(row, bytes(TAG_BYTES)) for row in rows), np.uint8)
    return np.concatenate([tags.tags.leaves, zero.reshape(-1, 32)])
