"""Tradeoff chart: its content, put together from the curves and the front of the analysis, and its drawing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from explorer.analysis import curves, pareto
from explorer.analysis.curves import Curve
from explorer.analysis.ladders import Machine
from explorer.page import amounts, theme
from explorer.page.document import clipped
from explorer.run_files import Metric
from explorer.views.explorer.axes import Heights, heights, payment_axis, quality_axis
from explorer.views.explorer.choices import machines
from explorer.views.explorer.payments import Measure, Payment, amount, measure_of

BETWEEN = 6  # drawn points between two budgets, where a line that is straight in log x bends on the axes
MAX_DRAWN = 600  # points of all lines together: many lines have fewer points each
MAX_RUNS = 500  # marks; of more runs only the means are drawn
UNGOVERNED = "no policy"
NO_METHODS = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """Content of a tradeoff chart. x is in seconds, dollars or a count (`payment`), y in the metric's unit.

    Every row has `recipe`, its label; `series`, the curve that it belongs to; `group`, which gives it its colour.

    `runs`: a row for each run: x, y, and the columns of `results`.
    `means`: a row for each budget of a curve: x, y, ssr, n, time_source, on_front, probability of being on it (NaN if
    unknown), size.
    `lines`: a row for each drawn point of a curve: x, y, low, high (NaN without a band).
    `front`: x, y of the frontier's corners, by x.
    """

    runs: pd.DataFrame
    means: pd.DataFrame
    lines: pd.DataFrame
    front: pd.DataFrame
    payment: Payment
    kind: Metric  # of the qualities
    baseline: str | None  # its group, drawn in the colour of the text
    base: str | None  # its label
    target: float | None
    size: Measure | None = None
    log: bool = True
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    @property
    def metric(self) -> str:
        """The name of the metric."""
        return self.kind.name

    @property
    def heights(self) -> Heights:
        """Scale of the y axis, which holds runs and target; a band that goes further is cut off."""
        return heights(self.y_range, self.kind)

    @property
    def groups(self) -> list[str]:
        """The groups, each with a colour of its own, in the order of the results and of the legend."""
        return list(dict.fromkeys(self.means["group"]))

    @property
    def recipes(self) -> list[str]:
        """The labels of the recipes, in the order of the results."""
        return list(dict.fromkeys(self.means["recipe"]))

    @property
    def controls(self) -> list[str]:
        """The recipes that exist for others to be compared with; they are never on the front."""
        if "control" not in self.runs:
            return []
        return list(dict.fromkeys(self.runs.loc[self.runs["control"] == "random-subset", "recipe"]))

    @property
    def draws_runs(self) -> bool:
        """True if single runs are drawn as well as the means."""
        return 0 < len(self.runs) <= MAX_RUNS

    def of(self, series: Sequence[str], runs: pd.Series | None = None) -> "Scene":
        """Return the part of some curves on the same axes; of their runs only those that the mask `runs` marks."""
        kept = self.runs if runs is None else self.runs[runs]
        return replace(
            self,
            runs=kept[kept["series"].isin(series)],
            means=self.means[self.means["series"].isin(series)],
            lines=self.lines[self.lines["series"].isin(series)],
        )


def build_scene(
    rows: pd.DataFrame,
    *,
    payment: Payment,
    baseline: str | None,
    target: float | None,
    log: bool = True,
    compare: str = "recipe",
    size: str = "",
    deletion_of: str = "",
) -> Scene | None:
    """Return the scene of some rows of `results`, all of one sweep and metric; None if none has an amount of `payment`.

    Args:
        rows: the rows of the runs that are drawn.
        payment: the x axis.
        baseline: the label of the baseline, which is drawn in bold.
        target: a quality that is drawn as a line.
        log, compare, size, deletion_of: the fields of a `Question`.

    Raises `AnalysisError` for results that no curve can be made of.
    """
    drawn = curves.curves(rows, x=payment.column)
    if not drawn:
        return None
    # Names and colours belong to curves; runs and means take theirs from the curve that they belong to.
    setting = drawn[0].setting
    names, groups = series_names(drawn), group_of(rows, drawn, compare)
    runs = _runs(rows, drawn, names, groups, payment)
    means = _means(drawn, names, groups, rows, payment)
    measure = measure_of(size, class_=deletion_of)
    if measure is not None:
        means = means.merge(_sizes(runs, measure), how="left", on=["series", "ssr"])
    # The target belongs to the range of y: a target out of reach must stay visible.
    targets = () if target is None else (target,)
    y_range = extent([*runs["y"], *means["y"], *targets])
    place = heights(y_range, setting.kind)
    return Scene(
        runs=runs,
        means=means,
        lines=_lines(drawn, names, groups, straight=log and not place.log),
        front=means.loc[means["on_front"], ["x", "y"]].sort_values("x"),
        payment=payment,
        kind=setting.kind,
        baseline=baseline if compare == "recipe" else _group_of_baseline(means, baseline),
        base=baseline,
        target=target,
        size=measure,
        log=log,
        x_range=extent([*runs["x"], *means["x"]]),
        y_range=y_range,
    )


def extent(values: Sequence[float]) -> tuple[float, float]:
    """Return the least and the largest value."""
    return float(min(values)), float(max(values))


Names = dict[tuple[Machine, str], str]
"""Texts for curves, by machine and label."""


def _means(drawn: list[Curve], names: Names, groups: Names, rows: pd.DataFrame, payment: Payment) -> pd.DataFrame:
    """Return the mean points, each with its place on the front over everything that is drawn."""
    front = pareto.front_table(rows, x=payment.column)
    keys = ["label", "ssr", "device", "hardware", "threads", "world_size"]
    front = front[[*keys, "on_front", "probability"]] if len(front) else pd.DataFrame(columns=[*keys, "on_front"])
    means = curves.table(drawn).merge(front, on=keys, how="left")
    places = [curve.setting.machine for curve in drawn for _ in curve.points]
    means = means.assign(
        recipe=means["label"],
        series=[names[place, label] for place, label in zip(places, means["label"], strict=True)],
        group=[groups[place, label] for place, label in zip(places, means["label"], strict=True)],
        y=means["mean"],
        candidate=means["on_front"].notna(),  # the front table has no controls
        on_front=means["on_front"].eq(True),
    )
    if len({curve.setting.machine for curve in drawn}) > 1:
        means = _front_over_all(means, higher=drawn[0].setting.higher_is_better)
    columns = ["recipe", "series", "group", "x", "y", "ssr", "n", "time_source", "on_front", "probability"]
    return means.reindex(columns=columns)


def _front_over_all(means: pd.DataFrame, *, higher: bool) -> pd.DataFrame:
    """Return the means with the front over several machines at once. Its probabilities are unknown: seeds are resampled
    only within a machine."""
    candidates = means[means["candidate"]]
    best = candidates.index[
        pareto.front(candidates["x"].to_numpy(), candidates["y"].to_numpy(), higher_is_better=higher)
    ]
    return means.assign(on_front=means.index.isin(best), probability=np.nan)


def _runs(rows: pd.DataFrame, drawn: list[Curve], names: Names, groups: Names, payment: Payment) -> pd.DataFrame:
    shown = rows[rows[payment.column].notna()]
    places, labels = run_labels(shown, drawn)
    pairs = list(zip(places, labels, strict=True))
    return shown.assign(
        recipe=labels,
        series=[names[pair] for pair in pairs],
        group=[groups[pair] for pair in pairs],
        x=shown[payment.column],
        y=shown["quality"],
    )


def _sizes(runs: pd.DataFrame, measure: Measure) -> pd.DataFrame:
    """Return the median of a measure at each budget of each curve."""
    grouped = runs.groupby(["series", "ssr"], sort=False)[measure.column].median()
    return grouped.rename("size").reset_index()


def _lines(drawn: list[Curve], names: Names, groups: Names, *, straight: bool) -> pd.DataFrame:
    """Return the curves as lines. The analysis interpolates linearly in log x; other axes need points in between."""
    parts, total = [], sum(len(curve.points) for curve in drawn)
    for curve in drawn:
        points = np.array([[p.x, p.fitted, _number(p.low), _number(p.high)] for p in curve.points])
        between = 1 if straight else max(1, min(BETWEEN, MAX_DRAWN // total))
        at, corners = np.arange((len(points) - 1) * between + 1), np.arange(len(points)) * between
        log_x = np.log(points[:, 0])
        places = np.interp(at, corners, log_x)
        ends = [np.interp(places, log_x, column) for column in points[:, 1:].T]
        parts.append(np.column_stack([np.exp(places), *ends]))
    keys = [(curve.setting.machine, curve.label) for curve in drawn]
    frame = pd.DataFrame(np.concatenate(parts), columns=["x", "y", "low", "high"])
    lengths = [len(part) for part in parts]
    return frame.assign(
        recipe=np.repeat([label for _, label in keys], lengths),
        series=np.repeat([names[key] for key in keys], lengths),
        group=np.repeat([groups[key] for key in keys], lengths),
    )


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _group_of_baseline(means: pd.DataFrame, baseline: str | None) -> str | None:
    """Return the group of the baseline if it holds no other recipe."""
    mine = set(means.loc[means["recipe"] == baseline, "group"])
    others = set(means.loc[means["recipe"] != baseline, "group"])
    return next(iter(mine)) if len(mine) == 1 and not mine & others else None


# ---- names and groups of curves: a curve is one recipe on one machine


def series_names(drawn: Sequence[Curve]) -> dict[tuple[Machine, str], str]:
    """Return the name of each curve, by machine and label; with its machine where several are drawn at once."""
    several = len({curve.setting.machine for curve in drawn}) > 1
    return {
        (curve.setting.machine, curve.label): f"{curve.label}, {curve.setting.machine}" if several else curve.label
        for curve in drawn
    }


def run_labels(rows: pd.DataFrame, drawn: Sequence[Curve]) -> tuple[list[Machine], list[str]]:
    """Return the machine and the label of each row's curve: the recipe, with its digest if several have that name."""
    known = {(curve.setting.machine, curve.label) for curve in drawn}
    places = machines(rows)
    labels = [
        recipe if (place, recipe) in known else f"{recipe} ({digest[:6]})"
        for place, recipe, digest in zip(places, rows["recipe"], rows["recipe_digest"], strict=True)
    ]
    return places, labels


