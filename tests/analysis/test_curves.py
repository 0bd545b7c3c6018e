"""Curves against closed forms and plain loops: monotone fit, interpolation in log x, bands."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from explorer.analysis import curves
from explorer.analysis.monotone import crossing, monotone, value_at
from explorer.errors import AnalysisError
from tests.analysis.tables import BUDGETS, fixed, rows, table


def pool_adjacent_violators(y, weights):
    """The textbook loop: merge neighbours that fall until none does."""
    blocks = []
    for value, weight in zip(y, weights, strict=True):
        blocks.append([value, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            right, left = blocks.pop(), blocks.pop()
            total = left[1] + right[1]
            blocks.append([(left[0] * left[1] + right[0] * right[1]) / total, total, left[2] + right[2]])
    return [value for value, _, count in blocks for _ in range(count)]


def only(frame, **asked):
    (curve,) = curves.curves(frame, **asked)
    return curve


@pytest.mark.parametrize("seed", range(10))
def test_the_monotone_fit_is_what_pooling_finds(seed):
    random = np.random.default_rng(seed)
    y_RB, weights_RB = random.normal(size=(50, 7)), random.integers(0, 5, (50, 7)).astype(float)
    for row, weights, fitted, plain in zip(y_RB, weights_RB, monotone(y_RB, weights_RB), monotone(y_RB), strict=True):
        known = weights > 0
        assert fitted[known] == pytest.approx(pool_adjacent_violators(row[known], weights[known]))
        assert np.isnan(fitted[~known]).all()
        assert plain == pytest.approx(pool_adjacent_violators(row, np.ones(7)))
        assert (np.diff(plain) >= 0).all() and (np.diff(fitted[known]) >= 0).all()
    assert np.array_equal(monotone(np.sort(y_RB, axis=1)), np.sort(y_RB, axis=1))


@pytest.mark.parametrize("seed", range(10))
def test_crossing_and_value_undo_each_other(seed):
    random = np.random.default_rng(seed)
    x_RB = np.sort(random.uniform(1, 100, (200, 5)), axis=1)
    y_RB = np.sort(random.normal(size=(200, 5)), axis=1)
    value_R = random.uniform(-2, 2, 200)
    found = crossing(x_RB, y_RB, value_R)
    for x, y, value, at, below in zip(x_RB, y_RB, value_R, found.x_R, found.below_R, strict=True):
        assert below == (value < y[0])
        if y[0] <= value <= y[-1]:
            assert at == pytest.approx(math.exp(np.interp(value, y, np.log(x))))
        else:
            assert math.isnan(at)
    inside = found.found_R
    assert inside.any() and not inside.all()
    assert value_at(x_RB, y_RB, found.x_R)[inside] == pytest.approx(value_R[inside])


def test_a_curve_that_starts_level_at_a_value_had_it_before():
    """The controls: a curve that only meets the value at its first point, and one of a single point."""
    x_RB = np.array([[1.0, 2.0, 4.0]] * 3)
    y_RB = np.array([[0.9, 0.9, 1.0], [0.9, 0.95, 1.0], [0.8, 0.9, 0.9]])
    met = crossing(x_RB, y_RB, np.full(3, 0.9))
    assert met.below_R.tolist() == [True, False, False]
    assert met.found_R.tolist() == [False, True, True] and met.x_R[1:].tolist() == [1.0, 2.0]
    single = crossing(np.array([[3.0]]), np.array([[0.9]]), np.array([0.9]))
    assert not single.below_R[0] and single.x_R[0] == 3.0


def test_nothing_is_extrapolated():
    x, y = np.array([[1.0, 10.0]]), np.array([[0.2, 0.8]])
    for at, expected in ((0.99, math.nan), (1.0, 0.2), (10.0, 0.8), (10.01, math.nan)):
        assert value_at(x, y, np.array([at])) == pytest.approx([expected], nan_ok=True)
    for value, expected in ((0.19, math.nan), (0.2, 1.0), (0.5, math.sqrt(10)), (0.8, 10.0), (0.81, math.nan)):
        assert crossing(x, y, np.array([value])).x_R == pytest.approx([expected], nan_ok=True)


def test_a_flat_stretch_is_reached_at_its_start():
    x, y = np.array([[1.0, 10.0, 100.0]]), np.array([[0.2, 0.5, 0.5]])
    assert crossing(x, y, np.array([0.5])).x_R == pytest.approx([10.0])


def test_a_curve_that_is_linear_in_log_x_is_followed_exactly():
    curve = only(table(rows("baseline", lambda ssr, seed: 0.5 + 0.1 * math.log(ssr) + (seed - 1) * 0.01)))
    for x in (12.5, 20.0, 77.0, 150.0):
        quality = 0.5 + 0.1 * math.log(x / 100)
        assert curve.quality_at(x) == pytest.approx(quality)
        assert curve.x_at(quality) == pytest.approx(x)
    assert curve.quality_at(12.4) is None and curve.quality_at(151) is None
    assert curve.x_at(0.9) is None and curve.x_at(0.0) is None


def test_lower_is_better_falls():
    curve = only(
        table(rows("baseline", lambda ssr, seed: 1.0 - 0.2 * math.log(ssr), higher_is_better=False, metric="nll"))
    )
    assert curve.quality_at(50.0) == pytest.approx(1.0 - 0.2 * math.log(0.5))
    assert curve.x_at(1.0) == pytest.approx(100.0)
    fitted = [point.fitted for point in curve.points]
    assert fitted == sorted(fitted, reverse=True)


def test_the_band_is_students_interval_of_the_mean():
    values = {ssr: (0.1 + ssr, 0.2 + ssr, 0.4 + ssr) for ssr in BUDGETS}
    curve = only(table(rows("baseline", fixed(values))), confidence=0.9)
    for point in curve.points:
        sample = np.array(values[point.ssr])
        low, high = stats.t.interval(0.9, 2, sample.mean(), sample.std(ddof=1) / math.sqrt(3))
        assert point.mean == pytest.approx(sample.mean()) == point.fitted
        assert (point.low, point.high, point.n) == (pytest.approx(low), pytest.approx(high), 3)


def test_the_fit_of_a_curve_with_a_dip_lies_within_its_band():
    values = {0.125: (0.5, 0.6), 0.25: (0.9, 0.8), 0.5: (0.6, 0.7), 1.0: (0.8, 0.9), 1.5: (0.95, 0.9)}
    curve = only(table(rows("baseline", fixed(values), seeds=(0, 1))))
    fitted = [point.fitted for point in curve.points]
    assert fitted == pytest.approx([0.55, 0.75, 0.75, 0.85, 0.925])
    assert all((point.low or 9) < point.fitted < (point.high or 0) for point in curve.points)


def test_one_seed_has_no_band():
    curve = only(table(rows("baseline", lambda ssr, seed: ssr, seeds=(0,))))
    assert {(point.low, point.high, point.n) for point in curve.points} == {(None, None, 1)}
    assert np.isnan(curves.table([curve])["low"].to_numpy(dtype=float)).all()


def test_budgets_may_have_different_seeds():
    frame = table(
        rows("baseline", lambda ssr, seed: ssr + seed / 100),
        rows("baseline", lambda ssr, seed: 3.0, budgets=(2.0,), seeds=(0,)),
    )
    curve = only(frame)
    assert [point.n for point in curve.points] == [3, 3, 3, 3, 3, 1]
    assert curve.points[-1].low is None and curve.points[-2].low is not None


def test_curves_of_many_shapes_are_what_each_is_alone():
    """All are fitted at once; budgets, seeds and single seeds differ from one to the next."""
    random = np.random.default_rng(2)
    parts = [
        rows(f"r{k}", lambda ssr, seed: float(random.normal()), budgets=BUDGETS[: 1 + k], seeds=range(n), step=1 + k)
        for k, n in enumerate((3, 1, 4, 2, 5))
    ]
    parts.append(rows("r4", lambda ssr, seed: 0.0, budgets=(3.0,), seeds=(7,)))
    together = curves.curves(table(*parts))
    alone = [only(table(*(part for part in parts if part[0]["recipe"] == f"r{k}"))) for k in range(5)]
    pd.testing.assert_frame_equal(curves.table(together), curves.table(alone), rtol=1e-12)


def test_each_recipe_and_hardware_has_its_curve():
    frame = table(
        rows("baseline", lambda ssr, seed: ssr),
        rows("baseline", lambda ssr, seed: ssr, hardware="NVIDIA H200"),
        rows("fast", lambda ssr, seed: ssr),
        rows("fast", lambda ssr, seed: 2 * ssr, recipe_digest="f" * 64),
    )
    found = curves.curves(frame)
    assert [curve.label for curve in found] == ["baseline", "baseline", "fast (666173)", "fast (ffffff)"]
    assert {curve.setting.hardware for curve in found} == {"AMD EPYC 7B13", "NVIDIA H200"}
    flat = curves.table(found)
    assert len(flat) == 20
    assert {"hardware", "recipe", "label", "x", "fitted", "n", "time_source"} <= set(flat.columns)


def test_rows_whose_x_is_unknown_are_left_out():
    frame = table(rows("baseline", lambda ssr, seed: ssr), rows("fast", lambda ssr, seed: ssr))
    frame.loc[frame["recipe"] == "fast", "train_seconds"] = np.nan
    assert [curve.recipe for curve in curves.curves(frame)] == ["baseline"]
    assert len(curves.curves(frame, x="steps")) == 2
    assert curves.curves(frame.iloc[:0]) == []
    assert list(curves.table([]).columns) == list(curves.table(curves.curves(frame)).columns)


def test_bad_tables_are_errors():
    frame = table(rows("baseline", lambda ssr, seed: ssr))
    with pytest.raises(AnalysisError, match="unknown column 'train_second'; did you mean 'train_seconds'"):
        curves.curves(frame, x="train_second")
    with pytest.raises(AnalysisError, match="does not hold numbers"):
        curves.curves(frame, x="recipe")
    with pytest.raises(AnalysisError, match="above 0"):
        curves.curves(frame.assign(train_seconds=0.0))
    with pytest.raises(AnalysisError, match="finite"):
        curves.curves(frame.assign(quality=np.inf))
    with pytest.raises(AnalysisError, match="unknown column 'seed'"):
        curves.curves(frame.drop(columns="seed"))
