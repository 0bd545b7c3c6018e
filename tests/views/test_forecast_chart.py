"""The picture of forecasts: what was measured is filled, and what was not is dashed and hollow."""

from typing import Any

import pytest

from explorer.analysis.budget_law import Forecast, forecast
from explorer.errors import AnalysisError
from explorer.page import theme
from explorer.page.document import Paragraph, Picture, Table
from explorer.views.explorer.tabs.forecast_chart import MOST, best, forecast_blocks, forecast_chart
from tests.analysis.tables import BUDGETS, rows, table

AHEAD = 3.0


def ladder(name: str, gain: float = 0.03, **columns: Any) -> list[dict[str, object]]:
    return rows(name, lambda ssr, seed: 0.98 - gain * ssr**-0.7 + 1e-4 * ((3 * seed + 7 * ssr) % 2), **columns)


def at(budget: float, *recipes: list[dict[str, object]]) -> list[Forecast]:
    return forecast(table(*recipes), budget=budget)


def layers(chart: Any) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    spec = chart.to_dict()
    return [(layer, spec["datasets"][layer["data"]["name"]]) for layer in spec["layer"]]


def test_only_what_was_measured_is_filled_and_only_what_was_not_is_dashed_or_hollow() -> None:
    forecasts = at(AHEAD, ladder("slow"), ladder("fast", 0.02))
    shown = layers(forecast_chart(forecasts, width=300))
    assert [layer["mark"]["type"] for layer, _ in shown] == ["area", "line", "line", "point", "point", "text"]
    (band, area), (solid, fit), (dashed, beyond), (filled, means), (hollow, ends), (label, word) = shown
    assert "strokeDash" not in solid["mark"] and dashed["mark"]["strokeDash"]
    assert filled["mark"]["filled"] and not hollow["mark"]["filled"]
    last = max(BUDGETS)
    assert {row["x"] for row in means} == {row["x"] for row in fit} == set(BUDGETS)
    assert {row["x"] for row in ends} == {row["x"] for row in word} == {AHEAD} and word[0]["words"] == "forecast"
    assert all(last <= row["x"] <= AHEAD and row["low"] is not None for row in (*beyond, *area))
    assert band["encoding"]["y2"]["field"] == "high" and band["mark"]["opacity"] < 0.2
    assert all(min(row["low"], row["high"]) <= row["y"] <= max(row["low"], row["high"]) for row in beyond)
    assert all(row["y"] == row["low"] for row in area)
    assert label["encoding"]["text"]["field"] == "words"


def test_the_marks_are_the_figures_of_the_forecast() -> None:
    (one,) = at(AHEAD, ladder("fast"))
    shown = layers(forecast_chart([one], width=300))
    scale = shown[0][0]["encoding"]["y"]["scale"]
    drawn = 1.0 if scale["type"] == "log" else 0.0  # a log axis has places of errors
    (end,) = shown[4][1]
    assert abs(drawn - end["y"]) == pytest.approx(one.quality)
    assert [abs(drawn - row["y"]) for row in shown[3][1]] == pytest.approx(list(one.measured))
    assert end["words"].startswith(f"{one.quality:.2%}, 95% interval {one.low:.2%}")
    assert f"{one.quality:.2%}, 95% interval" in forecast_chart([one], width=300).to_dict()["description"]


def test_a_recipe_has_the_colour_that_it_has_in_the_chart_above() -> None:
    look = theme.look(["baseline", "slow", "fast"], baseline="baseline")
    chart = forecast_chart(at(AHEAD, ladder("fast"), ladder("slow", 0.04)), look=look, width=300).to_dict()
    scale = chart["layer"][0]["encoding"]["color"]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True)) == {
        "slow": theme.PALETTE[0],
        "fast": theme.PALETTE[1],
    }


def test_of_many_recipes_the_best_are_drawn_and_all_are_in_the_table() -> None:
    forecasts = at(AHEAD, *(ladder(f"r{number}", 0.03 + 0.002 * number) for number in range(MOST + 2)))
    assert [one.label for one in best(forecasts)] == [f"r{number}" for number in range(MOST)]
    title, drawn, shown, note = forecast_blocks(forecasts, look=None)
    assert isinstance(drawn, Picture) and f"Only the {MOST} best of {MOST + 2} are drawn." in str(drawn.caption)
    assert isinstance(shown, Table) and len(shown.rows) == MOST + 2
    assert isinstance(title, Paragraph) and isinstance(note, Paragraph) and "assumes" in str(note.text)


def test_a_lower_loss_is_the_better_one() -> None:
    columns: dict[str, Any] = {"metric": "nll", "unit": "nats", "higher_is_better": False}

    def loss(gain: float) -> Any:
        return lambda ssr, seed: 1.0 + gain * ssr**-0.7 + 1e-4 * ((3 * seed + 7 * ssr) % 2)

    forecasts = at(AHEAD, *(rows(f"r{number}", loss(0.03 + 0.002 * number), **columns) for number in range(MOST + 2)))
    assert [one.label for one in best(forecasts)] == [f"r{number}" for number in range(MOST)]


def test_without_a_forecast_there_is_no_picture() -> None:
    few = at(AHEAD, [row for row in ladder("fast") if row["ssr"] in BUDGETS[-3:]])
    assert few[0].reason and not any(isinstance(block, Picture) for block in forecast_blocks(few, look=None))
    assert forecast_blocks(None, look=None) == []
    (alert,) = forecast_blocks(AnalysisError("why"), look=None)
    assert isinstance(alert, Paragraph) and (alert.text, alert.tone) == ("why", "alert")