def group_of(rows: pd.DataFrame, drawn: Sequence[Curve], compare: str) -> dict[tuple[Machine, str], str]:
    """Return the group of each curve, which gives its colour, by machine and label; `compare` is a `Question`'s."""
    first = rows.drop_duplicates(["recipe_digest", "device", "hardware", "threads", "world_size"])
    places, labels = run_labels(first, drawn)
    return {
        (place, label): group_name(compare, label, place, methods, policy)
        for place, label, methods, policy in zip(places, labels, first["methods"], _policies(first), strict=True)
    }


def group_name(compare: str, label: str, place: Machine, methods: object, policy: object) -> str:
    """Return the group of a curve, given a key of `question.COMPARE`."""
    match compare:
        case "methods":
            return str(methods).replace("+", " + ") if isinstance(methods, str) and methods else NO_METHODS
        case "hardware":
            return str(place)
        case "policy":
            return policy if isinstance(policy, str) else UNGOVERNED
        case _:
            return label


def _policies(rows: pd.DataFrame) -> pd.Series:
    return rows["policy"] if "policy" in rows else pd.Series(None, index=rows.index, dtype=object)


# ---- drawing

BRUSH = "brush"
DIM = 0.3
SIZES = (50, 600)  # of the smallest and the largest mark, in square pixels


