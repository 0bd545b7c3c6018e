"""A chart as SVG, from a specification whose texts are made fit for it.

A control character in a name ends the whole process in vl-convert, which measures words as XML; and measuring a name of
10,000 characters takes it seconds. So names are cleaned, and long ones cut: tables beside the chart have them whole.
"""

from typing import Any

import vl_convert

from explorer.report.page import Picture, clean
from explorer.views.exports import VEGA_LITE

LONGEST = 200  # characters of a name in a chart, whose labels show fewer
PROGRAMS = ("expr", "labelExpr", "calculate", "filter", "test")  # keys whose texts are not names


def svg(picture: Picture, width: int) -> str:
    """The picture, so many pixels wide."""
    return vl_convert.vegalite_to_svg(specification(picture, width), vl_version=VEGA_LITE)


def specification(picture: Picture, width: int | str) -> dict[str, Any]:
    """What Vega-Lite draws the picture from."""
    return _fit(picture.draw(width).to_dict())


def _fit(value: Any, key: str = "") -> Any:
    if isinstance(value, str):
        shown = clean(value)
        return shown if len(shown) <= LONGEST or key in PROGRAMS else f"{shown[: LONGEST - 40]}\u2026{shown[-39:]}"
    if isinstance(value, list):
        return [_fit(each, key) for each in value]
    return {name: _fit(each, name) for name, each in value.items()} if isinstance(value, dict) else value
