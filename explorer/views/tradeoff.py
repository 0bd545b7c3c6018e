"""The tradeoff chart: what every recipe reaches for what it is paid, the frontier bright and the rest dim.

A small mark is a run, a large one the mean of a recipe at one budget; the line is the monotone curve through the means,
dashed for a control, and the band its interval. A filled mark has a measured time, a hollow one a profiled or
predicted time; a predicted one is crossed as well.
"""

from typing import Any

import altair as alt
import pandas as pd

from explorer.views import text, theme
from explorer.views.axes import amount, payment_axis, quality_axis
from explorer.views.scene import Scene

BRUSH = "brush"
DIM = 0.3


def tradeoff(scene: Scene, *, width: int | str = "container", height: int = 400, brush: bool = False) -> alt.LayerChart:
    """Draw a scene that has at least one run. With `brush` the runs can be selected, under the name `brush`."""
    look = theme.look(scene.recipes, baseline=scene.baseline)
    x = payment_axis(scene.payment, [*scene.runs["x"], *scene.means["x"]], log=scene.log)
    y = quality_axis(scene.metric, scene.heights)
    layers = [_band(scene, x, y, look), _front(scene, x, y), _target(scene, x, y)]
    layers += [_lines(scene, x, y, look), _seeds(scene, x, y, look, brush=brush), *_means(scene, x, y, look)]
    chart = alt.LayerChart(layer=[layer for layer in layers if layer is not None])
    return theme.styled(
        chart.properties(width=width, height=height, padding={"top": 18, "left": 2, "right": 12, "bottom": 4})
        .properties(description=describe(scene))
        .resolve_scale(color="shared", shape="shared")
    )


def describe(scene: Scene) -> str:
    """The chart in a sentence or two, for who does not see it."""
    recipes = sorted(set(scene.means["recipe"]))
    bright = sorted(set(scene.means.loc[scene.means["on_front"].astype(bool), "recipe"]))
    direction = "higher" if scene.higher_is_better else "lower"
    parts = [
        f"{scene.metric} ({direction} is better) against {scene.payment.title.lower()} for {len(recipes)} recipes: "
        f"{', '.join(recipes)}.",
        f"On the frontier: {', '.join(bright) or 'none'}.",
    ]
    if scene.controls:
        parts.append(f"Controls, dashed: {', '.join(scene.controls)}.")
    if scene.target is not None:
        parts.append(f"Target quality: {text.quality(scene.target, scene.unit)}.")
    return " ".join(parts)


