"""The tradeoff chart: what every recipe reaches for what it is paid, the frontier bright and the rest dim.

A small mark is a run, a large one the mean of a recipe at one budget; the line is the monotone curve through the means,
dashed for a control, and the band its interval. A filled mark has a measured time, a hollow one a profiled or
predicted time; a predicted one is crossed as well. Where sizes say something, a mean of which it is not known is a dot.
"""

from typing import Any

import altair as alt
import pandas as pd

from explorer.views import text, theme
from explorer.views.axes import amount, payment_axis, quality_axis
from explorer.views.scene import Scene

BRUSH = "brush"
PICKED = "picked"
DIM = 0.3
SIZES = (50, 600)  # of the smallest and the largest mark, in square pixels


Brush = tuple[float, ...]
"""x from, x to, quality from, quality to; empty where nothing is brushed"""


def tradeoff(
    scene: Scene, *, width: int | str = "container", height: int = 400, brush: Brush | None = None
) -> alt.LayerChart:
    """Draw a scene. With `brush`, which may be empty, runs can be selected: by dragging under the name `brush`, by
    clicking as `picked`."""
    return alt.LayerChart(  # made in one go: every method of a chart copies it whole
        layer=layers(scene, brush=brush),
        width=width,  # pyright: ignore[reportArgumentType]: "container", or pixels
        height=height,
        padding={"top": 18, "left": 2, "right": 12, "bottom": 4},
        description=describe(scene),
        resolve=alt.Resolve(scale={"color": "shared", "shape": "shared"}),
        config=theme.CONFIG,
    )


def layers(scene: Scene, *, brush: Brush | None = None, look: theme.Look | None = None) -> list[Any]:
    """The layers of the chart, with the colours of `look`: its own unless it is a part of something larger."""
    look = look or look_of(scene)
    x = payment_axis(scene.payment, scene.x_range, log=scene.log)
    y = quality_axis(scene.heights)
    found = [_band(scene, x, y, look), _front(scene, x, y), _target(scene, x, y)]
    found.append(_lines(scene, x, y, look) if len(scene.lines) else None)
    found += _means(scene, x, y, look, brush=None if scene.draws_runs else brush)
    found.append(_seeds(scene, x, y, look, brush=brush) if scene.draws_runs else None)  # on top, to be clicked
    return [layer for layer in found if layer is not None]


def look_of(scene: Scene) -> theme.Look:
    """The colour of each group, and the group of each label."""
    first = scene.means.drop_duplicates("recipe")
    groups = {str(label): str(group) for label, group in zip(first["recipe"], first["group"], strict=True)}
    return theme.look(scene.groups, baseline=scene.baseline, groups=groups)


def describe(scene: Scene) -> str:
    """The chart in a sentence or two, for who does not see it."""
    names = scene.recipes
    on_front = set(scene.means.loc[scene.means["on_front"].astype(bool), "recipe"])
    direction = "higher" if scene.kind.higher_is_better else "lower"
    parts = [
        f"{scene.metric} ({direction} is better) against {scene.payment.title.lower()} for "
        f"{text.count(len(names), 'recipe')}: {listed(names)}.",
        f"On the frontier: {listed([name for name in names if name in on_front]) or 'none'}.",
    ]
    if scene.controls:
        parts.append(f"Controls, dashed: {listed(scene.controls)}.")
    if scene.target is not None:
        parts.append(f"Target quality: {text.quality(scene.target, scene.kind)}.")
    if scene.size is not None:
        parts.append(f"The size of a mark is {scene.size.label.lower()}.")
    return " ".join(parts)


def listed(names: list[str], *, most: int = 12) -> str:
    """Names in a row, as many as one listens to."""
    rest = len(names) - most
    shown = ", ".join(text.clipped(name) for name in names[:most])
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
    label = f"target {text.quality(scene.target, scene.kind)}"
    frame = _placed(pd.DataFrame({"y": [scene.target], "label": [label]}), scene)
    base = alt.Chart(frame)
    rule = base.mark_rule(color=theme.TEXT, opacity=0.5, strokeDash=[5, 4]).encode(y=y)
    words = base.mark_text(
        x=0, align="left", baseline="bottom", dx=4, dy=-4, color=theme.TEXT, fontSize=12, opacity=0.75
    )
    return alt.LayerChart(layer=[rule, words.encode(y=y, text=alt.Text("label:N"))])


