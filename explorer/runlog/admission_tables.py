"""The admission tables in force in a run, from its ledger: which class might train which layer, with what weight."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer.entries.fields import read_float
from explorer.entries.kinds import Step
from explorer.errors import LedgerError
from explorer.provenance.routing_weights import BY_EXAMPLE, FORMAT
from explorer.runlog.run_ledger import RunLedger

MAX_BYTES = 2**24


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class InForce:
    """A table and the steps [first, stop) in which it was in force."""

    first: int
    stop: int
    entry: int  # the first step that names it
    phase: str
    weights: NDArray[np.float64]  # C L


def tables_in_force(run: RunLedger) -> tuple[InForce, ...]:
    """Return all tables, in the order in which they came into force; none for a run without a policy.

    Raises `LedgerError` for one that is missing or is not of this run's classes and layers.
    """
    # A table stays in force until the next one; the same table may return, and is then read once.
    tables: list[InForce] = []
    stops = [*(step for step, _ in run.outline.tables[1:]), run.steps]
    known: dict[str, NDArray[np.float64]] = {}
    for (first, index), stop in zip(run.outline.tables, stops, strict=False):
        (placed,) = run.read([index], Step)
        digest = placed.entry.weights or ""
        if digest not in known:
            content = run.blob(placed, "weights", max_bytes=MAX_BYTES)
            if content is None:
                raise LedgerError(f"entry {index}: the table of weights in force is missing")
            known[digest] = _weights(run, content, f"entry {index}: weights")
        tables.append(InForce(first=first, stop=stop, entry=index, phase=placed.entry.phase, weights=known[digest]))
    return tuple(tables)


def first_admitted(run: RunLedger) -> dict[str, int | None]:
    """Return the first step in which some layer admits each class; None: it is denied everywhere, throughout."""
    # Backwards, so that the earliest table overwrites the later ones.
    firsts: dict[str, int | None] = dict.fromkeys(run.genesis.classes)
    for table in reversed(tables_in_force(run)):
        firsts |= {run.genesis.classes[at]: table.first for at in np.flatnonzero(table.weights.any(axis=1))}
    return firsts


def _weights(run: RunLedger, content: bytes, where: str) -> NDArray[np.float64]:
    try:
        value: Any = json.loads(content)
        head = value["format"], value["classes"], value["layers"]
        weights = np.array([[read_float(text) for text in row] for row in value["weights"]], np.float64)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise LedgerError(f"{where}: not a table of weights ({error!r:.100})") from error
    shape = len(run.genesis.classes), len(run.genesis.layers)
    # In a table by example, `weights` are the largest that any example of a class has: an upper bound.
    formats = {FORMAT, BY_EXAMPLE}
    if head[0] not in formats or head[1:] != ([*run.genesis.classes], [*run.genesis.layers]) or weights.shape != shape:
        raise LedgerError(f"{where}: a table of other classes or layers than the genesis lists")
    return weights
