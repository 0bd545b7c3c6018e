"""A widget without a face that keeps charts as wide as their place.

Vega measures its container when it draws and when the window is resized. A chart in a notebook is drawn before it has a
place on the page, and its place changes when a side bar opens; this widget tells Vega of both.
"""

from typing import Any

import altair as alt
import anywidget

from explorer.views import theme


class Fit(anywidget.AnyWidget):
    """Put it beside a chart whose width is "container"."""

    _esm = """
    export default {
      render({ el }) {
        el.style.height = "0";
        const observer = new ResizeObserver(() => window.dispatchEvent(new Event("resize")));
        observer.observe(el);
        return () => observer.disconnect();
      },
    };
    """


def empty_chart(**options: Any) -> alt.JupyterChart:
    """A chart widget that shows nothing until its `chart` is set. Needs no network."""
    alt.JupyterChart.enable_offline()
    return alt.JupyterChart(None, embed_options=theme.EMBED, **options)  # pyright: ignore[reportArgumentType]
