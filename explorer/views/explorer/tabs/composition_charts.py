"""Charts of composition: pairs as a matrix, the way to a recipe as a waterfall, the parts of a step as bars.

The matrix has quality above its diagonal and time below it. Blue is better together than apart, orange worse; the fill
is relative to the greatest interaction of its kind. A frame marks an interval that excludes 0: a full line among all
pairs (Holm), a dashed one on its own.
"""

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt
import pandas as pd

from explorer.analysis.comparison import Estimate
from explorer.analysis.composition import Composed, Composition, Pair
from explorer.errors import AnalysisError
from explorer.page import amounts, theme
from explorer.page.document import clipped
from explorer.run_files import Metric
from explorer.views.explorer.axes import payment_axis
from explorer.views.explorer.payments import PAYMENTS
from explorer.views.explorer.tabs.composition_rows import interval_words, quality_words, time_words

BETTER, WORSE = theme.PALETTE[0], theme.PALETTE[1]
FULLEST = 0.62  # more would hide the number in the cell, in the light or in the dark
NUMBERS = 9  # methods; with more the cells are too narrow for numbers, and the tooltip has them
MANY = 60  # methods; altair refuses more than 5,000 rows
ROW = 34  # pixels
SURE, OWN, NO = "all pairs", "on its own", "no"

CAPTION = (
    "Above the diagonal: quality, below it: time. Blue is better together than both separately, orange is worse. In a"
    " framed cell the interval excludes 0; a full line holds among all pairs (Holm). A dot is unknown; its tooltip has"
    " the reason."
)


def cells(composition: Composition) -> pd.DataFrame:
    """Return a row for each cell: row, column, kind, value (above 0 is better), text, mark, and the tooltip's texts."""
    place = {method: index for index, method in enumerate(composition.methods[:MANY])}
    rows = []
    for pair in composition.pairs:
        if pair.first in place and pair.second in place:
            first, second = sorted((pair.first, pair.second), key=place.__getitem__)
            rows += [{"row": first, "column": second, **_quality(pair, composition)}]
            rows += [{"row": second, "column": first, **_time(pair, composition)}]
    frame = pd.DataFrame(rows)
    if frame.empty:
        return frame
    # Quality and time have different units, so each kind is filled by its own greatest value.
    largest = frame.groupby("kind")["value"].transform(lambda values: values.abs().max())
    return frame.assign(share=(frame["value"] / largest.where(largest > 0, 1.0)).fillna(0.0))


def interactions(composition: Composition, *, width: int | str = "container") -> alt.LayerChart:
    """Draw the pairs of a composition that has at least two methods."""
    frame, methods = cells(composition), list(composition.methods[:MANY])
    frame = frame.assign(
        sign=["worse" if value < 0 else "better" for value in frame["share"]], size=frame["share"].abs()
    )
    x = alt.X(
        "column:N",
        title=None,
        scale=alt.Scale(domain=methods, paddingInner=0.06, paddingOuter=0.02),
        axis=alt.Axis(orient="top", labelAngle=-30, labelLimit=170, domain=False, ticks=False, labelOverlap=False),
    )
    y = alt.Y(
        "row:N",
        title=None,
        scale=alt.Scale(domain=methods, paddingInner=0.1, paddingOuter=0.02),
        axis=alt.Axis(grid=False, labelLimit=190, labelPadding=8, labelOverlap=False),
    )
    colour = alt.Color("sign:N", scale=alt.Scale(domain=["better", "worse"], range=[BETTER, WORSE]), legend=None)
    fill = alt.FillOpacity("size:Q", scale=alt.Scale(domain=[0, 1], range=[0, FULLEST]), legend=None)
    base = alt.Chart(frame).encode(x=x, y=y)
    rects = (
        alt.Chart(frame, name="cells")
        .mark_rect(stroke=theme.TEXT, strokeOpacity=0.18, strokeWidth=1)
        .encode(x=x, y=y, color=colour, fillOpacity=fill, tooltip=_tooltip(composition))
    )
    frames = [
        base.mark_rect(filled=False, stroke=theme.TEXT, strokeWidth=1.8, strokeDash=dash).transform_filter(
            alt.datum.mark == mark
        )
        for mark, dash in ((SURE, [1, 0]), (OWN, [4, 3]))
    ]
    numbers = base.mark_text(fontSize=11.5, color=theme.TEXT, baseline="middle").encode(text="text:N")
    chart = alt.LayerChart(layer=[rects, *frames, *([numbers] if len(methods) <= NUMBERS else [])])
    overhang = min(12 + 4 * len(methods[-1]), 110)  # of the last column's slanted name
    return theme.styled(
        chart.properties(
            width=width,
            height=ROW * len(methods),
            description=describe_pairs(composition),
            padding={"top": 4, "left": 2, "right": overhang, "bottom": 4},
        )
    )


