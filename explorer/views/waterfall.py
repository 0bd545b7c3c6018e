"""The waterfall from the baseline's training time to a recipe's: what each method takes off alone, in acting order,
what they cannot take off together, and what nothing predicted.

Factors of time are lengths on a log axis, so they add up: the methods alone, then the correction for methods that work
on the same parts of a step (Amdahl), then what is left between the predicted and the measured time.
"""

import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from explorer.analysis.composition import Composed
from explorer.errors import AnalysisError
from explorer.views import text, theme
from explorer.views.axes import PAYMENTS, payment_axis

SHARED, LEFT = "same parts", "not predicted"
ROW = 30  # pixels
HALF = 0.32  # of a bar's height, in rows


def steps(recipe: Composed, *, baseline: str) -> pd.DataFrame:
    """A row for each bar, from the baseline to the recipe: name, start and end in seconds, factor, kind, meaning.

    Raises `AnalysisError` for a recipe without a prediction.
    """
    by_parts, error, first, last = recipe.by_parts, recipe.error.value, recipe.baseline_seconds, recipe.seconds
    if by_parts is None or error is None or first is None or last is None:
        raise AnalysisError(f"{recipe.label}: no prediction: {recipe.reason}")
    logs = [*recipe.alone, by_parts, error]
    ends = [first * math.exp(total) for total in itertools.accumulate(logs)]
    names = [*recipe.methods, SHARED, LEFT]
    meanings = [
        *("this method alone" for _ in recipe.methods),
        "what the parts of a step say beyond the product of the methods alone",
        "measured beyond what the parts of a step predict",
    ]
    starts, whole = [first, *ends[:-1]], "steps times the time of a step"
    changes = zip(names, starts, ends, logs, meanings, strict=True)
    rows = [
        (baseline, first, first, 1.0, "whole", whole),
        *((name, start, end, math.exp(log), _kind(log), meaning) for name, start, end, log, meaning in changes),
        (recipe.label, last, last, last / first, "whole", whole),
    ]
    return pd.DataFrame(rows, columns=["name", "start", "end", "factor", "kind", "meaning"])


def waterfall(recipe: Composed, *, baseline: str, width: int | str = "container") -> alt.LayerChart:
    """Draw a recipe that has a prediction. Raises `AnalysisError` for another one."""
    frame = steps(recipe, baseline=baseline)
    count = len(frame)
    sure = _interval(recipe, at=count - 2)
    frame = frame.assign(
        x=frame["start"],
        top=[index - HALF for index in range(count)],
        bottom=[index + HALF for index in range(count)],
        place=range(count),
        right=frame[["start", "end"]].max(axis=1),
        text=[
            text.seconds(end) if kind == "whole" else f"{factor:.2f}x"
            for kind, end, factor in zip(frame["kind"], frame["end"], frame["factor"], strict=True)
        ],
        factor_text=[text.ratio(factor) for factor in frame["factor"]],
        times=[
            f"{text.seconds(start)} to {text.seconds(end)}"
            for start, end in zip(frame["start"], frame["end"], strict=True)
        ],
    )
    frame["right"] = frame["right"].where(frame["place"] != count - 2, max(frame["right"].iloc[-2], *sure["x2"], 0))
    joins = pd.DataFrame({"x": frame["end"], "top": frame["bottom"], "bottom": frame["top"] + 1}).iloc[:-1]
    span = [*frame["start"], *frame["end"], *sure["x"], *sure["x2"]]
    x = payment_axis(PAYMENTS["time"], [min(span) / 1.05, max(span) * 1.15], log=True)
    y = alt.Y("top:Q", **_rows(frame["name"].tolist()))
    colour = alt.Color(
        "kind:N", scale=alt.Scale(domain=["less", "more"], range=[theme.PALETTE[0], theme.PALETTE[1]]), legend=None
    )
    tooltip = [
        alt.Tooltip("name:N", title="Step"),
        alt.Tooltip("factor_text:N", title="Factor of time"),
        alt.Tooltip("times:N", title="Training time"),
        alt.Tooltip("meaning:N", title="What it is"),
    ]
    changes, wholes = frame[frame["kind"] != "whole"], frame[frame["kind"] == "whole"]
    ends = {"x": x, "y": y, "y2": "bottom:Q"}
    layers = [
        alt.Chart(joins, name="joins").mark_rule(color=theme.TEXT, opacity=0.4, strokeDash=[2, 2]).encode(**ends),
        alt.Chart(changes, name="changes").mark_rect().encode(**ends, x2="end:Q", color=colour, tooltip=tooltip),
        alt.Chart(wholes, name="wholes").mark_rule(color=theme.TEXT, strokeWidth=3).encode(**ends, tooltip=tooltip),
        alt.Chart(sure, name="interval").mark_rule(color=theme.TEXT, strokeWidth=1.6).encode(x=x, x2="x2:Q", y=y),
        alt.Chart(frame.assign(x=frame["right"], top=frame["place"]), name="factors")
        .mark_text(align="left", dx=7, color=theme.TEXT, fontSize=11.5)
        .encode(x=x, y=y, text="text:N"),
    ]
    chart = alt.LayerChart(layer=layers).properties(width=width, height=ROW * count, description=describe(frame))
    return theme.styled(chart)


def describe(frame: pd.DataFrame) -> str:
    """The picture in a sentence, for who does not see it."""
    first, *between, last = frame.to_dict("records")
    factors = ", ".join(f"{row['name']} {row['factor']:.2f}" for row in between)
    return (
        f"From the training time of {first['name']}, {text.seconds(first['end'])}, to that of {last['name']},"
        f" {text.seconds(last['end'])}, by factors: {factors}."
    )


def _kind(log: float) -> str:
    return "more" if log > 0 else "less"


def _interval(recipe: Composed, *, at: int) -> pd.DataFrame:
    """Where the recipe's time can be, given what is predicted: one row, or none where there is no interval."""
    predicted, low, high = recipe.predicted_seconds, recipe.error.low, recipe.error.high
    if predicted is None or low is None or high is None:
        return pd.DataFrame({"x": [], "x2": [], "top": []}, dtype=float)
    return pd.DataFrame({"x": [predicted * math.exp(low)], "x2": [predicted * math.exp(high)], "top": [float(at)]})


def _rows(names: Sequence[str]) -> dict[str, Any]:
    """A numeric axis with a name for each row, the first on top: names may repeat."""
    labels = "".join(
        f"datum.value == {index} ? {json.dumps(text.clipped(name))} : " for index, name in enumerate(names)
    )
    return {
        "title": None,
        "scale": alt.Scale(domain=[-0.5, len(names) - 0.5], reverse=True, nice=False, zero=False),
        "axis": alt.Axis(
            grid=False,
            values=list(range(len(names))),
            labelExpr=f"{labels}''",
            labelLimit=190,
            labelPadding=8,
            labelOverlap=False,
        ),
    }
