import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import pytest
import vl_convert

from explorer.page import theme
from explorer.page.pictures import VEGA_LITE
from explorer.store import frames
from explorer.store.ingest import ingest
from explorer.views.explorer import scene as scenes
from explorer.views.explorer.payments import PAYMENTS
from explorer.views.explorer.scene import Gain, Scene, build_scene, look_of
from explorer.views.explorer.tradeoff import (
    BANDS,
    BRUSH,
    CHOSEN,
    ISOLATED,
    PICKED,
    legend_of_marks,
    tradeoff,
    tradeoff_spec,
)
from tests.builders import write_sweep


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


@pytest.mark.slow
def test_the_front_is_bright_by_point_and_by_segment_and_the_baseline_always(scene: Scene) -> None:
    rows = values(tradeoff(scene).to_dict(), "curves")
    lit = {name: {row["lit"] for row in rows if row["recipe"] == name} for name in scene.recipes}
    assert lit == {"baseline": {True}, "fast": {True}, "heavy": {False}}
    means = values(tradeoff(scene).to_dict(), "hollow")
    assert {row["recipe"] for row in means if row["lit"]} == {"baseline", "fast"}
    assert "front" not in layers(tradeoff(scene).to_dict())  # the bright segments are the front


def crossing(tmp_path: Path) -> Scene:
    """Two recipes, of which one is better for little and the other for much."""
    budgets = {"early": (0.80, 0.84, 0.85), "late": (0.70, 0.82, 0.95), "never": (0.60, 0.61, 0.62)}
    qualities = {
        name: {ssr: (value, value + 0.002) for ssr, value in zip((0.25, 0.5, 1.0), row, strict=True)}
        for name, row in budgets.items()
    }
    write_sweep(tmp_path, {"baseline": qualities["never"], **{k: v for k, v in qualities.items() if k != "never"}})
    ingest(tmp_path)
    results = frames.results(tmp_path / "explorer.duckdb")
    return scene_of(results, baseline=None, target=None, payment=PAYMENTS["steps"])


def test_curves_that_cross_are_bright_up_to_the_crossing(tmp_path: Path) -> None:
    scene = crossing(tmp_path)
    lines = scene.lines[scene.lines["bright"]]
    ends = {name: (part["x"].min(), part["x"].max()) for name, part in lines.groupby("recipe")}
    assert set(ends) == {"early", "late"}
    # 0.84 + 0.01 t = 0.82 + 0.13 t for log steps from 40 to 80: they meet at t = 1/6.
    assert ends["early"] == (pytest.approx(20), pytest.approx(40 * 2 ** (1 / 6), rel=0.01))
    assert ends["late"] == (pytest.approx(40 * 2 ** (1 / 6), rel=0.01), pytest.approx(80))
    for _, piece in scene.lines.groupby("piece"):
        assert piece["bright"].nunique() == 1
    means = scene.means.set_index(["recipe", "ssr"])["bright"]
    assert means["early"].tolist() == [True, True, False] and means["late"].tolist() == [False, False, True]


def test_a_point_under_a_line_is_grey_although_no_point_beats_it(tmp_path: Path) -> None:
    """Between two points of a better curve nothing was tested, but its line passes above."""
    write_sweep(
        tmp_path,
        {"baseline": {0.25: (0.8, 0.81), 1.0: (0.9, 0.91)}, "between": {0.5: (0.82, 0.83)}},
    )
    ingest(tmp_path)
    scene = scene_of(frames.results(tmp_path / "explorer.duckdb"), payment=PAYMENTS["steps"], target=None)
    means = scene.means.set_index("recipe")
    assert means.loc["between", "on_front"] and not means.loc["between", "bright"]


@pytest.mark.slow
def test_one_seed_has_no_band(scene: Scene, results: pd.DataFrame) -> None:
    assert "bands" in layers(tradeoff(scene).to_dict())
    assert "bands" not in layers(tradeoff(scene_of(results[results["seed"] == 0])).to_dict())


def test_the_target_is_a_rule_with_its_value(scene: Scene) -> None:
    def texts(scene: Scene) -> str:
        return str(tradeoff(scene).to_dict())

    assert "target 98.00%" in texts(scene) and "at full budget" not in texts(scene)
    assert "target 98.00% (baseline at full budget)" in texts(replace(scene, own_target=True))
    assert "target" not in texts(replace(scene, target=None)).replace("target quality", "")


def live(scene: Scene) -> dict[str, Any]:
    """The chart on the screen, which the schema of Vega-Lite allows."""
    return alt.LayerChart.from_dict(tradeoff_spec(scene, brush=())).to_dict()


