"""Volumes against a sum over cells; what moves the reference, and what must not."""

import itertools
import math

import numpy as np
import pytest

from explorer.analysis.pareto import hypervolume_answer, hypervolumes
from explorer.errors import AnalysisError
from tests.analysis.tables import BUDGETS, rows, table


def curve(gain, *, slope=0.05):
    return lambda ssr, seed: 0.8 + gain + slope * math.log2(ssr) + (seed - 1) / 1000


BASE = rows("baseline", curve(0.0))


def only(frame, **asked):
    (result,) = hypervolumes(frame, **asked)
    return result


def cells(points, worst_x, worst_y):
    """The area of the union of the rectangles between each point and the reference, cell by cell of the grid that all
    of their sides make."""
    xs = sorted({x for x, _ in points if x < worst_x} | {worst_x})
    ys = sorted({y for _, y in points if y > worst_y} | {worst_y})
    area = 0.0
    for left, right in itertools.pairwise(xs):
        for low, high in itertools.pairwise(ys):
            if any(x <= left and y >= high for x, y in points):
                area += (right - left) * (high - low)
    return area


@pytest.mark.parametrize("seed", range(10))
def test_volumes_are_sums_over_cells(seed):
    random = np.random.default_rng(seed)
    means = {f"r{k}": {ssr: float(random.normal(0.8 + 0.1 * math.log2(ssr), 0.1)) for ssr in BUDGETS} for k in range(4)}
    means["baseline"] = {ssr: 0.8 + 0.1 * math.log2(ssr) for ssr in BUDGETS}
    steps = {name: float(random.lognormal(0, 0.5)) for name in means} | {"baseline": 1.0}
    parts = {
        name: rows(name, lambda ssr, seed, name=name: means[name][ssr] + (seed - 1) / 100, step=steps[name])
        for name in means
    }
    points = {name: [(math.log2(100 * ssr * steps[name]), q) for ssr, q in means[name].items()] for name in means}
    low, high = means["baseline"][0.125], means["baseline"][1.5]
    reference = math.log2(150) + math.log2(12) / 4, low - (high - low) / 4
    frame = table(*parts.values())
    found = only(frame)
    everything = cells([point for each in points.values() for point in each], *reference)
    assert (found.worst_x, found.worst_quality) == (pytest.approx(150 * 12**0.25), pytest.approx(reference[1]))
    assert found.value == pytest.approx(everything)
    assert found.baseline_value == pytest.approx(cells(points["baseline"], *reference))
    for name, lost in found.lost_without:
        others = [point for other in points if other != name for point in points[other]]
        assert lost == pytest.approx(everything - cells(others, *reference), abs=1e-12)
    assert {name for name, _ in found.lost_without} == set(means)
    assert [lost for _, lost in found.lost_without] == sorted((lost for _, lost in found.lost_without), reverse=True)
    mirrored = only(frame.assign(quality=-frame["quality"], higher_is_better=False))
    assert (mirrored.value, mirrored.gain) == (pytest.approx(found.value), pytest.approx(found.gain))


def test_recipes_do_not_move_the_reference():
    alone = only(table(BASE))
    assert (alone.gain, alone.value) == (1.0, alone.baseline_value)
    beside = only(table(BASE, rows("fast", curve(0.02), step=0.5), rows("huge", curve(0.5), step=30)))
    assert (beside.worst_x, beside.worst_quality) == (alone.worst_x, alone.worst_quality)
    assert beside.baseline_value == alone.baseline_value
    assert beside.gain is not None and beside.gain > 1
    worse = only(table(BASE, rows("slow", curve(-0.01), step=2)))
    assert worse.value == alone.value and dict(worse.lost_without)["slow"] == 0


def test_a_control_takes_no_part_and_a_price_changes_nothing():
    frame = table(BASE, rows("fast", curve(0.02), step=0.5))
    found = only(frame)
    twin = rows("chance", curve(0.1), step=0.1, control="random-subset", control_of="fast")
    assert only(table(BASE, rows("fast", curve(0.02), step=0.5), twin)) == found
    dear = only(frame.assign(cost_usd=frame["cost_usd"] * 17), x="cost_usd")
    assert (dear.value, dear.gain) == (pytest.approx(found.value), pytest.approx(found.gain))


def test_a_front_by_hand():
    """The baseline's two budgets are one doubling and 0.05 apart, so the reference is at 200 s and 0.7."""
    frame = table(rows("baseline", curve(0.0), budgets=(0.5, 1.0)), rows("fast", curve(0.1), step=0.5, budgets=(1.0,)))
    found = only(frame)
    assert (found.worst_x, found.worst_quality) == (pytest.approx(200), pytest.approx(0.7))
    assert found.baseline_value == pytest.approx(2 * 0.05 + 1 * 0.05)
    assert found.value == pytest.approx(2 * 0.2)
    assert dict(found.lost_without) == {"fast": pytest.approx(0.25), "baseline": 0.0}


@pytest.mark.parametrize("base", [rows("baseline", curve(0.0), budgets=(1.0,)), rows("baseline", curve(0.0, slope=0))])
def test_a_baseline_without_a_range_gives_no_reference(base):
    found = only(table(base, rows("fast", curve(0.1), step=0.5)))
    assert (found.value, found.gain, found.lost_without) == (None, None, ())
    assert hypervolume_answer(found) == (
        "the hypervolume cannot be compared with the baseline's: "
        "baseline has one budget here, or is no better at a larger one"
    )


def test_the_sentence():
    frame = table(BASE, rows("fast", curve(0.02), step=0.5))
    found = only(frame)
    assert dict(found.lost_without)["fast"] == pytest.approx((found.value or 0.0) - (found.baseline_value or 0.0))
    assert hypervolume_answer(found) == (
        f"hypervolume {found.gain:.2f}x the baseline's (accuracy above 0.6052, log time up to 279.2 s)"
        ", without fast 1.00x"
    )
    assert "up to $0.07755)" in hypervolume_answer(only(table(BASE), x="cost_usd"))
    assert "up to 2792 steps)" in hypervolume_answer(only(table(BASE), x="steps"))
    lower = only(frame.assign(quality=-frame["quality"], higher_is_better=False))
    assert "accuracy below -0.6052" in hypervolume_answer(lower)


def test_without_a_baseline_there_is_no_reference():
    frame = table(rows("fast", curve(0.1)))
    assert only(frame).reason == "baseline has no time here"
    twice = table(BASE, rows("baseline", curve(0.1), recipe_digest="f" * 64))
    assert only(twice).reason == "2 different recipes are called baseline here"
    assert only(frame, baseline="fast").gain == 1.0
    with pytest.raises(AnalysisError, match="unknown baseline 'fats'; did you mean 'fast'"):
        hypervolumes(frame, baseline="fats")
    assert hypervolumes(frame.assign(cost_usd=np.nan), x="cost_usd") == []
