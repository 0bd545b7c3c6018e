"""Still picture and words of a widget: what a saved notebook shows where no kernel holds its widgets.

It runs in the kernel that holds the widgets. The server of `explorer open` asks for it when a notebook is saved.
"""

import base64
import io
from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt
import ipywidgets as widgets
import vl_convert
from ipywidgets.widgets.widget import _instances  # the only way from a model's id to its widget
from PIL import Image

from explorer.page.html import element
from explorer.page.pictures import VEGA_LITE, drawable

WIDTH = 720  # pixels of a chart that is as wide as its container
SCALE = 1.5  # legible on a dense screen; at 2 a picture takes twice the bytes
COLOURS = 256

PNG, HTML = "image/png", "text/html"


class Stills(dict[str, list[dict[str, str]]]):
    """Stills by the model id of a widget: parts to show one below the other, each a MIME bundle."""

    def _repr_json_(self) -> dict[str, Any]:
        return dict(self)


def stills(model_ids: list[str]) -> Stills:
    """Return the stills of widgets; a widget that is gone, or that shows nothing, has none."""
    return Stills({model: list(_joined(_parts(_instances[model]))) for model in model_ids if model in _instances})


def _parts(widget: Any) -> Iterator[dict[str, str]]:
    """Yield what a widget and its children show, from top to bottom. Fields and buttons are left out."""
    layout = getattr(widget, "layout", None)
    if layout is not None and (layout.display == "none" or layout.visibility == "hidden"):
        return
    if isinstance(widget, alt.JupyterChart):
        if widget.spec:
            yield _still_chart(widget)
    elif isinstance(widget, widgets.HTML):
        # The style of the page is kilobytes, and would show as a change in every diff.
        if widget.value and not widget.value.startswith("<style"):
            yield {HTML: str(widget.value)}
    elif callable(static := getattr(widget, "static", None)) and (html := str(static())):
        yield {HTML: html}
    for child in getattr(widget, "children", ()):
        yield from _parts(child)


def _still_chart(widget: Any) -> dict[str, str]:
    """Return a chart as a picture; one that cannot be drawn outside a browser as words."""
    try:
        return {PNG: picture(widget.spec, getattr(widget, "told", {}))}
    except ValueError as error:
        return {HTML: str(element("p", f"This chart has no still picture: {str(error).splitlines()[0]}"))}


def _joined(parts: Iterator[dict[str, str]]) -> Iterator[dict[str, str]]:
    """Join words that follow each other."""
    words = ""
    for part in parts:
        if HTML in part:
            words += part[HTML] + "\n"
            continue
        if words:
            yield {HTML: _legible(words)}
        words = ""
        yield part
    if words:
        yield {HTML: _legible(words)}


def _legible(words: str) -> str:
    """Return HTML that can be read without the page's style, which puts notes below what they are about."""
    return words.replace("<small", "<br><small")


def picture(spec: dict[str, Any], told: Mapping[str, Any]) -> str:
    """Return a chart as PNG, in base64: on white, with at most 256 colours, which take a quarter of the bytes.

    `told` are the parameters that were set while it was shown.
    """
    specification = drawable(spec)
    specification["config"] = {**specification.get("config", {}), "background": "white"}
    if specification.get("width") == "container":
        specification["width"] = WIDTH
    for parameter in specification.get("params", ()):
        if parameter["name"] in told:
            parameter["value"] = told[parameter["name"]]
    drawn = vl_convert.vegalite_to_png(specification, vl_version=VEGA_LITE, scale=SCALE)
    small = io.BytesIO()
    Image.open(io.BytesIO(drawn)).convert("RGB").quantize(COLOURS).save(small, "png", optimize=True)
    return base64.b64encode(small.getvalue()).decode()
