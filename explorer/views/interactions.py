"""The heat map of pairs: what two methods do together beyond what each does alone, in quality and in time.

Above the diagonal stands quality, below it time. Blue is better together than alone, orange worse, the fuller the more,
either kind by its own greatest. A cell is framed where its interval excludes 0: with a full line where it does so among
all pairs (Holm), with a dashed one where it does so on its own.
"""

import math
from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from explorer.analysis.composition import Composition, Pair
from explorer.analysis.estimate import Estimate
from explorer.records import Metric
from explorer.views import text, theme

BETTER, WORSE = theme.PALETTE[0], theme.PALETTE[1]
FULLEST = 0.62  # more would hide the number in the cell, in the light or in the dark
NUMBERS = 9  # methods; with more the cells are too narrow for numbers, and the tooltip has them
MANY = 60  # methods; altair refuses more than 5,000 rows
ROW = 34  # pixels
SURE, OWN, NO = "all pairs", "on its own", "no"

CAPTION = (
    "Above the diagonal: quality, below it: time. Blue is better together than what both do alone, orange is worse. A"
    " framed cell: the interval excludes 0, with a full line also among all pairs (Holm). A dot: not known, and the"
    " tooltip says why."
)


def cells(found: Composition) -> pd.DataFrame:
    """A row for each cell: row, column, kind, value (above 0 is better), text, mark, and what its tooltip says."""
    place = {method: index for index, method in enumerate(found.methods[:MANY])}
    rows = []
    for pair in found.pairs:
        if pair.first in place and pair.second in place:
            first, second = sorted((pair.first, pair.second), key=place.__getitem__)
            rows += [{"row": first, "column": second, **_quality(pair, found)}]
            rows += [{"row": second, "column": first, **_time(pair, found)}]
    frame = pd.DataFrame(rows)
    if frame.empty:
        return frame
    largest = frame.groupby("kind")["value"].transform(lambda values: values.abs().max())
    return frame.assign(share=(frame["value"] / largest.where(largest > 0, 1.0)).fillna(0.0))


def interactions(found: Composition, *, width: int | str = "container") -> alt.LayerChart:
    """Draw the pairs of a composition that has at least two methods."""
    frame, methods = cells(found), list(found.methods[:MANY])
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
        .encode(x=x, y=y, color=colour, fillOpacity=fill, tooltip=_tooltip(found))
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
            description=describe(found),
            padding={"top": 4, "left": 2, "right": overhang, "bottom": 4},
        )
    )


def describe(found: Composition) -> str:
    """The picture in sentences, for who does not see it."""
    said = [f"Interactions of {text.count(len(found.measured_pairs), 'pair')} of {len(found.methods)} methods."]
    said += [f"{pair.first} with {pair.second}: {'; '.join(_spoken(pair, found))}." for pair in found.measured_pairs]
    return " ".join(said)


def quality_words(value: float | None, kind: Metric | None) -> str:
    """An interaction in quality, in the unit of a difference.

    >>> quality_words(-0.5, Metric(name="nll", unit="nats", higher_is_better=False)), quality_words(None, None)
    ('-0.5000 nats', '-')
    """
    return text.MISSING if kind is None or value is None or text.missing(value) else kind.difference(value)


def time_words(value: float | None) -> str:
    """A logarithm of a ratio of times, as what is longer or shorter.

    >>> time_words(0.0953), time_words(-0.1), time_words(None)
    ('+10.0%', '-9.5%', '-')
    """
    return text.MISSING if value is None or text.missing(value) else f"{math.expm1(value):+.1%}"


def interval_words(estimate: Estimate, kind: Metric | None = None) -> str:
    """The interval of an interaction in the quality of that metric, or in time; or why there is none."""
    if estimate.low is None or estimate.high is None:
        return f"no interval: {estimate.reason}" if estimate.value is not None else str(estimate.reason)
    if kind is None:
        return f"{time_words(estimate.low)} to {time_words(estimate.high)}"
    return f"{kind.number(estimate.low, sign='+')} to {kind.difference(estimate.high)}"


def mark(estimate: Estimate, confidence: float) -> str:
    """Whether the interval excludes 0: among all pairs, on its own, or not."""
    if estimate.p_holm is not None and estimate.p_holm < 1 - confidence:
        return SURE
    return OWN if estimate.differs else NO


def _quality(pair: Pair, found: Composition) -> dict[str, Any]:
    value = pair.quality.value
    if value is None or found.kind is None:
        return {
            "kind": "quality",
            "value": float("nan"),
            "text": "\u00b7",
            **_said(pair, pair.quality, text.MISSING, found),
        }
    return {
        "kind": "quality",
        "value": value if found.kind.higher_is_better else -value,
        "text": found.kind.number(value, sign="+"),
        **_said(pair, pair.quality, found.kind.difference(value), found, kind=found.kind),
    }


def _time(pair: Pair, found: Composition) -> dict[str, Any]:
    value = pair.time.value
    return {
        "kind": "time",
        "value": float("nan") if value is None else -value,
        "text": "\u00b7" if value is None else f"{round(math.expm1(value), 2) + 0.0:+.0%}",
        **_said(pair, pair.time, time_words(value), found),
    }


def _said(pair: Pair, estimate: Estimate, words: str, found: Composition, kind: Metric | None = None) -> dict[str, Any]:
    return {
        "pair": f"{pair.first} with {pair.second}",
        "words": words,
        "interval": interval_words(estimate, kind),
        "mark": mark(estimate, found.confidence),
        "n": f"{estimate.n} {'windows' if kind is None else 'seeds'}" if estimate.n else text.MISSING,
        "of": "training time" if kind is None else kind.name,
    }


def _tooltip(found: Composition) -> list[alt.Tooltip]:
    titles = {
        "pair": "Pair",
        "of": "Of",
        "words": "Beyond both alone",
        "interval": f"{found.confidence:.0%} interval",
        "mark": "Excludes 0",
        "n": "From",
    }
    return [alt.Tooltip(f"{name}:N", title=title) for name, title in titles.items()]


def _spoken(pair: Pair, found: Composition) -> Iterator[str]:
    quality, time = pair.quality, pair.time
    if quality.value is not None and found.kind is not None:
        words = interval_words(quality, found.kind)
        yield f"{found.kind.name} {quality_words(quality.value, found.kind)} ({words})"
    if time.value is not None:
        yield f"time {time_words(time.value)} ({interval_words(time)})"
