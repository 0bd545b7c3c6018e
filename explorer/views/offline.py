"""Charts for a page without a kernel: the reader chooses metric, x axis, recipes and scales by Vega parameters.

One Vega-Lite specification holds every combination: a row for each point, metric and axis. The scale of an axis cannot
change in Vega-Lite, so a logarithm is taken of the values, and the labels of the axis take it back.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from explorer.analysis.curves import curves
from explorer.analysis.curves import table as curve_table
from explorer.analysis.pareto import front_table
from explorer.page import amounts, theme
from explorer.page.amounts import DAY, HOUR, MINUTE
from explorer.page.document import clipped
from explorer.run_files import Metric
from explorer.views.explorer.axes import energy_unit
from explorer.views.explorer.payments import PAYMENTS, Payment, amount

AXES = ("time", "cost", "energy", "steps", "examples")
MOST_RECIPES = 40  # check boxes that a reader can look through
MOST_POINTS = 60  # of one learning curve
HEIGHT = 380
LEAST_ERROR = 1e-6  # an error of zero has no logarithm
ABOVE, BELOW = 16, 38  # pixels from the plot to the titles of the axes

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """The drawn points of one metric: a row for each point, with `axis`, recipe, x, y, low, high, front and words."""

    kind: Metric
    rows: pd.DataFrame
    target: float | None = None


def tradeoffs(results: Mapping[str, pd.DataFrame], targets: Mapping[str, float | None]) -> list[Measured]:
    """Return the tradeoff curves by metric, along every axis with known amounts. `results` are rows of one machine."""
    measured = []
    for name, rows in results.items():
        parts = [part for key in AXES if (part := _along(rows, PAYMENTS[key])) is not None]
        if parts:
            kind = curves(rows, x="ssr")[0].setting.kind
            measured.append(Measured(kind=kind, rows=pd.concat(parts, ignore_index=True), target=targets.get(name)))
    return measured


def _along(rows: pd.DataFrame, payment: Payment) -> pd.DataFrame | None:
    if payment.column not in rows:
        return None
    known = rows[payment.column].notna() & (rows[payment.column] > 0)
    drawn = curves(rows[known], x=payment.column) if known.any() else []
    if not drawn:
        return None
    front = front_table(rows[known], x=payment.column)
    points = curve_table(drawn)
    if len(front):
        points = points.merge(front[["label", "ssr", "on_front"]], on=["label", "ssr"], how="left")
    kind = drawn[0].setting.kind
    budgets = [f"{ssr:g} of the full schedule, n={n}" for ssr, n in zip(points["ssr"], points["n"], strict=True)]
    return pd.DataFrame(
        {
            "axis": payment.key,
            "recipe": points["label"],
            "x": points["x"],
            "y": points["mean"],
            "low": points["low"],
            "high": points["high"],
            "front": points["on_front"].eq(True) if "on_front" in points else False,
            "own": points["time_source"] != "imported",
            "quality": [amounts.quality(value, kind) for value in points["mean"]],
            "taken": [amount(value, payment) for value in points["x"]],
            "budget": budgets,
        }
    )


def learning(frames: Mapping[str, tuple[Metric, pd.DataFrame]]) -> list[Measured]:
    """Return mean learning curves of the full budget by metric, from frames of `store.learning_curves`."""
    measured = []
    for kind, frame in frames.values():
        full = frame[(frame["ssr"] == 1.0) & (frame["state"] == "finished")]
        parts = [
            part
            for key, column in (("steps", "step"), ("examples", "examples"), ("time", "seconds"))
            if (part := _over(full, key, column, kind)) is not None
        ]
        if parts:
            measured.append(Measured(kind=kind, rows=pd.concat(parts, ignore_index=True)))
    return measured


def _over(frame: pd.DataFrame, key: str, column: str, kind: Metric) -> pd.DataFrame | None:
    known = frame[frame[column].notna() & (frame[column] > 0)]
    if known.empty:
        return None
    # Seeds have the same steps, up to thinning: means over parts of the range are means over seeds.
    part = (known[column] / known.groupby("recipe")[column].transform("max") * MOST_POINTS).apply(math.ceil)
    means = known.assign(part=part).groupby(["recipe", "part"], sort=True).agg(x=(column, "mean"), y=("mean", "mean"))
    means = means.reset_index()
    payment = PAYMENTS[key]
    return pd.DataFrame(
        {
            "axis": key,
            "recipe": means["recipe"],
            "x": means["x"],
            "y": means["y"],
            "low": np.nan,
            "high": np.nan,
            "front": True,
            "own": True,
            "quality": [amounts.quality(value, kind) for value in means["y"]],
            "taken": [amount(round(value, 3), payment) for value in means["x"]],
            "budget": "the full schedule, mean of the seeds",
        }
    )


def offline_spec(
    measured: Sequence[Measured], *, look: theme.Look, baseline: str | None, log_x: bool, points: bool
) -> Json:
    """Return the Vega-Lite specification, as wide as its container.

    Args:
        measured: the metrics, the first of which is shown first.
        look: the colours of the recipes.
        baseline: the recipe whose line is thick.
        log_x: whether the x axis is logarithmic at first.
        points: mark the points; lines of many points have no marks.
    """
    rows = pd.concat([entry.rows.assign(metric=entry.kind.name) for entry in measured], ignore_index=True)
    recipes = list(dict.fromkeys(map(str, rows["recipe"])))[:MOST_RECIPES]
    rows = rows[rows["recipe"].isin(recipes)]
    axes = {key: _axis(PAYMENTS[key], rows.loc[rows["axis"] == key, "x"]) for key in dict.fromkeys(rows["axis"])}
    kinds = {entry.kind.name: _kind(entry) for entry in measured}
    shown = "metric == datum.metric && x_axis == datum.axis"
    return {
        "$schema": theme.SCHEMA,
        "width": "container",
        "height": HEIGHT,
        "padding": {"top": 4, "left": 4, "right": 16, "bottom": 4},
        "config": theme.CONFIG,
        "params": list(_parameters(axes, kinds, recipes, log_x=log_x)),
        "data": {"values": [_row(dict(row), recipes, axes, baseline) for row in rows.to_dict("records")]},
        "layer": [
            *_lines(shown, look),
            *(_points(shown, look, set(rows["own"])) if points else []),
            *_hover(shown, points),
            *_targets(measured, kinds),
            _title("axes[x_axis].title", x="width", y=f"height + {BELOW}", align="right"),
            _title("kinds[metric].title", x="0", y=f"-{ABOVE}", align="left"),
        ],
    }


# --- the parts of the specification ---


def _parameters(axes: Json, kinds: Json, recipes: Sequence[str], *, log_x: bool) -> Iterator[Json]:
    """Yield the parameters: those with `bind` are fields next to the chart, whose names are their labels."""
    names = list(kinds)
    yield {"name": "kinds", "value": kinds}
    yield {"name": "axes", "value": axes}
    choose = {"input": "select", "options": names, "name": "Metric "}
    yield {"name": "metric", "value": names[0]} | ({"bind": choose} if len(names) > 1 else {})
    labels = [axes[key]["label"] for key in axes]
    choose = {"input": "select", "options": list(axes), "labels": labels, "name": "X axis "}
    yield {"name": "x_axis", "value": next(iter(axes))} | ({"bind": choose} if len(axes) > 1 else {})
    yield {"name": "log_x", "value": log_x, "bind": {"input": "checkbox", "name": "Log x "}}
    yield {"name": "log_y", "value": kinds[names[0]]["at_first"], "bind": {"input": "checkbox", "name": "Log y "}}
    for at, recipe in enumerate(recipes):
        box = {"input": "checkbox", "name": f"{clipped(recipe, 40)} "}
        yield {"name": f"show_{at}", "value": True} | ({"bind": box} if len(recipes) > 1 else {})
    boxes = ", ".join(f"show_{at}" for at in range(len(recipes)))
    yield {"name": "shows", "expr": f"[{boxes}]"}
    # A log scale is offered for every metric and does something only where the metric has one.
    yield {"name": "by_log", "expr": "log_y && kinds[metric].log != 'none'"}


_X = "log_x ? log(datum.x) / LN10 : datum.x"
_PLACE = (
    "!by_log ? datum.{y} : kinds[metric].log == 'error' ? -log(max(1 - datum.{y}, 1e-6)) / LN10"
    " : log(max(datum.{y}, 1e-9)) / LN10"
)
_QUALITY = "!by_log ? datum.value : kinds[metric].log == 'error' ? 1 - pow(10, -datum.value) : pow(10, datum.value)"


def _placed(shown: str, *more: str) -> list[Json]:
    """Return the transforms that keep what is shown, and place it on the axes."""
    named = {"px": _X, "py": _PLACE.replace("{y}", "y"), "plow": _PLACE.replace("{y}", "low")}
    named["phigh"] = _PLACE.replace("{y}", "high")
    return [
        {"filter": f"{shown} && shows[datum.at]"},
        *({"filter": condition} for condition in more),
        *({"calculate": expression, "as": name} for name, expression in named.items()),
    ]


def _channels() -> Json:
    x_value = "(log_x ? pow(10, datum.value) : datum.value)"
    return {
        "x": {
            "field": "px",
            "type": "quantitative",
            "title": None,
            "scale": {"zero": False, "padding": 14},
            "axis": {
                "values": {"expr": "log_x ? axes[x_axis].ticks : null"},
                "tickCount": 6,
                "labelExpr": f"axes[x_axis].sign + format({x_value}, '.3~r')",
                "labelOverlap": True,
            },
        },
        "y": {
            "field": "py",
            "type": "quantitative",
            "title": None,
            "scale": {"zero": False, "padding": 10},
            "axis": {
                "values": {"expr": "by_log ? kinds[metric].ticks : null"},
                "tickCount": 6,
                "labelExpr": f"format(({_QUALITY}) * kinds[metric].times, '.4~r') + kinds[metric].sign",
                "labelOverlap": True,
            },
        },
    }


def _colour(look: theme.Look) -> Json:
    return {"field": "group", "type": "nominal", "scale": look.scale(look.colours), "legend": _legend(look)}


def _legend(look: theme.Look) -> Json:
    return look.legend | {"offset": 30, "symbolStrokeWidth": 3}


def _lines(shown: str, look: theme.Look) -> Iterator[Json]:
    encoding = _channels() | {"color": _colour(look), "detail": {"field": "recipe"}}
    thick = {"condition": {"test": "datum.base", "value": 3}, "value": 1.8}
    yield {
        "name": "curves",
        "transform": _placed(shown),
        "mark": {"type": "line", "clip": True},
        "encoding": encoding | {"strokeWidth": thick, "order": {"field": "px"}},
    }


def _points(shown: str, look: theme.Look, own: set[bool]) -> Iterator[Json]:
    whole = _channels() | {"color": _colour(look), "detail": {"field": "recipe"}}
    yield {
        "name": "intervals",
        "transform": _placed(shown, "isValid(datum.low)"),
        "mark": {"type": "rule", "opacity": 0.35, "clip": True},
        "encoding": whole | {"y": whole["y"] | {"field": "plow"}, "y2": {"field": "phigh"}},
    }
    # Imported runs are hollow: nothing about them was observed. An empty layer would be a picture without a name.
    for filled in sorted(own):
        yield {
            "name": "points" if filled else "imported",
            "transform": _placed(shown, "datum.own" if filled else "!datum.own"),
            "mark": {"type": "point", "filled": filled, "size": 70, "strokeWidth": 2, "clip": True},
            "encoding": whole
            | {
                "shape": {
                    "field": "group",
                    "type": "nominal",
                    "scale": look.scale(look.shapes),
                    "legend": _legend(look),
                },
                "opacity": {"condition": {"test": "datum.front", "value": 1}, "value": 0.45},
            },
        }


def _hover(shown: str, points: bool) -> Iterator[Json]:
    words = {"name": "Recipe", "quality": "Quality", "taken": "Takes", "budget": "Budget"}
    yield {
        "name": "hover",
        "transform": _placed(shown),
        "mark": {"type": "point", "size": 220 if points else 60, "opacity": 0, "filled": True},
        "encoding": _channels() | {"tooltip": [{"field": field, "title": title} for field, title in words.items()]},
    }


def _targets(measured: Sequence[Measured], kinds: Json) -> Iterator[Json]:
    values = [
        {"metric": entry.kind.name, "y": entry.target, "words": f"target {amounts.quality(entry.target, entry.kind)}"}
        for entry in measured
        if entry.target is not None and entry.kind.name in kinds
    ]
    if not values:
        return
    transform = [{"filter": "metric == datum.metric"}, {"calculate": _PLACE.replace("{y}", "y"), "as": "py"}]
    y = {"y": _channels()["y"]}
    yield {
        "name": "target",
        "data": {"values": values},
        "transform": transform,
        "mark": {"type": "rule", "strokeDash": [5, 4], "opacity": 0.6, "color": theme.TEXT},
        "encoding": y,
    }
    place = {"type": "text", "x": 4, "align": "left", "baseline": "bottom", "dy": -4, "color": theme.TEXT}
    yield {
        "data": {"values": values},
        "transform": transform,
        "mark": place | {"opacity": 0.8},
        "encoding": y | {"text": {"field": "words"}},
    }


def _title(expression: str, *, x: str, y: str, align: str) -> Json:
    """Return the title of an axis, which changes with what is chosen: Vega-Lite's own cannot."""
    mark = {"type": "text", "align": align, "color": theme.TEXT, "opacity": 0.8, "fontSize": 12, "clip": False}
    place = {"x": {"expr": x}, "y": {"expr": y}, "text": {"expr": expression}}
    return {"data": {"values": [{}]}, "mark": mark | place}


