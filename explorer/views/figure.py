"""The tradeoff chart as a widget: one chart that runs can be chosen in, or small multiples on the same axes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import altair as alt
import ipywidgets as widgets
from altair.utils import schemapi

from explorer.views.answer import Answer
from explorer.views.fit import Fit, empty_chart
from explorer.views.multiples import multiples
from explorer.views.tradeoff import BRUSH, PICKED, Brush, tradeoff

HEIGHT = 380
PAPER = 720  # width of an exported chart, in pixels


class Figure(widgets.VBox):
    """`on_brush` is told what was brushed, `on_pick` which marks were clicked."""

    def __init__(self, *, on_brush: Callable[[Brush], None], on_pick: Callable[[list[str]], None]) -> None:
        self._on_brush, self._on_pick = on_brush, on_pick
        self._chart = empty_chart(debounce_wait=150, max_wait=False)
        self._found: Answer | None = None
        super().__init__([Fit().add_class("x-fit"), self._chart])
        self.add_class("x-chart")

    def show(self, found: Answer) -> None:
        """Draw an answer; nothing where it has no scene."""
        before, self._found = self._found, found
        if before is not None and found.scene is before.scene and found.question.split == before.question.split:
            return  # it is drawn, and drawing it anew would take a second and the brush
        if found.scene is None:
            self._chart.chart = None  # pyright: ignore[reportAttributeAccessIssue]
            return
        # Tests hold charts against the schema of Vega-Lite; on the way to the page that takes longer than all else.
        with schemapi.debug_mode(False):
            drawn = chart_of(found)
            object.__setattr__(drawn, "to_dict", partial(drawn.to_dict, validate=False))
            self._chart.chart = drawn  # pyright: ignore[reportAttributeAccessIssue]
        if not found.question.split:
            self._chart.selections.observe(self._brushed, BRUSH)
            self._chart.selections.observe(self._picked, PICKED)

    def forget(self) -> None:
        """Draw the next answer even if it is drawn already: what was brushed is in the browser alone."""
        self._found = None
        self._chart.chart = None  # pyright: ignore[reportAttributeAccessIssue]

    def _brushed(self, change: Any) -> None:
        found = self._found
        if found is None or found.scene is None:
            return
        ranges = {name: [float(end) for end in limits] for name, limits in (change["new"].value or {}).items()}
        if not ranges:
            return self._on_brush(())
        x = sorted(ranges.get("x", found.scene.x_range))
        heights = found.scene.heights
        y = sorted(heights.drawn(end) for end in ranges["y"]) if "y" in ranges else [*found.scene.y_range]
        return self._on_brush((*x, *y))

    def _picked(self, change: Any) -> None:
        picked = change["new"].value or []
        self._on_pick([str(value) for mark in picked for name, value in mark.items() if name in ("directory", "place")])


def chart_of(found: Answer, *, width: int | str = "container") -> alt.LayerChart | alt.ConcatChart:
    """The chart of an answer that has a scene. Only one that is as wide as its place can be brushed."""
    assert found.scene is not None  # the caller looked
    if found.question.split:
        return multiples(found)
    return tradeoff(
        found.scene, width=width, height=HEIGHT, brush=found.question.brush if width == "container" else None
    )
