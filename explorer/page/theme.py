"""How every chart looks: one palette, one typography, readable on light and on dark.

Text, grid and the baseline are drawn in `currentColor`, the colour of the surrounding text, so that a chart follows
its page without being drawn twice. Recipes take the colours of Okabe and Ito, "Color Universal Design"
(2008), which stay apart in the common kinds of colour blindness; a shape repeats what a colour says.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import altair as alt

from explorer.page.document import Mark

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
TEXT = "currentColor"
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D1F")
SHAPES = ("square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-left", "triangle-right", "stroke")

OUTLINES = {  # of these shapes and the baseline's, for places that have no chart
    "circle": "M4.5,0A4.5,4.5,0,1,1,-4.5,0A4.5,4.5,0,1,1,4.5,0Z",
    "square": "M-4.5,-4.5H4.5V4.5H-4.5Z",
    "triangle-up": "M0,-5L5,4.5H-5Z",
    "triangle-down": "M0,5L5,-4.5H-5Z",
    "triangle-left": "M-5,0L4.5,-5V5Z",
    "triangle-right": "M5,0L-4.5,-5V5Z",
    "diamond": "M0,-5.5L5.5,0L0,5.5L-5.5,0Z",
    "cross": "M-5,-2H-2V-5H2V-2H5V2H2V5H-2V2H-5Z",
    "stroke": "M-5.5,0H5.5",
}

MAX_LEGEND = 24
MAX_LABEL = 170  # pixels; a longer name is cut off in the legend, and whole in the table
ROOM, PER_LETTER, PER_SYMBOL = 560, 7, 44  # pixels: of a legend, of a letter, of a symbol with its margins

CONFIG = {
    "background": "transparent",
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": TEXT,
        "labelOpacity": 0.75,
        "labelFontSize": 12,
        "labelPadding": 6,
        "titleColor": TEXT,
        "titleOpacity": 0.75,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 10,
        "domainColor": TEXT,
        "domainOpacity": 0.3,
        "tickColor": TEXT,
        "tickOpacity": 0.3,
        "gridColor": TEXT,
        "gridOpacity": 0.09,
    },
    "axisX": {"grid": False},
    "axisY": {
        "titleAnchor": "end",
        "titleAngle": 0,
        "titleAlign": "left",
        "titleBaseline": "bottom",
        "titleX": 0,
        "titleY": -10,
        "domain": False,
        "ticks": False,
    },
    "legend": {
        "labelColor": TEXT,
        "labelFontSize": 12,
        "labelLimit": MAX_LABEL,
        "titleColor": TEXT,
        "symbolSize": 90,
        "symbolStrokeWidth": 2,
        "columnPadding": 18,
        "rowPadding": 6,
    },
    "title": {"color": TEXT, "fontSize": 14, "fontWeight": 600, "anchor": "start", "offset": 12},
}

EMBED = {"actions": False, "renderer": "svg"}
"""Options for vega-embed: no menu, and SVG, because a canvas does not know `currentColor`."""

# Every layer names the same legend: one layer with another, or without, would split the legend or drop it.
LEGEND: dict[str, Any] = {
    "title": None,
    "orient": "top",
    "direction": "horizontal",
    "symbolOpacity": 1,
    "offset": 34,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """The colour and the shape of each group, in the order of the legend.

    A group is one recipe, unless `groups` puts several into one.
    """

    recipes: tuple[str, ...]
    colours: tuple[str, ...]
    shapes: tuple[str, ...]
    groups: Mapping[str, str] = field(default_factory=dict)

    def colour(self, field: str = "group") -> alt.Color:
        """Return the colour channel over a field."""
        scale = alt.Scale(domain=list(self.recipes), range=list(self.colours))
        return alt.Color(f"{field}:N", scale=scale, legend=self._legend)

    def shape(self, field: str = "group") -> alt.Shape:
        """Return the shape channel over a field."""
        scale = alt.Scale(domain=list(self.recipes), range=list(self.shapes))
        return alt.Shape(f"{field}:N", scale=scale, legend=self._legend)

    def mark(self, recipe: str) -> Mark | None:
        """Return the shape of a recipe's group in its colour; None for one that is not drawn."""
        group = self.groups.get(recipe, recipe)
        if group not in self.recipes:
            return None
        position = self.recipes.index(group)
        return Mark(outline=OUTLINES[self.shapes[position]], colour=self.colours[position])

    @property
    def _legend(self) -> alt.Legend:
        # A legend of hundreds of groups would leave no room for the chart; the table next to it has all.
        shown = alt.Undefined if len(self.recipes) <= MAX_LEGEND else list(self.recipes[:MAX_LEGEND])
        return alt.Legend(**LEGEND, columns=self._columns, values=shown)

    @property
    def _columns(self) -> int:
        # As many columns as the longest name leaves room for, and at most six.
        longest = max((len(name) for name in self.recipes), default=0)
        return max(1, min(6, ROOM // (min(longest * PER_LETTER, MAX_LABEL) + PER_SYMBOL)))


def look(recipes: Iterable[str], *, baseline: str | None, groups: Mapping[str, str] | None = None) -> Look:
    """Give the baseline the colour of the text and a circle, and every other recipe a pair of its own.

    Colours and shapes repeat with different periods, so the first 56 recipes after the baseline differ.
    """
    names = list(dict.fromkeys(recipes))
    others = [name for name in names if name != baseline]
    first = tuple(name for name in names if name == baseline)
    return Look(
        recipes=(*first, *others),
        colours=(*(TEXT for _ in first), *(PALETTE[i % len(PALETTE)] for i in range(len(others)))),
        shapes=(*("circle" for _ in first), *(SHAPES[i % len(SHAPES)] for i in range(len(others)))),
        groups=groups or {},
    )


AnyChart = TypeVar("AnyChart", alt.LayerChart, alt.ConcatChart)


def styled(chart: AnyChart) -> AnyChart:
    """Return the chart with the common theme in its own configuration, so that it looks the same everywhere."""
    return chart.configure(**CONFIG)
