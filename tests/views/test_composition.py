"""The views of composition: what is drawn, marked and said, and what stands there where something is missing."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import vl_convert

from explorer.analysis.composition import Composition
from explorer.errors import AnalysisError
from explorer.page.html import fragment
from explorer.page.pictures import VEGA_LITE
from explorer.run_files import METRICS
from explorer.views.explore import Explorer, explore
from explorer.views.explorer.question import Question
from explorer.views.explorer.snapshot import Snapshot, read_snapshot
from explorer.views.explorer.tabs.composition_charts import (
    LEFT,
    NUMBERS,
    OWN,
    SHARED,
    SURE,
    cells,
    interactions,
    steps,
    waterfall,
)
from explorer.views.explorer.tabs.composition_rows import composed, composition_tables, pair_rows, recipe_rows
from explorer.views.explorer.tabs.composition_section import CompositionSection
from tests.analysis.compositions import Bench
from tests.composed_sample import FACTORS, SLOWER, TOGETHER, step_parts, write_composed
from tests.views.test_explore import texts


@pytest.fixture(scope="module")
def composed_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("composed") / "runs"
    write_composed(directory)
    return directory


@pytest.fixture(scope="module")
def snapshot(composed_runs: Path) -> Snapshot:
    return read_snapshot(composed_runs)


@pytest.fixture(scope="module")
def found(snapshot: Snapshot) -> Composition:
    return composed(snapshot, Question())


@pytest.fixture(scope="module")
def explorer(composed_runs: Path) -> Explorer:
    return explore(composed_runs)


def cell(found: Composition, row: str, column: str) -> Any:
    frame = cells(found)
    return frame[(frame["row"] == row) & (frame["column"] == column)].iloc[0]


def values(chart: dict[str, Any], name: str) -> list[dict[str, Any]]:
    layer = next(layer for layer in chart["layer"] if layer.get("name") == name)
    return chart["datasets"][layer.get("data", chart.get("data"))["name"]]


def test_from_run_directories_to_a_prediction(found: Composition) -> None:
    fast = next(recipe for recipe in found.recipes if recipe.label == "fast")
    base, own = sum(step_parts(()).values()), step_parts(("resize", "layout", "average"))
    assert fast.predicted_speedup == pytest.approx(base / sum(own.values()))
    slower = (sum(own.values()) + (SLOWER - 1) * own["forward"]) / sum(own.values())
    assert fast.error.value == pytest.approx(math.log(slower))
    assert (found.ssr, found.budgets, found.methods) == (1.0, (0.5, 1.0), ("average", "resize", "layout", "unknown"))


def test_another_budget_another_metric_and_recipes_that_are_not_chosen(snapshot: Snapshot) -> None:
    half = composed(snapshot, Question(metric="nll", recipes=("fast",)), ssr=0.5)
    assert (half.ssr, half.kind) == (0.5, METRICS["nll"])
    pair = next(pair for pair in half.pairs if {pair.first, pair.second} == {"resize", "average"})
    assert pair.quality.value is not None and pair.quality.value == pytest.approx(-TOGETHER, abs=0.006)
    assert cell(half, "average", "resize")["value"] == pytest.approx(-pair.quality.value)  # less is better


def test_quality_stands_above_the_diagonal_and_time_below(found: Composition) -> None:
    above, below = cell(found, "resize", "layout"), cell(found, "layout", "resize")
    assert (above["kind"], below["kind"]) == ("quality", "time")
    both = sum(step_parts(("resize", "layout")).values()) * sum(step_parts(()).values())
    product = sum(step_parts(("resize",)).values()) * sum(step_parts(("layout",)).values())
    assert below["value"] == pytest.approx(-math.log(both / product)) and below["value"] < 0
    assert below["words"] == f"{both / product - 1:+.1%}"


def test_cells_are_marked_by_their_interval() -> None:
    """Gains of 5, 0.1 and 0.3 points beside noise of 0.1: sure among all, not at all, and on its own."""
    bench = Bench().recipe("baseline", qualities=(0.9, 0.9, 0.9))
    for name in "abc":
        bench.recipe(name, [name], qualities=(0.9, 0.9, 0.9))
    for pair, gain in (("ab", 0.05), ("ac", 0.001), ("bc", 0.0028)):
        bench.recipe(pair, list(pair), qualities=(0.9 + gain + 0.001, 0.9 + gain, 0.9 + gain - 0.001))
    found = bench.found()
    assert [cell(found, *pair)["mark"] for pair in ("ab", "ac", "bc")] == [SURE, "no", OWN]
    chart = interactions(found).to_dict()
    filters = [str(layer.get("transform")) for layer in chart["layer"]]
    assert sum(SURE in each for each in filters) == 1 and sum(OWN in each for each in filters) == 1


def test_a_pair_that_was_not_run_is_a_dot_with_its_reason(found: Composition) -> None:
    empty = cell(found, "average", "layout")
    assert (empty["text"], empty["interval"], empty["words"]) == ("\u00b7", "not run together", "-")
    assert empty["share"] == 0


def test_the_heat_map_draws_and_speaks(found: Composition) -> None:
    chart = interactions(found).to_dict()
    assert len(values(chart, "cells")) == 12
    assert "resize with average" in chart["description"] or "average with resize" in chart["description"]
    assert "points (" in chart["description"]
    assert vl_convert.vegalite_to_svg(chart | {"width": 400}, vl_version=VEGA_LITE).startswith("<svg")


def test_many_methods_stay_within_what_altair_draws() -> None:
    bench = Bench().recipe("baseline").recipe("m00-m01", ["m00", "m01"])
    for number in range(NUMBERS + 3):
        bench.recipe(f"m{number:02}", [f"m{number:02}"])
    chart = interactions(bench.found()).to_dict()
    assert not any(layer["mark"]["type"] == "text" for layer in chart["layer"])


def test_the_waterfall_ends_where_the_recipe_is(found: Composition) -> None:
    fast = next(recipe for recipe in found.recipes if recipe.label == "fast")
    frame = steps(fast, baseline="baseline")
    assert frame["name"].tolist() == ["baseline", "resize", "layout", "average", SHARED, LEFT, "fast"]
    assert frame["start"].tolist()[1:-1] == pytest.approx(frame["end"].tolist()[:-2])
    assert frame["end"].iloc[-2] == pytest.approx(fast.seconds) == pytest.approx(frame["end"].iloc[-1])
    assert frame["end"].iloc[-3] == pytest.approx(fast.predicted_seconds)
    alone = [sum(step_parts((name,)).values()) / sum(step_parts(()).values()) for name in FACTORS]
    assert frame["factor"].tolist()[1:4] == pytest.approx(alone)
    chart = waterfall(fast, baseline="baseline").to_dict()
    assert "From the training time of baseline" in chart["description"]
    assert len(values(chart, "interval")) == 1
    assert vl_convert.vegalite_to_svg(chart | {"width": 400}, vl_version=VEGA_LITE).startswith("<svg")


def test_no_waterfall_without_a_prediction(found: Composition) -> None:
    lone = next(recipe for recipe in found.recipes if recipe.label == "lone")
    with pytest.raises(AnalysisError, match="lone: no prediction: unknown was not run on its own"):
        steps(lone, baseline="baseline")


def test_tables(found: Composition) -> None:
    rows = {row[0]: row for row in recipe_rows(found)}
    assert rows["lone"][1:] == ("resize + unknown", "-", "-", "-", "no prediction: unknown was not run on its own")
    assert rows["resize-layout"][4:] == ("1.00", rows["resize-layout"][5]) and " to " in rows["resize-layout"][5]
    assert len(pair_rows(found)) == 2
    assert "Holm" in fragment(*composition_tables(found))


def test_names_are_escaped() -> None:
    """Recipes and methods come from run directories, which anybody may have written."""
    evil = "<img src=x onerror=alert(1)>"
    bench = Bench().recipe("baseline").recipe("a", ["a"]).recipe(evil, [evil]).recipe("both", ["a", evil])
    found = bench.found()
    assert "<img" not in fragment(*composition_tables(found)) and "&lt;img" in fragment(*composition_tables(found))
    quote = "a' ? alert(1) : 'b"
    named = replace(found.recipes[0], methods=("a", quote))
    axis = waterfall(named, baseline="baseline").to_dict()["layer"][0]["encoding"]["y"]["axis"]["labelExpr"]
    assert f'"{quote}"' in axis


@pytest.mark.slow
def test_the_panel_shows_all_of_it(explorer: Explorer) -> None:
    explorer.ask(replace(explorer.question, section="composition"))
    panel = explorer._sections.by_key["composition"]
    assert isinstance(panel, CompositionSection)
    shown = texts(panel)
    assert "How methods compose" in shown and "both shorten forward and backward" in shown
    assert "From baseline to fast" in shown and "no prediction: unknown was not run on its own" in shown
    assert panel.recipe.options == ("fast", "resize-average", "resize-layout") and panel.recipe.value == "fast"
    panel.recipe.value = "resize-layout"
    assert "From baseline to resize-layout" in texts(panel)
    panel.budget.value = 0.5
    assert panel.shown is not None and panel.shown.ssr == 0.5
    explorer._controls.metric.value = "nll"
    assert panel.shown.kind == METRICS["nll"] and panel.shown.ssr == 0.5 and panel.recipe.value == "resize-layout"


def test_without_compositions_the_panel_says_how_to_get_them(runs: Path) -> None:
    shown = texts(explore(runs, section="composition")._sections.by_key["composition"])
    assert "compose: {each_of: [fast, heavy], pairs_of: [fast, heavy]}" in shown
    assert "No pair of these methods was run together." in shown
