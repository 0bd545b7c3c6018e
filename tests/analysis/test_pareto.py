"""Front and hypervolume against brute force; membership against what it must be."""

import numpy as np
import pytest

from explorer.analysis.inference import generator
from explorer.analysis.pareto import front, front_table, hypervolume
from explorer.errors import AnalysisError
from tests.analysis.tables import BUDGETS, rows, table


def brute_front(x, y):
    """The distinct points that no other point beats, as pairs."""
    points = set(zip(x.tolist(), y.tolist(), strict=True))
    return {(a, b) for a, b in points if not any((c <= a and d >= b) and (c, d) != (a, b) for c, d in points)}


def brute_volume(x, y, worst_x, worst_y):
    """The number of unit cells that some point dominates; all coordinates are whole numbers."""
    cells = [(a, b) for a in range(worst_x) for b in range(worst_y, 12)]
    return sum(any(px <= a and py >= b + 1 for px, py in zip(x, y, strict=True)) for a, b in cells)


@pytest.mark.parametrize("seed", range(20))
def test_front_and_hypervolume_are_what_brute_force_finds(seed):
    random = np.random.default_rng(seed)
    for _ in range(50):
        n = int(random.integers(1, 9))
        x, y = random.integers(0, 6, n).astype(float), random.integers(0, 12, n).astype(float)
        found = front(x, y)
        pairs = list(zip(x[found].tolist(), y[found].tolist(), strict=True))
        assert len(pairs) == len(set(pairs))
        assert set(pairs) == brute_front(x, y)
        assert pairs == sorted(pairs)
        mirrored = front(x, -y, higher_is_better=False)
        assert mirrored.tolist() == found.tolist()
        volume = hypervolume(x, y, worst_x=5, worst_y=3)
        assert volume == brute_volume(x, y, 5, 3)
        assert hypervolume(x, -y, worst_x=5, worst_y=-3, higher_is_better=False) == volume


@pytest.mark.parametrize("values", [50, 2_000, 10**9])
def test_the_front_of_many_points_is_what_sorting_finds(values):
    """By a full sort, with few and with many ties, and where every point is on the front."""
    random = np.random.default_rng(values)
    x, y = random.integers(0, values, (2, 100_000)) / 7
    for at, height in ((x, y), (x, x), (x, -x), (x, np.log1p(x) + y / values), (x, np.zeros(x.size))):
        order = np.lexsort((-height, at))
        best = np.maximum.accumulate(height[order])
        assert np.array_equal(front(at, height), order[np.r_[True, best[1:] > best[:-1]]])


def test_the_probability_is_the_share_of_resamples_by_a_plain_loop():
    """With points of the same x, exact ties, a seed that some points lack, and both directions."""
    random = np.random.default_rng(4)
    noise = {(k, ssr, seed): round(random.normal(0, 0.1), 1) for k in range(4) for ssr in BUDGETS for seed in range(4)}
    parts = [
        rows(f"r{k}", lambda ssr, seed, k=k: ssr / 4 + noise[k, ssr, seed], seeds=range(4 - (k == 3)), step=1 + k // 2)
        for k in range(4)
    ]
    frame = table(*parts)
    for higher in (True, False):
        sign = 1 if higher else -1
        found = front_table(frame.assign(higher_is_better=higher, quality=sign * frame["quality"]), resamples=300)
        times = np.zeros(len(found))
        for counts in generator("front", 4).multinomial(4, [0.25] * 4, size=300):
            means = []
            for recipe, ssr in zip(found["recipe"], found["ssr"], strict=True):
                k, n = int(recipe[1:]), 3 if recipe == "r3" else 4
                values = [noise[k, ssr, seed] for seed in range(n)]
                drawn = [values[seed] for seed in range(n) for _ in range(counts[seed])] or values
                means.append(ssr / 4 + sum(drawn) / len(drawn))
            times[front(found["x"].to_numpy(), np.array(means).round(9))] += 1
        assert found["probability"].to_numpy() == pytest.approx(times / 300, abs=1e-9)


def test_unknown_values_are_refused_and_never_hide_a_point():
    with pytest.raises(AnalysisError, match="NaN"):
        front(np.array([1.0, 2.0]), np.array([np.nan, 1.0]))
    with pytest.raises(AnalysisError, match="NaN"):
        hypervolume(np.array([np.nan]), np.array([1.0]), worst_x=2, worst_y=0)
    with pytest.raises(AnalysisError, match="as many x as y"):
        front(np.array([1.0, 2.0]), np.array([1.0]))
    assert front(np.array([]), np.array([])).tolist() == []


def test_a_point_that_is_always_best_is_surely_on_the_front():
    frame = table(rows("baseline", lambda ssr, seed: ssr + seed / 1000), rows("worse", lambda ssr, seed: -ssr, step=2))
    found = front_table(frame).set_index(["recipe", "ssr"])
    assert found.xs("baseline")["probability"].tolist() == [1.0] * 5
    assert found.xs("worse")["probability"].tolist() == [0.0] * 5
    assert found.xs("baseline")["on_front"].tolist() == [True] * 5
    assert found.xs("worse")["on_front"].tolist() == [False] * 5


def test_two_recipes_of_the_same_x_share_the_probability():
    """Either is better on one seed of three, or on two: 20 of 27 resamples hold most of the seeds of the second."""
    better = {0: 0.0, 1: 1.0, 2: 1.0}
    frame = table(
        rows("baseline", lambda ssr, seed: 0.5, budgets=(1.0,)),
        rows("mostly", lambda ssr, seed: better[seed], budgets=(1.0,)),
    )
    found = front_table(frame, resamples=20_000).set_index("recipe")
    baseline, mostly = found["probability"].tolist()
    assert baseline + mostly == pytest.approx(1.0)
    assert mostly == pytest.approx(20 / 27, abs=0.015)


def test_lower_is_better_turns_the_front_over():
    frame = table(rows("baseline", lambda ssr, seed: 1 / ssr + seed / 100, higher_is_better=False, metric="nll"))
    assert list(front_table(frame)["on_front"]) == [True] * len(front_table(frame))
    assert list(front_table(frame.assign(higher_is_better=True))["on_front"]) == [True, *[False] * 4]


def test_one_seed_has_a_front_and_no_probability():
    found = front_table(table(rows("baseline", lambda ssr, seed: ssr, seeds=(0,))))
    assert list(found["on_front"]) == [True] * 5
    assert np.isnan(found["probability"].to_numpy(dtype=float)).all()


def test_settings_do_not_compete():
    frame = table(
        rows("baseline", lambda ssr, seed: ssr + seed / 100),
        rows("baseline", lambda ssr, seed: 2 + ssr + seed / 100, hardware="NVIDIA H200", step=0.1),
    )
    assert list(front_table(frame)["on_front"]) == [True] * len(front_table(frame))


def test_the_same_table_gives_the_same_probabilities():
    random = np.random.default_rng(1)
    noise = {(ssr, seed): random.normal() for ssr in (0.5, 1.0) for seed in range(4)}
    frame = table(
        rows("baseline", lambda ssr, seed: noise[ssr, seed], budgets=(0.5, 1.0), seeds=range(4)),
        rows("fast", lambda ssr, seed: noise[ssr, 3 - seed], budgets=(0.5, 1.0), seeds=range(4), step=1.01),
    )
    assert front_table(frame).equals(front_table(frame))
    assert 0 < front_table(frame)["probability"].iloc[1] < 1


def test_no_rows_no_front():
    frame = table(rows("baseline", lambda ssr, seed: ssr))
    assert front_table(frame.assign(cost_usd=np.nan), x="cost_usd").empty
