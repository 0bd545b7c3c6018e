"""The shares of the provenance classes in a run's updates, layer by layer, over some steps or over time.

They come from the spool next to the ledger, which answers quickly for millions of steps; no signature covers it, and
`explorer.audit.trace` compares it with the ledger. Three kinds of run lack a complete spool: one with confidential
classes leaves their shares out, a pack has no spool, and after an erasure it would add up to less than was recorded.
For these the sums come from the ledger itself, as far as the reader can open it. A sealed number is NaN; the weight of
a sealed class is the one in force, which follows from the policy and can be read by anyone.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from explorer import rundir
from explorer.audit.withheld import read_withheld
from explorer.entries.numbers import SKETCH, SKETCH_ERROR, share_terms
from explorer.errors import StoreError
from explorer.runlog.admission_tables import InForce, tables_in_force
from explorer.runlog.run_keys import OwnKeys
from explorer.runlog.run_ledger import RunLedger, class_of
from explorer.runlog.segments import having, read_numbers
from explorer.store.spool_reader import binned_sums, binned_updates

# --- sums from the ledger ---

COLUMNS = 7  # steps, greatest weight, examples, share, update, update_sq, exact
Numbers = NDArray[np.float64]


def is_confidential(run: RunLedger) -> bool:
    """Return whether numbers over several classes are sealed, as in every run with a confidential class from its
    start."""
    states = (segment.state for segment in run.segments())
    first = next((state for state in states if "joint" in state.entry.blobs), None)
    return first is not None and run.is_sealed(first, "joint")


def from_ledger(run: RunLedger, steps: range) -> bool:
    """Return whether sums over these steps come from the ledger, because the spool is missing, confidential or
    incomplete: it would add up to less than was recorded."""
    return not (run.run / rundir.CONTRIBUTIONS).is_dir() or is_confidential(run) or _lacks_a_segment(run, steps)


def _lacks_a_segment(run: RunLedger, steps: range) -> bool:
    """Return whether the spool lacks the file of a segment that has numbers."""
    for span in run.spans(steps):
        if not (run.run / rundir.CONTRIBUTIONS / f"segment-{span.start:08d}.parquet").exists():
            (segment,) = run.segments(span)
            if any(class_of(name) is not None for name in segment.state.entry.blobs):
                return True
    return False


def were_erased(run: RunLedger, classes: Collection[str]) -> bool:
    """Return whether numbers of any of these classes were erased, by the project's ledger or by a destroyed secret. The
    spool has no row of such a class, nor of one that was denied throughout."""
    on_record = read_withheld(run.ledger, trust=None, now=0).erased if classes else {}
    keys = run.keys if classes else None
    gone = {*on_record, *(keys.erased if isinstance(keys, OwnKeys) else ())}
    return not gone.isdisjoint(classes)


def ledger_sums(run: RunLedger, steps: range, *, bins: int) -> tuple[Numbers, Numbers]:
    """Return the sums over `bins` equal parts of the steps, T C L 7, and the squares of the layers' updates, T 1 L.

    Raises `LedgerError` for a damaged ledger.
    """
    classes, layers = len(run.genesis.classes), len(run.genesis.layers)
    columns, squares = np.zeros((bins, classes, layers, COLUMNS)), np.zeros((bins, 1, layers))
    in_force = tables_in_force(run)
    for segment in run.segments(steps):
        contents = read_numbers(run, segment)
        opened = {} if contents.missing else {placed.entry.step: numbers for placed, numbers in contents.by_step()}
        rows = {index: contents.of_class(index) for index in range(classes)}
        for placed in contents.steps:
            step = placed.entry.step
            if step not in steps:
                continue
            # From the entry, which is always readable: steps and examples. From the policy, if need be: the weight.
            part, here = (step - steps.start) * bins // len(steps), having(placed.entry)
            columns[part, here, :, 0] += 1
            columns[part, here, :, 2] += np.array(placed.entry.examples)[here, None]
            for index in here:
                weight = rows[index][step][:, 0] if step in rows[index] else _weights(in_force, step)[index]
                columns[part, index, :, 1] = np.maximum(columns[part, index, :, 1], weight)
            # Shares need the numbers over several classes. One unreadable step makes the whole part NaN: a sum of the
            # others would look complete.
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
    """Return the table in force in a step, C L."""
    return next(table.weights for table in in_force if table.first <= step < table.stop)


def estimates(run: RunLedger, steps: range) -> str | None:
    """Return a sentence about the steps whose numbers are estimates; None where none are."""
    # Estimates lie between steps with exact numbers, so two steps in a row show whether there are any.
    if not any(placed.entry.estimated for placed in run.read_steps(steps[:2])):
        return None
    count = sum(placed.entry.estimated for placed in run.read_steps(steps))
    return (
        f"In {count:,} of these {len(steps):,} steps the numbers are estimates, from sketches of {SKETCH} numbers a"
        f" layer: a cosine is off by about {SKETCH_ERROR}."
    )


# --- shares ---


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Shares:
    """Sums of contributions over equal parts of some steps. Shapes: T parts, C classes, L layers.

    A share is a sum of numerators over a sum of denominators: NaN where nothing was recorded, or where a gradient was
    not finite. `share` adds up to 1 over the classes; single ones may be negative.
    """

    edges: tuple[int, ...]  # T + 1: part t has the steps [edges[t], edges[t + 1])
    classes: tuple[str, ...]
    layers: tuple[str, ...]
    steps: NDArray[np.int64]  # T C L: steps in which the class has numbers
    examples: NDArray[np.int64]  # T C L: in these steps
    weight: Numbers  # T C L: the greatest; 0: the class was denied throughout
    share: Numbers  # T C L: of the summed gradient
    projection: Numbers  # T C L: <weight G, update> over |update|^2
    exact: Numbers | None  # T C L: of the update itself; None: the run has no exact mode

    @property
    def admitted(self) -> NDArray[np.bool_]:
        """Return whether the class was admitted at any time, T C L."""
        return self.weight > 0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sums:
    """Numerators and denominators of shares, which add up over parts of the steps. T C L, C and L as in the genesis;
    layers that were not asked for have zeros."""

    run: RunLedger
    edges: tuple[int, ...]
    columns: Numbers  # T C L 7: steps, greatest weight, examples, share, update, update_sq, exact
    squares: Numbers | None  # T 1 L: |update|^2, every step once; None: the run has no exact mode

    def whole(self) -> "Sums":
        """Return all parts as one."""
        # Column 1 is the greatest weight, which does not add up.
        columns = self.columns.sum(axis=0, keepdims=True)
        columns[..., 1] = self.columns[..., 1].max(axis=0)
        squares = None if self.squares is None else np.nansum(self.squares, axis=0, keepdims=True)
        return replace(self, edges=(self.edges[0], self.edges[-1]), columns=columns, squares=squares)

    def shares(self) -> Shares:
        counted, weight, examples, num, update, square, exact = np.moveaxis(self.columns, -1, 0)
        return Shares(
            edges=self.edges,
            classes=self.run.genesis.classes,
            layers=self.run.genesis.layers,
            steps=counted.astype(np.int64),
            examples=np.nan_to_num(examples).astype(np.int64),
            weight=weight,
            # The classes' numerators add up to the denominator |G|^2.
            share=_ratio(num, num.sum(axis=1, keepdims=True)),
            projection=_ratio(update, square),
            exact=None if self.squares is None else _ratio(exact, self.squares),
        )


def shares(run: RunLedger, steps: range | None = None, *, bins: int = 1) -> Shares:
    """Return the shares of the classes in each layer, by default over all steps, in `bins` equal parts. Raises
    `StoreError` for a spool that is damaged or not this run's."""
    return sums(run, range(run.begins, run.steps) if steps is None else steps, bins=bins).shares()


