"""Main effects: what a method changes by itself, averaged over every pair of recipes that differ only in that method.

    effect on quality   mean over pairs of q(with) - q(without), seed by seed at equal budget, in the metric's unit
    effect on time      mean over pairs of log of t(with) / t(without), with the training times of whole runs

Any sweep with two recipes that differ in one method has such a pair; the baseline without methods is one of them. A
method that always came with another one has none, and gets the line that would identify it in place of a number.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from explorer.analysis.comparison import RESAMPLES, Estimate, adjusted_by_holm, estimate, judge
from explorer.analysis.inference import draws
from explorer.analysis.ingredients import Ingredient, RecipeRuns
from explorer.analysis.schedules import Schedule, log_ratio, measured

RecipePair = tuple[RecipeRuns, RecipeRuns]
"""Two recipes: without a method, and with it; they differ in nothing else."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MainEffect:
    """The effect of one method. `reason` says why it is not identified, and `compose` what to write to change that."""

    method: str
    pairs: tuple[tuple[str, str], ...] = ()  # labels of the recipes without it and with it
    quality: Estimate = field(default_factory=Estimate)
    time: Estimate = field(default_factory=Estimate)  # log of the ratio of times
    reason: str = ""
    compose: str = ""


def main_effects(
    baseline: RecipeRuns, recipes: Iterable[RecipeRuns], *, names: Mapping[Ingredient, str], confidence: float
) -> tuple[MainEffect, ...]:
    """Return the effect of each method, in the order of `names`, as one family for quality and one for time.

    Args:
        baseline: the recipe that the methods of the others are added to.
        recipes: the other recipes; those that differ from the baseline in more than methods have none, and are left
            out.
        names: the label of each method.
        confidence: of the intervals.
    """
    # Reversed, so that of recipes with equal methods the first in the table is kept.
    by_methods = {frozenset(recipe.methods): recipe for recipe in reversed([*recipes]) if recipe.methods}
    by_methods[frozenset()] = baseline
    effects = []
    for method, name in names.items():
        pairs = [
            (by_methods[methods - {method}], recipe)
            for methods, recipe in by_methods.items()
            if method in methods and methods - {method} in by_methods
        ]
        effects.append(_effect(name, pairs, confidence) if pairs else _unknown(method, by_methods, names))
    qualities, times = (
        adjusted_by_holm([effect.quality for effect in effects]),
        adjusted_by_holm([effect.time for effect in effects]),
    )
    return tuple(
        replace(effect, quality=quality, time=time)
        for effect, quality, time in zip(effects, qualities, times, strict=True)
    )


def _effect(name: str, pairs: Sequence[RecipePair], confidence: float) -> MainEffect:
    return MainEffect(
        method=name,
        pairs=tuple((without.label, having.label) for without, having in pairs),
        quality=_quality(pairs, confidence),
        time=_time(pairs, confidence),
    )


def _quality(pairs: Sequence[RecipePair], confidence: float) -> Estimate:
    """Return the mean difference over the pairs, paired by the seeds that all of them have."""
    seeds = sorted(set.intersection(*(set(recipe.qualities) for pair in pairs for recipe in pair)))
    if not seeds:
        return Estimate(reason="no seed was run with all of these recipes")
    differences = [[having.qualities[seed] - without.qualities[seed] for without, having in pairs] for seed in seeds]
    # Seeds may agree exactly, and then the rounding of floats must not look like an effect.
    values_S = np.array(differences).mean(axis=1).round(12)
    value, n = float(values_S.mean()), len(seeds)
    resampled_R = values_S[draws(n, resamples=RESAMPLES, key="main effect")].mean(axis=1)
    return estimate(judge(np.concatenate([[value], resampled_R]), n=n, df=n - 1), value, n=n, confidence=confidence)


def _time(pairs: Sequence[RecipePair], confidence: float) -> Estimate:
    """Return the mean log ratio over the pairs, with the interval from the windows of their profiles."""
    schedules: list[Schedule] = []
    for recipe in (recipe for pair in pairs for recipe in pair):
        if recipe.schedule is None:
            return Estimate(reason=recipe.problem)
        schedules.append(recipe.schedule)
    total = log_ratio(
        [measured(schedule) for schedule in schedules[1::2]],
        [measured(schedule) for schedule in schedules[::2]],
        schedules=schedules,
        confidence=confidence,
    )

    def mean(value: float | None) -> float | None:
        return None if value is None else value / len(pairs)

    return replace(total, value=mean(total.value), low=mean(total.low), high=mean(total.high))


def _unknown(
    method: Ingredient, by_methods: Mapping[frozenset[Ingredient], RecipeRuns], names: Mapping[Ingredient, str]
) -> MainEffect:
    """Return that a method is not identified, because it always came with others, and the lines that identify it."""
    smallest = min((methods for methods in by_methods if method in methods), key=len)
    others = [names[other] for other in by_methods[smallest].methods if other != method]
    words = f"it was only run together with {', '.join(others)}"
    return MainEffect(
        method=names[method],
        quality=Estimate(reason=words),
        time=Estimate(reason=words),
        reason=words,
        compose=f"compose: {{each_of: [{method.name}]}}",
    )