Brush = tuple[float, ...]
"""x from, x to, quality from, quality to; empty without a brush"""


def tradeoff(
    scene: Scene, *, width: int | str = "container", height: int = 400, brush: Brush | None = None
) -> alt.LayerChart:
    """Draw a scene. With `brush`, which may be empty, runs can be selected by dragging (`BRUSH`)."""
    return alt.LayerChart(  # in one call, because every method of a chart copies all of it
        layer=layers(scene, brush=brush),
        width=width,  # pyright: ignore[reportArgumentType]: "container", or pixels
        height=height,
        padding={"top": 18, "left": 2, "right": 12, "bottom": 4},
        description=describe(scene),
        resolve=alt.Resolve(scale={"color": "shared", "shape": "shared"}),
        config=theme.CONFIG,
    )


def layers(scene: Scene, *, brush: Brush | None = None, look: theme.Look | None = None) -> list[Any]:
    """Return the layers of the chart. `look` gives the colours; by default the scene's own."""
    look = look or look_of(scene)
    x = payment_axis(scene.payment, scene.x_range, log=scene.log)
    y = quality_axis(scene.heights)
    # From bottom to top: bands, front, target, lines, means, runs. The topmost marks take the clicks: single runs, or
    # means where there are too many runs to draw.
    parts = [_band(scene, x, y, look), _front(scene, x, y), _target(scene, x, y)]
    parts.append(_line_layer(scene, x, y, look) if len(scene.lines) else None)
    parts += _mean_layers(scene, x, y, look, brush=None if scene.draws_runs else brush)
    parts.append(_seeds(scene, x, y, look, brush=brush) if scene.draws_runs else None)
    return [layer for layer in parts if layer is not None]