def sums(run: RunLedger, steps: range, *, bins: int, layer: str | None = None) -> Sums:
    """Return the sums over `bins` equal parts of the steps, of all layers or of one. Raises `StoreError` for a damaged
    spool, and `LedgerError` where the sums come from a damaged ledger."""
    bins = max(1, min(bins, len(steps)))
    edges = tuple(-(-part * len(steps) // bins) + steps.start for part in range(bins + 1))
    if from_ledger(run, steps):
        return _from_ledger(run, steps, edges, layer)
    classes, layers = run.genesis.classes, run.genesis.layers
    columns = np.zeros((bins, len(classes), len(layers), COLUMNS))
    # A class without any row was denied throughout, or erased: then the spool is incomplete.
    exact, rows = False, binned_sums(run.run, steps, bins=bins, layer=layer)
    if were_erased(run, {*classes} - {row[2] for row in rows}):
        return _from_ledger(run, steps, edges, layer)
    for part, name, class_, *row in rows:
        place = part, place_of(run, "class", class_, classes), place_of(run, "layer", name, layers)
        del row[4]  # the denominator of a class's own steps
        columns[place] = [np.nan if value is None else value for value in row]
        exact = exact or row[-1] is not None
    # |update|^2 belongs to a layer, not to a class: the rows of classes would count it several times.
    squares = None
    if exact:
        squares = np.full((bins, 1, len(layers)), np.nan)
        for part, name, square in binned_updates(run.run, steps, bins=bins, layer=layer):
            squares[part, 0, place_of(run, "layer", name, layers)] = square
    return Sums(
        run=run,
        edges=edges,
        columns=columns,
        squares=squares,
    )


def _from_ledger(run: RunLedger, steps: range, edges: tuple[int, ...], layer: str | None) -> Sums:
    columns, squares = ledger_sums(run, steps, bins=len(edges) - 1)
    if layer is not None:
        columns[:, :, np.arange(columns.shape[2]) != run.layer(layer)] = 0
    split = bool(np.isfinite(columns[..., -1]).any(where=columns[..., 0] > 0))
    return Sums(run=run, edges=edges, columns=columns, squares=squares if split else None)


def _ratio(numerators: Numbers, denominators: Numbers) -> Numbers:
    """Divide; NaN where the denominator is 0 or not finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = numerators / denominators
    return np.where(np.isfinite(ratios), ratios, np.nan)


def place_of(run: RunLedger, what: str, name: str, known: tuple[str, ...]) -> int:
    """Return the index of a class or layer that a spool names. Raises `StoreError` for one that the run does not
    have."""
    try:
        return known.index(name)
    except ValueError as error:
        raise StoreError(f"{run.run}: its spool names a {what} that the ledger does not: {name!r:.80}") from error
