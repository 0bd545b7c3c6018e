"""Charts as pictures: made fit to be drawn, then drawn as SVG, PNG or PDF.

A control character in a name ends the whole process in vl-convert, which measures words as XML, and half a character
(a lone surrogate) is refused by it; measuring a name of 10,000 characters takes it seconds. So names are cleaned, and
long ones cut. A name that was changed ends in the beginning of its digest, because two names that a chart takes for one
would be one curve: the tables have them whole.
"""

import hashlib
from typing import Any, Literal

import altair as alt
import vl_convert

from explorer.page.document import STEERING, Picture

Chart = alt.LayerChart | alt.ConcatChart | alt.VConcatChart | alt.HConcatChart
Format = Literal["svg", "png", "pdf"]

VEGA_LITE = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
LONGEST = 200  # characters of a name in a chart, whose labels show fewer
PROGRAMS = ("expr", "labelExpr", "calculate", "filter", "test")  # keys whose texts are not names
PROSE = ("description",)  # read aloud, and not measured


def svg(picture: Picture, width: int) -> str:
    """Draw a page's picture, so many pixels wide."""
    return vl_convert.vegalite_to_svg(specification(picture, width), vl_version=VEGA_LITE)


def specification(picture: Picture, width: int | str) -> dict[str, Any]:
    """Return what Vega-Lite draws a page's picture from."""
    return drawable(picture.draw(width).to_dict())


def drawn(kind: Format, chart: Chart) -> bytes:
    """Draw a chart as a file of its own."""
    specification = on_paper(chart)
    if kind == "svg":
        return vl_convert.vegalite_to_svg(specification, vl_version=VEGA_LITE).encode()
    if kind == "pdf":
        return vl_convert.vegalite_to_pdf(specification, vl_version=VEGA_LITE)
    return vl_convert.vegalite_to_png(specification, vl_version=VEGA_LITE, scale=2)


def on_paper(chart: Chart) -> dict[str, Any]:
    """Return the chart's specification on a white ground, because a file does not know the page that will show it."""
    specification = drawable(chart.to_dict())
    specification["config"]["background"] = "white"
    return specification


def drawable(value: Any, key: str = "") -> Any:
    """Return a specification, or the part of one under `key`, with texts that can be drawn."""
    if isinstance(value, str):
        return _fit(value, key)
    if isinstance(value, list):
        return [drawable(item, key) for item in value]
    return {name: drawable(item, name) for name, item in value.items()} if isinstance(value, dict) else value


def _fit(text: str, key: str) -> str:
    shown = STEERING.sub("\N{REPLACEMENT CHARACTER}", text)
    if key in PROGRAMS or key in PROSE or (shown == text and len(text) <= LONGEST):
        return shown
    mark = f" ({hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:6]})"
    room = LONGEST - len(mark)
    return (shown if len(shown) <= room else f"{shown[: room - 40]}\N{HORIZONTAL ELLIPSIS}{shown[-39:]}") + mark
