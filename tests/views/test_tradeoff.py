from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import vl_convert

from explorer.views.axes import PAYMENTS
from explorer.views.exports import VEGA_LITE
from explorer.views.scene import Scene, build_scene
from explorer.views.tradeoff import BRUSH, tradeoff


def scene_of(results: pd.DataFrame, **changes: Any) -> Scene:
    options: dict[str, Any] = {"payment": PAYMENTS["time"], "baseline": "baseline", "target": 0.98} | changes
    scene = build_scene(results, **options)
    assert scene is not None
    return scene


@pytest.fixture(scope="module")
def scene(results: pd.DataFrame) -> Scene:
    return scene_of(results)


def layers(chart: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {layer["name"]: layer for layer in chart["layer"] if "name" in layer}


def values(chart: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return chart["datasets"][layers(chart)[name]["data"]["name"]]


def test_every_run_and_every_mean_is_a_mark(scene: Scene) -> None:
    chart = tradeoff(scene).to_dict()
    assert len(values(chart, "runs")) == 45
    assert len(values(chart, "hollow")) == 15
    assert {row["n"] for row in values(chart, "hollow")} == {3}


def test_profiled_times_are_hollow_and_measured_ones_filled(scene: Scene, results: pd.DataFrame) -> None:
    hollow = tradeoff(scene).to_dict()
    assert layers(hollow)["hollow"]["mark"]["filled"] is False
    assert "filled" not in layers(hollow)
    measured = tradeoff(scene_of(results.assign(time_source="measured"))).to_dict()
    assert layers(measured)["filled"]["mark"]["filled"] is True
    assert "hollow" not in layers(measured)


def test_predicted_times_are_crossed_as_well(results: pd.DataFrame) -> None:
    chart = layers(tradeoff(scene_of(results.assign(time_source="predicted"))).to_dict())
    assert chart["predicted"]["mark"]["shape"] == "cross"
    assert "filled" not in chart


def test_steps_are_counted_so_their_marks_are_filled(results: pd.DataFrame) -> None:
    assert "hollow" not in layers(tradeoff(scene_of(results, payment=PAYMENTS["steps"])).to_dict())


def test_recipes_off_the_front_are_dimmed_but_never_the_baseline(scene: Scene) -> None:
    bright = {row["recipe"]: row["bright"] for row in values(tradeoff(scene).to_dict(), "curves")}
    assert bright == {"baseline": True, "fast": True, "heavy": False}


def test_the_front_is_a_step_line_that_rises(scene: Scene) -> None:
    chart = tradeoff(scene).to_dict()
    assert layers(chart)["front"]["mark"]["interpolate"] == "step-after"
    corners = values(chart, "front")
    assert [row["x"] for row in corners] == sorted(row["x"] for row in corners)
    assert [row["y"] for row in corners] == sorted(row["y"] for row in corners)


def test_one_seed_has_no_band(scene: Scene, results: pd.DataFrame) -> None:
    assert "bands" in layers(tradeoff(scene).to_dict())
    assert "bands" not in layers(tradeoff(scene_of(results[results["seed"] == 0])).to_dict())


def test_the_target_is_a_rule_with_its_value(scene: Scene) -> None:
    def texts(scene: Scene) -> str:
        return str(tradeoff(scene).to_dict())

    assert "target 98.00%" in texts(scene)
    assert "target" not in texts(replace(scene, target=None)).replace("target quality", "")


def test_only_a_brushed_chart_has_a_parameter_and_it_belongs_to_the_runs(scene: Scene) -> None:
    chart = tradeoff(scene, brush=True).to_dict()
    assert [(param["name"], param["views"]) for param in chart["params"]] == [(BRUSH, ["runs"])]
    assert "params" not in tradeoff(scene).to_dict()


def test_the_description_says_what_a_listener_needs(scene: Scene) -> None:
    words = tradeoff(scene).to_dict()["description"]
    assert "accuracy (higher is better)" in words
    assert "baseline, fast, heavy" in words
    assert "On the frontier: fast" in words


def test_tooltips_say_no_price_where_there_is_none(scene: Scene, results: pd.DataFrame) -> None:
    assert {row["cost_text"] for row in values(tradeoff(scene).to_dict(), "runs")} == {"no price"}
    priced = tradeoff(scene_of(results.assign(cost_usd=0.5))).to_dict()
    assert {row["cost_text"] for row in values(priced, "runs")} == {"$0.50"}


def test_a_curve_goes_through_its_points_and_is_straight_in_log_time(scene: Scene) -> None:
    line = scene.lines[scene.lines["recipe"] == "fast"]
    for _, mean in scene.means[scene.means["recipe"] == "fast"].iterrows():
        assert line.loc[(line["x"] / mean["x"] - 1).abs() < 1e-9, "y"].tolist() == pytest.approx([mean["y"]])
    first = line.head(13)
    slopes = np.diff(first["y"]) / np.diff(np.log(first["x"]))
    assert slopes == pytest.approx(slopes[0])


def test_on_a_log_scale_everything_is_drawn_as_its_error(results: pd.DataFrame) -> None:
    spread = results.assign(
        quality=[q if ssr > 0.2 else 0.4 for q, ssr in zip(results["quality"], results["ssr"], strict=True)]
    )
    chart = tradeoff(scene_of(spread)).to_dict()
    runs = values(chart, "runs")
    assert [1 - row["y"] for row in runs] == pytest.approx(spread["quality"].tolist())
    assert runs[0]["quality_text"] == "40.00%"  # tooltips keep the quality
    low, high = layers(chart)["runs"]["encoding"]["y"]["scale"]["domain"]
    assert all(low <= row[end] <= high for row in values(chart, "bands") for end in ("y", "high"))


def test_no_scene_where_nothing_was_paid(results: pd.DataFrame) -> None:
    assert build_scene(results, payment=PAYMENTS["cost"], baseline="baseline", target=None) is None


def test_the_chart_can_be_drawn(scene: Scene) -> None:
    svg = vl_convert.vegalite_to_svg(tradeoff(scene, width=500).to_dict(), vl_version=VEGA_LITE)
    assert svg.count("currentColor") > 20
