"""Fronts: the points that nothing beats in cost and quality at once, how certain they are, and their hypervolume.

The hypervolume is the area of quality over log x behind a front, up to a fixed reference point. The reference is made
from the baseline only: a step further than its largest x, and a step below its quality at its lowest
budget, where a step is the mean distance between its B budgets, 1/(B-1) of its range. Without the step its own first
and last point would count for nothing (Ishibuchi, Imada, Setoguchi, Nojima: How to specify a reference point in
hypervolume calculation for fair performance comparison, Evolutionary Computation 26(3), 2018). Recipes that are added
do not move it, so volumes can be compared from one day to the next; new runs of the baseline do.

x counts in doublings, so that pricing all runs differently changes nothing. A volume is one of points of means and has
no interval: it says where a front lies, not whether that is chance.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np
import pandas as pd

from explorer.analysis.axis_words import amount_words, axis_words
from explorer.analysis.inference import generator
from explorer.analysis.ladders import Ladder, Ladders, Setting, ladders_of, stacked
from explorer.errors import AnalysisError, unknown


def front(x: np.ndarray, y: np.ndarray, *, higher_is_better: bool = True) -> np.ndarray:
    """Return the indices of the points that nothing beats, by rising x: least x, best y, the first of each tie.

    Raises `AnalysisError` for NaN, which would hide better points.
    """
    x, y = _checked(x, y)
    order = np.argsort(x)  # not stable, which is many times as fast: points of the same x are told apart below
    x, y = x[order], (y if higher_is_better else -y)[order]
    begins = _begins(x)
    if not begins.any():
        return order
    best_G = np.maximum.reduceat(y, np.flatnonzero(begins))  # G: groups of the same x
    on_front_G = np.r_[True, best_G[1:] > np.maximum.accumulate(best_G)[:-1]]
    group = np.cumsum(begins) - 1
    tied = on_front_G[group] & (y == best_G[group])
    return np.minimum.reduceat(order[tied], np.flatnonzero(_begins(x[tied])))


def _begins(x: np.ndarray) -> np.ndarray:
    """Return which of the ascending values differ from the one before."""
    return np.r_[True, x[1:] != x[:-1]][: x.size]


def hypervolume(
    x: np.ndarray, y: np.ndarray, *, worst_x: float, worst_y: float, higher_is_better: bool = True
) -> float:
    """Return the area between the front and the reference point. For a logarithmic axis, pass logarithms."""
    x, y = _checked(x, y)
    y, worst_y = (y, worst_y) if higher_is_better else (-y, -worst_y)
    keep = (x < worst_x) & (y > worst_y)
    x, y = x[keep], y[keep]
    if x.size == 0:
        return 0.0
    i = front(x, y)
    return float(np.sum((np.r_[x[i][1:], worst_x] - x[i]) * (y[i] - worst_y)))


def front_table(frame: pd.DataFrame | Ladders, *, x: str = "train_seconds", resamples: int = 1000) -> pd.DataFrame:
    """Return the mean point of every recipe and budget, and whether and how probably it is on its setting's front.

    Columns: the setting, recipe, label, is_baseline, ssr, x, quality, n, on_front, probability. The probability is the
    share of resamples of the seeds in which the point is on the front; NaN where a point of the setting has a
    single seed. Recipes share seeds, so they are resampled jointly. Controls of other recipes are left out.
    """
    parts = [_setting_table(part) for part in fronts(frame, x=x, resamples=resamples)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


@dataclass(frozen=True, kw_only=True, slots=True)
class Front:
    """The mean points of one setting, ladder by ladder, and the front among them."""

    lines: list[Ladder]
    x_P: np.ndarray
    quality_P: np.ndarray
    n_P: np.ndarray
    on_front_P: np.ndarray
    probability_P: np.ndarray

    def points(self) -> Iterator[tuple[Ladder, float, bool, float]]:
        """Yield ladder, budget, whether it is on the front, and how probably."""
        names = [(ladder, ssr) for ladder in self.lines for ssr in ladder.ssr_B.tolist()]
        for (ladder, ssr), on, probability in zip(
            names, self.on_front_P.tolist(), self.probability_P.tolist(), strict=True
        ):
            yield ladder, ssr, on, probability


def fronts(frame: pd.DataFrame | Ladders, *, x: str = "train_seconds", resamples: int = 1000) -> list[Front]:
    """Return the front of each setting, as `front_table` says."""
    by_setting: defaultdict[Setting, list[Ladder]] = defaultdict(list)
    for ladder in ladders_of(frame, x=x).lines():
        if ladder.control is None:
            by_setting[ladder.setting].append(ladder)
    return [_front_of(here, resamples) for here in by_setting.values()]


def _front_of(lines: list[Ladder], resamples: int) -> Front:
    x_PS, quality_PS = _aligned(lines)
    higher = lines[0].setting.higher_is_better
    x_P, quality_P = np.nanmedian(x_PS, axis=1), np.nanmean(quality_PS, axis=1)
    on_front_P = np.zeros(x_P.size, dtype=bool)
    on_front_P[front(x_P, quality_P, higher_is_better=higher)] = True
    return Front(
        lines=lines,
        x_P=x_P,
        quality_P=quality_P,
        n_P=np.isfinite(quality_PS).sum(axis=1),
        on_front_P=on_front_P,
        probability_P=_membership(x_PS, quality_PS, higher, resamples),
    )


def _setting_table(here: Front) -> pd.DataFrame:
    size = [ladder.ssr_B.size for ladder in here.lines]
    return pd.DataFrame(
        asdict(here.lines[0].setting)
        | {
            "recipe": np.repeat([ladder.recipe for ladder in here.lines], size),
            "label": np.repeat([ladder.label for ladder in here.lines], size),
            "ssr": np.concatenate([ladder.ssr_B for ladder in here.lines]),
            "is_baseline": np.repeat([ladder.is_baseline for ladder in here.lines], size),
            "x": here.x_P,
            "quality": here.quality_P,
            "n": here.n_P,
            "on_front": here.on_front_P,
            "probability": here.probability_P,
        }
    )


def _aligned(lines: list[Ladder]) -> tuple[np.ndarray, np.ndarray]:
    """Return x and quality of all points, one a row, with a column for each seed of any of them; NaN without a run."""
    seeds = np.unique(np.concatenate([ladder.seeds_S for ladder in lines]))
    all_columns = [np.searchsorted(seeds, ladder.seeds_S) for ladder in lines]
    grids = []
    for name in ("x_BS", "quality_BS"):
        wide = [np.full((ladder.ssr_B.size, seeds.size), np.nan) for ladder in lines]
        for grid, ladder, columns in zip(wide, lines, all_columns, strict=True):
            grid[:, columns] = getattr(ladder, name)
        grids.append(np.concatenate(wide))
    return grids[0], grids[1]


def _membership(x_PS: np.ndarray, quality_PS: np.ndarray, higher: bool, resamples: int) -> np.ndarray:
    """Return how often each point is on the front of resampled seeds. A point that drew no seed keeps its mean."""
    n_P = np.isfinite(quality_PS).sum(axis=1)
    if n_P.min() < 2:
        return np.full(n_P.shape, np.nan)
    seeds = x_PS.shape[1]
    drawn_RS = generator("front", seeds).multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples)
    counts_RS, weight_R = np.unique(drawn_RS, axis=0, return_counts=True)  # equal resamples are one, with a weight
    present_PS = np.isfinite(quality_PS).astype(float)
    drawn_PR, total_PR = present_PS @ counts_RS.T, np.nan_to_num(quality_PS) @ counts_RS.T
    mean_P = np.nanmean(quality_PS, axis=1)
    quality_PR = np.where(drawn_PR > 0, total_PR / np.maximum(drawn_PR, 1), mean_P[:, None])
    quality_PR = quality_PR.round(12)  # equal accuracies are common; the rounding of sums must not tell them apart
    return _on_front(np.nanmedian(x_PS, axis=1), quality_PR if higher else -quality_PR) @ (weight_R / resamples)


def _on_front(x_P: np.ndarray, quality_PR: np.ndarray) -> np.ndarray:
    """Return which points are on the front of each resample, P x R, as `front` does for each column.

    One pass over all resamples instead of a call each: a thousand resamples of a hundred points take milliseconds.
    """
    order = np.argsort(x_P, kind="stable")
    quality_PR = quality_PR[order]
    begins = _begins(x_P[order])
    starts, group = np.flatnonzero(begins), np.cumsum(begins) - 1
    best_GR = np.maximum.reduceat(quality_PR, starts, axis=0)  # G: groups of the same x
    before_GR = np.maximum.accumulate(np.vstack([np.full_like(best_GR[:1], -np.inf), best_GR[:-1]]), axis=0)
    best_PR = (quality_PR == best_GR[group]) & (best_GR > before_GR)[group]
    tied_PR = np.cumsum(best_PR, axis=0)
    first_PR = best_PR & (tied_PR - (tied_PR - best_PR)[starts][group] == 1)
    on_front_PR = np.empty_like(first_PR)
    on_front_PR[order] = first_PR
    return on_front_PR


def _checked(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if x.shape != y.shape or x.ndim != 1:
        raise AnalysisError(f"a front needs as many x as y in one row each; found {x.shape} and {y.shape}")
    if np.isnan(x).any() or np.isnan(y).any():
        raise AnalysisError("a front of unknown values: NaN found; leave those points out")
    return x, y


# --- the hypervolume of a front ---

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
    baseline_value: float | None = None  # of the baseline's own front
    lost_without: tuple[tuple[str, float], ...] = ()  # label and what only that recipe adds, most first
    reason: str | None = None

    @property
    def gain(self) -> float | None:
        """Return the front's volume over that of the baseline's own front, which is above 0."""
        return None if self.value is None or self.baseline_value is None else self.value / self.baseline_value


def hypervolumes(
    frame: pd.DataFrame | Ladders, *, x: str = "train_seconds", baseline: str | None = None
) -> list[Hypervolume]:
    """Return the hypervolume of each setting of a table with the columns of `results`. Controls of others take no part.

    `baseline` names the recipe that gives the reference, by default the one of the sweep. Raises `AnalysisError` for a
    name or a column that is not there.
    """
    made = ladders_of(frame, x=x)
    names = {ladder.recipe for ladder in made.every}
    if baseline is not None and baseline not in names:
        raise AnalysisError(unknown("baseline", baseline, names))
    by_setting: defaultdict[Setting, list[Ladder]] = defaultdict(list)
    for ladder in made.lines():
        if ladder.control is None:
            by_setting[ladder.setting].append(ladder)
    return [_of(here, baseline or here[0].baseline, x) for here in by_setting.values()]


def hypervolume_answer(result: Hypervolume) -> str:
    """Return the hypervolume in a sentence.

    "hypervolume 1.34x the baseline's (accuracy above 0.952, log time up to 150 s), without fast 1.12x"
    """
    whose = "the baseline" if result.baseline == "baseline" else result.baseline
    if result.value is None or result.gain is None or result.baseline_value is None or result.worst_x is None:
        return f"the hypervolume cannot be compared with {whose}'s: {result.reason}"
    side = "above" if result.setting.higher_is_better else "below"
    height = f"{result.setting.metric} {side} {result.worst_quality:.4g}"
    width = f"log {axis_words(result.x)} up to {amount_words(result.x, result.worst_x)}"
    without = [
        f", without {label} {(result.value - lost) / result.baseline_value:.2f}x"
        for label, lost in result.lost_without[:NAMED]
        if lost > 0 and label != result.baseline
    ]
    return f"hypervolume {result.gain:.2f}x {whose}'s ({height}, {width}){''.join(without)}"


def _of(lines: list[Ladder], name: str, x: str) -> Hypervolume:
    """Return the hypervolume of one setting, from its ladders. P: their budgets over seeds, higher quality better."""
    blank = Hypervolume(setting=lines[0].setting, baseline=name, x=x)
    bases = [k for k, ladder in enumerate(lines) if ladder.recipe == name]
    if len(bases) != 1:
        words = f"{len(bases)} different recipes are called {name}" if bases else f"{name} has no {axis_words(x)}"
        return replace(blank, reason=f"{words} here")
    whose_P = np.repeat(np.arange(len(lines)), [ladder.ssr_B.size for ladder in lines])
    x_P = np.log2(np.nanmedian(stacked([ladder.x_BS for ladder in lines]), axis=1))
    y_P = lines[0].sign * np.nanmean(stacked([ladder.quality_BS for ladder in lines]), axis=1)
    base_P = whose_P == bases[0]
    reference = _reference(x_P[base_P], y_P[base_P])
    if reference is None:
        return replace(blank, reason=f"{name} has one budget here, or is no better at a larger one")

    def volume(chosen_P: np.ndarray) -> float:
        return hypervolume(x_P[chosen_P], y_P[chosen_P], worst_x=reference[0], worst_y=reference[1])

    value = volume(whose_P >= 0)
    # Only recipes with a point on the front can lose volume; the others are 0 without a computation.
    lost = dict.fromkeys((ladder.label for ladder in lines), 0.0)
    lost |= {lines[k].label: max(0.0, value - volume(whose_P != k)) for k in whose_P[front(x_P, y_P)]}
    return replace(
        blank,
        worst_x=2 ** reference[0],
        worst_quality=lines[0].sign * reference[1],
        value=value,
        baseline_value=volume(base_P),
        lost_without=tuple(sorted(lost.items(), key=lambda entry: (-entry[1], entry[0]))),
    )


def _reference(x_B: np.ndarray, y_B: np.ndarray) -> tuple[float, float] | None:
    """Return the reference of the baseline's points; None where they have no range."""
    steps, height = len(x_B) - 1, y_B.max() - y_B[0]
    if not steps or not height or not np.ptp(x_B):
        return None
    return float(x_B.max() + np.ptp(x_B) / steps), float(y_B[0] - height / steps)
