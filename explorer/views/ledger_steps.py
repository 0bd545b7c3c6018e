"""What every step's entry says, as arrays: read once when a run is opened, so that a stretch is quick to show."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.tables import InForce, tables


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Steps:
    """The latest execution of each step. Shapes: T steps, C classes, L layers."""

    entries: NDArray[np.int64]  # T: numbers of the entries
    examples: NDArray[np.int64]  # T C: rows of each class in the batch, denied or not
    quarantined: NDArray[np.int64]  # T
    numbers: NDArray[np.bool_]  # T C: whether the class has numbers on record
    layers: int  # L
    tables: tuple[InForce, ...]  # the policy's weights; none: the run routes nothing

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def phases(self) -> tuple[tuple[int, str], ...]:
        """The steps at which a table of weights came into force, and the words for its phase."""
        return tuple((table.first, table.phase) for table in self.tables)

    def weights(self, steps: range) -> NDArray[np.float64]:
        """C L: the greatest weight in these steps. Without a policy everybody trains everything."""
        found = [table.weights for table in self._in_force() if table.first < steps.stop and steps.start < table.stop]
        return np.max(found, axis=0) if found else np.zeros((self.examples.shape[1], self.layers))

    def first_admitted(self, class_: int, layers: NDArray[np.bool_]) -> int | None:
        """The first step in which the class had examples and might train one of these layers."""
        for table in self._in_force():
            if table.weights[class_][layers].any():
                there = np.flatnonzero(self.examples[table.first : table.stop, class_])
                if len(there):
                    return table.first + int(there[0])
        return None

    def _in_force(self) -> tuple[InForce, ...]:
        everything = np.ones((self.examples.shape[1], self.layers))
        return self.tables or (InForce(first=0, stop=len(self), entry=0, phase="", weights=everything),)


def read_all_steps(run: RunLedger) -> Steps:
    """Read the entries of all steps. Raises `LedgerError` for one that is damaged or a table that is missing."""
    count, classes = run.steps, len(run.genesis.classes)
    examples, quarantined = np.zeros((count, classes), np.int64), np.zeros(count, np.int64)
    numbers = np.zeros((count, classes), bool)
    for placed in run.read_steps(range(run.begins, count)):
        step, at = placed.entry, placed.entry.step
        examples[at], quarantined[at] = step.examples, step.quarantined
        numbers[at] = [committed is not None for committed in step.numbers]
    return Steps(
        entries=np.array(run.outline.steps, np.int64),
        examples=examples,
        quarantined=quarantined,
        numbers=numbers,
        layers=len(run.genesis.layers),
        tables=tables(run),
    )
