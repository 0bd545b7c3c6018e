"""The hypervolume of a front: how much of quality over log x lies behind it, up to a reference that stays in its place.

The reference is made from the baseline alone: a step further than its largest x, and a step below its quality at its
lowest budget, where a step is the mean distance between its B budgets, 1/(B-1) of its range. Without the step its own
first and last point would count for nothing (Ishibuchi, Imada, Setoguchi, Nojima: How to specify a reference point in
hypervolume calculation for fair performance comparison, Evolutionary Computation 26(3), 2018). Recipes that are added
do not move it, so volumes can be compared from one day to the next; new runs of the baseline do.

x counts in doublings, so that pricing all runs differently changes nothing. A volume is one of points of means and has
no interval: it says where a front lies, not whether that is chance.
"""

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from explorer.analysis import pareto
from explorer.analysis.ladders import Ladder, Setting, amount_words, axis_words, ladders, stacked
from explorer.errors import AnalysisError, unknown

NAMED = 3  # recipes that the sentence names


@dataclass(frozen=True, kw_only=True, slots=True)
class Hypervolume:
    """The front of one setting. Volumes are in the metric's unit times doublings of x; None where `reason` says why."""

    setting: Setting
    baseline: str
    x: str
    worst_x: float | None = None  # the reference
    worst_quality: float | None = None
    value: float | None = None  # of the front of all recipes
    baseline_value: float | None = None  # of the front of the baseline alone
    lost_without: tuple[tuple[str, float], ...] = ()  # what each recipe alone adds, most first; labels
    reason: str | None = None

    @property
    def gain(self) -> float | None:
        """The front's volume over that of the baseline alone, which is above 0."""
        return None if self.value is None or self.baseline_value is None else self.value / self.baseline_value


def hypervolumes(frame: pd.DataFrame, *, x: str = "train_seconds", baseline: str | None = None) -> list[Hypervolume]:
    """The hypervolume of each setting of a table with the columns of `results`. Controls of others take no part.

    `baseline` names the recipe that gives the reference, by default the one of the sweep. Raises `AnalysisError` for a
    name or a column that is not there.
    """
    names = {str(name) for name in frame["recipe"].unique()}
    if baseline is not None and baseline not in names:
        raise AnalysisError(unknown("baseline", baseline, names))
    by_setting: defaultdict[Setting, list[Ladder]] = defaultdict(list)
    for ladder in ladders(frame, x=x):
        if ladder.control is None:
            by_setting[ladder.setting].append(ladder)
    return [_of(found, baseline or found[0].baseline, x) for found in by_setting.values()]


def hypervolume_answer(result: Hypervolume) -> str:
    """The volume in a sentence.

    "the front holds 1.34 times the volume of the baseline alone (accuracy above 0.952, over log time up to 150 s);
    without fast 1.12 times"
    """
    whose = "the baseline" if result.baseline == "baseline" else result.baseline
    if result.value is None or result.gain is None or result.baseline_value is None or result.worst_x is None:
        return f"the volume of the front cannot be compared with that of {whose}: {result.reason}"
    side = "above" if result.setting.higher_is_better else "below"
    height = f"{result.setting.metric} {side} {result.worst_quality:.4g}"
    width = f"log {axis_words(result.x)} up to {amount_words(result.x, result.worst_x)}"
    sentence = f"the front holds {result.gain:.2f} times the volume of {whose} alone ({height}, over {width})"
    without = [
        f"without {label} {(result.value - lost) / result.baseline_value:.2f} times"
        for label, lost in result.lost_without[:NAMED]
        if lost > 0 and label != result.baseline
    ]
    return "; ".join([sentence, ", ".join(without)]) if without else sentence


def _of(found: list[Ladder], name: str, x: str) -> Hypervolume:
    """The hypervolume of one setting, from its ladders. P: their budgets over seeds, higher quality better."""
    blank = Hypervolume(setting=found[0].setting, baseline=name, x=x)
    bases = [k for k, ladder in enumerate(found) if ladder.recipe == name]
    if len(bases) != 1:
        words = f"{len(bases)} different recipes are called {name}" if bases else f"{name} has no {axis_words(x)}"
        return replace(blank, reason=f"{words} here")
    whose_P = np.repeat(np.arange(len(found)), [ladder.ssr_B.size for ladder in found])
    x_P = np.log2(np.nanmedian(stacked([ladder.x_BS for ladder in found]), axis=1))
    y_P = found[0].sign * np.nanmean(stacked([ladder.quality_BS for ladder in found]), axis=1)
    base_P = whose_P == bases[0]
    reference = _reference(x_P[base_P], y_P[base_P])
    if reference is None:
        return replace(blank, reason=f"{name} has one budget here, or is no better at a larger one")

    def volume(chosen_P: np.ndarray) -> float:
        return pareto.hypervolume(x_P[chosen_P], y_P[chosen_P], worst_x=reference[0], worst_y=reference[1])

    value = volume(whose_P >= 0)
    lost = dict.fromkeys((ladder.label for ladder in found), 0.0)  # of what has no point on the front, nothing
    lost |= {found[k].label: max(0.0, value - volume(whose_P != k)) for k in whose_P[pareto.front(x_P, y_P)]}
    return replace(
        blank,
        worst_x=2 ** reference[0],
        worst_quality=found[0].sign * reference[1],
        value=value,
        baseline_value=volume(base_P),
        lost_without=tuple(sorted(lost.items(), key=lambda each: (-each[1], each[0]))),
    )


def _reference(x_B: np.ndarray, y_B: np.ndarray) -> tuple[float, float] | None:
    """The reference of the baseline's points; None where they have no range."""
    steps, height = len(x_B) - 1, y_B.max() - y_B[0]
    if not steps or not height:
        return None
    return float(x_B.max() + np.ptp(x_B) / steps), float(y_B[0] - height / steps)
