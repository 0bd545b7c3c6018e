"""How methods compose: each recipe's time by part, its predicted speedup and the measured one, and what pairs do.

A recipe is compared as what it adds to the baseline, method by method and parameter by parameter, so `mixup` alone says
nothing about a recipe that has `mixup` with another alpha. Times are steps times the profiled step time.

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
from explorer.analysis.schedules import PARTS, Phase, Schedule, log_ratio, measured, predicted
from explorer.errors import AnalysisError
from explorer.run_files import Metric, metric_of

NOTICEABLE = 0.05  # of the baseline's run


# ---- methods that shorten the same part of the same steps: together they save less than the sum, because what one has
# taken away the other cannot take again


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """Two methods and the parts that both shorten. Shares are of the baseline's training time."""

    parts: tuple[str, ...]
    first: float  # what the first saves of these parts alone
    second: float
    together: float  # what both are predicted to save of them: less than the sum

    @property
    def lost(self) -> float:
        """What the sum of both promises and the parts cannot give."""
        return self.first + self.second - self.together


def overlap(*, baseline: Schedule, first: Schedule, second: Schedule, both: Schedule | None) -> Overlap | None:
    """The parts of which either method alone saves at least `NOTICEABLE`, some of it in the same steps; None if there
    are none.

    Which phases of both coincide is known where one of them has a single phase, and else from a recipe with `both`.
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
    """What the first, the second and both together save of a part, as shares of the baseline's run."""
    sums, whole = [0.0, 0.0, 0.0], 0.0
    for phase in joint.phases:
        base, one, other = (schedule.during(phase.name) for schedule in (baseline, first, second))
        if base is None or one is None or other is None:
            return 0.0, 0.0, 0.0
        b_p = base.parts.get(part, 0.0)
        left = [_left(part, each, b_p) for each in (one, other)]
        whole += phase.steps * base.seconds
        for index, rest in enumerate((*left, left[0] * left[1])):
            sums[index] += phase.steps * b_p * (1 - rest)
    return tuple(seconds / whole for seconds in sums)


def _left(part: str, phase: Phase, b_p: float) -> float:
    """The share of the part that the method leaves; 1 where it takes nothing away."""
    return min(1.0, phase.parts.get(part, 0.0) / b_p) if b_p else 1.0


# ---- what two methods do together beyond what each does alone


def quality_interaction(
    *, neither: Qualities, first: Qualities, second: Qualities, both: Qualities, confidence: float
) -> Estimate:
    """The interaction in quality, paired by seed: Student's t with n-1 degrees of freedom over the n seeds that all
    four have."""
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
    """The interaction in time, from the profiles of the four recipes."""
    four: Iterable[Schedule] = (neither, first, second, both)
    return log_ratio(
        [measured(both), measured(neither)],
        [measured(first), measured(second)],
        schedules=four,
        confidence=confidence,
    )


# ---- how methods compose, as values


@dataclass(frozen=True, kw_only=True, slots=True)
class Composed:
    """A recipe of two methods or more beside what they do alone. `reason` says why there is no prediction."""

    label: str
    methods: tuple[str, ...]  # those that it adds to the baseline's, in acting order
    baseline_seconds: float | None = None
    seconds: float | None = None  # of a whole run, by its own profile
    predicted_seconds: float | None = None
    alone: tuple[float, ...] = ()  # log of what each method alone takes over what the baseline takes
    error: Estimate = field(default_factory=Estimate)  # log of measured over predicted time
    reason: str | None = None

    @property
    def speedup(self) -> float | None:
        """How much faster than the baseline it is."""
        return _ratio(self.baseline_seconds, self.seconds)

    @property
    def predicted_speedup(self) -> float | None:
        return _ratio(self.baseline_seconds, self.predicted_seconds)

    @property
    def by_parts(self) -> float | None:
        """log of predicted time over the product of the methods alone: above 0 where they shorten the same part."""
        if self.predicted_seconds is None or self.baseline_seconds is None:
            return None
        return math.log(self.predicted_seconds / self.baseline_seconds) - sum(self.alone)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two methods: what they do together beyond what each does alone, and which parts of a step both shorten."""

    first: str
    second: str
    recipe: str | None  # the one that adds both and nothing else; None if there is none
    quality: Estimate
    time: Estimate
    overlap: Overlap | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Composition:
    """How the methods of one setting compose at one budget. `reason` says why nothing can be said."""

    baseline: str
    kind: Metric | None = None  # what the qualities mean; None where there is no run
    confidence: float = 0.95
    ssr: float | None = None
    budgets: tuple[float, ...] = ()  # those that could be looked at
    methods: tuple[str, ...] = ()  # that were run alone or in a pair
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # recipe -> part -> seconds of a whole run
    recipes: tuple[Composed, ...] = ()
    pairs: tuple[Pair, ...] = ()
    reason: str | None = None

    @property
    def measured_pairs(self) -> tuple[Pair, ...]:
        """Those of which something is known: both were run together and alone."""
        return tuple(pair for pair in self.pairs if pair.quality.value is not None or pair.time.value is not None)


def _ratio(over: float | None, under: float | None) -> float | None:
    return None if over is None or under is None else over / under


# ---- from tables of runs and profiles to these values

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
        qualities, times = (
            adjusted_by_holm([pair.quality for pair in pairs]),
            adjusted_by_holm([pair.time for pair in pairs]),
        )
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