def describe_pairs(composition: Composition) -> str:
    """Return the matrix in sentences, for screen readers."""
    pairs = composition.measured_pairs
    first = f"Interactions of {amounts.count(len(pairs), 'pair')} of {len(composition.methods)} methods."
    return " ".join(
        [first, *(f"{pair.first} with {pair.second}: {'; '.join(_spoken(pair, composition))}." for pair in pairs)]
    )


def mark(estimate: Estimate, confidence: float) -> str:
    """Return whether the interval excludes 0: among all pairs, on its own, or not."""
    if estimate.p_holm is not None and estimate.p_holm < 1 - confidence:
        return SURE
    return OWN if estimate.differs else NO


def _quality(pair: Pair, composition: Composition) -> dict[str, Any]:
    value = pair.quality.value
    if value is None or composition.kind is None:
        return {
            "kind": "quality",
            "value": float("nan"),
            "text": "\u00b7",
            **_said(pair, pair.quality, amounts.MISSING, composition),
        }
    return {
        "kind": "quality",
        "value": value if composition.kind.higher_is_better else -value,
        "text": composition.kind.number(value, sign="+"),
        **_said(pair, pair.quality, composition.kind.difference(value), composition, kind=composition.kind),
    }


def _time(pair: Pair, composition: Composition) -> dict[str, Any]:
    value = pair.time.value
    return {
        "kind": "time",
        "value": float("nan") if value is None else -value,
        "text": "\u00b7" if value is None else f"{round(math.expm1(value), 2) + 0.0:+.0%}",
        **_said(pair, pair.time, time_words(value), composition),
    }


def _said(
    pair: Pair, estimate: Estimate, words: str, composition: Composition, kind: Metric | None = None
) -> dict[str, Any]:
    return {
        "pair": f"{pair.first} with {pair.second}",
        "words": words,
        "interval": interval_words(estimate, kind),
        "mark": mark(estimate, composition.confidence),
        "n": f"{estimate.n} {'windows' if kind is None else 'seeds'}" if estimate.n else amounts.MISSING,
        "of": "training time" if kind is None else kind.name,
    }


def _tooltip(composition: Composition) -> list[alt.Tooltip]:
    titles = {
        "pair": "Pair",
        "of": "Of",
        "words": "Beyond both separately",
        "interval": f"{composition.confidence:.0%} interval",
        "mark": "Excludes 0",
        "n": "From",
    }
    return [alt.Tooltip(f"{name}:N", title=title) for name, title in titles.items()]


def _spoken(pair: Pair, composition: Composition) -> Iterator[str]:
    quality, time = pair.quality, pair.time
    if quality.value is not None and composition.kind is not None:
        words = interval_words(quality, composition.kind)
        yield f"{composition.kind.name} {quality_words(quality.value, composition.kind)} ({words})"
    if time.value is not None:
        yield f"time {time_words(time.value)} ({interval_words(time)})"


SHARED, LEFT = "same parts", "not predicted"
STEP = 30  # pixels
HALF = 0.32  # of a bar's height, in rows


def steps(recipe: Composed, *, baseline: str) -> pd.DataFrame:
    """Return a row for each bar from the baseline to the recipe: name, start and end in seconds, factor, kind, meaning.

    Raises `AnalysisError` for a recipe without a prediction.
    """
    by_parts, error, first, last = recipe.by_parts, recipe.error.value, recipe.baseline_seconds, recipe.seconds
    if by_parts is None or error is None or first is None or last is None:
        raise AnalysisError(f"{recipe.label}: no prediction: {recipe.reason}")
    # Factors of time multiply, so their logarithms add up to the recipe's measured time exactly.
    logs = [*recipe.alone, by_parts, error]
    ends = [first * math.exp(total) for total in itertools.accumulate(logs)]
    names = [*recipe.methods, SHARED, LEFT]
    meanings = [
        *("this method by itself" for _ in recipe.methods),
        "correction for methods that shorten the same part of a step",
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
    """Draw a recipe that has a prediction. Raises `AnalysisError` for any other."""
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
            amounts.seconds(end) if kind == "whole" else f"{factor:.2f}x"
            for kind, end, factor in zip(frame["kind"], frame["end"], frame["factor"], strict=True)
        ],
        factor_text=[amounts.ratio(factor) for factor in frame["factor"]],
        times=[
            f"{amounts.seconds(start)} to {amounts.seconds(end)}"
            for start, end in zip(frame["start"], frame["end"], strict=True)
        ],
    )
    # The label of the last change goes behind its interval, which may be longer than the bar.
    frame["right"] = frame["right"].where(frame["place"] != count - 2, max(frame["right"].iloc[-2], *sure["x2"], 0))
    joins = pd.DataFrame({"x": frame["end"], "top": frame["bottom"], "bottom": frame["top"] + 1}).iloc[:-1]
    span = [*frame["start"], *frame["end"], *sure["x"], *sure["x2"]]
    # A log axis makes equal factors equally long, wherever a bar begins.
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
    chart = alt.LayerChart(layer=layers).properties(
        width=width, height=STEP * count, description=describe_waterfall(frame)
    )
    return theme.styled(chart)