# --- values ---


def _row(row: Mapping[Any, Any], recipes: Sequence[str], axes: Json, baseline: str | None) -> Json:
    return {
        "metric": row["metric"],
        "axis": row["axis"],
        "at": recipes.index(row["recipe"]),
        "recipe": row["recipe"],
        "group": row["recipe"],
        "base": row["recipe"] == baseline,
        "x": row["x"] / axes[row["axis"]]["unit"],
        "y": row["y"],
        "low": _finite(row["low"]),
        "high": _finite(row["high"]),
        "front": bool(row["front"]),
        "own": bool(row["own"]),
        "quality": row["quality"],
        "taken": row["taken"],
        "budget": row["budget"],
    }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _axis(payment: Payment, values: pd.Series) -> Json:
    """Return what an x axis is drawn with: its unit, its title and the ticks of its log scale."""
    unit, name = 1.0, ""
    if payment.unit == "seconds":
        most = float(values.max())
        sizes = ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes"))
        unit, name = next(((size, words) for size, words in sizes if most >= 2 * size), (1.0, "seconds"))
    elif payment.unit == "kWh":
        unit, name = energy_unit(float(values.max()))
    low, high = float(values.min()) / unit, float(values.max()) / unit
    return {
        "label": payment.label,
        "title": payment.title + (f" ({name})" if name else ""),
        "unit": unit,
        "sign": "$" if payment.unit == "dollars" else "",
        # Of one value Vega makes an axis on which every tick has the same place.
        "ticks": [math.log10(tick) for tick in (_ticks(low * 0.8, high * 1.25) if high > 1.001 * low else [low])],
    }


