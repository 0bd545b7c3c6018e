"""A picture of a page as SVG, and what it is drawn from."""

from typing import Any

import vl_convert

from explorer.report.page import Picture
from explorer.views.drawable import drawable
from explorer.views.explorer.exports import VEGA_LITE


def svg(picture: Picture, width: int) -> str:
    """The picture, so many pixels wide."""
    return vl_convert.vegalite_to_svg(specification(picture, width), vl_version=VEGA_LITE)


def specification(picture: Picture, width: int | str) -> dict[str, Any]:
    """What Vega-Lite draws the picture from."""
    return drawable(picture.draw(width).to_dict())
