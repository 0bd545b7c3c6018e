import altair as alt
import pandas as pd

from explorer.page import theme
from explorer.page.theme import OUTLINES


def test_the_baseline_is_drawn_as_text_and_every_other_recipe_differs() -> None:
    recipes = ["baseline", *(f"recipe-{i}" for i in range(56))]
    look = theme.look(recipes, baseline="baseline")
    assert (look.recipes[0], look.colours[0], look.shapes[0]) == ("baseline", theme.TEXT, "circle")
    assert len(set(zip(look.colours, look.shapes, strict=True))) == 57


def test_without_a_baseline_nothing_is_drawn_as_text() -> None:
    assert theme.TEXT not in theme.look(["a", "b"], baseline="c").colours


def test_every_shape_has_an_outline() -> None:
    assert set(OUTLINES) == {*theme.SHAPES, "circle"}


def test_the_theme_is_in_the_chart_itself() -> None:
    chart = alt.LayerChart(layer=[alt.Chart(pd.DataFrame({"x": [1]})).mark_point().encode(x="x")])
    assert theme.styled(chart).to_dict()["config"]["font"] == theme.FONT
    assert "font" not in chart.to_dict()["config"]