def look_of(scene: Scene) -> theme.Look:
    """Return the colour of each group, and the group of each label."""
    first = scene.means.drop_duplicates("recipe")
    groups = {str(label): str(group) for label, group in zip(first["recipe"], first["group"], strict=True)}
    return theme.look(scene.groups, baseline=scene.baseline, groups=groups)


def describe(scene: Scene) -> str:
    """Return the chart in a sentence or two, for screen readers."""
    names = scene.recipes
    on_front = set(scene.means.loc[scene.means["on_front"].astype(bool), "recipe"])
    direction = "higher" if scene.kind.higher_is_better else "lower"
    parts = [
        f"{scene.metric} ({direction} is better) against {scene.payment.title.lower()} for "
        f"{amounts.count(len(names), 'recipe')}: {listed(names)}.",
        f"On the frontier: {listed([name for name in names if name in on_front]) or 'none'}.",
    ]
    if scene.controls:
        parts.append(f"Controls, dashed: {listed(scene.controls)}.")
    if scene.target is not None:
        parts.append(f"Target quality: {amounts.quality(scene.target, scene.kind)}.")
    if scene.size is not None:
        parts.append(f"The size of a mark is {scene.size.label.lower()}.")
    return " ".join(parts)


def listed(names: list[str], *, most: int = 12) -> str:
    """Return names in a row, as many as a listener can follow."""
    rest = len(names) - most
    shown = ", ".join(clipped(name) for name in names[:most])
    return f"{shown} and {rest} more" if rest > 0 else shown


def _band(scene: Scene, x: alt.X, y: alt.Y, look: theme.Look) -> alt.Chart | None:
    frame = scene.lines.dropna(subset=["low", "high"])
    if frame.empty:
        return None
    place = scene.heights
    frame = frame[["series", "group", "x"]].assign(y=place.within(frame["low"]), high=place.within(frame["high"]))
    return (
        alt.Chart(frame, name="bands")
        .mark_area(opacity=0.13 if len(scene.recipes) <= 3 else 0.08, clip=True)
        .encode(x=x, y=y, y2=alt.Y2("high:Q"), color=look.colour(), detail=alt.Detail("series:N"))
    )


def _front(scene: Scene, x: alt.X, y: alt.Y) -> alt.Chart | None:
    if scene.front.empty:
        return None
    return (
        alt.Chart(_placed(scene.front[["x", "y"]], scene), name="front")
        .mark_line(interpolate="step-after", color=theme.TEXT, opacity=0.35, strokeWidth=1.5)
        .encode(x=x, y=y)
    )


def _target(scene: Scene, x: alt.X, y: alt.Y) -> alt.LayerChart | None:
    if scene.target is None:
        return None
    label = f"target {amounts.quality(scene.target, scene.kind)}"
    frame = _placed(pd.DataFrame({"y": [scene.target], "label": [label]}), scene)
    base = alt.Chart(frame)
    rule = base.mark_rule(color=theme.TEXT, opacity=0.5, strokeDash=[5, 4]).encode(y=y)
    words = base.mark_text(
        x=0, align="left", baseline="bottom", dx=4, dy=-4, color=theme.TEXT, fontSize=12, opacity=0.75
    )
    return alt.LayerChart(layer=[rule, words.encode(y=y, text=alt.Text("label:N"))])


