from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import vl_convert

from explorer.page.pictures import VEGA_LITE
from explorer.views.explorer import tradeoff as scenes
from explorer.views.explorer.payments import PAYMENTS
from explorer.views.explorer.tradeoff import BRUSH, Scene, build_scene, tradeoff


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
    bright = {row["series"]: row["bright"] for row in values(tradeoff(scene).to_dict(), "curves")}
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
    chart = tradeoff(scene, brush=()).to_dict()
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


def test_a_curve_goes_through_its_points_and_is_straight_in_log_time(results: pd.DataFrame) -> None:
    scene = scene_of(results, log=False)
    line = scene.lines[scene.lines["recipe"] == "fast"]
    for _, mean in scene.means[scene.means["recipe"] == "fast"].iterrows():
        assert line.loc[(line["x"] / mean["x"] - 1).abs() < 1e-9, "y"].tolist() == pytest.approx([mean["y"]])
    first = line.head(scenes.BETWEEN + 1)
    slopes = np.diff(first["y"]) / np.diff(np.log(first["x"]))
    assert len(slopes) == scenes.BETWEEN and slopes == pytest.approx(slopes[0])


def test_on_axes_where_it_is_straight_a_curve_has_no_more_points_than_it_needs(results: pd.DataFrame) -> None:
    alike = results.assign(quality=0.5 + results["quality"] / 10)  # errors too close for a log scale
    assert len(scene_of(alike, target=None).lines) == len(scene_of(alike, target=None).means)
    assert len(scene_of(alike, target=None, log=False).lines) > len(scene_of(alike, target=None).means)


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


def test_where_there_are_too_many_runs_means_are_drawn_and_can_be_selected(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenes, "MAX_RUNS", 44)
    chart = tradeoff(scene, brush=()).to_dict()
    assert "runs" not in layers(chart) and len(values(chart, "hollow")) == 15
    assert {tuple(param["views"]) for param in chart["params"]} == {("hollow",)}


def test_the_size_of_a_mark_says_a_third_thing(results: pd.DataFrame) -> None:
    slow = results.assign(inference_seconds=results["recipe"].map({"baseline": 0.001, "fast": 0.004}))
    chart = tradeoff(scene_of(slow, size="inference")).to_dict()
    sizes = {(row["recipe"], row["size"], row["size_text"]) for row in values(chart, "hollow")}
    assert {("baseline", 0.001, "1 ms"), ("fast", 0.004, "4 ms"), ("heavy", None, "-")} == sizes
    assert layers(chart)["hollow"]["encoding"]["size"]["legend"]["title"] == "Inference per example"
    assert "The size of a mark is inference per example." in chart["description"]
    assert "size" not in layers(tradeoff(scene_of(slow)).to_dict())["hollow"]["encoding"]


def test_colours_can_say_methods_machines_or_policies(results: pd.DataFrame) -> None:
    rows = results.assign(methods=results["recipe"].map({"baseline": "", "fast": "ema+sam", "heavy": "ema+sam"}))
    rows = rows.assign(policy=rows["recipe"].map({"baseline": None, "fast": "strict version 2", "heavy": None}))
    assert scene_of(rows, compare="methods").groups == ["none", "ema + sam"]
    assert scene_of(rows, compare="policy").groups == ["no policy", "strict version 2"]
    chart = tradeoff(scene_of(rows, compare="methods")).to_dict()
    assert layers(chart)["curves"]["encoding"]["color"]["scale"]["domain"] == ["none", "ema + sam"]
    assert layers(chart)["curves"]["encoding"]["detail"]["field"] == "series"  # two recipes stay two curves


def test_several_machines_have_curves_of_their_own_and_one_frontier(results: pd.DataFrame) -> None:
    fast_machine = results.assign(hardware="NVIDIA T4", device="cuda", train_seconds=results["train_seconds"] / 10)
    both = scene_of(pd.concat([results, fast_machine], ignore_index=True), compare="hardware")
    assert both.groups == ["AMD EPYC 7B13, 1 thread", "NVIDIA T4, 1 thread"]
    assert both.means["series"].nunique() == 6
    best = both.means[both.means["on_front"]]
    alone = scene_of(fast_machine).means
    cheaper = best[best["group"] == "NVIDIA T4, 1 thread"]
    assert len(cheaper) == alone["on_front"].sum()  # a tenth of the time: nothing of the slow machine beats it
    assert best["probability"].isna().all()  # how sure that is over several machines is not known


def test_the_front_says_how_sure_it_is(scene: Scene) -> None:
    words = {row["recipe"]: row["front_text"] for row in values(tradeoff(scene).to_dict(), "hollow")}
    assert words["fast"].startswith("yes, in ") and words["heavy"].startswith("no, in ")
