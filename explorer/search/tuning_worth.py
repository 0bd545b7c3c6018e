"""Costs and worth of tuning: quality against points tried, and speedups that pay for their tuning.

A speedup between tuned recipes says nothing of what tuning took. So it is also given with the tuning of both recipes
added to their times, spread over as many trainings as will share the values.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from explorer.analysis.equal_quality import EqualQuality, Outcome
from explorer.search.tuning import expected_best
from explorer.sweep.tune_key import WHOLE
from explorer.sweep.tuned import TunedRecipe, TunedRecord

TRAININGS = (1, 10, 100)  # that share the tuning


@dataclass(frozen=True, kw_only=True, slots=True)
class Worth:
    """The tuning of one recipe: what it took, how it went, and the speedup of the recipe over the tuned baseline."""

    recipe: str
    is_baseline: bool
    points: int
    seconds: float  # of all its tuning runs
    profiled: bool  # the seconds are steps times the profiled time of a step; else measured in the runs
    best: tuple[float, ...]  # expected quality of the best of 1, 2, ... points, at the tuning budget on tuning seeds
    time: float | None = None  # to the target of the sweep; None where it is not reached or not known
    speedup: float | None = None  # without tuning
    shared: tuple[float | None, ...] = ()  # with it, spread over each number of `TRAININGS`

    def spent(self, points: int) -> float:
        """Return the expected seconds of so many points, in whatever order they came."""
        return self.seconds * points / self.points


def worth(tuned: TunedRecord, rows: pd.DataFrame, comparisons: Sequence[EqualQuality]) -> list[Worth]:
    """Return what the tuning of each recipe is worth, the baseline first.

    rows         rows of `results` of the tuned sweep, for the profiled times of its steps
    comparisons  its recipes with its baseline, in training time
    """
    timed = {result.recipe: result for result in comparisons if result.x == "train_seconds"}
    names = set(rows.loc[rows["is_baseline"].astype(bool), "recipe"])
    tuning = {own.recipe: _seconds(own, tuned, rows) for own in tuned.recipes}
    base_time = next((result.baseline_x for result in timed.values()), None)
    base_tuning = next((tuning[own.recipe][0] for own in tuned.recipes if own.recipe in names), None)
    result = []
    for own in tuned.recipes:
        seconds, profiled = tuning[own.recipe]
        is_baseline, compared = own.recipe in names, timed.get(own.recipe)
        time = base_time if is_baseline else _time(compared)
        known = not is_baseline and time is not None and base_time is not None and base_tuning is not None
        result.append(
            Worth(
                recipe=own.recipe,
                is_baseline=is_baseline,
                points=len(own.points),
                seconds=seconds,
                profiled=profiled,
                best=_best(own, tuned),
                time=time,
                speedup=None if is_baseline or compared is None or time is None else compared.speedup,
                shared=tuple(
                    (base_tuning + count * base_time) / (seconds + count * time) if known else None  # pyright: ignore
                    for count in TRAININGS
                ),
            )
        )
    return sorted(result, key=lambda own: not own.is_baseline)


def _time(compared: EqualQuality | None) -> float | None:
    return None if compared is None or compared.outcome is not Outcome.REACHED else compared.recipe_x


def _best(own: TunedRecipe, tuned: TunedRecord) -> tuple[float, ...]:
    sign = 1 if tuned.metric.higher_is_better else -1
    signed = [None if point.quality is None else sign * point.quality for point in own.points]
    return tuple(sign * quality for quality in expected_best(signed))


def _seconds(own: TunedRecipe, tuned: TunedRecord, rows: pd.DataFrame) -> tuple[float, bool]:
    """Return the seconds of a recipe's tuning on a quiet machine, and whether a profile says so."""
    mine = rows[(rows["recipe"] == own.recipe) & rows["time_source"].isin(["profiled", "measured+profiled"])]
    mine = mine[mine["train_seconds"].notna() & (mine["steps"] > 0)]
    # Points of several batch sizes have steps of several lengths, of which only one was profiled.
    if mine.empty or any(key in own.values for key in WHOLE):
        return own.seconds, False
    nearest = mine.loc[(mine["ssr"] - tuned.budget).abs().idxmin()]
    return float(nearest["train_seconds"] / nearest["steps"]) * own.steps, True
