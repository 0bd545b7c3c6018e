"""The predicted time of a recipe against cases that can be worked out by hand, and its intervals against simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.analysis.composition import time_interaction
from explorer.analysis.schedules import (
    PARTS,
    Phase,
    Schedule,
    log_ratio,
    measured,
    names,
    phase,
    predicted,
    standard_error_of_median,
)
from explorer.errors import AnalysisError
from explorer.run_files import ALL_STEPS
from tests.analysis.compositions import BASE, scaled, schedule, steady

factors = st.dictionaries(st.sampled_from(sorted(BASE)), st.floats(0.1, 3))


@given(factors, factors, factors)
def test_independent_factors_are_predicted_exactly(a: dict, b: dict, c: dict) -> None:
    alone = [steady(name, scaled(each)) for name, each in (("a", a), ("b", b), ("c", c))]
    together = steady("abc", scaled(a, scaled(b, scaled(c))))
    total = predicted(steady("0", BASE), alone, recipe=together)
    assert total.seconds == pytest.approx(together.seconds)


@given(factors)
def test_one_method_is_predicted_to_take_what_it_takes(a: dict) -> None:
    alone = steady("a", scaled(a))
    assert predicted(steady("0", BASE), [alone], recipe=alone).seconds == pytest.approx(alone.seconds)


def test_by_hand() -> None:
    """A halves forward and B quarters it: an eighth of 0.4 s is left, and the other 0.6 s."""
    alone = [steady("a", scaled({"forward": 0.5})), steady("b", scaled({"forward": 0.25}))]
    total = predicted(steady("0", BASE), alone, recipe=steady("ab", BASE))
    assert total.seconds == pytest.approx(100 * (0.4 / 8 + 0.6))


def test_what_the_baseline_does_not_do_is_added() -> None:
    alone = [steady("a", {**BASE, "governance": 0.2}), steady("b", {**BASE, "governance": 0.3})]
    total = predicted(steady("0", BASE), alone, recipe=steady("ab", BASE))
    assert total.seconds == pytest.approx(100 * 1.5)


def test_a_part_that_is_next_to_nothing_is_no_base_for_a_factor() -> None:
    """Multiplied, two methods of 0.1 s each on a part of 1 ms would take 10 s."""
    base = {**BASE, "other": 0.001}
    alone = [steady(name, {**BASE, "other": 0.1}) for name in "ab"]
    total = predicted(steady("0", base), alone, recipe=steady("ab", base))
    assert total.seconds == pytest.approx(100 * (1 + 0.199))


def test_phases_count_with_the_steps_of_the_recipe() -> None:
    """A quarters the first half, B halves the second: they never meet. In the same half they would."""
    half, quarter = scaled(dict.fromkeys(BASE, 0.5)), scaled(dict.fromkeys(BASE, 0.25))
    a = schedule("a", {"8x8 px": (50, quarter), "16x16 px": (50, BASE)})
    b = schedule("b", {"none frozen": (50, BASE), "0.5 frozen": (50, half)})
    apart = schedule("ab", {"8x8 px, none frozen": (50, BASE), "16x16 px, 0.5 frozen": (50, BASE)})
    assert predicted(steady("0", BASE), [a, b], recipe=apart).seconds == pytest.approx(50 * 0.25 + 50 * 0.5)
    meet = schedule("ab", {"8x8 px, 0.5 frozen": (50, BASE), "16x16 px, none frozen": (50, BASE)})
    assert predicted(steady("0", BASE), [a, b], recipe=meet).seconds == pytest.approx(50 * 0.125 + 50)


def test_a_phase_that_nobody_was_profiled_in_is_refused() -> None:
    a = schedule("a", {"8x8 px": (50, BASE), "16x16 px": (50, BASE)})
    with pytest.raises(AnalysisError, match="'12x12 px' has no counterpart"):
        predicted(steady("0", BASE), [a], recipe=schedule("a", {"12x12 px": (10, BASE)}))


def test_the_largest_fitting_phase_counts() -> None:
    """A method that acts in some steps alone has no name for the others."""
    found = schedule("a", {ALL_STEPS: (3, BASE), "warm": (1, scaled({"forward": 2.0}))})
    assert [found.during(joint) for joint in ("8x8 px", "8x8 px, warm")] == [*found.phases]
    assert names("8x8 px, warm") == {"8x8 px", "warm"}


def test_slopes_are_those_of_the_total() -> None:
    """Each step time is made 0.1 % longer in turn; the totals grow as the slopes say."""

    def total(*longer: float) -> tuple[float, dict]:
        parts = ({**BASE, "other": 0.001}, {**scaled({"forward": 0.5}), "other": 0.2}, scaled({"backward": 3.0}))
        base, a, b = (
            steady(name, {part: seconds * more for part, seconds in spent.items()})
            for name, spent, more in zip("0ab", parts, longer, strict=True)
        )
        found = predicted(base, [a, b], recipe=steady("ab", BASE))
        return found.seconds, dict(found.slopes)

    seconds, slopes = total(1, 1, 1)
    for index, name in enumerate("0ab"):
        longer = [1.0, 1.0, 1.0]
        longer[index] = 1.001
        assert (total(*longer)[0] - seconds) / math.log(1.001) == pytest.approx(slopes[name, ALL_STEPS], rel=2e-3)


def timed(name: str, step: float, windows: np.ndarray) -> Schedule:
    low, middle, high = np.quantile(windows, (0.25, 0.5, 0.75), method="weibull") * step
    only = phase(ALL_STEPS, steps=10, seconds=middle, low=low, high=high, windows=len(windows), split={"forward": 1.0})
    return Schedule(recipe=name, phases=(only,))


def test_intervals_cover_where_windows_are_noisy() -> None:
    """Four recipes whose true interaction is log 1.2, in seven windows each, 400 times; and half as wide do not."""
    draws = np.random.default_rng(5)
    covered = {1.0: 0, 0.3: 0}
    for _ in range(400):
        noise = np.exp(draws.normal(0, 0.05, (4, 7)))
        neither, first, second, both = (
            timed(name, step, windows) for name, step, windows in zip("0abc", (1.0, 0.8, 0.5, 0.48), noise, strict=True)
        )
        found = time_interaction(neither=neither, first=first, second=second, both=both, confidence=0.95)
        assert found.value is not None and found.high is not None
        for share in covered:
            covered[share] += abs(found.value - math.log(1.2)) < share * (found.high - found.value)
    assert covered[1.0] >= 0.93 * 400
    assert covered[0.3] < 0.8 * 400


def test_a_single_window_gives_no_interval() -> None:
    one = timed("a", 1.0, np.ones(1))
    found = log_ratio([measured(one)], [], schedules=[one], confidence=0.95)
    assert found.value == pytest.approx(math.log(10)) and found.low is None and found.reason == "one window"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seconds": 0.0}, "0 s a step"),
        ({"high": math.inf}, "to inf"),
        ({"low": 3.0}, "from 3"),
        ({"split": {}}, "does not say"),
        ({"split": {"forward": -1.0, "backward": 2.0}}, "does not say"),
        ({"split": {"sideways": 1.0}}, "does not say"),
    ],
)
def test_times_that_cannot_be_are_refused(changes: dict, words: str) -> None:
    good = {"steps": 1, "seconds": 1.0, "low": 0.9, "high": 1.1, "windows": 7, "split": {"forward": 1.0}}
    assert isinstance(phase("x", **good), Phase)
    with pytest.raises(AnalysisError, match=words):
        phase("x", **{**good, **changes})


def test_parts_are_proportions_of_the_step_in_their_order() -> None:
    found = phase("x", steps=2, seconds=3.0, low=3.0, high=3.0, windows=7, split={"backward": 0.1, "forward": 0.2})
    assert list(found.parts.items()) == [("forward", pytest.approx(2.0)), ("backward", pytest.approx(1.0))]
    assert Schedule(recipe="a", phases=(found, found)).by_part() == pytest.approx({"forward": 8.0, "backward": 4.0})
    assert list(Schedule(recipe="a", phases=(found,)).by_part()) == [p for p in PARTS if p in ("forward", "backward")]


def test_the_error_of_a_median_is_that_of_normal_windows() -> None:
    draws = np.random.default_rng(3).normal(10, 1, (4000, 31))
    low, middle, high = np.quantile(draws, (0.25, 0.5, 0.75), axis=1)
    said = np.median([standard_error_of_median(*each, 31) for each in zip(low, high, strict=True)])
    assert said == pytest.approx(np.std(middle), rel=0.08)
