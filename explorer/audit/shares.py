"""The shares of the provenance classes in a run's updates, layer by layer, over some steps or over time.

They come from the spool beside the ledger, which answers quickly for millions of steps and which no signature covers;
`explorer.audit.trace` holds it against the ledger.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from explorer.audit.run_ledger import RunLedger
from explorer.errors import StoreError
from explorer.store.spool import binned_sums, binned_updates

Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Shares:
    """Sums of contributions over equal parts of some steps. Shapes: T parts, C classes, L layers.

    A share is a sum of numerators over a sum of denominators: NaN where nothing was recorded, or where a gradient was
    not finite. `share` adds up to 1 over the classes; single ones may be negative.
    """

    edges: tuple[int, ...]  # T + 1: the part t is the steps [edges[t], edges[t + 1])
    classes: tuple[str, ...]
    layers: tuple[str, ...]
    steps: NDArray[np.int64]  # T C L: in how many of them the class has numbers
    examples: NDArray[np.int64]  # T C L: of these steps
    weight: Numbers  # T C L: the greatest; 0: the class was denied throughout
    share: Numbers  # T C L: of the summed gradient
    projection: Numbers  # T C L: <weight G, update> over |update|^2
    exact: Numbers | None  # T C L: of the update itself; None: the run has no exact mode

    @property
    def admitted(self) -> NDArray[np.bool_]:
        """T C L: whether the class was admitted at any time."""
        return self.weight > 0


def shares(run: RunLedger, steps: range | None = None, *, bins: int = 1) -> Shares:
    """Who moved which layer. Raises `StoreError` for a spool that is damaged or not this run's."""
    steps = range(run.steps) if steps is None else steps
    bins = max(1, min(bins, len(steps)))
    classes, layers = run.genesis.classes, run.genesis.layers
    found = np.zeros((bins, len(classes), len(layers), 8))
    exact = False
    for part, layer, class_, *sums in binned_sums(run.run, steps, bins=bins):
        place = part, place_of(run, "class", class_, classes), place_of(run, "layer", layer, layers)
        found[place] = [np.nan if value is None else value for value in sums]
        exact = exact or sums[-1] is not None
    counted, weight, examples, num, _, update, square, of_update = np.moveaxis(found, -1, 0)
    whole = num.sum(axis=1, keepdims=True)  # the numerators of all classes add up to the denominator
    squares = _squares(run, steps, bins) if exact else square
    return Shares(
        edges=tuple(-(-part * len(steps) // bins) + steps.start for part in range(bins + 1)),
        classes=classes,
        layers=layers,
        steps=counted.astype(np.int64),
        examples=np.nan_to_num(examples).astype(np.int64),
        weight=weight,
        share=_ratio(num, whole),
        projection=_ratio(update, square),
        exact=_ratio(of_update, squares) if exact else None,
    )


def _squares(run: RunLedger, steps: range, bins: int) -> Numbers:
    """|update|^2 of each layer over each part, T 1 L: every step once, whichever classes have numbers in it."""
    found = np.full((bins, 1, len(run.genesis.layers)), np.nan)
    for part, layer, square in binned_updates(run.run, steps, bins=bins):
        found[part, 0, place_of(run, "layer", layer, run.genesis.layers)] = square
    return found


def _ratio(numerators: Numbers, denominators: Numbers) -> Numbers:
    """NaN where the denominator is 0 or not finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = numerators / denominators
    return np.where(np.isfinite(found), found, np.nan)


def place_of(run: RunLedger, what: str, name: str, known: tuple[str, ...]) -> int:
    """The number of a class or layer that a spool names."""
    try:
        return known.index(name)
    except ValueError as error:
        raise StoreError(f"{run.run}: its spool names a {what} that the ledger does not: {name!r:.80}") from error
