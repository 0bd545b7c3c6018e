"""What every step's entry says, as arrays: read once when a run is opened, so that a stretch is quick to show."""

import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from explorer.audit.run_ledger import Placed, RunLedger
from explorer.entries.run import Step
from explorer.errors import LedgerError
from explorer.provenance.admission import FORMAT

MAX_TABLE = 64 * 2**20  # bytes of an admission table


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Steps:
    """The latest execution of each step. Shapes: T steps, C classes, L layers."""

    entries: NDArray[np.int64]  # T: numbers of the entries
    examples: NDArray[np.int64]  # T C: rows of each class in the batch, denied or not
    quarantined: NDArray[np.int64]  # T
    numbers: NDArray[np.bool_]  # T C: whether the class has numbers on record
    updated: NDArray[np.bool_]  # T L: whether the layer changed at all
    table: NDArray[np.int64]  # T: which of `tables` was in force; -1: the run routes nothing
    tables: tuple[NDArray[np.float64], ...]  # C L each: the policy's weights
    phases: tuple[tuple[int, str], ...]  # the steps at which a phase begins, and its words

    def __len__(self) -> int:
        return len(self.entries)

    def weights(self, steps: range) -> NDArray[np.float64]:
        """C L: the greatest weight in these steps. Without a policy everybody trains everything."""
        classes, layers = self.examples.shape[1], self.updated.shape[1]
        used = np.unique(self.table[steps.start : steps.stop])
        found = [self.tables[place] if place >= 0 else np.ones((classes, layers)) for place in used.tolist()]
        return np.max(found, axis=0) if found else np.zeros((classes, layers))

    def first_admitted(self, class_: int, layers: NDArray[np.bool_]) -> int | None:
        """The first step in which the class had examples and might train one of these layers."""
        may = np.array([bool(table[class_][layers].any()) for table in self.tables] or [True])
        admitted = np.where(self.table >= 0, may[self.table], bool(layers.any())) & (self.examples[:, class_] > 0)
        return int(np.argmax(admitted)) if admitted.any() else None


def read_all_steps(run: RunLedger) -> Steps:
    """Read the entries of all steps. Raises `LedgerError` for one that is damaged."""
    classes, layers = len(run.genesis.classes), len(run.genesis.layers)
    examples, quarantined, numbers, updated, table = [], [], [], [], []
    tables: dict[str, NDArray[np.float64]] = {}
    phases: list[tuple[int, str]] = []
    for placed in run.read_steps(range(run.steps)):
        step = placed.entry
        examples.append(step.examples)
        quarantined.append(step.quarantined)
        numbers.append([committed is not None for committed in step.numbers])
        updated.append(np.frombuffer(step.updated.encode(), np.uint8) == ord("1"))
        if step.weights is not None and step.weights not in tables:
            tables[step.weights] = _table(run, placed, classes, layers)
        table.append(-1 if step.weights is None else list(tables).index(step.weights))
        if not phases or phases[-1][1] != step.phase:
            phases.append((step.step, step.phase))
    return Steps(
        entries=np.array(run.outline.steps, np.int64),
        examples=np.array(examples, np.int64).reshape(-1, classes),
        quarantined=np.array(quarantined, np.int64),
        numbers=np.array(numbers, bool).reshape(-1, classes),
        updated=np.array(updated, bool).reshape(-1, layers),
        table=np.array(table, np.int64),
        tables=tuple(tables.values()),
        phases=tuple(phases),
    )


def _table(run: RunLedger, placed: Placed[Step], classes: int, layers: int) -> NDArray[np.float64]:
    """An admission table (admission.py) from the first entry that names it."""
    where = f"entry {placed.index}: blob weights"
    content = run.blob(placed, "weights", max_bytes=MAX_TABLE)
    if content is None:
        raise LedgerError(f"{where}: the admission table is not here; without it nobody can tell what was denied")
    try:
        value = json.loads(content)
        names = value["format"], tuple(value["classes"]), tuple(value["layers"])
        found = np.array([[float.fromhex(number) for number in row] for row in value["weights"]], np.float64)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise LedgerError(f"{where}: not an admission table: {error!r:.200}") from error
    if names != (FORMAT, run.genesis.classes, run.genesis.layers) or found.size != classes * layers:
        raise LedgerError(f"{where}: not the admission table of the classes and layers in the genesis")
    if not ((found >= 0) & (found <= 1)).all():
        raise LedgerError(f"{where}: a weight outside [0, 1]")
    return found.reshape(classes, layers)
