"""Two recipes of one setting side by side; neither has to be the baseline.

Three comparisons: quality at each budget that both were trained at, seed by seed; quality of the second with as much as
the first takes for its full budget; and time of the second to the first's quality at full budget. The last two are
those of `equal_budget` and `equal_quality`, with the first recipe in the place of the baseline.

Nothing is adjusted for many comparisons, because a pair is one. A pair that was chosen after seeing all results tests
nothing yet, and the sentence says so.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from explorer.analysis import sentences
from explorer.analysis.comparison import RESAMPLES, Estimate, estimate, judge
from explorer.analysis.equal_budget import EqualBudget, equal_budget
from explorer.analysis.equal_quality import EqualQuality, equal_quality
from explorer.analysis.inference import draws
from explorer.analysis.ladders import SEARCHED, SETTING, Ladder, Setting, ladders, searched
from explorer.analysis.verdict import verdicts
from explorer.errors import AnalysisError, unknown

FULL = 1.0
PICKED = f"chosen after seeing the data; {sentences.CONFIRM}"

COLUMNS = ("methods", "inference_seconds", "deletion_level", "deletion_seconds")
"""Columns of `results` that are needed besides those of a ladder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One of the two recipes. None where nothing is known."""

    recipe: str
    is_baseline: bool
    methods: tuple[str, ...]
    only: tuple[str, ...]  # methods that the other does not have
    inference_seconds: float | None  # for one example
    deletion_level: str | None  # of its governed runs, the costlier way: G3 if any class takes a replay
    deletion_seconds: float | None  # of the costliest class, at the full budget


@dataclass(frozen=True, kw_only=True, slots=True)
class Reached:
    """The quality of one of the two at one budget."""

    quality: float  # mean over its seeds
    x: float | None  # median over its seeds; None where it is unknown
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class AtBudget:
    """Both at one budget. `difference`: the second's quality less the first's, over the seeds that both have."""

    ssr: float
    first: Reached
    second: Reached
    difference: Estimate


@dataclass(frozen=True, kw_only=True, slots=True)
class Duel:
    """Two recipes side by side. `budgets` ascend; `equal_x` and `equal_quality` have the first as their baseline."""

    setting: Setting
    x: str
    first: Side
    second: Side
    budgets: tuple[AtBudget, ...]
    equal_x: EqualBudget
    equal_quality: EqualQuality
    confidence: float

    @property
    def reason(self) -> str | None:
        """Return why the two cannot be compared at any budget; None if they can."""
        return None if self.budgets else f"{self.first.recipe} and {self.second.recipe} share no budget"


def duel(
    rows: pd.DataFrame,
    first: str,
    second: str,
    *,
    x: str = "train_seconds",
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> Duel:
    """Compare two recipes of a table.

    Args:
        rows: a table with the columns of `results`.
        first, second: labels, as of curves: "fast", or "fast (1a2b3c)" where several recipes have that name.
        x: the column along which they are compared.
        confidence: of each interval.
        resamples: bootstrap resamples of the seeds.

    Raises `AnalysisError` for an unknown name, for one recipe twice, and unless both were run in exactly one setting.
    """
    both = _both(rows, first, second, x)
    # Both functions see a table of two recipes, so each returns one comparison, a family of one.
    (quality,) = equal_quality(both, baseline=first, x=x, confidence=confidence, resamples=resamples)
    (budget,) = equal_budget(both, baseline=first, x=x, confidence=confidence, resamples=resamples)
    mine, other = (both[both["recipe"] == name] for name in (first, second))
    shared = sorted(set(mine["ssr"]) & set(other["ssr"]))
    return Duel(
        setting=quality.setting,
        x=x,
        first=_side(mine, other),
        second=_side(other, mine),
        budgets=tuple(_at(mine, other, ssr, x=x, confidence=confidence, resamples=resamples) for ssr in shared),
        equal_x=budget,
        equal_quality=quality,
        confidence=confidence,
    )


def sentence(pair: Duel) -> str:
    """Return the comparison in a sentence, which ends with its limitation.

    "fast reaches heavy's accuracy 1.61x faster (95% interval 1.43x-1.82x, 3 seeds); chosen after seeing the
    data; confirm on fresh seeds"
    """
    result = pair.equal_quality
    if not pair.first.is_baseline:
        result = replace(result, tuning="")  # tuning is known only of a sweep's own baseline
    (verdict,) = verdicts([result])
    return f"{sentences.answer(verdict)}; {PICKED}"


def _both(rows: pd.DataFrame, first: str, second: str, x: str) -> pd.DataFrame:
    """Return the runs of the two that have a quality, under their labels."""
    for column in COLUMNS:
        if column not in rows.columns:
            raise AnalysisError(f"the table of results: {unknown('column', column, map(str, rows.columns))}")
    by_label: defaultdict[str, dict[Setting, Ladder]] = defaultdict(dict)
    for ladder in ladders(rows, x=x, empty=True):
        by_label[ladder.label][ladder.setting] = ladder
    for label in (first, second):
        if label not in by_label:
            raise AnalysisError(unknown("recipe", label, by_label))
    if first == second:
        raise AnalysisError(f"found {first!r} twice; expected two different recipes")
    shared = [setting for setting in by_label[first] if setting in by_label[second]]
    if len(shared) != 1:
        places = ", ".join(f"{place.sweep} on {place.hardware}, {place.threads} threads" for place in shared)
        count = f"more than one: {places}; choose one of them" if shared else "none"
        raise AnalysisError(f"{first} and {second} are compared where both were run; found {count}")
    both = pd.concat([_runs_of(rows, by_label[label][shared[0]]) for label in (first, second)])
    return both.assign(control=None, control_of=None)  # a control is compared here like any recipe


def _runs_of(rows: pd.DataFrame, ladder: Ladder) -> pd.DataFrame:
    """Return the rows of a ladder, with those that have no x."""
    inside = (rows["recipe"] == ladder.recipe) & (rows["recipe_digest"] == ladder.recipe_digest)
    for column in SETTING:
        value = getattr(ladder.setting, column)
        inside &= (rows[column] == value) | (rows[column].isna() if value == "" else False)
    return rows[inside & rows["quality"].notna()].assign(recipe=ladder.label)


def _side(mine: pd.DataFrame, other: pd.DataFrame) -> Side:
    methods, others = _methods(mine), _methods(other)
    levels = mine["deletion_level"].dropna()
    at_full = mine.loc[mine["ssr"] == FULL, "deletion_seconds"]
    return Side(
        recipe=str(mine["recipe"].iloc[0]),
        is_baseline=bool(mine["is_baseline"].iloc[0]),
        methods=methods,
        only=tuple(name for name in methods if name not in others),
        inference_seconds=_median(mine["inference_seconds"]),
        deletion_level=None if levels.empty else str(levels.max()),
        deletion_seconds=_median(at_full),
    )


def _methods(rows: pd.DataFrame) -> tuple[str, ...]:
    return tuple(name for name in str(rows["methods"].iloc[0] or "").split("+") if name)


def _at(mine: pd.DataFrame, other: pd.DataFrame, ssr: float, *, x: str, confidence: float, resamples: int) -> AtBudget:
    first, second = mine[mine["ssr"] == ssr], other[other["ssr"] == ssr]
    return AtBudget(
        ssr=float(ssr),
        first=_reached(first, x),
        second=_reached(second, x),
        difference=Estimate(reason=SEARCHED)
        if searched(first).any() or searched(second).any()
        else _difference(_by_seed(first), _by_seed(second), confidence=confidence, resamples=resamples),
    )


def _reached(rows: pd.DataFrame, x: str) -> Reached:
    by_seed = _by_seed(rows)
    return Reached(quality=float(np.mean([*by_seed.values()])), x=_median(rows[x]), n=len(by_seed))


def _by_seed(rows: pd.DataFrame) -> dict[int, float]:
    """Return quality by seed; the mean where a seed was run twice."""
    return {int(seed): float(quality) for seed, quality in rows.groupby("seed")["quality"].mean().items()}  # pyright: ignore


def _difference(
    first: Mapping[int, float], second: Mapping[int, float], *, confidence: float, resamples: int
) -> Estimate:
    """Return the second's quality less the first's, seed by seed: Student's t with n-1 degrees of freedom."""
    seeds = sorted(first.keys() & second.keys())
    if not seeds:
        return Estimate(reason="they share no seed")
    less_S = np.array([second[seed] - first[seed] for seed in seeds]).round(
        12
    )  # rounding of floats must not look like an effect
    value, n = float(less_S.mean()), len(seeds)
    resampled_R = less_S[draws(n, resamples=resamples, key="seeds")].mean(axis=1)
    return estimate(judge(np.concatenate([[value], resampled_R]), n=n, df=n - 1), value, n=n, confidence=confidence)


def _median(values: pd.Series) -> float | None:
    known = values.dropna()
    return None if known.empty else float(known.median())