@pytest.mark.slow
def test_only_the_chart_on_the_screen_has_parameters(scene: Scene) -> None:
    params = {param["name"]: param for param in live(scene)["params"]}
    assert set(params) == {BRUSH, ISOLATED, PICKED, CHOSEN, BANDS}
    assert params[BRUSH]["views"] == ["runs"]
    assert params[BRUSH]["select"]["zoom"] is False  # the wheel scrolls the page
    still = json.dumps(tradeoff(scene).to_dict())
    assert "params" not in tradeoff(scene).to_dict() and ISOLATED not in still and PICKED not in still


def test_what_python_tells_the_chart_is_drawn_by_vega(scene: Scene) -> None:
    """The same specification with other values of its parameters: bands, rings and faint curves."""

    def svg(**told: Any) -> str:
        spec = tradeoff_spec(scene, width=500, brush=())
        spec["params"] = [param | {"value": told.get(param["name"], param.get("value"))} for param in spec["params"]]
        return vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)

    def seen(text: str, layer: str) -> list[str]:
        group = re.search(rf'<g class="mark-\w+ role-mark {layer}[^>]*>(.*?)</g>', text)
        return re.findall(r"<path[^>]*>", group[1]) if group else []

    one = scene.runs["directory"].iloc[0]
    plain, ringed = svg(), svg(picked=[one], chosen=["heavy"])
    assert len(seen(plain, "rings_marks")) == 0 and len(seen(ringed, "rings_marks")) == 1
    faint = [mark for mark in seen(ringed, "runs_marks") if 'opacity="0.2"' in mark]
    assert len(faint) == len(scene.runs) - 1

    def hidden(text: str) -> int:
        return text.count('opacity="0"')

    assert hidden(svg(bands="all")) < hidden(ringed) < hidden(plain)
    assert svg(isolated="heavy").count('opacity="0.1"') > 0 == plain.count('opacity="0.1"')


def test_above_eight_recipes_only_the_front_and_the_baseline_have_colours(results: pd.DataFrame) -> None:
    def grey(count: int) -> set[str]:
        more = [
            results[results["recipe"] == "heavy"].assign(recipe=f"h{n}", recipe_digest=str(n)) for n in range(count)
        ]
        scene = scene_of(pd.concat([results, *more], ignore_index=True))
        look = look_of(scene)
        return {name for name in scene.recipes if (mark := look.mark(name)) is not None and mark.colour == theme.GREY}

    assert grey(5) == set()
    assert grey(6) == {"heavy", *(f"h{n}" for n in range(6))}


@pytest.mark.slow
def test_names_stand_apart_at_the_ends_of_their_lines(results: pd.DataFrame) -> None:
    more = [
        results[results["recipe"] == "heavy"].assign(
            recipe=f"recipe-{n}", recipe_digest=str(n), quality=results["quality"] - n / 5000
        )
        for n in range(40)
    ]
    scene = scene_of(pd.concat([results, *more], ignore_index=True))
    names = values(tradeoff(scene, height=400).to_dict(), "names")
    heights = sorted(scene.heights.share(scene.heights.drawn(np.array([row["label"] for row in names]))) * 400)
    assert np.diff(heights).min() >= 15 - 1e-6
    assert {"baseline", "fast"} <= {row["text"] for row in names} and len(names) < 43
    assert "legend" not in json.dumps(tradeoff(scene).to_dict()["layer"]).replace('"legend": null', "")


@pytest.mark.slow
def test_a_speedup_is_drawn_where_it_is_read_off(scene: Scene) -> None:
    assert "gain" not in layers(tradeoff(scene).to_dict())
    claimed = replace(scene, gain=Gain(recipe="fast", x=1.5, baseline_x=3.0, claimed=True))
    chart = tradeoff(claimed).to_dict()
    (row,) = values(chart, "gain")
    assert (row["x"], row["x2"], row["text"]) == (1.5, 3.0, "2.00x")
    assert layers(chart)["gain"]["mark"]["color"] == theme.PALETTE[0]
    assert "fast reaches it 2.00x as fast" in chart["description"]
    seen = replace(scene, gain=Gain(recipe="fast", x=1.5, baseline_x=3.0, claimed=False))
    assert layers(tradeoff(seen).to_dict())["gain"]["mark"]["color"] == theme.GREY


@pytest.mark.slow
def test_a_single_run_has_ticks_and_no_target_through_it(results: pd.DataFrame) -> None:
    for seconds in (0.0031, 0.8, 1.0, 47.0, 5000.0):
        one = results.head(1).assign(train_seconds=seconds)
        chart = tradeoff(scene_of(one, target=float(one["quality"].iloc[0]))).to_dict()
        axis = layers(chart)["runs"]["encoding"]["x"]
        assert len(axis["axis"]["values"]) >= 2
        assert axis["scale"]["domain"][0] < seconds < axis["scale"]["domain"][1]
        assert "target" not in layers(chart)


