"""A simulation of another policy: what a recorded run's gradients would have been under it, without training.

The gradient of a step and layer is G = sum of w_c G_c over the classes in it, and its Gram matrix <w_c G_c, w_d G_d> is
on record. Under other weights it is G' = sum of s_c w_c G_c with s_c = w'_c / w_c, so that |G'|^2, <G', G> and every
class's share of G' follow. Where a class was denied (w_c = 0) its gradient was never computed. If the other policy
admits it, its contribution is unknown: such steps are counted and left out.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from explorer.entries.numbers import StepNumbers
from explorer.errors import LedgerError
from explorer.provenance.regions import recorded_layers
from explorer.provenance.routing_weights import Admission, Admissions, Routing, phases
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.segments import read_numbers

LIMITS = (
    "First order, one step at a time: each step is the recorded one with other weights, from the parameters that the "
    "recorded run had then. Under the other policy training would have had other parameters after the first step that "
    "differs, and other gradients from there on.",
    "Gradients, not updates: momentum, second moments, weight decay and the learning rate are the optimiser's, and are "
    "left out. Clipping is as it was.",
    "A class that was denied has no recorded gradient. Where the other policy admits it the step counts as unknown. So "
    "does one in which only one of the policies tells the examples of a class apart, or both do so differently.",
    "What the run denied on top of its policy (freezing, chosen examples) stays denied. Sealed regions that the "
    "recorded policy did not have are not simulated.",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One layer in one phase of the other policy."""

    phase: str
    layer: str
    steps: int  # in which the layer has numbers
    unknown: int  # of these, left out because a class that was denied would be admitted
    length: float | None  # of the simulated gradients, relative to the recorded ones; None: nothing to compare
    cosine: float | None  # between them; None: one of them is zero
    was: dict[str, float | None]  # by class: its share in the recorded gradient, over the same steps
    would: dict[str, float | None]  # by class: its share under the other policy


class _Sums:
    """Sums over the steps of one phase. Shapes: C classes, L layers."""

    def __init__(self, classes: int, layers: int) -> None:
        self.steps = 0
        self.unknown = np.zeros(layers, np.int64)
        self.before, self.after, self.across = np.zeros((3, layers))  # |G|^2, |G'|^2, <G', G>
        self.was, self.would = np.zeros((2, classes, layers))

    def add(self, numbers: StepNumbers, scale: NDArray[np.float64], unknown: NDArray[np.bool_]) -> None:
        """Add a step. `scale`: w' / w, C L; `unknown`: layers to leave out, L."""
        # Both sides leave out the unknown layers, so that lengths and cosines compare the same steps.
        here, known = list(numbers.classes), ~unknown
        gram, mine = numbers.gram.astype(np.float64) * known[:, None, None], scale[here]
        towards = np.einsum("lcd,dl->cl", gram, mine)
        recorded = gram.sum(2).T
        self.steps += 1
        self.unknown += unknown
        self.before += recorded.sum(0)
        self.across += (mine * recorded).sum(0)
        self.after += (mine * towards).sum(0)
        self.was[here] += recorded
        self.would[here] += mine * towards


def simulate(run: RunLedger, other: Routing, steps: range, *, recorded: Routing, planned: int) -> tuple[Outcome, ...]:
    """Simulate steps under another policy, by phase and layer.

    Args:
        run: the recorded run.
        other: the policy to simulate.
        steps: steps to simulate.
        recorded: the run's own policy.
        planned: number of steps that progress is measured against.

    Raises `LedgerError` where numbers of these steps are erased or missing.
    """
    classes, layers = run.genesis.classes, run.genesis.layers
    placed_layers = recorded_layers(layers, run.genesis.other_names)
    now, then = (Admissions(policy, classes=classes, layers=placed_layers) for policy in (recorded, other))
    switched = {str(phase): phase.conditions for phase in phases(recorded.policy)}
    phased: dict[str, _Sums] = {}
    for segment in run.segments(steps):
        for placed, numbers in read_numbers(run, segment).by_step():
            step = placed.entry
            if step.step not in steps:
                continue
            # Conditions that decisions had switched on stay on, as far as the other policy has them.
            progress, on = step.step / planned, switched.get(step.phase, frozenset())
            before = now.at(progress, on)
            was = before.weights
            table = then.at(progress, on & set(other.policy.conditions))
            # Only classes in the batch make a layer unknown; where the weight was 0 there is nothing to scale.
            here = np.array(step.examples)[:, None] > 0
            scale = np.divide(table.weights, was, out=np.zeros_like(was), where=was > 0)
            sums = phased.setdefault(str(table.phase), _Sums(len(classes), len(layers)))
            unknown = (was == 0) & (table.weights > 0) | _otherwise_divided(before, table)
            sums.add(numbers, scale, (here & unknown).any(0))
    if not phased:
        raise LedgerError(f"no numbers of the steps {steps.start}:{steps.stop} are on record")
    return tuple(
        _outcome(phase, layer, at, sums, classes) for phase, sums in phased.items() for at, layer in enumerate(layers)
    )


def _otherwise_divided(was: Admission, then: Admission) -> NDArray[np.bool_]:
    """Return where one table tells the examples of a class apart and the other does not do so alike, C L: the parts of
    the class's gradient by example are not on record."""
    divided = np.zeros(was.weights.shape, np.bool_)
    for place, path in enumerate(was.classes):
        one, other = was.by_example.get(path), then.by_example.get(path)
        if one is None and other is None:
            continue
        differs = [(banded.weights != banded.weights[0]).any(0) for banded in (one, other) if banded is not None]
        alike = one is not None and other is not None and one.bands == other.bands
        if not alike or one is None or other is None:
            divided[place] = np.any(differs, axis=0)
            continue
        # With the same bands, weights in proportion scale every part alike, and so the class's whole gradient.
        then_scale = other.weights * was.weights[place]
        divided[place] = (then_scale != one.weights * then.weights[place]).any(0) & np.any(differs, axis=0)
    return divided


def _outcome(phase: str, layer: str, at: int, sums: _Sums, classes: tuple[str, ...]) -> Outcome:
    # Sums of squares may come out slightly negative by rounding.
    before, after = max(float(sums.before[at]), 0.0), max(float(sums.after[at]), 0.0)
    return Outcome(
        phase=phase,
        layer=layer,
        steps=sums.steps,
        unknown=int(sums.unknown[at]),
        length=_ratio(math.sqrt(after), math.sqrt(before)),
        cosine=_ratio(float(sums.across[at]), math.sqrt(after * before)),
        was={path: _ratio(float(sums.was[place, at]), before) for place, path in enumerate(classes)},
        would={path: _ratio(float(sums.would[place, at]), after) for place, path in enumerate(classes)},
    )


def _ratio(numerator: float, denominator: float) -> float | None:
    ratio = numerator / denominator if denominator else math.nan
    return ratio if math.isfinite(ratio) else None
