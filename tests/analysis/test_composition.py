"""How methods compose, from tables: predictions, interactions, overlaps, and what is said where one is missing."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.analysis.sentences import composition_sentences, overlap_words
from explorer.errors import AnalysisError
from tests.analysis.compositions import BASE, Bench, scaled

FORWARD, BACKWARD = {"forward": 0.5}, {"backward": 0.8}


def pairs_bench(**together: object) -> Bench:
    """a halves forward, b takes a fifth off backward; `together` is what is special about both."""
    return (
        Bench()
        .recipe("baseline")
        .recipe("a", ["a"], parts=scaled(FORWARD), qualities=(0.91, 0.93, 0.92))
        .recipe("b", ["b"], parts=scaled(BACKWARD), qualities=(0.90, 0.90, 0.94))
        .recipe("a-b", ["a", "b"], **{"parts": scaled({**FORWARD, **BACKWARD}), **together})  # pyright: ignore
    )


def test_time_by_part_of_every_recipe() -> None:
    found = pairs_bench().found()
    assert list(found.parts) == ["baseline", "a", "b", "a-b"]
    assert found.parts["a"] == pytest.approx({"forward": 20.0, "backward": 50.0, "optimizer": 10.0})
    assert (found.ssr, found.budgets, found.methods) == (1.0, (1.0,), ("a", "b"))


def test_prediction_beside_measurement() -> None:
    found = pairs_bench(parts=scaled({"forward": 0.5, "backward": 0.8, "optimizer": 2.0})).composed("a-b")
    assert found.predicted_seconds == pytest.approx(100 * (0.2 + 0.4 + 0.1))
    assert found.seconds == pytest.approx(100 * (0.2 + 0.4 + 0.2))
    assert found.predicted_speedup == pytest.approx(1 / 0.7) and found.speedup == pytest.approx(1 / 0.8)
    assert found.error.value == pytest.approx(math.log(0.8 / 0.7)) and found.error.differs
    assert found.by_parts == pytest.approx(math.log(0.7 / (0.8 * 0.9)))
    assert found.error.n == 7


def test_quality_interaction_is_paired_by_seed() -> None:
    """By hand: 0.95-0.91-0.90+0.90, 0.93-0.93-0.90+0.91, 0.97-0.92-0.94+0.92 = 0.04, 0.01, 0.03."""
    found = pairs_bench(qualities=(0.95, 0.93, 0.97)).pair("a", "b").quality
    values = np.array([0.04, 0.01, 0.03])
    half = 4.302652729911275 * values.std(ddof=1) / math.sqrt(3)  # Student's t, two degrees of freedom
    assert found.value == pytest.approx(values.mean()) and found.n == 3
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half))


def test_noise_that_seeds_share_cancels() -> None:
    """Seeds differ by ten points in all four recipes; the interaction of one point still shows."""
    hard = (0.0, 0.05, 0.10)
    wobble = (0.0001, -0.0001, 0.0)
    bench = (
        Bench()
        .recipe("baseline", qualities=[0.8 + s for s in hard])
        .recipe("a", ["a"], qualities=[0.81 + s for s in hard])
        .recipe("b", ["b"], qualities=[0.82 + s for s in hard])
        .recipe("ab", ["a", "b"], qualities=[0.84 + s + w for s, w in zip(hard, wobble, strict=True)])
    )
    found = bench.pair("a", "b").quality
    assert found.value == pytest.approx(0.01) and found.differs


@given(st.lists(st.floats(0.2, 0.9), min_size=3, max_size=3), st.floats(-0.05, 0.05), st.floats(-0.05, 0.05))
@settings(max_examples=20)
def test_effects_that_add_up_do_not_interact(base: list[float], a: float, b: float) -> None:
    bench = (
        Bench()
        .recipe("baseline", qualities=base)
        .recipe("a", ["a"], qualities=[q + a for q in base], parts=scaled(dict.fromkeys(BASE, 0.5)))
        .recipe("b", ["b"], qualities=[q + b for q in base], parts=scaled(dict.fromkeys(BASE, 0.7)))
        .recipe("ab", ["a", "b"], qualities=[q + a + b for q in base], parts=scaled(dict.fromkeys(BASE, 0.35)))
    )
    found = bench.pair("a", "b")
    assert found.quality.value == pytest.approx(0, abs=1e-9) and not found.quality.differs
    assert found.time.value == pytest.approx(0, abs=1e-9) and not found.time.differs


def test_time_interaction_of_methods_that_share_a_part() -> None:
    """Both halve forward, which is 0.4 of the step: 0.7 of the time where 0.8 x 0.8 = 0.64 would be the product."""
    bench = (
        Bench()
        .recipe("baseline")
        .recipe("a", ["a"], parts=scaled(FORWARD))
        .recipe("b", ["b"], parts=scaled(FORWARD))
        .recipe("ab", ["a", "b"], parts=scaled({"forward": 0.25}))
    )
    found = bench.pair("a", "b")
    assert found.time.value == pytest.approx(math.log(0.7 / 0.64)) and found.time.differs
    both = bench.composed("ab")
    assert both.error.value == pytest.approx(0) and both.by_parts == pytest.approx(found.time.value)
    assert found.overlap is not None and found.overlap.parts == ("forward",)
    assert (found.overlap.first, found.overlap.second) == pytest.approx((0.2, 0.2))
    assert found.overlap.together == pytest.approx(0.3) and found.overlap.lost == pytest.approx(0.1)
    assert overlap_words(found) == (
        "a and b both shorten forward: separately they save 20% and 20% of the baseline's time there; together 30% can"
        " be expected, not 40%"
    )


def test_methods_that_shorten_different_parts_do_not_overlap() -> None:
    assert pairs_bench().pair("a", "b").overlap is None


def test_methods_that_shorten_the_same_part_at_different_times_do_not_overlap() -> None:
    less = scaled(FORWARD)

    def bench(joint: dict) -> Bench:
        return (
            Bench()
            .recipe("baseline")
            .recipe("a", ["a"], phases={"small": (50, less), "large": (50, BASE)})
            .recipe("b", ["b"], phases={"all in": (50, BASE), "frozen": (50, less)})
            .recipe("ab", ["a", "b"], phases=joint)
        )

    apart = {"small, all in": (50, less), "large, frozen": (50, less)}
    assert bench(apart).pair("a", "b").overlap is None
    meet = {"small, frozen": (50, less), "large, all in": (50, BASE)}
    found = bench(meet).pair("a", "b").overlap
    assert found is not None and found.together == pytest.approx(0.15)


def test_savings_that_may_be_noise_do_not_overlap() -> None:
    """Both seem to halve forward; only where the windows agree does the profile tell that from chance."""
    for spread, told in ((0.02, True), (0.6, False)):
        bench = (
            Bench()
            .recipe("baseline", spread=spread)
            .recipe("a", ["a"], parts=scaled(FORWARD), spread=spread)
            .recipe("b", ["b"], parts=scaled(FORWARD), spread=spread)
        )
        assert (bench.pair("a", "b").overlap is not None) is told


def test_savings_that_nobody_notices_do_not_overlap() -> None:
    """4% of the step each; at the threshold of 5% they would count."""
    for factor, noticed in ((0.9, False), (0.87, True)):
        bench = (
            Bench()
            .recipe("baseline")
            .recipe("a", ["a"], parts=scaled({"forward": factor}))
            .recipe("b", ["b"], parts=scaled({"forward": factor}))
        )
        assert (bench.pair("a", "b").overlap is not None) is noticed


def test_rounding_is_no_interaction() -> None:
    """0.3 - 0.2 - 0.1 is 2.8e-17 or so for every seed, and no noise speaks against it."""
    bench = Bench().recipe("baseline", qualities=(0.0, 0.1, 0.2))
    for name, methods, gain in (("a", ["a"], 0.1), ("b", ["b"], 0.2), ("ab", ["a", "b"], 0.3)):
        bench.recipe(name, methods, qualities=[seed + gain for seed in (0.0, 0.1, 0.2)])
    assert any(gain + 0.3 - (gain + 0.1) - (gain + 0.2) + gain != 0 for gain in (0.0, 0.1, 0.2))
    found = bench.pair("a", "b").quality
    assert found.value == 0 and not found.differs and found.p_value == 1


def noisy(draws: np.random.Generator, shift: float) -> Bench:
    """Four methods and all their pairs; a and b together gain `shift`, all else is noise of the seeds."""
    bench = Bench().recipe("baseline", qualities=(0.9 + draws.normal(0, 0.003, 5)).tolist())
    for name in "abcd":
        bench.recipe(name, [name], qualities=(0.91 + draws.normal(0, 0.003, 5)).tolist())
    for first, second in ("ab", "ac", "ad", "bc", "bd", "cd"):
        gain = shift if first + second == "ab" else 0.0
        bench.recipe(f"{first}-{second}", [first, second], qualities=(0.92 + gain + draws.normal(0, 0.003, 5)).tolist())
    return bench


@pytest.mark.slow
def test_chance_alone_shows_no_interaction() -> None:
    """The negative control: of ten tables of noise, six pairs each, hardly one has a pair that Holm lets through;
    and one true interaction among them is found nearly always."""
    draws = np.random.default_rng(11)

    def shown(shift: float) -> list[set[tuple[str, str]]]:
        tables = (noisy(draws, shift).found() for _ in range(10))
        return [{(p.first, p.second) for p in found.pairs if (p.quality.p_holm or 1) < 0.05} for found in tables]

    assert sum(map(bool, shown(0.0))) <= 2
    assert sum(("a", "b") in pairs for pairs in shown(0.05)) >= 8


def test_one_family_for_quality_and_one_for_time() -> None:
    found = noisy(np.random.default_rng(2), 0.05).found()
    assert {pair.quality.family for pair in found.pairs} == {6}
    first = min(found.pairs, key=lambda pair: pair.quality.p_value or 1)
    assert first.quality.p_value is not None
    assert first.quality.p_holm == pytest.approx(6 * first.quality.p_value)


def test_one_seed_has_no_interval() -> None:
    bench = Bench().recipe("baseline", qualities=[0.9])
    for name, methods in (("a", ["a"]), ("b", ["b"]), ("ab", ["a", "b"])):
        bench.recipe(name, methods, qualities=[0.92])
    found = bench.pair("a", "b").quality
    assert found.value == pytest.approx(-0.02)
    assert (found.low, found.p_value, found.n, found.reason) == (None, None, 1, "one seed")


def test_what_was_not_run_is_said() -> None:
    bench = pairs_bench().recipe("c-d", ["c", "d"]).recipe("all", ["a", "b", "c"])
    assert bench.composed("all").reason == "c was not run on its own"
    assert bench.composed("c-d").reason == "c and d were not run on their own"
    pair = bench.pair("a", "c")
    assert pair.recipe is None and pair.quality.reason == "c was not run on its own" and pair.time.value is None
    assert bench.recipe("c", ["c"]).pair("a", "c").quality.reason == "not run together"
    assert "all: no prediction: d" not in " ".join(composition_sentences(bench.found()))
    assert "c-d: no prediction: d was not run on its own" in composition_sentences(bench.found())


def test_a_method_with_other_parameters_is_another_method() -> None:
    bench = (
        Bench()
        .recipe("baseline")
        .recipe("soft", [{"mixup": {"alpha": 0.1}}])
        .recipe("a", ["a"])
        .recipe("hard", [{"mixup": {"alpha": 0.4}}, "a"])
    )
    assert bench.composed("hard").reason == "mixup (alpha 0.4) was not run on its own"
    assert bench.recipe("hard alone", [{"mixup": {"alpha": 0.4}}]).composed("hard").reason is None


def test_a_recipe_that_trains_otherwise_is_no_composition() -> None:
    bench = pairs_bench().recipe("other", ["a", "b", "c"], train={"lr": 0.2})
    assert bench.composed("other").reason == "it differs from the baseline in more than its methods"


def test_methods_of_the_baseline_are_no_addition() -> None:
    bench = (
        Bench()
        .recipe("baseline", ["z"])
        .recipe("a", ["z", "a"], parts=scaled(FORWARD))
        .recipe("b", ["b", "z"], parts=scaled(BACKWARD))
        .recipe("ab", ["a", "b", "z"], parts=scaled({**FORWARD, **BACKWARD}))
        .recipe("ab without z", ["a", "b"])
    )
    assert bench.composed("ab").methods == ("a", "b")
    assert bench.composed("ab").error.value == pytest.approx(0)
    assert bench.composed("ab without z").reason == "it lacks the baseline's z, or has other parameters"


def test_without_a_profile_there_is_quality_alone() -> None:
    bench = pairs_bench(profiled=False)
    assert bench.composed("a-b").reason == "a-b was not profiled in its phase 'all steps'"
    assert bench.pair("a", "b").time.value is None and bench.pair("a", "b").quality.value is not None
    assert "no pair can be judged in time" in " ".join(composition_sentences(bench.found()))


def test_controls_are_no_candidates() -> None:
    bench = Bench().recipe("baseline").recipe("a", ["a"]).recipe("a-random", ["a", "r"], control="random-subset")
    found = bench.found()
    assert list(found.parts) == ["baseline", "a"] and found.recipes == ()


def test_a_budget_nobody_ran_is_refused() -> None:
    with pytest.raises(AnalysisError, match=r"budget: found 2; expected one of 1"):
        pairs_bench().found(ssr=2.0)


def test_reasons_where_nothing_can_be_said() -> None:
    assert Bench().recipe("baseline").found().reason == "no recipe was run at a budget of 'baseline'"
    assert pairs_bench().found(baseline="nobody").reason == "0 recipes are called 'nobody' here; expected one"
    assert "Composition is unknown" in composition_sentences(pairs_bench().found(baseline="nobody"))[0]
