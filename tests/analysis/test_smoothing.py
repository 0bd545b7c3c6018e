"""Smoothing and means of learning curves: what they keep, where they end, and how wide a band is."""

import numpy as np
import pandas as pd
import pytest

from explorer.analysis.smoothing import over_seeds, smoothed


def curves(*runs: list[tuple[float, float]], recipes: tuple[str, ...] = ()) -> pd.DataFrame:
    """Runs of one recipe, or of these, each as points of step and value."""
    parts = [
        pd.DataFrame(points, columns=["step", "value"]).assign(
            directory=f"run{number}", recipe=recipes[number] if recipes else "fast", ssr=1.0
        )
        for number, points in enumerate(runs)
    ]
    frame = pd.concat(parts, ignore_index=True)
    return frame.assign(mean=frame["value"])


def test_a_mean_has_the_t_interval_of_its_seeds_and_ends_with_the_shortest() -> None:
    frame = curves([(1, 1.0), (2, 2.0), (4, 8.0)], [(1, 3.0), (2, 4.0)], [(1, 5.0), (2, 6.0), (3, 0.0)])
    found = over_seeds(frame, x="step")
    assert found[["recipe", "ssr", "n"]].drop_duplicates().to_numpy().tolist() == [["fast", 1.0, 3]]
    assert found["x"].tolist() == [1, 2]  # beyond 2 it would be the mean of other runs
    assert found["y"].tolist() == [3.0, 4.0]
    half = 4.302653 * 2 / np.sqrt(3)  # Student's t, 97.5%, 2 degrees of freedom; the standard deviation is 2
    assert (found["high"] - found["y"]).tolist() == pytest.approx([half, half], rel=1e-6)
    assert (found["y"] - found["low"]).tolist() == pytest.approx([half, half], rel=1e-6)


def test_seeds_that_were_measured_elsewhere_are_interpolated() -> None:
    found = over_seeds(curves([(0, 0.0), (4, 4.0)], [(0, 2.0), (2, 4.0), (4, 6.0)]), x="step")
    assert found["x"].tolist() == [0, 2, 4]
    assert found["y"].tolist() == [1.0, 3.0, 5.0]


def test_one_seed_has_no_band_and_an_unknown_place_no_mean() -> None:
    frame = curves([(1, 1.0), (2, 2.0)], [(1, 3.0)], recipes=("alone", "unknown"))
    frame.loc[frame["recipe"] == "unknown", "step"] = np.nan
    found = over_seeds(frame, x="step")
    assert set(found["recipe"]) == {"alone"}
    assert found[["low", "high"]].isna().all(axis=None)
    assert over_seeds(frame.head(0), x="step").empty


def test_smoothing_keeps_a_constant_and_forgets_by_distance() -> None:
    level = curves([(step, 3.0) for step in range(1, 50)])
    assert smoothed(level, x="step", share=0.2).tolist() == pytest.approx([3.0] * 49)
    # A single jump: after a fifth of the run the old level weighs 1/e of what it did.
    jump = curves([(step, float(step > 500)) for step in range(1001)])
    found = smoothed(jump, x="step", share=0.2)
    assert found.iloc[:501].tolist() == [0.0] * 501
    assert found.iloc[700] == pytest.approx(1 - np.exp(-1), abs=0.04)
    # Half the points, the same curve: distance counts, not the number of points.
    half = jump.iloc[::2].reset_index(drop=True)
    assert smoothed(half, x="step", share=0.2).iloc[350] == pytest.approx(found.iloc[700], abs=0.01)
    assert smoothed(jump, x="step", share=0.0).equals(jump["value"])


def test_each_run_is_smoothed_alone() -> None:
    both = curves([(1, 0.0), (2, 0.0)], [(1, 9.0), (2, 9.0)])
    assert smoothed(both, x="step", share=0.5).tolist() == pytest.approx([0.0, 0.0, 9.0, 9.0])
