"""Names that would end the process that draws them, take it seconds, or become one another."""

import json
from typing import Any

import altair as alt
import pandas as pd
import vl_convert

from explorer.page.pictures import LONGEST, VEGA_LITE, drawable, drawn, on_paper
from explorer.views.explorer.tabs.composition_charts import _rows

LONG = "w" * 5_000
CONTROLS = [f"a{sign}b" for sign in ("\x00", "\x01", "\x1b", "\x7f", "\u202e", "\ufffe", "\uffff")]
TWINS = [f"{LONG}x{LONG}", f"{LONG}y{LONG}", "a\x01b", "a\x02b"]


def bars(names: list[str], **axis: Any) -> alt.LayerChart:
    frame = pd.DataFrame({"name": names, "value": 1.0})
    y = alt.Y("name:N", title=names[0], axis=alt.Axis(**axis))
    colour = alt.Color("name:N", scale=alt.Scale(domain=names))
    chart = alt.Chart(frame).mark_bar().encode(x="value:Q", y=y, color=colour)
    return alt.LayerChart(layer=[chart], description="; ".join(names), config={})


def test_an_exported_chart_of_names_that_no_xml_holds_is_drawn() -> None:
    assert drawn("svg", bars([*CONTROLS, *TWINS])).startswith(b"<svg")


def test_names_that_are_cut_or_cleaned_stay_apart_and_a_domain_names_the_same_as_the_data() -> None:
    specification = on_paper(bars(TWINS))
    (rows,) = specification["datasets"].values()
    names = [row["name"] for row in rows]
    assert len(set(names)) == len(TWINS)
    assert max(map(len, names)) == LONGEST
    assert specification["layer"][0]["encoding"]["color"]["scale"]["domain"] == names


def test_half_a_character_is_none_and_a_program_is_never_cut() -> None:
    found = drawable({"title": "a\ud800b", "labelExpr": LONG, "description": LONG})
    assert found["title"].startswith("a\N{REPLACEMENT CHARACTER}b (")
    assert found["labelExpr"] == found["description"] == LONG


def test_names_that_can_be_drawn_stay_as_they_are() -> None:
    for name in ("fast", "=1+1", "<b>'\"`</b>", "\u05d0\u05d1", "w" * LONGEST, "\U0001f600"):
        assert drawable({"title": name, "values": [name]}) == {"title": name, "values": [name]}


def test_the_names_of_a_waterfall_are_labels_and_no_expression() -> None:
    """Each name is a text of Vega's language: what it holds is shown, and what no XML holds is not in it."""
    hostile = [*CONTROLS, "' : alert(1) : '", '" + datum.value + "', "\\"]
    expression = _rows(hostile)["axis"].labelExpr
    shown = [json.JSONDecoder().raw_decode(part)[0] for part in expression.split(" ? ")[1:]]
    assert shown == ["a\N{REPLACEMENT CHARACTER}b"] * len(CONTROLS) + hostile[len(CONTROLS) :]
    chart = alt.Chart(pd.DataFrame({"y": range(len(hostile))})).mark_bar().encode(y=alt.Y("y:Q", **_rows(hostile)))
    assert "<svg" in vl_convert.vegalite_to_svg(drawable(chart.to_dict()), vl_version=VEGA_LITE)
