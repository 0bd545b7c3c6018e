"""Chart widget: an Altair chart that is drawn offline, as wide as its container, and takes values while it is shown.

Vega is one bundle of a megabyte. It goes to the browser once for all charts of a page, in the state of a hidden
widget, and its JavaScript is kept in the user's directory for caches, because bundling it takes more than a second.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import metadata
from typing import Any

import altair as alt
import ipywidgets as widgets
import traitlets
import vl_convert
from altair.jupyter.jupyter_chart import Selections
from altair.utils._importers import vl_version_for_vl_convert
from altair.utils.selection import IntervalSelection, PointSelection, Store
from IPython.core.getipython import get_ipython

from explorer import rundir
from explorer.errors import RunError
from explorer.page import theme
from explorer.views.scripted import Scripted, script

SNIPPET = "export default vegaEmbed;"

Marked = Callable[[Mapping[str, str] | None, bool], None]
"""Function that is called with the texts of a mark, None for empty space, and whether Shift was held."""


def _to_text(spec: dict[str, Any] | None, _: widgets.Widget) -> str:
    return "" if spec is None else json.dumps(spec)


def _from_text(text: str, _: widgets.Widget) -> dict[str, Any] | None:
    return json.loads(text) if text else None


class LiveChart(Scripted, alt.JupyterChart):
    """Chart in a notebook, empty until its `chart` is set. It needs no network.

    `chart.selections` are those of `JupyterChart`. With `on_mark` the marks under the mouse are handed over.
    """

    # As one text: ipywidgets looks at every value of a nested state, which takes longer than all else about a chart.
    spec = traitlets.Dict(allow_none=True).tag(sync=True, to_json=_to_text, from_json=_from_text)

    _esm = script("live_chart")
    _css = ".vega-embed { overflow: visible; }"

    library = traitlets.Instance(widgets.Widget).tag(sync=True, **widgets.widget_serialization)
    hands_over = traitlets.Bool(False).tag(sync=True)
    told = traitlets.Dict().tag(sync=True)

    def __init__(self, *, wait: int = 10) -> None:
        self._on_hover: Marked | None = None
        self._on_click: Marked | None = None
        super().__init__(
            None,  # pyright: ignore[reportArgumentType]: altair allows it, and its annotation does not say so
            debounce_wait=wait,
            embed_options=theme.EMBED,
            library=_library(),
        )
        self.on_msg(self._received)

    def draw(self, chart: alt.TopLevelMixin | dict[str, Any] | None) -> None:
        """Draw a chart of Altair's or a specification of Vega-Lite, which is not checked, or nothing for None."""
        spec = chart.to_dict(validate=False) if isinstance(chart, alt.TopLevelMixin) else chart
        selects = {p["name"]: p["select"]["type"] for p in (spec or {}).get("params", []) if "select" in p}
        self.selections = Selections({name: _empty(name, kind) for name, kind in selects.items()})
        with self.hold_sync():
            self.spec, self._selection_types = spec, selects
            self._vl_selections = {name: {"value": None, "store": []} for name in selects}

    def tell(self, **values: Any) -> None:
        """Set parameters of the specification, those on the screen and those of later charts, without drawing again."""
        self.told = {**self.told, **values}

    def on_mark(self, *, hover: Marked, click: Marked) -> None:
        """Call `hover` when another recipe comes under the mouse, and `click` when a mark is clicked."""
        self._on_hover, self._on_click, self.hands_over = hover, click, True

    def _received(self, _: Any, content: Any, __: Any) -> None:
        call = {"hover": self._on_hover, "click": self._on_click}.get(content.get("event"))
        if call is not None:
            call(content.get("mark"), bool(content.get("more")))


def _empty(name: str, kind: str) -> IntervalSelection | PointSelection:
    if kind == "interval":
        return IntervalSelection.from_vega(name, signal={}, store=Store([]))
    return PointSelection.from_vega(name, signal=None, store=Store([]))


_libraries: dict[str, widgets.Widget] = {}  # by page


def _library() -> widgets.Widget:
    """Return the hidden widget that holds Vega, which the page that asks has been sent.

    A page that opens later on the same kernel gets its own. It would find the first one only once it has restored
    all widgets of the kernel, and the widget manager does not look for a widget longer than two seconds.
    """
    page = _page()
    if page not in _libraries or _libraries[page].comm is None:  # closed, as by `Widget.close_all`
        _libraries[page] = widgets.HTML(value=vega_bundle())
    return _libraries[page]


def _page() -> str:
    """Return the session of the client whose request the kernel answers, or "" outside a kernel."""
    kernel = getattr(get_ipython(), "kernel", None)
    return "" if kernel is None else str(kernel.get_parent("shell").get("header", {}).get("session", ""))


def vega_bundle() -> str:
    """Return vega-embed with all that it needs, as one JavaScript module."""
    version = vl_version_for_vl_convert()
    known = hashlib.sha256(f"{metadata.version('vl-convert-python')} {version} {SNIPPET}".encode()).hexdigest()[:16]
    kept = rundir.cache_directory() / f"vega-{known}.js"
    try:
        return kept.read_text(encoding="utf-8")
    except OSError:
        bundle = vl_convert.javascript_bundle(SNIPPET, vl_version=version)
    with suppress(RunError):  # a home that cannot be written to costs a second, not the chart
        rundir.write_bytes(kept, bundle.encode())
    return bundle
