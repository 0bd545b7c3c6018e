"""Composition of methods: each recipe's time by part, its predicted and measured speedups, and interactions of pairs.

A recipe is the set of methods that it adds to the baseline, with their parameters, so a run of `mixup` says nothing
about a recipe that has `mixup` with another alpha. Times are steps times the profiled step time.

    quality   I = q_ab - q_a - q_b + q_0    seed by seed at equal budget, in the metric's unit
    time      I = log(t_ab t_0 / (t_a t_b)) with the training times of whole runs

An interaction of 0 means that the effects add up, or multiply. A pair that saves less time together than the product of
both has I > 0.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from explorer.analysis.comparison import RESAMPLES, Estimate, adjusted_by_holm, estimate, judge
from explorer.analysis.inference import draws
from explorer.analysis.ingredients import Ingredient, Qualities, RecipeRuns, labels, recipe_runs
from explorer.analysis.ladders import SEARCHED, searched
from explorer.analysis.main_effects import MainEffect, main_effects
from explorer.analysis.schedules import PARTS, Phase, Schedule, log_ratio, measured, predicted
from explorer.errors import AnalysisError
from explorer.run_files import Metric, metric_of

NOTICEABLE = 0.05  # of the baseline's run


# --- overlaps: methods that shorten the same part of the same steps ---
#
# Together they save less than the sum of both, because the second can only shorten what the first left.


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """Two methods and the parts that both shorten, in shares of the baseline's training time."""

    parts: tuple[str, ...]
    first: float  # saved by the first in these parts, without the second
    second: float
    together: float  # predicted for both: less than the sum

    @property
    def lost(self) -> float:
        """Return by how much the sum of both exceeds the prediction."""
        return self.first + self.second - self.together


def overlap(*, baseline: Schedule, first: Schedule, second: Schedule, both: Schedule | None) -> Overlap | None:
    """Return the parts of which each single method saves at least `NOTICEABLE`, some of it in the same steps.

    None if there are none. The phases of both that coincide are known if one of them has a single phase, and otherwise
    from a recipe with `both`.
    """
    joint = second if len(first.phases) == 1 else first if len(second.phases) == 1 else both
    if joint is None:
        return None
    saved = {part: _saved(part, baseline, first, second, joint) for part in PARTS}
    shared = [
        part
        for part, (one, other, together) in saved.items()
        if min(one, other) >= NOTICEABLE and one + other - together > 0
    ]
    if not shared:
        return None
    one, other, together = (sum(saved[part][index] for part in shared) for index in range(3))
    return Overlap(parts=tuple(shared), first=one, second=other, together=together)


def _saved(part: str, baseline: Schedule, first: Schedule, second: Schedule, joint: Schedule) -> tuple[float, ...]:
    """Return what the first, the second and both together save of a part, as shares of the baseline's run."""
    sums, whole = [0.0, 0.0, 0.0], 0.0
    for phase in joint.phases:
        base, one, other = (schedule.during(phase.name) for schedule in (baseline, first, second))
        if base is None or one is None or other is None:
            return 0.0, 0.0, 0.0
        b_p = base.parts.get(part, 0.0)
        left = [_left(part, single, b_p) for single in (one, other)]
        whole += phase.steps * base.seconds
        for index, rest in enumerate((*left, left[0] * left[1])):
            sums[index] += phase.steps * b_p * (1 - rest)
    return tuple(seconds / whole for seconds in sums)


def _left(part: str, phase: Phase, b_p: float) -> float:
    """Return the share of the part that the method leaves; 1 if it saves nothing."""
    return min(1.0, phase.parts.get(part, 0.0) / b_p) if b_p else 1.0


# --- interactions of two methods ---


def quality_interaction(
    *, neither: Qualities, first: Qualities, second: Qualities, both: Qualities, confidence: float
) -> Estimate:
    """Return the interaction in quality, paired by seed: Student's t with n-1 degrees of freedom over n common seeds.

    Args:
        neither, first, second, both: qualities by seed of the baseline, each single method, and the recipe with both.
        confidence: of the interval.
    """
    seeds = sorted(set(neither) & set(first) & set(second) & set(both))
    if not seeds:
        return Estimate(reason="no seed was run with all four")
    values = np.array([both[seed] - first[seed] - second[seed] + neither[seed] for seed in seeds])
    values = values.round(12)  # seeds may agree exactly, and then the rounding of floats must not look like an effect
    value, n = float(values.mean()), len(seeds)
    resampled = values[draws(n, resamples=RESAMPLES, key="interaction")].mean(axis=1)
    return estimate(judge(np.concatenate([[value], resampled]), n=n, df=n - 1), value, n=n, confidence=confidence)


def time_interaction(
    *, neither: Schedule, first: Schedule, second: Schedule, both: Schedule, confidence: float
) -> Estimate:
    """Return the interaction in time, from the profiles of the four recipes.

    Args:
        neither, first, second, both: schedules of the baseline, of each single method, and of the recipe with both.
        confidence: of the interval.
    """
    four: Iterable[Schedule] = (neither, first, second, both)
    return log_ratio(
        [measured(both), measured(neither)],
        [measured(first), measured(second)],
        schedules=four,
        confidence=confidence,
    )


