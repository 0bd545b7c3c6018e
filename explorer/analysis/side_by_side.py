"""Two recipes of one setting side by side, neither of which need be the baseline.

What they reach at each budget that both were trained at, seed by seed; what the second reaches with what the first
takes for its full budget; and what the second takes to be as good as the first is at its full budget. The last two are
the estimates that recipes are compared with their baseline by, with the first in the baseline's place.

Nothing is adjusted for many comparisons, because a pair is one: so who picks it after looking at all of them has
tested nothing yet, and the words say so.
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
from explorer.analysis.ladders import SETTING, Ladder, Setting, ladders
from explorer.analysis.verdict import verdicts
from explorer.errors import AnalysisError, unknown

FULL = 1.0
PICKED = f"chosen after seeing the data; {sentences.CONFIRM}"

COLUMNS = ("methods", "inference_seconds", "deletion_level", "deletion_seconds")
"""The columns of `results` that are needed beside those of a ladder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One of the two. None where nothing is known."""

    recipe: str
    is_baseline: bool
    methods: tuple[str, ...]
    only: tuple[str, ...]  # methods that the other does not have
    inference_seconds: float | None  # for one example
    deletion_level: str | None  # of its governed runs, the dearer way: G3 if any class takes a replay
    deletion_seconds: float | None  # of the dearest class, at the full budget


@dataclass(frozen=True, kw_only=True, slots=True)
class Reached:
    """What one of the two reaches at one budget."""

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
        """Why there is no budget at which both can be seen side by side; None where there is one."""
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
    """Put two recipes of a table with the columns of `results` side by side, along the column `x`.

    They are named by their labels, as curves are: "fast", or "fast (1a2b3c)" where several have that name. Raises
    `AnalysisError` for a name that the table lacks, for one recipe twice, and unless there is exactly one setting that
    both were run in.
    """
    both = _both(rows, first, second, x)
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


def sentence(found: Duel) -> str:
    """The duel in a sentence, which ends in what it does not show.

    "fast reaches heavy's accuracy 1.61x faster (95% interval 1.43x-1.82x, 3 seeds); chosen after seeing the
    data; confirm on fresh seeds"
    """
    result = found.equal_quality
    if not found.first.is_baseline:
        result = replace(result, tuning="")  # only of a baseline is it asked whether it was tuned
    (verdict,) = verdicts([result])
    return f"{sentences.answer(verdict)}; {PICKED}"


def _both(rows: pd.DataFrame, first: str, second: str, x: str) -> pd.DataFrame:
    """The runs of the two that have a quality, under their labels; here none of them is another's control."""
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
        places = ", ".join(f"{each.sweep} on {each.hardware}, {each.threads} threads" for each in shared)
        found = f"more than one: {places}; choose one of them" if shared else "none"
        raise AnalysisError(f"{first} and {second} are compared where both were run; found {found}")
    both = pd.concat([_runs_of(rows, by_label[label][shared[0]]) for label in (first, second)])
    return both.assign(control=None, control_of=None)


def _runs_of(rows: pd.DataFrame, ladder: Ladder) -> pd.DataFrame:
    """The rows that a ladder is made of, those without x included."""
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
        difference=_difference(_by_seed(first), _by_seed(second), confidence=confidence, resamples=resamples),
    )


def _reached(rows: pd.DataFrame, x: str) -> Reached:
    by_seed = _by_seed(rows)
    return Reached(quality=float(np.mean([*by_seed.values()])), x=_median(rows[x]), n=len(by_seed))


def _by_seed(rows: pd.DataFrame) -> dict[int, float]:
    """The qualities; the mean where a seed was run twice."""
    return {int(seed): float(quality) for seed, quality in rows.groupby("seed")["quality"].mean().items()}  # pyright: ignore


def _difference(
    first: Mapping[int, float], second: Mapping[int, float], *, confidence: float, resamples: int
) -> Estimate:
    """The second's quality less the first's seed by seed: Student's t with n-1 degrees of freedom."""
    seeds = sorted(first.keys() & second.keys())
    if not seeds:
        return Estimate(reason="they share no seed")
    less_S = np.array([second[seed] - first[seed] for seed in seeds]).round(12)  # equal ones are equal
    value, n = float(less_S.mean()), len(seeds)
    resampled_R = less_S[draws(n, resamples=resamples, key="seeds")].mean(axis=1)
    return estimate(judge(np.concatenate([[value], resampled_R]), n=n, df=n - 1), value, n=n, confidence=confidence)


def _median(values: pd.Series) -> float | None:
    known = values.dropna()
    return None if known.empty else float(known.median())