def _lines(scene: Scene, x: alt.X, y: alt.Y, look: theme.Look) -> alt.Chart:
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
    return chart if brush is None else chart.add_params(*_selections(scene, brush, "directory"))


def _if(field: str, value: Any, otherwise: Any, *, channel: Any = alt.OpacityValue) -> Any:
    """One value where a field is true, another where it is not. `alt.condition` says the same in ten times the time."""
    return channel(value=otherwise, condition={"test": f"datum.{field}", "value": value})


def _selections(scene: Scene, brush: Brush, field: str) -> list[alt.Parameter]:
    """By dragging, from where the brush is now, and by clicking."""
    place = scene.heights.drawn
    drawn: Any = {"x": [*brush[:2]], "y": sorted(map(place, brush[2:]))} if len(brush) == 4 else alt.Undefined
    mark = alt.BrushConfig(fill=theme.TEXT, fillOpacity=0.06, stroke=theme.TEXT, strokeOpacity=0.4)
    return [
        alt.selection_interval(name=BRUSH, mark=mark, value=drawn),
        alt.selection_point(name=PICKED, fields=[field], on="click", toggle="event.shiftKey"),
    ]


def _means(scene: Scene, x: alt.X, y: alt.Y, look: theme.Look, *, brush: Brush | None) -> list[alt.Chart]:
    """The means, one layer for filled marks and one for hollow ones. With a `brush` it is means that are selected."""
    frame = _worded(scene.means, scene).assign(bright=_bright(scene.means, scene))
    exact = scene.payment.counted
    measured = ((frame["time_source"] == "measured") & (not scene.payment.forecast)) | exact
    predicted = ((frame["time_source"] == "predicted") | scene.payment.forecast) & (not exact)

    def layer(rows: pd.Series, **mark: Any) -> alt.Chart:
        name = "filled" if mark["filled"] else "hollow"
        size: Any = alt.Undefined if scene.size is None else _size(scene)
        if scene.size is not None:
            mark["fillOpacity"] = 0.25  # large marks lie over one another
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
        layers[0] = layers[0].add_params(*_selections(scene, brush, "place"))
    return layers


def _size(scene: Scene) -> alt.Size:
    """The size channel over the field `size`, labelled in words."""
    assert scene.size is not None  # it is being drawn
    known = scene.means["size"].dropna()
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
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
    "time_source": "Time is",
    "front_text": "On the frontier",
}


def _tooltip(words: dict[str, str], frame: pd.DataFrame, scene: Scene) -> list[alt.Tooltip]:
    """What is said under the mouse: the columns that the frame has, under their titles."""
    titles = words | {
        "quality_text": f"{words['quality_text']}{scene.metric}",
        "time_text": words["time_text"] or scene.payment.label,
        "size_text": scene.size.label if scene.size else "",
    }
    return [alt.Tooltip(f"{name}:N", title=title) for name, title in titles.items() if name in frame]


def _placed(frame: pd.DataFrame, scene: Scene) -> pd.DataFrame:
    """The rows with their qualities in `y` replaced by the places where they are drawn."""
    return frame.assign(y=scene.heights.drawn(frame["y"]))


def _bright(frame: pd.DataFrame, scene: Scene) -> pd.Series:
    """Whether the row's curve is the baseline's, or on the frontier anywhere: a curve is bright or dim as a whole."""
    on_front = scene.means["on_front"].astype(bool)
    bright = {*scene.means.loc[on_front, "series"]}
    return frame["series"].isin(bright) | (frame["recipe"] == scene.base)


def _worded(frame: pd.DataFrame, scene: Scene) -> pd.DataFrame:
    """The rows with the texts of their tooltips."""
    words: dict[str, Any] = {
        "recipe_text": frame["series"].map(text.clipped),
        "quality_text": [text.quality(value, scene.kind) for value in frame["y"]],
        "budget": [f"{ssr:g} of the full schedule" for ssr in frame["ssr"]],
    }
    if "train_seconds" in frame:
        sources = frame["time_source"].fillna("unknown")
        words["time_text"] = [
            f"{text.seconds(value)} ({source})" for value, source in zip(frame["train_seconds"], sources, strict=True)
        ]
        words["cost_text"] = ["no price" if text.missing(v) else text.dollars(v) for v in frame["cost_usd"]]
        words["methods_text"] = frame["methods"].fillna("").map(text.clipped)
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
