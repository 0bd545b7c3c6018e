"""Intervals of the effects of methods: what they hold, what widens them, and when there are none."""

from collections.abc import Sequence

import numpy as np
import pytest

from explorer.search.method_effects import LEAST, SCALES, Scales, method_effects
from explorer.search.searcher import Seen, Trial
from tests.search.spaces import LADDER, World, world

ADDITIVE = tuple(scales for scales in SCALES if not scales.pairs and not scales.shared)


def runs(made: World, *, count: int = 60, seed: int = 0) -> list[Seen]:
    """Runs of random recipes, budgets and seeds."""
    rng = np.random.default_rng(seed)
    recipes, seeds = made.space.recipes, made.space.seeds
    trials = {Trial(recipes[at], budget, one): None for at in range(len(recipes)) for budget in LADDER for one in seeds}
    return [made.seen(list(trials)[place]) for place in rng.permutation(len(trials))[:count]]


def test_intervals_hold_the_effects_of_methods_in_an_average_recipe() -> None:
    made = world()
    effects = {effect.method: effect for effect in method_effects(made.space, runs(made))}
    # In an average recipe half of a's effect on c, -0.2, is there, and the other way round.
    truth = {"a": 0.3 - 0.1, "b": -0.4, "c": 0.35 - 0.1, "d": 0.0, "e": 0.2}
    assert list(effects) == list(truth)
    for name, effect in effects.items():
        assert effect.low < truth[name] < effect.high, name
        assert effect.high - effect.low < 0.3
        assert effect.runs == sum(name in one.trial.methods for one in runs(made))
    # The control: the truth of a wrong sign is held by none that has an effect.
    assert not any(effects[name].low < -truth[name] < effects[name].high for name in "abce")


def test_pairs_and_recipes_are_no_independent_noise() -> None:
    """Many runs of few recipes tell little of methods; taken for independent, they seem to tell much."""
    made = world(seeds=tuple(range(8)))
    few = [frozenset(some) for some in ("", "a", "b", "ac", "abc", "be", "ce", "abe")]
    seen = [made.seen(Trial(recipe, budget, seed)) for recipe in few for budget in LADDER for seed in made.space.seeds]

    def reach(scales: Sequence[Scales]) -> np.ndarray:
        return np.array([effect.high - effect.low for effect in method_effects(made.space, seen, scales=scales)])

    assert (reach(SCALES) > 2 * reach(ADDITIVE)).all()


def test_more_confidence_and_more_noise_widen_an_interval_and_more_runs_narrow_it() -> None:
    made = world()

    def reach(made: World, count: int, confidence: float = 0.95) -> float:
        effects = method_effects(made.space, runs(made, count=count), confidence=confidence)
        return float(np.mean([effect.high - effect.low for effect in effects]))

    assert reach(made, 60, confidence=0.99) > 1.2 * reach(made, 60)
    assert reach(made._replace(noise=0.5), 60) > 2 * reach(made, 60)
    assert reach(made, 20) > 1.2 * reach(made, 120)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_the_unit_of_the_quality_does_not_matter(unit: float) -> None:
    made = world()
    seen = runs(made)
    scaled = [replace_quality(one, unit) for one in seen]
    for plain, other in zip(method_effects(made.space, seen), method_effects(made.space, scaled), strict=True):
        assert [other.value, other.low, other.high] == pytest.approx([unit * v for v in plain[1:4]], rel=1e-6)


def replace_quality(one: Seen, unit: float) -> Seen:
    return one._replace(quality=None if one.quality is None else unit * one.quality)


def test_too_few_runs_have_no_effects_and_failed_ones_do_not_count() -> None:
    made = world()
    seen = runs(made, count=12)
    failed = [Seen(one.trial, None) for one in seen]
    assert method_effects(made.space, failed) == method_effects(made.space, []) == []
    assert method_effects(made.space, seen) == method_effects(made.space, [*seen, *failed]) != []
    # One budget and one seed leave a level to estimate: one run more than the least degrees of freedom.
    alone = [one for one in runs(made, count=200) if (one.trial.budget, one.trial.seed) == (1.0, 3)]
    assert method_effects(made.space, alone[:LEAST]) == [] != method_effects(made.space, alone[: LEAST + 1])


def test_equal_qualities_have_no_effect() -> None:
    made = world()
    seen = [Seen(one.trial, 0.9) for one in runs(made, count=30)]
    for effect in method_effects(made.space, seen):
        assert effect.low <= 0 <= effect.high and abs(effect.value) < 1e-9
