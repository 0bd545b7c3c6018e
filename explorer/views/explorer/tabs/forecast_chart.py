"""Forecasts as a picture and a table: what was measured, the law that fits it, and that law beyond it, dashed."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import altair as alt
import pandas as pd

from explorer.analysis.budget_law import ASSUMED, Forecast
from explorer.errors import ExplorerError
from explorer.page import amounts, theme
from explorer.page.document import Block, Column, Paragraph, Row, Table, clipped
from explorer.page.pictures import picture
from explorer.views.explorer.axes import Heights, heights, quality_axis
from explorer.views.explorer.curves_chart import with_others
from explorer.views.explorer.tabs.ask_words import FORECAST_COLUMNS, FORECAST_NUMBERS, forecast_rows, forecast_title

HEIGHT = 280
EDGE = 1.06  # room at the ends of the axis of budgets, as a factor
MOST = 6  # recipes in the picture: the bands of more would cover each other
CAPTION = (
    "Filled: means over seeds, as measured. Lines: the law that was fitted to them. Dashed and hollow: the forecast,"
    " where nothing was measured, with its 95% interval as a band."
)


def forecast_blocks(forecasts: Sequence[Forecast] | ExplorerError | None, *, look: theme.Look | None) -> list[Block]:
    """Return forecasts as a picture and a table with what they assume, or why there are none.

    There is nothing where none was asked for. With `look`, recipes have the colours of another chart.
    """
    if forecasts is None:
        return []
    if isinstance(forecasts, ExplorerError):
        return [Paragraph(str(forecasts), "alert")]
    title = forecast_title(forecasts[0].budget)
    blocks: list[Block] = [Paragraph(f"{title[0].upper()}{title[1:]}.")]
    known = [one for one in forecasts if not one.reason]
    if known:
        first = best(known)
        only = f" Only the {MOST} best of {len(known)} are drawn." if len(known) > MOST else ""
        blocks.append(picture("forecast", partial(forecast_chart, first, look=look), f"{CAPTION}{only}"))
    columns = [Column(name.capitalize(), number=name in FORECAST_NUMBERS) for name in FORECAST_COLUMNS]
    rows = [Row(cells, quiet=bool(one.reason)) for one, cells in zip(forecasts, forecast_rows(forecasts), strict=True)]
    return [*blocks, Table(columns, rows), Paragraph(ASSUMED, "note")]


def best(known: Sequence[Forecast]) -> list[Forecast]:
    """Return the forecasts that are drawn: those of the best quality, in the order in which they came."""
    sign = 1 if known[0].setting.higher_is_better else -1
    ordered = sorted(known, key=lambda one: -sign * one.way[-1].quality)[:MOST]
    return [one for one in known if one in ordered]


def forecast_chart(
    forecasts: Sequence[Forecast], *, look: theme.Look | None = None, width: int | str = "container"
) -> alt.LayerChart:
    """Draw quality against budget, as measured and as forecast, a colour for each recipe; none lacks a forecast."""
    kind, labels = forecasts[0].setting.kind, [one.label for one in forecasts]
    colours = with_others(look, labels) if look and look.recipes else theme.look(labels, baseline=None)
    lows, highs = ([getattr(ahead, end) for one in forecasts for ahead in one.way] for end in ("low", "high"))
    place = heights([*lows, *highs, *(quality for one in forecasts for quality in one.measured)], kind)
    # --- what is drawn: marks of what was measured, the law, its band beyond the last budget, and where that ends ---
    means = [
        (one.label, clipped(one.label), budget, quality, amounts.quality(quality, kind), n)
        for one in forecasts
        for budget, quality, n in zip(one.budgets, one.measured, one.seeds, strict=True)
    ]
    laws = [
        *((one.label, x, y, None, None) for one in forecasts for x, y in zip(one.budgets, one.fitted, strict=True)),
        *((one.label, at.budget, at.quality, at.low, at.high) for one in forecasts for at in one.way),
    ]
    ends = [(one.label, clipped(one.label), one.budget, one.way[-1].quality, quality_words(one)) for one in forecasts]
    measured = _frame(means, ["recipe", "name", "x", "y", "words", "seeds"], place)
    law = _frame(laws, ["recipe", "x", "y", "low", "high"], place)
    hollow = _frame(ends, ["recipe", "name", "x", "y", "words"], place)
    ahead = law[law["low"].notna()]
    # --- the axes: budgets grow by factors, and those that were run or forecast are what there is to read ---
    budgets = sorted({*measured["x"], *hollow["x"]})
    scale = alt.Scale(type="log", domain=[budgets[0] / EDGE, budgets[-1] * EDGE], nice=False)
    axis = alt.Axis(values=budgets, format="~g", labelFlush=False)
    x, colour = alt.X("x:Q", title="Budget (1 is the full one)", scale=scale, axis=axis), colours.colour("recipe")
    y = quality_axis(place)
    names = [alt.Tooltip("name:N", title="recipe"), alt.Tooltip("x:Q", title="budget", format="~g")]
    mean = alt.Tooltip("words:N", title=f"{kind.name}, measured")
    guess = alt.Tooltip("words:N", title=f"{kind.name}, forecast")

    def base(frame: pd.DataFrame) -> alt.Chart:
        return alt.Chart(frame).encode(x=x, y=y, color=colour)

    layers = [
        base(ahead.assign(y=ahead["low"])).mark_area(opacity=0.13).encode(y2="high:Q"),
        base(law[law["low"].isna()]).mark_line(strokeWidth=1.8),
        base(ahead).mark_line(strokeWidth=1.8, strokeDash=[5, 4]),
        base(measured)
        .mark_point(filled=True, size=50, opacity=1)
        .encode(shape=colours.shape("recipe"), tooltip=[*names, mean, alt.Tooltip("seeds:Q")]),
        base(hollow)
        .mark_point(filled=False, size=80, opacity=1, strokeWidth=2)
        .encode(shape=colours.shape("recipe"), tooltip=[*names, guess]),
        alt.Chart(pd.DataFrame({"x": [budgets[-1]], "words": ["forecast"]}))
        .mark_text(align="right", baseline="bottom", color=theme.TEXT, fontSize=12)
        .encode(x=x, y=alt.value(-8), text="words:N"),
    ]
    chart = alt.LayerChart(layer=layers).properties(width=width, height=HEIGHT, description=describe(forecasts))
    return theme.styled(chart)


def quality_words(one: Forecast) -> str:
    """Return a forecast with its interval."""
    kind = one.setting.kind
    return (
        f"{amounts.quality(one.quality, kind)}, 95% interval {amounts.quality(one.low, kind)} to"
        f" {amounts.quality(one.high, kind)}"
    )


def _frame(rows: Sequence[tuple[Any, ...]], columns: Sequence[str], place: Heights) -> pd.DataFrame:
    """Return rows as a frame, with places on the y axis instead of qualities."""
    frame = pd.DataFrame(rows, columns=list(columns))
    placed = {name: place.within(frame[name].to_numpy(float)) for name in ("y", "low", "high") if name in frame}
    return frame.assign(**placed)


def describe(forecasts: Sequence[Forecast]) -> str:
    """Return the picture in sentences, for screen readers."""
    kind = forecasts[0].setting.kind
    parts = [
        f"{clipped(one.label)}: {amounts.quality(one.measured[-1], kind)} measured at budget {one.budgets[-1]:g},"
        f" {quality_words(one)}, forecast at {one.budget:g}."
        for one in forecasts
    ]
    return " ".join([f"{kind.name} against budget, forecasts dashed.", *parts])
