"""Which class trained which layer how often, from what every reader of the ledger can see.

A class counts as having trained a layer in a step if it had examples in the batch, the table in force admitted it to
the layer, and the layer was updated. No numbers are needed for that, so it can be counted where they are sealed or
erased. Shares need them all: where a class of the run is confidential, or numbers are not here, there are none.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from explorer.entries.numbers import share_terms
from explorer.errors import LedgerError
from explorer.provenance.policy import RoutingPolicy
from explorer.provenance.regions import region_of
from explorer.release.past import Stretch
from explorer.runlog.influence import Presence
from explorer.runlog.segments import read_numbers

DIGITS = 6  # of a share: what is beyond them may differ between machines


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Contributions:
    """Sums over all steps of a run. C classes and L layers of the genesis."""

    batches: NDArray[np.int64]  # C: examples that stood in batches
    steps: NDArray[np.int64]  # C L: in which the class trained the layer
    examples: NDArray[np.int64]  # C L: of it, in these steps
    shares: NDArray[np.float64] | None  # C L: of the layer's summed gradient; NaN where it had none


def contributions(stretches: Sequence[Stretch], *, policy: RoutingPolicy) -> Contributions:
    """Count over all stretches of a run, the newest first.

    Classes that it leaves out have no examples. That they have no numbers since they are left out, and that before
    they trained nothing that was kept, is held against the ledgers. Raises `LedgerError` where it is not so, and for a
    ledger that is damaged.
    """
    newest = Presence(stretches[0].run)
    classes, layers = newest.run.genesis.classes, newest.run.genesis.layers
    absent = [newest.run.class_(path) for path in newest.absent.classes if path in classes]
    _check_gone(stretches[0], absent)
    batches = np.zeros(len(classes), np.int64)
    steps, examples = np.zeros((2, len(classes), len(layers)), np.int64)
    for stretch in stretches:
        presence = newest if stretch.run is newest.run else Presence(stretch.run)
        counts = _counts(stretch, presence)
        moved, of_them = _trained(stretch, presence, counts)
        _check_absent(stretch, moved[absent], absent, policy)
        counts[:, absent], moved[absent], of_them[absent] = 0, 0, 0
        batches += counts.sum(axis=0)
        steps += moved
        examples += of_them
    shares = None if any(map(policy.is_confidential, classes)) else _shares(stretches)
    return Contributions(batches=batches, steps=steps, examples=examples, shares=shares)


def _counts(stretch: Stretch, presence: Presence) -> NDArray[np.int64]:
    """Examples of each class in each step, S C; none of what the run leaves out by its own recipe."""
    first = stretch.steps.start - stretch.run.begins
    return presence.examples[first : first + len(stretch.steps)].astype(np.int64)


def _trained(
    stretch: Stretch, presence: Presence, counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Steps in which each class trained each layer, and its examples in them, C L."""
    steps, examples = np.zeros((2, counts.shape[1], presence.updated.shape[1]), np.int64)
    covered, begins = 0, stretch.run.begins
    for each in presence.stretches:
        first = max(each.places.start + begins, stretch.steps.start)
        stop = max(first, min(each.places.stop + begins, stretch.steps.stop))
        here = counts[first - stretch.steps.start : stop - stretch.steps.start]
        updated = presence.updated[first - begins : stop - begins].astype(np.int64)
        steps += each.admitted * ((here > 0).astype(np.int64).T @ updated)
        examples += each.admitted * (here.T @ updated)
        covered += stop - first
    if covered != len(stretch.steps):
        raise LedgerError(f"{stretch.run.run}: {len(stretch.steps) - covered} steps without a table of weights")
    return steps, examples


def _check_gone(stretch: Stretch, absent: list[int]) -> None:
    """A class whose places were empty has left no numbers."""
    for placed in stretch.run.read_steps(stretch.steps) if absent else ():
        for index in absent:
            if placed.entry.numbers[index] is not None:
                path = stretch.run.genesis.classes[index]
                raise LedgerError(f"{stretch.run.run}: entry {placed.index}: {path} is left out, and has numbers")


def _check_absent(stretch: Stretch, moved: NDArray[np.int64], absent: list[int], policy: RoutingPolicy) -> None:
    """A class that was left out later trained, before that, at most its own region."""
    genesis = stretch.run.genesis
    for index, row in zip(absent, moved, strict=True):
        for at in np.flatnonzero(row):
            if region_of(policy.sealed, genesis.layers[at]) is None:
                cell = f"{genesis.classes[index]} trained {genesis.layers[at]} in {row[at]} steps"
                raise LedgerError(f"{stretch.run.run}: {cell} that were taken over, and is called deleted")


def _shares(stretches: Iterable[Stretch]) -> NDArray[np.float64] | None:
    """Numerators and denominators are added, and divided last. None where numbers are not here."""
    total, whole = 0.0, 0.0
    for stretch in stretches:
        run = stretch.run
        for segment in run.segments(stretch.steps):
            found = read_numbers(run, segment)
            if found.missing:
                return None
            for placed, numbers in found.by_step():
                if placed.entry.step in stretch.steps:
                    terms = np.zeros((len(run.genesis.classes), len(run.genesis.layers)))
                    terms[list(numbers.classes)], all_of_it = share_terms(numbers.gram)
                    total, whole = total + terms, whole + all_of_it
    with np.errstate(divide="ignore", invalid="ignore"):
        return None if isinstance(total, float) else np.round(total / whole, DIGITS)