def _line_layer(scene: Scene, x: alt.X, y: alt.Y, look: theme.Look) -> alt.Chart:
    frame = _placed(scene.lines, scene).assign(bright=_bright(scene.lines, scene))
    frame = frame.assign(base=frame["recipe"] == scene.base, control=frame["recipe"].isin(scene.controls))
    frame = frame[["series", "group", "x", "y", "bright", "base", "control"]]
    dashed = {"strokeDash": _if("control", [5, 4], [1, 0], channel=alt.StrokeDashValue)} if scene.controls else {}
    return (
        alt.Chart(frame, name="curves")
        .mark_line()
        .encode(
            x=x,
            y=y,
            color=look.colour(),
            detail=alt.Detail("series:N"),
            strokeWidth=_if("base", 3, 2, channel=alt.StrokeWidthValue),
            opacity=_if("bright", 1, DIM),
            **dashed,
        )
    )


def _seeds(scene: Scene, x: alt.X, y: alt.Y, look: theme.Look, *, brush: Brush | None) -> alt.Chart:
    frame = _worded(scene.runs, scene).assign(bright=_bright(scene.runs, scene))
    chart = (
        alt.Chart(frame, name="runs")
        .mark_point(size=26, strokeWidth=1.2, clip=True)
        .encode(
            x=x,
            y=y,
            color=look.colour(),
            shape=look.shape(),
            opacity=_if("bright", 0.6, DIM / 2),
            tooltip=_tooltip(_RUN_WORDS, frame, scene),
        )
    )
    return chart if brush is None else chart.add_params(*_selections(scene, brush))


def _if(field: str, value: Any, otherwise: Any, *, channel: Any = alt.OpacityValue) -> Any:
    """Return one value where a field is true and another elsewhere. `alt.condition` takes ten times as long."""
    return channel(value=otherwise, condition={"test": f"datum.{field}", "value": value})


def _selections(scene: Scene, brush: Brush) -> list[alt.Parameter]:
    """Return the selection by dragging, which begins with the current brush."""
    place = scene.heights.drawn
    drawn: Any = {"x": [*brush[:2]], "y": sorted(map(place, brush[2:]))} if len(brush) == 4 else alt.Undefined
    mark = alt.BrushConfig(fill=theme.TEXT, fillOpacity=0.06, stroke=theme.TEXT, strokeOpacity=0.4)
    return [
        alt.selection_interval(name=BRUSH, mark=mark, value=drawn, zoom=False),  # the wheel belongs to the page
    ]


def _mean_layers(scene: Scene, x: alt.X, y: alt.Y, look: theme.Look, *, brush: Brush | None) -> list[alt.Chart]:
    """Return the means: filled marks for measured amounts, hollow ones for others, a cross in predicted ones.

    With a `brush`, means can be selected.
    """
    frame = _worded(scene.means, scene).assign(bright=_bright(scene.means, scene))
    exact = scene.payment.counted
    measured = ((frame["time_source"] == "measured") & (not scene.payment.forecast)) | exact
    predicted = ((frame["time_source"] == "predicted") | scene.payment.forecast) & (not exact)

    def layer(rows: pd.Series, **mark: Any) -> alt.Chart:
        name = "filled" if mark["filled"] else "hollow"
        size: Any = alt.Undefined if scene.size is None else _size(scene)
        if scene.size is not None:
            mark["fillOpacity"] = 0.25  # large marks overlap
        return (
            alt.Chart(frame[rows], name=name)
            .mark_point(size=95, opacity=1, strokeWidth=2.2, clip=True, **mark)
            .encode(
                x=x,
                y=y,
                color=look.colour(),
                shape=look.shape(),
                opacity=_if("bright", 1, DIM),
                tooltip=_tooltip(_MEAN_WORDS, frame, scene),
                size=size,
            )
        )

    layers = []
    if measured.any():
        layers.append(layer(measured, filled=True))
    if not measured.all():
        layers.append(layer(~measured, filled=False))
    if predicted.any():
        cross = alt.Chart(frame[predicted], name="predicted").mark_point(shape="cross", filled=True, size=40)
        layers.append(cross.encode(x=x, y=y, color=look.colour()))
    if brush is not None:
        layers[0] = layers[0].add_params(*_selections(scene, brush))
    return layers


