"""Matrices of numbers with a sign, and the two that a ledger fills: shares of classes in the gradients of layers, and
cosines between the gradients of classes.

A positive number is blue, a negative one orange, and a larger one fuller; the number is written in its cell, so that
the colour is never needed. Hatching marks a denial by the policy, a dot a missing measurement: zero, denied and unknown
cannot be mistaken for each other.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from explorer.audit.history import Directions
from explorer.audit.shares import Shares
from explorer.entries.numbers import SKETCH_ERROR
from explorer.page import amounts, theme
from explorer.provenance.regions import exact
from explorer.views.ledger.open_run import Steps

CELL = "cell"  # the name of the selection
POSITIVE, NEGATIVE = theme.PALETTE[0], theme.PALETTE[1]
FULLEST = 0.62  # more would hide the number in the cell, in the light or in the dark
LEAST = 0.25  # below it even the largest number is not drawn full, so that noise stays pale
HATCH = "M-2.5,1L-0.5,-1M-1.5,1L0.5,-1M-0.5,1L1.5,-1M0.5,1L2.5,-1"
NARROW = "M-1,0L0,-1M-1,1L1,-1M0,1L1,0"  # the hatch of narrow cells
MANY = 10  # columns; with more, cells are narrow and have no numbers
LETTER = 1.5  # pixels a letter that Vega reserves too few for a slanted name
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
    """Draw a matrix of signed numbers.

    Args:
        frame: row, column, value in [-1, 1] or NaN, text, state, and the columns of the tooltips.
        rows, columns: the names in their order.
        tooltip: the tooltips of a cell.
        words: the description for screen readers.
        width: pixels, or "container".
        chosen: a row and a column; that cell is framed, and a click chooses another (the selection `CELL`).
    """
    # --- fill: relative to the largest number, but never to a tiny one ---
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
    # --- layers: cells take the clicks, hatching and numbers lie above them ---
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
    # The upper layers let the mouse through (explorer.css). Narrow cells have their number only in the tooltip.
    chart = alt.LayerChart(layer=[cells, hatch, *([numbers] if len(columns) <= MANY else [])])
    overhang = 12 + LETTER * len(columns[-1]) if columns else 0  # of the last column's name
    chart = chart.properties(width=width, height=ROW * max(1, len(rows)), description=words)
    return theme.styled(chart.properties(padding={"top": 4, "left": 2, "right": min(overhang, 130), "bottom": 4}))


TRAINED, ABSENT, UNMEASURED = "trained", "absent", "unmeasured"
MAX_CELLS = 4800  # altair refuses more than 5,000 rows

STATES = {
    TRAINED: "trained",
    DENIED: "denied: the policy's weight was 0 throughout",
    ABSENT: "no examples of the class in these steps",
    UNMEASURED: "not measured",
}

SHARES_CAPTION = (
    "Share of each class in the summed gradient of each layer over these steps; a row adds up to 100%. Blue pulls with "
    "the sum, orange against it. Hatched: denied by the policy in all of these steps, so the share is exactly zero. A "
    "dot: no measurement of the class. Input at the top, output and adapters at the bottom."
)


def cells(measured_shares: Shares, recorded: Steps) -> pd.DataFrame:
    """Return a row for each layer and class of one stretch of steps, in the order of the genesis: layer, class, share
    (NaN if there is none), weight (the policy's greatest), examples, steps, state."""
    steps = range(measured_shares.edges[0], measured_shares.edges[-1])
    weights = recorded.weights(steps)
    batches = recorded.examples[steps.start : steps.stop].sum(axis=0)
    rows = []
    for at, layer in enumerate(measured_shares.layers):
        for index, class_ in enumerate(measured_shares.classes):
            share, measured = float(measured_shares.share[0, index, at]), int(measured_shares.steps[0, index, at])
            state = _state(weights[index, at], int(batches[index]), measured, share)
            rows.append(
                {
                    "layer": layer,
                    "class": class_,
                    "share": 0.0 if state == DENIED else share if state == TRAINED else np.nan,
                    "weight": float(weights[index, at]),
                    "examples": int(batches[index]),
                    "steps": measured,
                    "state": state,
                }
            )
    return pd.DataFrame(rows)


def heat_map(
    frame: pd.DataFrame, *, width: int | str = "container", chosen: Mapping[str, str] | None = None
) -> alt.LayerChart:
    """Draw the rows of `cells`. Of too many layers only every second, third, ... is drawn.

    With `chosen` (row: layer, column: class) that cell is framed and others can be chosen.
    """
    classes, layers = list(dict.fromkeys(frame["class"])), shown_layers(frame)
    shown = frame[frame["layer"].isin(layers)]
    worded = pd.DataFrame(
        {
            "row": shown["layer"],
            "column": shown["class"],
            "value": shown["share"],
            "state": shown["state"],
            "text": [_number(share, state) for share, state in zip(shown["share"], shown["state"], strict=True)],
            "share_text": [_share(share, state) for share, state in zip(shown["share"], shown["state"], strict=True)],
            "weight_text": [_weight(value) for value in shown["weight"]],
            "examples": shown["examples"],
            "steps": shown["steps"],
        }
    )
    tooltip = [
        alt.Tooltip("row:N", title="Layer"),
        alt.Tooltip("column:N", title="Class"),
        alt.Tooltip("share_text:N", title="Share"),
        alt.Tooltip("weight_text:N", title="Weight"),
        alt.Tooltip("examples:Q", title="Examples in the batches", format=","),
        alt.Tooltip("steps:Q", title="Steps with numbers", format=","),
    ]
    words = f"Share of {len(classes)} classes in the gradients of {amounts.count(len(layers), 'layer')}."
    return signed_matrix(worded, rows=layers, columns=classes, tooltip=tooltip, words=words, width=width, chosen=chosen)


def shown_layers(frame: pd.DataFrame) -> list[str]:
    """Return the layers that the heat map has room for."""
    layers, classes = list(dict.fromkeys(frame["layer"])), frame["class"].nunique()
    return layers[:: max(1, -(-len(layers) * classes // MAX_CELLS))]


def _state(weight: float, examples: int, measured: int, share: float) -> str:
    # A denial comes first: it is exact, whatever was or was not measured.
    if weight == 0:
        return DENIED
    if examples == 0:
        return ABSENT
    return TRAINED if measured and not np.isnan(share) else UNMEASURED


def _number(share: float, state: str) -> str:
    return f"{share:.0%}" if state == TRAINED else NOTHING


def _share(share: float, state: str) -> str:
    return f"{share:.2%}" if state == TRAINED else STATES[state]


def _weight(value: float) -> str:
    return exact(value) if value in (0, 1) else f"{exact(value)} (attenuation, no guarantee)"


DIRECTIONS_CAPTION = (
    "Cosine between the classes' weighted gradients in this layer, each summed over the steps. They come from sketches "
    f"of 64 numbers, so each has an error of about {SKETCH_ERROR}: blue pulls the same way, orange the opposite way, "
    "and a smaller difference means nothing. A dot: the class has no gradient on record here."
)


def cosines(summed: Directions, layer: int) -> pd.DataFrame:
    """Return a row for each pair of classes in one layer: row, column, value (NaN if one has no gradient), text."""
    sketches = summed.sketches[:, layer].astype(np.float64)
    lengths = np.linalg.norm(sketches, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = (sketches @ sketches.T) / np.outer(lengths, lengths)
    values[~np.isfinite(values)] = np.nan  # a class without a gradient has length 0
    rows = [
        {"row": one, "column": other, "value": float(np.clip(values[i, j], -1, 1))}
        for i, one in enumerate(summed.classes)
        for j, other in enumerate(summed.classes)
    ]
    frame = pd.DataFrame(rows)
    return frame.assign(
        text=[NOTHING if np.isnan(value) else f"{value:.2f}".replace("-", "\u2212") for value in frame["value"]],
        state="",
    )


def direction_map(summed: Directions, layer: int, *, width: int | str = "container") -> alt.LayerChart:
    """Draw the cosines in one layer."""
    frame = cosines(summed, layer)
    worded = frame.assign(
        cosine=[
            "one class has no gradient" if np.isnan(value) else f"{value:.2f} \u00b1 {SKETCH_ERROR}"
            for value in frame["value"]
        ]
    )
    tooltip = [
        alt.Tooltip("row:N", title="Class"),
        alt.Tooltip("column:N", title="and"),
        alt.Tooltip("cosine:N", title="Cosine"),
    ]
    words = f"Cosines between the gradients of the classes in layer {summed.layers[layer]}."
    names = list(summed.classes)
    return signed_matrix(worded, rows=names, columns=names, tooltip=tooltip, words=words, width=width)