def _band(scene: Scene, x: alt.X, y: alt.Y, look: theme.Look) -> alt.Chart | None:
    frame = scene.lines.dropna(subset=["low", "high"])
    if frame.empty:
        return None
    place = scene.heights
    frame = frame[["recipe", "x"]].assign(y=place.within(frame["low"]), high=place.within(frame["high"]))
    return (
        alt.Chart(frame, name="bands")
        .mark_area(opacity=0.13 if len(scene.recipes) <= 3 else 0.08, clip=True)
        .encode(x=x, y=y, y2="high:Q", color=look.colour())
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
    label = f"target {text.quality(scene.target, scene.unit)}"
    frame = _placed(pd.DataFrame({"y": [scene.target], "label": [label]}), scene)
    base = alt.Chart(frame)
    rule = base.mark_rule(color=theme.TEXT, opacity=0.5, strokeDash=[5, 4]).encode(y=y)
    words = base.mark_text(align="left", baseline="bottom", dx=4, dy=-4, color=theme.TEXT, fontSize=12, opacity=0.75)
    return alt.LayerChart(layer=[rule, words.encode(x=alt.value(0), y=y, text="label:N")])


def _lines(scene: Scene, x: alt.X, y: alt.Y, look: theme.Look) -> alt.Chart:
    frame = _placed(scene.lines, scene).assign(bright=_bright(scene.lines, scene))[["recipe", "x", "y", "bright"]]
    baseline = alt.datum.recipe == scene.baseline
    control = alt.FieldOneOfPredicate(field="recipe", oneOf=scene.controls)
    dashed = {"strokeDash": alt.condition(control, alt.value([5, 4]), alt.value([1, 0]))} if scene.controls else {}
    return (
        alt.Chart(frame, name="curves")
        .mark_line()
        .encode(
            x=x,
            y=y,
            color=look.colour(),
            strokeWidth=alt.condition(baseline, alt.value(3), alt.value(2)),
            opacity=alt.condition("datum.bright", alt.value(1), alt.value(DIM)),
            **dashed,
        )
    )


def _seeds(scene: Scene, x: alt.X, y: alt.Y, look: theme.Look, *, brush: bool) -> alt.Chart:
    frame = _worded(scene.runs, scene).assign(bright=_bright(scene.runs, scene))
    chart = (
        alt.Chart(frame, name="runs")
        .mark_point(size=26, strokeWidth=1.2, clip=True)
        .encode(
            x=x,
            y=y,
            color=look.colour(),
            shape=look.shape(),
            opacity=alt.condition("datum.bright", alt.value(0.6), alt.value(DIM / 2)),
            tooltip=[
                alt.Tooltip(f"{name}:N", title=title)
                for name, title in (
                    ("recipe", "Recipe"),
                    ("methods", "Methods"),
                    ("quality_text", scene.metric),
                    ("time_text", "Training time"),
                    ("cost_text", "Cost"),
                    ("deletion_text", "Deletion"),
                    ("budget", "Budget"),
                    ("seed", "Seed"),
                    ("hardware", "Hardware"),
                    ("run_id", "Run"),
                )
                if name in frame
            ],
        )
    )
    if not brush:
        return chart
    mark = alt.BrushConfig(fill=theme.TEXT, fillOpacity=0.06, stroke=theme.TEXT, strokeOpacity=0.4)
    return chart.add_params(alt.selection_interval(name=BRUSH, mark=mark))


def _means(scene: Scene, x: alt.X, y: alt.Y, look: theme.Look) -> list[alt.Chart]:
    """The means, one layer for filled marks and one for hollow ones."""
    frame = _worded(scene.means, scene).assign(bright=_bright(scene.means, scene))
    exact = scene.payment.key == "steps"  # steps are counted, whatever is known of their time
    measured = ((frame["time_source"] == "measured") & (not scene.payment.forecast)) | exact
    predicted = ((frame["time_source"] == "predicted") | scene.payment.forecast) & (not exact)
    tooltip = [
        alt.Tooltip("recipe:N", title="Recipe"),
        alt.Tooltip("quality_text:N", title=f"Mean {scene.metric}"),
        alt.Tooltip("time_text:N", title=scene.payment.label),
        alt.Tooltip("budget:N", title="Budget"),
        alt.Tooltip("n:Q", title="Seeds (n)"),
        alt.Tooltip("time_source:N", title="Time is"),
    ]

    def layer(rows: pd.Series, **mark: Any) -> alt.Chart:
        name = "filled" if mark["filled"] else "hollow"
        return (
            alt.Chart(frame[rows], name=name)
            .mark_point(size=95, opacity=1, strokeWidth=2.2, clip=True, **mark)
            .encode(
                x=x,
                y=y,
                color=look.colour(),
                shape=look.shape(),
                opacity=alt.condition("datum.bright", alt.value(1), alt.value(DIM)),
                tooltip=tooltip,
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
    return layers


def _placed(frame: pd.DataFrame, scene: Scene) -> pd.DataFrame:
    """The rows with their qualities in `y` replaced by the places where they are drawn."""
    return frame.assign(y=scene.heights.drawn(frame["y"]))


def _bright(frame: pd.DataFrame, scene: Scene) -> pd.Series:
    """Whether the row's recipe is the baseline, or on the frontier anywhere: a recipe is bright or dim as a whole."""
    on_front = scene.means["on_front"].astype(bool)
    bright = {*scene.means.loc[on_front, "recipe"], scene.baseline}
    return frame["recipe"].isin(bright)


def _worded(frame: pd.DataFrame, scene: Scene) -> pd.DataFrame:
    """The rows with the texts of their tooltips."""
    words = {
        "quality_text": [text.quality(value, scene.unit) for value in frame["y"]],
        "budget": [f"{ssr:g} of the full schedule" for ssr in frame["ssr"]],
    }
    if "train_seconds" in frame:
        sources = frame["time_source"].fillna("unknown")
        words["time_text"] = [
            f"{text.seconds(value)} ({source})" for value, source in zip(frame["train_seconds"], sources, strict=True)
        ]
        words["cost_text"] = ["no price" if text.missing(v) else text.dollars(v) for v in frame["cost_usd"]]
        if scene.payment.forecast:
            words["deletion_text"] = [amount(value, scene.payment) for value in frame["x"]]
    else:
        words["time_text"] = [amount(value, scene.payment) for value in frame["x"]]
    keep = ("run_id", "recipe", "methods", "x", "y", "n", "seed", "hardware", "time_source")
    return _placed(frame[[name for name in keep if name in frame]], scene).assign(**words)