# --- results, as values ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Composed:
    """A recipe of two methods or more, compared with its single methods. `reason` says why there is no prediction."""

    label: str
    methods: tuple[str, ...]  # those that it adds to the baseline's, in acting order
    baseline_seconds: float | None = None
    seconds: float | None = None  # of a whole run, by its own profile
    predicted_seconds: float | None = None
    alone: tuple[float, ...] = ()  # log ratio of each single method's time to the baseline's
    error: Estimate = field(default_factory=Estimate)  # log of measured over predicted time
    reason: str | None = None

    @property
    def speedup(self) -> float | None:
        """Return the baseline's time over the recipe's."""
        return _ratio(self.baseline_seconds, self.seconds)

    @property
    def predicted_speedup(self) -> float | None:
        return _ratio(self.baseline_seconds, self.predicted_seconds)

    @property
    def by_parts(self) -> float | None:
        """Return log of predicted time over the product of single methods: above 0 where they shorten the same part."""
        if self.predicted_seconds is None or self.baseline_seconds is None:
            return None
        return math.log(self.predicted_seconds / self.baseline_seconds) - sum(self.alone)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two methods: their interactions, and the parts of a step that both shorten."""

    first: str
    second: str
    recipe: str | None  # the recipe that adds both and nothing else; None if there is none
    quality: Estimate
    time: Estimate
    overlap: Overlap | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Composition:
    """How the methods of one setting compose at one budget. `reason` says why nothing can be said."""

    baseline: str
    kind: Metric | None = None  # of the qualities; None where there is no run
    confidence: float = 0.95
    ssr: float | None = None
    budgets: tuple[float, ...] = ()  # budgets that can be chosen
    methods: tuple[str, ...] = ()  # methods that were run on their own or in a pair
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # recipe -> part -> seconds of a whole run
    recipes: tuple[Composed, ...] = ()
    pairs: tuple[Pair, ...] = ()
    reason: str | None = None
    effects: tuple[MainEffect, ...] = ()  # of each method that a recipe adds

    @property
    def measured_pairs(self) -> tuple[Pair, ...]:
        """Return the pairs of which something is known: both were run, together and on their own."""
        return tuple(pair for pair in self.pairs if pair.quality.value is not None or pair.time.value is not None)


def _ratio(over: float | None, under: float | None) -> float | None:
    return None if over is None or under is None else over / under


# --- from tables of runs and profiles to these values ---

PLACE = ["sweep", "device", "hardware", "threads", "world_size"]
FULL = 1.0  # the default budget


def composition(
    rows: pd.DataFrame,
    schedules: pd.DataFrame,
    *,
    baseline: str,
    ssr: float | None = None,
    confidence: float = 0.95,
) -> Composition:
    """Return how methods compose in one setting. Recipes that were made as controls are left out.

    Args:
        rows: runs of one setting, with the columns of `results`.
        schedules: a table with the columns of `frames.schedules`.
        baseline: name of the recipe that others are compared with.
        ssr: the budget; by default the full one, or else the largest that others share with the baseline.
        confidence: of all intervals.

    Raises `AnalysisError` for a budget that was not run.
    """
    rows = rows[rows["control"] != "random-subset"]
    result = Composition(baseline=baseline, confidence=confidence)
    if rows.empty:
        return replace(result, reason="there is no finished run")
    if searched(rows).any():
        return replace(result, reason=f"{SEARCHED}; `search.json` has its effects of methods")
    # --- the baseline and the budget ---
    first = rows.iloc[0]
    result = replace(result, kind=metric_of(first.to_dict()))
    bases = [str(digest) for digest in rows.loc[rows["recipe"] == baseline, "recipe_digest"].unique()]
    if len(bases) != 1:
        return replace(result, reason=f"{len(bases)} recipes are called {baseline!r} here; expected one")
    mine = rows["recipe_digest"] == bases[0]
    budgets = tuple(sorted(set(rows.loc[mine, "ssr"]) & set(rows.loc[~mine, "ssr"])))
    if ssr is not None and ssr not in budgets:
        known = ", ".join(f"{budget:g}" for budget in budgets)
        raise AnalysisError(f"budget: found {ssr:g}; expected one of {known}")
    if not budgets:
        return replace(result, reason=f"no recipe was run at a budget of {baseline!r}")
    chosen = ssr if ssr is not None else FULL if FULL in budgets else budgets[-1]
    # --- the runs and profiles of that budget ---
    here = schedules[(schedules[PLACE] == first[PLACE]).all(axis=1) & (schedules["ssr"] == chosen)]
    result = replace(result, ssr=chosen, budgets=budgets)
    try:
        recipes = recipe_runs(rows[rows["ssr"] == chosen], here, base=bases[0])
    except AnalysisError as error:
        return replace(result, reason=str(error))
    return _Table(recipes, base=bases[0], confidence=confidence).fill(result)


class _Table:
    """Recipes of a setting by the methods that they add to the baseline."""

    def __init__(self, recipes: Mapping[str, RecipeRuns], *, base: str, confidence: float) -> None:
        self.baseline = recipes[base]
        self.recipes = [recipe for digest, recipe in recipes.items() if digest != base]
        self.confidence = confidence
        # Reversed, so that of recipes with equal methods the first in the table is kept.
        by_methods = {frozenset(recipe.methods): recipe for recipe in reversed(self.recipes)}
        self.by_methods = {methods: recipe for methods, recipe in by_methods.items() if methods}
        self.names = labels(method for recipe in self.recipes for method in recipe.methods)

    def fill(self, composition: Composition) -> Composition:
        """Return the composition with all results from these recipes."""
        # A method that occurs only in recipes of three or more has no effect of its own to compare with, so pairs are
        # made of the others.
        small = {method for methods in self.by_methods if len(methods) <= 2 for method in methods}
        methods = [method for method in self.names if method in small]
        pairs = [self.pair(first, second) for first, second in itertools.combinations(methods, 2)]
        qualities, times = (
            adjusted_by_holm([pair.quality for pair in pairs]),
            adjusted_by_holm([pair.time for pair in pairs]),
        )
        every = [self.baseline, *self.recipes]
        effects = main_effects(self.baseline, self.recipes, names=self.names, confidence=self.confidence)
        return replace(
            composition,
            methods=tuple(self.names[method] for method in methods),
            effects=effects,
            parts={recipe.label: recipe.schedule.by_part() for recipe in every if recipe.schedule},
            recipes=tuple(self.composed(recipe) for recipe in self.recipes if len(recipe.methods) != 1),
            pairs=tuple(
                replace(pair, quality=quality, time=time)
                for pair, quality, time in zip(pairs, qualities, times, strict=True)
            ),
        )

    def composed(self, recipe: RecipeRuns) -> Composed:
        """Compare a recipe of several methods with its single methods."""
        result = Composed(label=recipe.label, methods=tuple(self.names[method] for method in recipe.methods))
        if not recipe.methods:
            return replace(result, reason=recipe.problem or "it has the baseline's methods")
        parts = self._alone(recipe.methods)
        if isinstance(parts, str):
            return replace(result, reason=parts)
        times = _times(self.baseline, recipe, *parts)
        if isinstance(times, str):
            return replace(result, reason=times)
        base, own, *alone = times
        result = replace(result, baseline_seconds=base.seconds, seconds=own.seconds)
        try:
            total = predicted(base, alone, recipe=own)
        except AnalysisError as error:
            return replace(result, reason=str(error))
        return replace(
            result,
            predicted_seconds=total.seconds,
            alone=tuple(math.log(schedule.seconds / base.seconds) for schedule in alone),
            error=log_ratio([measured(own)], [total], schedules=times, confidence=self.confidence),
        )

    def pair(self, first: Ingredient, second: Ingredient) -> Pair:
        """Compare two methods, whether they were run together or not."""
        both = self.by_methods.get(frozenset((first, second)))
        result = Pair(
            first=self.names[first],
            second=self.names[second],
            recipe=None if both is None else both.label,
            quality=Estimate(reason="not run together"),
            time=Estimate(reason="not run together"),
        )
        parts = self._alone((first, second))
        if isinstance(parts, str):
            return replace(result, quality=Estimate(reason=parts), time=Estimate(reason=parts))
        result = replace(result, overlap=self._overlap(*parts, methods={first, second}))
        # --- what needs a run of both ---
        if both is None:
            return result
        four = (self.baseline, *parts, both)
        neither, one, other, together = (recipe.qualities for recipe in four)
        times = _times(*four)
        return replace(
            result,
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
        """Return the recipe of each single method, or why there is none."""
        missing = [self.names[method] for method in methods if frozenset((method,)) not in self.by_methods]
        if missing:
            was, own = ("were", "their") if len(missing) > 1 else ("was", "its")
            return f"{' and '.join(missing)} {was} not run on {own} own"
        return [self.by_methods[frozenset((method,))] for method in methods]

    def _overlap(self, first: RecipeRuns, second: RecipeRuns, *, methods: set[Ingredient]) -> Overlap | None:
        """Return the overlap of two methods; None also unless both are significantly faster than the baseline."""
        # A saving within the noise of the profiles would turn up as an overlap of every pair.
        times = _times(self.baseline, first, second)
        if isinstance(times, str):
            return None
        base, *both_alone = [measured(schedule) for schedule in times]
        for alone in both_alone:
            saving = log_ratio([alone], [base], schedules=times, confidence=self.confidence)
            if saving.high is None or saving.high >= 0:
                return None
        # The smallest recipe with both shows which of their phases coincide; other methods could split them further.
        having = [recipe for recipe in self.recipes if recipe.schedule is not None and methods <= {*recipe.methods}]
        both = min(having, key=lambda recipe: len(recipe.methods)).schedule if having else None
        return overlap(baseline=times[0], first=times[1], second=times[2], both=both)


def _times(*recipes: RecipeRuns) -> list[Schedule] | str:
    """Return the schedule of each, or why one has none."""
    for recipe in recipes:
        if recipe.schedule is None:
            return recipe.problem
    return [recipe.schedule for recipe in recipes if recipe.schedule is not None]