@pytest.mark.slow
def test_a_diverged_run_is_a_cross_at_its_budget(results: pd.DataFrame) -> None:
    diverged = pd.DataFrame(
        {
            "recipe": ["heavy", "fast"],
            "ssr": [1.0, 1.0],
            "x": [4.5, np.nan],
            "message": ["the loss is nan at step 36", ""],
            "directory": ["digits/h", "digits/f"],
        }
    )
    scene = scene_of(results, diverged=diverged)
    chart = tradeoff(scene).to_dict()
    (row,) = values(chart, "diverged")  # of the other one it is not known where
    assert (row["recipe"], row["x"], row["message_text"]) == ("heavy", 4.5, "the loss is nan at step 36")
    assert layers(chart)["diverged"]["encoding"]["y"] == {"value": "height"}
    assert "Diverged: 1 run" in chart["description"]
    assert "diverged" not in layers(tradeoff(scene_of(results)).to_dict())


def test_imported_times_are_hollow(results: pd.DataFrame) -> None:
    chart = layers(tradeoff(scene_of(results.assign(time_source="imported"))).to_dict())
    assert "hollow" in chart and "filled" not in chart


def test_the_error_axis_can_be_switched_off(results: pd.DataFrame) -> None:
    spread = results.assign(
        quality=[q if ssr > 0.2 else 0.4 for q, ssr in zip(results["quality"], results["ssr"], strict=True)]
    )
    assert scene_of(spread).heights.log and not scene_of(spread, errors=False).heights.log


def test_the_legend_explains_the_marks_that_there_are(scene: Scene, results: pd.DataFrame) -> None:
    words = legend_of_marks(scene)
    for part in ("Large marks: means over seeds", "hollow: time not measured", "bright: the front", "of baseline"):
        assert part in words
    one = legend_of_marks(scene_of(results.head(1).assign(time_source="measured")))
    assert "hollow" not in one and "front" not in one and "bands" not in one


def test_the_description_says_what_a_listener_needs(scene: Scene) -> None:
    words = tradeoff(scene).to_dict()["description"]
    assert "accuracy (higher is better)" in words
    assert "baseline, fast, heavy" in words
    assert "On the frontier: fast" in words


@pytest.mark.slow
def test_tooltips_say_no_price_where_there_is_none(scene: Scene, results: pd.DataFrame) -> None:
    assert {row["cost_text"] for row in values(tradeoff(scene).to_dict(), "runs")} == {"no price"}
    priced = tradeoff(scene_of(results.assign(cost_usd=0.5))).to_dict()
    assert {row["cost_text"] for row in values(priced, "runs")} == {"$0.50"}


def test_a_curve_goes_through_its_points_and_is_straight_in_log_time(results: pd.DataFrame) -> None:
    scene = scene_of(results, log=False)
    line = scene.lines[scene.lines["recipe"] == "fast"]
    for _, mean in scene.means[scene.means["recipe"] == "fast"].iterrows():
        assert line.loc[(line["x"] / mean["x"] - 1).abs() < 1e-9, "y"].tolist() == pytest.approx([mean["y"]])
    first = line[line["x"] <= scene.means.loc[scene.means["recipe"] == "fast", "x"].nsmallest(2).iloc[1] * (1 + 1e-9)]
    slopes = np.diff(first["y"]) / np.diff(np.log(first["x"]))
    assert len(slopes) > 5 and slopes == pytest.approx(slopes[0])


def test_on_axes_where_it_is_straight_a_curve_has_no_more_points_than_it_needs(results: pd.DataFrame) -> None:
    alike = results.assign(quality=0.5 + results["quality"] / 10)  # errors too close for a log scale
    alike = alike[alike["recipe"] == "baseline"]  # and nothing is dominated
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
    chart = live(scene)
    assert "runs" not in layers(chart) and len(values(chart, "hollow")) == 15
    assert [param["views"] for param in chart["params"] if param["name"] == BRUSH] == [["hollow"]]


@pytest.mark.slow
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
    colour = layers(chart)["curves"]["encoding"]["color"]["condition"]
    assert colour["scale"]["domain"] == ["none", "ema + sam"]
    assert colour["legend"] is not None and "names" not in layers(chart)  # names would not say what a colour means
    assert layers(chart)["curves"]["encoding"]["detail"]["field"] == "piece"  # two recipes stay two curves


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
