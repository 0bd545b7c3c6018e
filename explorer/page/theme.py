"""How every chart looks: one palette, one typography, readable on light and on dark.

Text, grid and the baseline are drawn in `currentColor`, the colour of the surrounding text, so that a chart follows
its page without being drawn twice. Recipes take the colours of Okabe and Ito, "Color Universal Design"
(2008), which stay apart in the common kinds of colour blindness; a shape repeats what a colour says.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import altair as alt

from explorer.page.document import Mark

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
TEXT = "currentColor"
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D1F")
GREY = "#8b929c"  # of what is dominated: 3:1 against a white and 6:1 against a dark ground
MANY = 8  # groups that can all have a colour; of more only those on the front
HOURGLASS = "M-0.75,-0.85H0.75L-0.75,0.85H0.75Z"  # a path is a shape too; a dash would look like a minus
SHAPES = ("square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-left", "triangle-right", HOURGLASS)

OUTLINES = {  # of these shapes and the baseline's, for places that have no chart
    "circle": "M4.5,0A4.5,4.5,0,1,1,-4.5,0A4.5,4.5,0,1,1,4.5,0Z",
    "square": "M-4.5,-4.5H4.5V4.5H-4.5Z",
    "triangle-up": "M0,-5L5,4.5H-5Z",
    "triangle-down": "M0,5L5,-4.5H-5Z",
    "triangle-left": "M-5,0L4.5,-5V5Z",
    "triangle-right": "M5,0L-4.5,-5V5Z",
    "diamond": "M0,-5.5L5.5,0L0,5.5L-5.5,0Z",
    "cross": "M-5,-2H-2V-5H2V-2H5V2H2V5H-2V2H-5Z",
    HOURGLASS: "M-4,-4.5H4L-4,4.5H4Z",
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

SCHEMA = alt.SCHEMA_URL  # the version of Vega-Lite that charts are written in

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

    A group is one recipe, unless `groups` puts several into one. `quiet` groups have a colour only while they are
    looked at: elsewhere they are grey.
    """

    recipes: tuple[str, ...]
    colours: tuple[str, ...]
    shapes: tuple[str, ...]
    groups: Mapping[str, str] = field(default_factory=dict)
    quiet: frozenset[str] = frozenset()

    def colour(self, field: str = "group") -> alt.Color:
        """Return the colour channel over a field."""
        scale = alt.Scale(domain=list(self.recipes), range=list(self.colours))
        return alt.Color(f"{field}:N", scale=scale, legend=alt.Legend(**self.legend))

    def shape(self, field: str = "group") -> alt.Shape:
        """Return the shape channel over a field."""
        scale = alt.Scale(domain=list(self.recipes), range=list(self.shapes))
        return alt.Shape(f"{field}:N", scale=scale, legend=alt.Legend(**self.legend))

    def mark(self, recipe: str) -> Mark | None:
        """Return the shape of a recipe's group in its colour; None for one that is not drawn."""
        group = self.groups.get(recipe, recipe)
        if group not in self.recipes:
            return None
        position = self.recipes.index(group)
        colour = GREY if group in self.quiet else self.colours[position]
        return Mark(outline=OUTLINES[self.shapes[position]], colour=colour)

    def scale(self, values: tuple[str, ...]) -> dict[str, Any]:
        """Return the scale from the groups to their colours or their shapes, as Vega-Lite has it."""
        return {"domain": list(self.recipes), "range": list(values)}

    @property
    def legend(self) -> dict[str, Any]:
        """The legend of the groups, as Vega-Lite has it."""
        # A legend of hundreds of groups would leave no room for the chart; the table next to it has all.
        shown = {} if len(self.recipes) <= MAX_LEGEND else {"values": list(self.recipes[:MAX_LEGEND])}
        return LEGEND | {"columns": self._columns} | shown

    @property
    def _columns(self) -> int:
        # As many columns as the longest name leaves room for, and at most six.
        longest = max((len(name) for name in self.recipes), default=0)
        return max(1, min(6, ROOM // (min(longest * PER_LETTER, MAX_LABEL) + PER_SYMBOL)))


def look(
    recipes: Iterable[str],
    *,
    baseline: str | None,
    groups: Mapping[str, str] | None = None,
    bright: Collection[str] | None = None,
) -> Look:
    """Give the baseline the colour of the text and a circle, and every other recipe a pair of its own.

    Colours and shapes repeat with different periods, so the first 56 recipes after the baseline differ. Of more than
    `MANY` recipes the `bright` ones, where they are given, take the first colours, and the others are quiet.
    """
    names = list(dict.fromkeys(recipes))
    others = [name for name in names if name != baseline]
    first = tuple(name for name in names if name == baseline)
    quiet: frozenset[str] = frozenset()
    if bright is not None and len(names) > MANY:
        others.sort(key=lambda name: name not in bright)  # stable: the order of the results within both parts
        quiet = frozenset(name for name in others if name not in bright)
    return Look(
        recipes=(*first, *others),
        colours=(*(TEXT for _ in first), *(PALETTE[i % len(PALETTE)] for i in range(len(others)))),
        shapes=(*("circle" for _ in first), *(SHAPES[i % len(SHAPES)] for i in range(len(others)))),
        groups=groups or {},
        quiet=quiet,
    )


AnyChart = TypeVar("AnyChart", alt.LayerChart, alt.ConcatChart)


def styled(chart: AnyChart) -> AnyChart:
    """Return the chart with the common theme in its own configuration, so that it looks the same everywhere."""
    return chart.configure(**CONFIG)
