"""Sums of contributions from the ledger itself, for runs whose spool leaves them out because classes are confidential,
or lacks some because they were erased, and for runs that came without all of it, as from a pack.

They are what the spool would say, of what the reader can open. Where a number is sealed it is NaN, and the weight of a
sealed class is the one in force, which the policy made and everybody can read.
"""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from explorer import rundir
from explorer.audit.withheld import read_withheld
from explorer.entries.numbers import share_terms
from explorer.runlog.admission_tables import InForce, tables_in_force
from explorer.runlog.run_keys import OwnKeys
from explorer.runlog.run_ledger import RunLedger, class_of
from explorer.runlog.segments import having, read_numbers

COLUMNS = 7  # steps, greatest weight, examples, share, update, update_sq, exact
Numbers = NDArray[np.float64]


def is_confidential(run: RunLedger) -> bool:
    """Whether numbers over several classes are sealed, as in every run with a confidential class from its start."""
    states = (segment.state for segment in run.segments())
    first = next((state for state in states if "joint" in state.entry.blobs), None)
    return first is not None and run.is_sealed(first, "joint")


def from_ledger(run: RunLedger, steps: range) -> bool:
    """Whether sums over these steps come from the ledger: the spool leaves them out, or not all of it is here. What is
    there would add up to less than what was."""
    return not (run.run / rundir.CONTRIBUTIONS).is_dir() or is_confidential(run) or _lacks_a_segment(run, steps)


def _lacks_a_segment(run: RunLedger, steps: range) -> bool:
    """Whether the file of a segment that has numbers is not there."""
    for span in run.spans(steps):
        if not (run.run / rundir.CONTRIBUTIONS / f"segment-{span.start:08d}.parquet").exists():
            (segment,) = run.segments(span)
            if any(class_of(name) is not None for name in segment.state.entry.blobs):
                return True
    return False


def were_erased(run: RunLedger, classes: Collection[str]) -> bool:
    """Whether numbers of any of these classes were erased, as the project's ledger says or their secrets show: then the
    spool has no row of them, which is not to say that they were denied."""
    said = read_withheld(run.ledger, trust=None, now=0).erased if classes else {}
    keys = run.keys if classes else None
    gone = {*said, *(keys.erased if isinstance(keys, OwnKeys) else ())}
    return not gone.isdisjoint(classes)


def ledger_sums(run: RunLedger, steps: range, *, bins: int) -> tuple[Numbers, Numbers]:
    """The sums over so many parts of the steps, T C L 7, and the squares of the layers' updates, T 1 L.

    Raises `LedgerError` for a ledger that is damaged.
    """
    classes, layers = len(run.genesis.classes), len(run.genesis.layers)
    columns, squares = np.zeros((bins, classes, layers, COLUMNS)), np.zeros((bins, 1, layers))
    in_force = tables_in_force(run)
    for segment in run.segments(steps):
        found = read_numbers(run, segment)
        opened = {} if found.missing else {placed.entry.step: numbers for placed, numbers in found.by_step()}
        rows = {index: found.of_class(index) for index in range(classes)}
        for placed in found.steps:
            step = placed.entry.step
            if step not in steps:
                continue
            part, here = (step - steps.start) * bins // len(steps), having(placed.entry)
            columns[part, here, :, 0] += 1
            columns[part, here, :, 2] += np.array(placed.entry.examples)[here, None]
            for index in here:
                weight = rows[index][step][:, 0] if step in rows[index] else _weights(in_force, step)[index]
                columns[part, index, :, 1] = np.maximum(columns[part, index, :, 1], weight)
            numbers = opened.get(step)
            if numbers is None:
                columns[part, here, :, 3:] = squares[part] = np.nan
                continue
            shares, _ = share_terms(numbers.gram)
            exact = np.full_like(shares, np.nan) if numbers.exact is None else numbers.exact
            updates = np.broadcast_to(numbers.updates, shares.shape)
            columns[part, here, :, 3:] += np.stack([shares, numbers.dots, updates, exact], axis=-1)
            squares[part, 0] += numbers.updates
    return columns, squares


def _weights(in_force: tuple[InForce, ...], step: int) -> Numbers:
    """The table in force in a step, C L."""
    return next(table.weights for table in in_force if table.first <= step < table.stop)