def _kind(entry: Measured) -> Json:
    """Return what the y axis of a metric is drawn with; small errors are told apart by a log scale of the error."""
    kind, values = entry.kind, entry.rows["y"]
    errors = 1 - values
    log = "error" if kind.bounded and kind.higher_is_better else "log" if (values > 0).all() else "none"
    spread = errors.clip(lower=LEAST_ERROR) if log == "error" else values
    ticks: list[float] = []
    if log == "error":
        ticks = [-math.log10(error) for error in _ticks(float(spread.min()) * 0.8, min(1.0, float(spread.max()) * 1.2))]
    elif log == "log":
        ticks = [math.log10(value) for value in _ticks(float(values.min()) * 0.9, float(values.max()) * 1.1)]
    better = "higher is better" if kind.higher_is_better else "lower is better"
    return {
        "title": f"{kind.title()}, {better}",
        "times": 100 if kind.percent else 1,
        "sign": "%" if kind.percent else "",
        "log": log,
        "ticks": ticks,
        "at_first": log == "error" and float(spread.max()) / float(spread.min()) > 6,
    }


def _ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten within a range; of a wide one only the powers.

    >>> _ticks(0.1, 3)
    [0.1, 0.2, 0.5, 1.0, 2.0]
    """
    if not 0 < low < high:
        return [low] if low > 0 else []
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= 4 else (1,)
    if len(decades) <= 2:
        steps = (1, 1.5, 2, 3, 5, 7)
    ticks = [float(f"{step}e{decade}") for decade in decades for step in steps]
    return [tick for tick in ticks if low <= tick <= high]