def _size(scene: Scene) -> alt.Size:
    """Return the size channel over the field `size`, labelled in words."""
    assert scene.size is not None  # the caller checks
    known = scene.means["size"].dropna()
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    # Vega formats no times: the labels of three ticks are spelt out in an expression.
    ticks = sorted({low, (low + high) / 2, high})
    words = " : ".join([*(f"datum.value == {tick!r} ? '{scene.size.words(tick)}'" for tick in ticks), "''"])
    legend = alt.Legend(
        title=scene.size.label,
        titleFontWeight="normal",
        orient="bottom",
        direction="horizontal",
        values=ticks,
        labelExpr=words,
        symbolFillColor="transparent",
        symbolStrokeColor=theme.TEXT,
        symbolType="circle",
    )
    scale = alt.Scale(domain=[low, high if high > low else low + 1], range=list(SIZES))
    return alt.Size("size:Q", scale=scale, legend=legend)


_RUN_WORDS = {
    "recipe_text": "Recipe",
    "methods_text": "Methods",
    "quality_text": "",
    "time_text": "Training time",
    "cost_text": "Cost",
    "deletion_text": "Deletion",
    "budget": "Budget",
    "seed": "Seed",
    "hardware": "Hardware",
    "run_id": "Run",
}
_MEAN_WORDS = {
    "recipe_text": "Recipe",
    "quality_text": "Mean ",
    "time_text": "",
    "size_text": "",
    "budget": "Budget",
    "n": "Seeds (n)",
    "time_source": "Timing source",
    "front_text": "On the frontier",
}


def _tooltip(words: dict[str, str], frame: pd.DataFrame, scene: Scene) -> list[alt.Tooltip]:
    """Return the tooltip: the columns that the frame has, with their titles."""
    titles = words | {
        "quality_text": f"{words['quality_text']}{scene.metric}",
        "time_text": words["time_text"] or scene.payment.label,
        "size_text": scene.size.label if scene.size else "",
    }
    return [alt.Tooltip(f"{name}:N", title=title) for name, title in titles.items() if name in frame]


def _placed(frame: pd.DataFrame, scene: Scene) -> pd.DataFrame:
    """Return the rows with their qualities in `y` turned into places on the axis."""
    return frame.assign(y=scene.heights.drawn(frame["y"]))


def _bright(frame: pd.DataFrame, scene: Scene) -> pd.Series:
    """Mark the rows of bright curves: the baseline's, and those on the frontier anywhere. Other curves are dimmed."""
    on_front = scene.means["on_front"].astype(bool)
    bright = {*scene.means.loc[on_front, "series"]}
    return frame["series"].isin(bright) | (frame["recipe"] == scene.base)


def _worded(frame: pd.DataFrame, scene: Scene) -> pd.DataFrame:
    """Return the rows with the texts of their tooltips."""
    words: dict[str, Any] = {
        "recipe_text": frame["series"].map(clipped),
        "quality_text": [amounts.quality(value, scene.kind) for value in frame["y"]],
        "budget": [f"{ssr:g} of the full schedule" for ssr in frame["ssr"]],
    }
    # Rows of single runs have `train_seconds`; rows of means have not.
    if "train_seconds" in frame:
        sources = frame["time_source"].fillna("unknown")
        words["time_text"] = [
            f"{amounts.seconds(value)} ({source})"
            for value, source in zip(frame["train_seconds"], sources, strict=True)
        ]
        words["cost_text"] = ["no price" if amounts.missing(v) else amounts.dollars(v) for v in frame["cost_usd"]]
        words["methods_text"] = frame["methods"].fillna("").map(clipped)
        if scene.payment.forecast:
            words["deletion_text"] = [amount(value, scene.payment) for value in frame["x"]]
    else:
        words["time_text"] = [amount(value, scene.payment) for value in frame["x"]]
        words["place"] = frame["series"] + " at " + frame["ssr"].map("{:g}".format)
        known = frame["probability"].notna()
        words["front_text"] = [
            ("yes" if on else "no") + (f", in {p:.0%} of the resamples of the seeds" if sure else "")
            for on, p, sure in zip(frame["on_front"], frame["probability"], known, strict=True)
        ]
        if scene.size is not None:
            words["size_text"] = [scene.size.words(value) for value in frame["size"]]
    keep = (
        "run_id",
        "directory",
        "recipe",
        "series",
        "group",
        "x",
        "y",
        "n",
        "seed",
        "hardware",
        "time_source",
        "size",
    )
    return _placed(frame[[name for name in keep if name in frame]], scene).assign(**words)
