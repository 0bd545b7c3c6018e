"""A matrix of numbers with a sign, drawn so that nothing, zero and refusal cannot be taken for each other.

What is for something is blue and what is against it orange, the fuller the more; a number stands in every cell that has
one, so that the colour is never needed. Hatching is what the policy denied, a dot where there was nothing to measure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from explorer.views import theme

CELL = "cell"  # the name of the selection
POSITIVE, NEGATIVE = theme.PALETTE[0], theme.PALETTE[1]
FULLEST = 0.62  # more would hide the number in the cell, in the light or in the dark
LEAST = 0.25  # the number that is drawn full where none is larger
HATCH = "M-2.5,1L-0.5,-1M-1.5,1L0.5,-1M-0.5,1L1.5,-1M0.5,1L2.5,-1"
NARROW = "M-1,0L0,-1M-1,1L1,-1M0,1L1,0"  # for more columns than this
MANY = 10
LETTER = 1.5  # pixels that Vega reserves too few for each letter of a slanted name
DENIED = "denied"  # a value of the column `state`
NOTHING = "\u00b7"
ROW = 21  # pixels


def signed_matrix(
    frame: pd.DataFrame,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    tooltip: Sequence[alt.Tooltip],
    words: str,
    width: int | str = "container",
    chosen: Mapping[str, str] | None = None,
) -> alt.LayerChart:
    """Draw `frame`: row, column, value in [-1, 1] or NaN, text, state, and what the tooltips show.

    With `chosen`, a row and a column, that cell is framed and others can be chosen, under the name `cell`. `words`
    describe the chart to who does not see it.
    """
    shown = frame.assign(
        sign=["against" if value < 0 else "for" for value in frame["value"].fillna(0)],
        size=frame["value"].abs().clip(upper=1).fillna(0),
    )
    largest = max(LEAST, shown["size"].max())
    x = alt.X(
        "column:N",
        title=None,
        sort=list(columns),
        scale=alt.Scale(domain=list(columns), paddingInner=0.04, paddingOuter=0),
        axis=alt.Axis(orient="top", labelAngle=-30, labelLimit=220, domain=False, ticks=False, labelOverlap=False),
    )
    y = alt.Y(
        "row:N",
        title=None,
        sort=list(rows),
        scale=alt.Scale(domain=list(rows), paddingInner=0.08, paddingOuter=0),
        axis=alt.Axis(grid=False, labelLimit=260, labelPadding=8, labelOverlap=False),
    )
    colour = alt.Color("sign:N", scale=alt.Scale(domain=["for", "against"], range=[POSITIVE, NEGATIVE]), legend=None)
    cells = (
        alt.Chart(shown, name="cells")
        .mark_rect(stroke=theme.TEXT, strokeOpacity=0.18, strokeWidth=1)
        .encode(
            x=x,
            y=y,
            color=colour,
            fillOpacity=alt.FillOpacity(
                "size:Q", scale=alt.Scale(domain=[0, largest], range=[0, FULLEST]), legend=None
            ),
            tooltip=list(tooltip),
        )
    )
    if chosen is not None:
        value: Any = [dict(chosen)]
        options: Any = {"toggle": False, "clear": False, "empty": False}
        cell = alt.selection_point(name=CELL, fields=["row", "column"], value=value, **options)
        frame_on = alt.when(cell)
        cells = cells.add_params(cell).encode(
            strokeWidth=frame_on.then(alt.value(2.5)).otherwise(alt.value(1)),
            strokeOpacity=frame_on.then(alt.value(0.9)).otherwise(alt.value(0.18)),
        )
    hatch = (
        alt.Chart(shown, name="hatch")
        .mark_point(
            shape=HATCH if len(columns) <= MANY else NARROW,
            size=170,
            stroke=theme.TEXT,
            strokeWidth=1,
            opacity=0.42,
            filled=False,
        )
        .encode(x=x, y=y)
        .transform_filter(alt.datum.state == DENIED)
    )
    numbers = (
        alt.Chart(shown, name="numbers")
        .mark_text(fontSize=11.5, color=theme.TEXT, baseline="middle")
        .encode(x=x, y=y, text="text:N")
        .transform_filter(alt.datum.state != DENIED)
    )
    # The mouse goes through the upper layers: explorer.css. The tooltip has the number where cells are narrow.
    chart = alt.LayerChart(layer=[cells, hatch, *([numbers] if len(columns) <= MANY else [])])
    overhang = 12 + LETTER * len(columns[-1]) if columns else 0  # of the last column's name
    chart = chart.properties(width=width, height=ROW * max(1, len(rows)), description=words)
    return theme.styled(chart.properties(padding={"top": 4, "left": 2, "right": min(overhang, 130), "bottom": 4}))
