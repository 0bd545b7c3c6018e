"""From tables of runs and profiles to how methods compose.

A recipe is compared as what it adds to the baseline, method by method and parameter by parameter, so `mixup` alone says
nothing about a recipe that has `mixup` with another alpha. Times are steps times the profiled step time.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from explorer.analysis.composition import Composed, Composition, Pair
from explorer.analysis.estimate import Estimate, adjusted
from explorer.analysis.ingredients import Ingredient, labels
from explorer.analysis.interaction import quality_interaction, time_interaction
from explorer.analysis.overlap import Overlap, overlap
from explorer.analysis.prediction import log_ratio, measured, predicted
from explorer.analysis.recipe_runs import RecipeRuns, recipe_runs
from explorer.analysis.schedules import Schedule
from explorer.errors import AnalysisError
from explorer.run_files import metric_of

PLACE = ["sweep", "device", "hardware", "threads", "world_size"]
FULL = 1.0  # the budget that is looked at unless another one is chosen


def composition(
    rows: pd.DataFrame,
    schedules: pd.DataFrame,
    *,
    baseline: str,
    ssr: float | None = None,
    confidence: float = 0.95,
) -> Composition:
    """Say how methods compose in `rows`: runs of one setting, with the columns of `results`.

    `schedules` has the columns of `frames.schedules`. Recipes that were made as controls are left out. Raises
    `AnalysisError` for a budget that nobody ran.
    """
    rows = rows[rows["control"] != "random-subset"]
    found = Composition(baseline=baseline, confidence=confidence)
    if rows.empty:
        return replace(found, reason="there is no finished run")
    first = rows.iloc[0]
    found = replace(
        found,
        kind=metric_of(first.to_dict()),
    )
    bases = [str(digest) for digest in rows.loc[rows["recipe"] == baseline, "recipe_digest"].unique()]
    if len(bases) != 1:
        return replace(found, reason=f"{len(bases)} recipes are called {baseline!r} here; expected one")
    mine = rows["recipe_digest"] == bases[0]
    budgets = tuple(sorted(set(rows.loc[mine, "ssr"]) & set(rows.loc[~mine, "ssr"])))
    if ssr is not None and ssr not in budgets:
        raise AnalysisError(f"budget: found {ssr:g}; expected one of {', '.join(f'{each:g}' for each in budgets)}")
    if not budgets:
        return replace(found, reason=f"no recipe was run at a budget of {baseline!r}")
    chosen = ssr if ssr is not None else FULL if FULL in budgets else budgets[-1]
    here = schedules[(schedules[PLACE] == first[PLACE]).all(axis=1) & (schedules["ssr"] == chosen)]
    found = replace(found, ssr=chosen, budgets=budgets)
    try:
        recipes = recipe_runs(rows[rows["ssr"] == chosen], here, base=bases[0])
    except AnalysisError as error:
        return replace(found, reason=str(error))
    return _Table(recipes, base=bases[0], confidence=confidence).fill(found)


class _Table:
    """The recipes of a setting by what they add to the baseline."""

    def __init__(self, recipes: Mapping[str, RecipeRuns], *, base: str, confidence: float) -> None:
        self.baseline = recipes[base]
        self.recipes = [recipe for digest, recipe in recipes.items() if digest != base]
        self.confidence = confidence
        by_methods = {frozenset(recipe.methods): recipe for recipe in reversed(self.recipes)}
        self.by_methods = {methods: recipe for methods, recipe in by_methods.items() if methods}
        self.names = labels(method for recipe in self.recipes for method in recipe.methods)

    def fill(self, found: Composition) -> Composition:
        """The composition with everything that these recipes tell."""
        small = {method for methods in self.by_methods if len(methods) <= 2 for method in methods}
        methods = [method for method in self.names if method in small]
        pairs = [self.pair(first, second) for first, second in itertools.combinations(methods, 2)]
        qualities, times = adjusted([pair.quality for pair in pairs]), adjusted([pair.time for pair in pairs])
        every = [self.baseline, *self.recipes]
        return replace(
            found,
            methods=tuple(self.names[method] for method in methods),
            parts={recipe.label: recipe.schedule.by_part() for recipe in every if recipe.schedule},
            recipes=tuple(self.composed(recipe) for recipe in self.recipes if len(recipe.methods) != 1),
            pairs=tuple(
                replace(pair, quality=quality, time=time)
                for pair, quality, time in zip(pairs, qualities, times, strict=True)
            ),
        )

    def composed(self, recipe: RecipeRuns) -> Composed:
        """A recipe of several methods beside what they do alone."""
        found = Composed(label=recipe.label, methods=tuple(self.names[method] for method in recipe.methods))
        if not recipe.methods:
            return replace(found, reason=recipe.problem or "it has the baseline's methods")
        parts = self._alone(recipe.methods)
        if isinstance(parts, str):
            return replace(found, reason=parts)
        times = _times(self.baseline, recipe, *parts)
        if isinstance(times, str):
            return replace(found, reason=times)
        base, own, *alone = times
        found = replace(found, baseline_seconds=base.seconds, seconds=own.seconds)
        try:
            total = predicted(base, alone, recipe=own)
        except AnalysisError as error:
            return replace(found, reason=str(error))
        return replace(
            found,
            predicted_seconds=total.seconds,
            alone=tuple(math.log(each.seconds / base.seconds) for each in alone),
            error=log_ratio([measured(own)], [total], schedules=times, confidence=self.confidence),
        )

    def pair(self, first: Ingredient, second: Ingredient) -> Pair:
        """Two methods, whether they were run together or not."""
        both = self.by_methods.get(frozenset((first, second)))
        found = Pair(
            first=self.names[first],
            second=self.names[second],
            recipe=None if both is None else both.label,
            quality=Estimate(reason="not run together"),
            time=Estimate(reason="not run together"),
        )
        parts = self._alone((first, second))
        if isinstance(parts, str):
            return replace(found, quality=Estimate(reason=parts), time=Estimate(reason=parts))
        found = replace(found, overlap=self._overlap(*parts, methods={first, second}))
        if both is None:
            return found
        four = (self.baseline, *parts, both)
        neither, one, other, together = (recipe.qualities for recipe in four)
        times = _times(*four)
        return replace(
            found,
            quality=quality_interaction(
                neither=neither, first=one, second=other, both=together, confidence=self.confidence
            ),
            time=Estimate(reason=times)
            if isinstance(times, str)
            else time_interaction(
                neither=times[0], first=times[1], second=times[2], both=times[3], confidence=self.confidence
            ),
        )

    def _alone(self, methods: Sequence[Ingredient]) -> list[RecipeRuns] | str:
        """The recipe of each method alone, or which of them there is none of."""
        missing = [self.names[method] for method in methods if frozenset((method,)) not in self.by_methods]
        if missing:
            return f"{' and '.join(missing)} {'were' if len(missing) > 1 else 'was'} not run alone"
        return [self.by_methods[frozenset((method,))] for method in methods]

    def _overlap(self, first: RecipeRuns, second: RecipeRuns, *, methods: set[Ingredient]) -> Overlap | None:
        """None too where the profiles cannot tell from noise that either is faster than the baseline."""
        times = _times(self.baseline, first, second)
        if isinstance(times, str):
            return None
        base, *both_alone = [measured(schedule) for schedule in times]
        for alone in both_alone:
            saving = log_ratio([alone], [base], schedules=times, confidence=self.confidence)
            if saving.high is None or saving.high >= 0:
                return None
        having = [recipe for recipe in self.recipes if recipe.schedule is not None and methods <= {*recipe.methods}]
        both = min(having, key=lambda recipe: len(recipe.methods)).schedule if having else None
        return overlap(baseline=times[0], first=times[1], second=times[2], both=both)


def _times(*recipes: RecipeRuns) -> list[Schedule] | str:
    """The schedule of each, or why one has none."""
    for recipe in recipes:
        if recipe.schedule is None:
            return recipe.problem
    return [recipe.schedule for recipe in recipes if recipe.schedule is not None]
