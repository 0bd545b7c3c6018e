"""Charts as pictures: made fit to be drawn, then drawn as SVG, PNG or PDF.

vl-convert measures words as XML: a control character in a name ends the whole process, a lone surrogate is refused, and
a name of 10,000 characters takes seconds. So names are cleaned, and long ones cut. A changed name ends in the beginning
of its digest, because two names that became equal would be one curve; the tables have the whole names.
"""

import hashlib
from functools import partial
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


def picture(name: str, draw: partial[alt.LayerChart], caption: str = "") -> Picture:
    """Return a picture that takes its description, for screen readers, from its chart."""
    description = str(draw(width=100).to_dict().get("description", caption))
    return Picture(
        name=name, draw=lambda width: draw(width=width), caption=caption, description=description, interactive=True
    )


def svg(picture: Picture, width: int) -> str:
    """Draw a page's picture, so many pixels wide."""
    return vl_convert.vegalite_to_svg(specification(picture, width), vl_version=VEGA_LITE)


def specification(picture: Picture, width: int | str) -> dict[str, Any]:
    """Return the Vega-Lite specification of a page's picture."""
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
    """Return the chart's specification on a white background, because the page around a file is unknown."""
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
    # A long name keeps its last 39 characters, which often tell names apart.
    mark = f" ({hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:6]})"
    room = LONGEST - len(mark)
    return (shown if len(shown) <= room else f"{shown[: room - 40]}\N{HORIZONTAL ELLIPSIS}{shown[-39:]}") + mark