def describe_waterfall(frame: pd.DataFrame) -> str:
    """Return the waterfall in a sentence, for screen readers."""
    first, *between, last = frame.to_dict("records")
    factors = ", ".join(f"{row['name']} {row['factor']:.2f}" for row in between)
    return (
        f"From the training time of {first['name']}, {amounts.seconds(first['end'])}, to that of {last['name']},"
        f" {amounts.seconds(last['end'])}, by factors: {factors}."
    )


def _kind(log: float) -> str:
    return "more" if log > 0 else "less"


def _interval(recipe: Composed, *, at: int) -> pd.DataFrame:
    """Return the interval of the recipe's time around its prediction: one row, or none without an interval."""
    predicted, low, high = recipe.predicted_seconds, recipe.error.low, recipe.error.high
    if predicted is None or low is None or high is None:
        return pd.DataFrame({"x": [], "x2": [], "top": []}, dtype=float)
    return pd.DataFrame({"x": [predicted * math.exp(low)], "x2": [predicted * math.exp(high)], "top": [float(at)]})


def _rows(names: Sequence[str]) -> dict[str, Any]:
    """Return a numeric axis with a name for each row, the first on top. A nominal axis would merge equal names."""
    labels = "".join(f"datum.value == {index} ? {json.dumps(clipped(name))} : " for index, name in enumerate(names))
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


PARTS = {
    "read": "reading",
    "preprocess": "preprocessing",
    "transfer": "transfer",
    "wait": "waiting for data",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimiser",
    "governance": "governance",
    "other": "other",
}
"""The parts of a step, keys of `run_files.Timings`, in the order in which they happen."""

# Neighbours stay apart on a dark background too, where explorer.css lightens some of them.
COLOURS = ("#999999", "#BBBBBB", "#DDDDDD", "#8C6D1F", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#F0E442")


def step_times(
    frame: pd.DataFrame, *, runs: bool = False, width: int | str = "container", bar: int = 26
) -> alt.LayerChart:
    """Draw `frame`: recipe, part (a key of `PARTS`), seconds of one step, or of whole `runs`; at least one row."""
    scale_by, title = (1, "Seconds a run") if runs else (1000, "Milliseconds a step")
    shown = frame[frame["part"].isin(PARTS) & (frame["seconds"] > 0)]
    present = [part for part in PARTS if part in set(shown["part"])]  # the legend names only these
    rows = pd.DataFrame(
        {
            "recipe": shown["recipe"],
            "part": shown["part"].map(PARTS),
            "order": shown["part"].map(list(PARTS).index),
            "time": shown["seconds"] * scale_by,
        }
    )
    colours = [COLOURS[list(PARTS).index(part)] for part in present]
    scale = alt.Scale(domain=[PARTS[part] for part in present], range=colours)
    bars = (
        alt.Chart(rows, name="bars")
        .mark_bar(height=bar - 8)
        .encode(
            x=alt.X("sum(time):Q", title=title, axis=alt.Axis(tickCount=6)),
            y=alt.Y("recipe:N", title=None, sort=list(dict.fromkeys(rows["recipe"])), axis=alt.Axis(grid=False)),
            color=alt.Color("part:N", scale=scale, legend=alt.Legend(title=None, orient="top", symbolType="square")),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("recipe:N", title="Recipe"),
                alt.Tooltip("part:N", title="Part"),
                alt.Tooltip("sum(time):Q", title=title, format=".3~g"),
            ],
        )
    )
    words = f"Time of {'a whole run' if runs else 'one training step'} by part, for {rows['recipe'].nunique()} recipes."
    height = bar * max(1, rows["recipe"].nunique())
    return theme.styled(alt.LayerChart(layer=[bars]).properties(width=width, height=height, description=words))
