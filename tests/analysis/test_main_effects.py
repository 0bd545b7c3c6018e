"""Main effects: recipes that differ in one method identify it, wherever they are; others do not, and say so."""

import math

import pytest

from explorer.analysis.main_effects import MainEffect
from explorer.views.explorer.tabs.composition_rows import effect_rows, unidentified
from tests.analysis.compositions import Bench, scaled

BASE = (0.90, 0.91, 0.92)


def effects(bench: Bench) -> dict[str, MainEffect]:
    return {effect.method: effect for effect in bench.found().effects}


def plus(gain: float, *wobble: float) -> tuple[float, ...]:
    return tuple(value + gain + more for value, more in zip(BASE, wobble or (0.001, 0.0, -0.001), strict=True))


def test_one_pair_is_enough_and_need_not_hold_the_baseline() -> None:
    """No recipe has `mixup` by itself, and two differ only in it."""
    bench = Bench().recipe("baseline", qualities=BASE).recipe("ema", ["ema"], qualities=plus(0.01))
    bench.recipe("both", ["ema", "mixup"], qualities=plus(0.04), parts=scaled({"forward": 0.5}))
    mixup = effects(bench)["mixup"]
    assert mixup.pairs == (("ema", "both"),)
    assert mixup.quality.value == pytest.approx(0.03) and mixup.quality.n == 3
    times = bench.found().parts
    ratio = math.log(sum(times["both"].values()) / sum(times["ema"].values()))
    assert mixup.time.value == pytest.approx(ratio) and (mixup.time.high or 0) < 0


def test_several_pairs_are_averaged_seed_by_seed() -> None:
    bench = Bench().recipe("baseline", qualities=BASE).recipe("ema", ["ema"], qualities=plus(0.01, 0.002, 0.0, -0.002))
    bench.recipe("mixup", ["mixup"], qualities=plus(0.02, 0.0, 0.001, -0.001))
    bench.recipe("both", ["ema", "mixup"], qualities=plus(0.05, 0.0, 0.0, 0.0))
    mixup = effects(bench)["mixup"]
    assert set(mixup.pairs) == {("baseline", "mixup"), ("ema", "both")}
    assert mixup.quality.value == pytest.approx((0.02 + 0.04) / 2)
    assert mixup.quality.family == 2 and mixup.quality.p_holm is not None
    (first, second) = effect_rows(bench.found())
    assert {first[0], second[0]} == {"ema", "mixup"} and first[5] == "2 pairs"


def test_what_always_came_with_another_method_is_not_identified() -> None:
    bench = Bench().recipe("baseline", qualities=BASE).recipe("both", ["ema", "mixup"], qualities=plus(0.04))
    found = effects(bench)
    assert not found["ema"].pairs and found["ema"].quality.value is None
    assert found["ema"].reason == "it was only run together with mixup"
    assert found["ema"].compose == "compose: {each_of: [ema]}"
    assert effect_rows(bench.found()) == [] and len(unidentified(bench.found())) == 2


def test_a_recipe_that_differs_in_more_than_methods_identifies_nothing() -> None:
    bench = Bench().recipe("baseline", qualities=BASE)
    bench.recipe("ema", ["ema"], qualities=plus(0.01), train={"lr": 0.2})
    assert effects(bench) == {}


def test_equal_seeds_and_missing_profiles_have_reasons() -> None:
    bench = Bench().recipe("baseline", qualities=BASE)
    bench.recipe("ema", ["ema"], qualities=plus(0.01, 0.0, 0.0, 0.0), profiled=False)
    ema = effects(bench)["ema"]
    assert ema.quality.low is None and "do not differ" in (ema.quality.reason or "")
    assert ema.time.value is None and "not profiled" in (ema.time.reason or "")
