"""Chart of learning curves: a metric over steps, examples or time, by run, or by recipe with a band over seeds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from explorer.analysis.smoothing import over_seeds, smoothed
from explorer.page import amounts, theme
from explorer.page.document import clipped
from explorer.run_files import METRICS, Metric
from explorer.store.examine import State
from explorer.views.explorer.axes import Heights, payment_axis, quality_axis
from explorer.views.explorer.payments import PAYMENTS, amount

HEIGHT = 300
LOSS = "train_loss"  # what every run measures, so the curve that is shown first
OVER = {"steps": "step", "examples": "examples", "time": "seconds"}
"""The columns of curves by the key of the x axis, one of `PAYMENTS`."""

FEW = 30  # points of a curve that are drawn as points too: evaluations are seldom more
MOST_PLACES = 60  # of a curve, where the mouse finds a tooltip
FAINT = 0.22
ISOLATED = "isolated"
COLUMNS = ("series", "group", "x", "y")


@dataclass(frozen=True, kw_only=True, slots=True)
class Curves:
    """Content of a chart of learning curves, with places on the axes in `x` and `y`.

    `lines` and `raw` have a row for each point: series, group, x, y, and the words of a tooltip; `bands` reach from y
    to high. `ends` are the last points of runs that did not finish.
    """

    lines: pd.DataFrame
    raw: pd.DataFrame
    bands: pd.DataFrame
    ends: pd.DataFrame
    place: Heights
    over: str  # a key of OVER
    means: bool

    @property
    def drawn(self) -> bool:
        return len(self.lines) > 0


def curves_chart(
    frame: pd.DataFrame,
    *,
    metric: Metric,
    over: str = "steps",
    mean: bool = True,
    smooth: float = 0.0,
    log: bool = False,
    look: theme.Look | None = None,
    width: int | str = "container",
    height: int = HEIGHT,
    interactive: bool = True,
) -> alt.LayerChart:
    """Draw a frame of `store.learning_curves`.

    Args:
        frame: the curves; those whose amount on the x axis is unknown are not drawn.
        metric: the unit and format of the values.
        over: the x axis, a key of `OVER`: steps, examples or time.
        mean: draw the mean over the seeds of each recipe and budget, with its t interval, instead of each run.
        smooth: the share of a run that an exponential mean covers; 0 draws the measurements.
        log: a log scale; of the error, for a fraction that should be high.
        look: the colours of the recipes.
        width, height: in pixels, or the width "container".
        interactive: the legend and the lines answer the mouse; a picture on paper has no use for that.
    """
    curves = place_curves(frame, metric=metric, over=over, mean=mean, smooth=smooth, log=log)
    look = look or look_of(frame)
    xs = [*curves.lines["x"], *curves.ends["x"]] or [0.0, 1.0]
    x = payment_axis(PAYMENTS[over], [min(xs), max(xs)], log=False)
    y = quality_axis(curves.place)
    return alt.LayerChart(
        layer=_layers(curves, x, y, look, interactive=interactive),
        width=width,  # pyright: ignore[reportArgumentType]: "container", or pixels
        height=height,
        padding={"top": 18, "left": 2, "right": 12, "bottom": 4},
        description=describe(curves, metric),
        resolve=alt.Resolve(scale={"color": "shared"}),
        config=theme.CONFIG,
    )


def look_of(frame: pd.DataFrame) -> theme.Look:
    """Return the colours of the recipes of a frame, the baseline in that of the text."""
    base = frame.loc[frame["is_baseline"].astype(bool), "recipe"]
    return theme.look(sorted(set(frame["recipe"])), baseline=base.iloc[0] if len(base) else None)


def with_others(look: theme.Look, groups: Iterable[str]) -> theme.Look:
    """Return the colours that groups have in another chart, and colours for those that it lacks."""
    known, mine = list(look.recipes), list(dict.fromkeys(groups))
    if all(group in known for group in mine):
        # Only what is drawn is in the legend, in the colours that it has above.
        kept = [place for place, group in enumerate(known) if group in mine]
        return theme.Look(
            recipes=tuple(known[place] for place in kept),
            colours=tuple(look.colours[place] for place in kept),
            shapes=tuple(look.shapes[place] for place in kept),
            groups=look.groups,
        )
    base = known[0] if known and look.colours[0] == theme.TEXT else None
    return theme.look([*known, *mine], baseline=base, groups=look.groups)


def metric_named(name: str, declared: Mapping[str, Metric] | None = None) -> Metric:
    """Return the unit and format of a metric; plain numbers for one that is declared nowhere."""
    return (declared or {}).get(name) or METRICS.get(name) or Metric(name=name, higher_is_better=False)


def place_curves(frame: pd.DataFrame, *, metric: Metric, over: str, mean: bool, smooth: float, log: bool) -> Curves:
    """Return what is drawn; the arguments are those of `curves_chart`.

    A mean is one of finished runs: one that is training or has failed has a line of its own, which would cut the mean
    off where it ended.
    """
    x = OVER[over]
    frame = frame[frame[x].notna()].reset_index(drop=True)
    group = frame["group"] if "group" in frame else frame["recipe"]
    frame = frame.assign(smooth=smoothed(frame, x=x, share=smooth), group=group, x=frame[x])
    whole = (frame["state"] == State.FINISHED) & mean
    # --- single runs: smoothed, and raw behind ---
    single = frame[~whole]
    single = single.assign(series=single["directory"], y=single["smooth"], n=1)
    raw = single.assign(y=single["value"]) if smooth else single.head(0)
    # --- means: of the smoothed curves, or of the measurements ---
    groups = dict(zip(frame["recipe"], frame["group"], strict=True))
    averaged = over_seeds(frame[whole], x=x, y="smooth" if smooth else "mean")
    averaged = averaged.assign(
        series=[f"{recipe} at {ssr:g}" for recipe, ssr in zip(averaged["recipe"], averaged["ssr"], strict=True)],
        group=averaged["recipe"].map(groups),
    )
    lines = pd.concat([averaged, single], ignore_index=True) if len(averaged) else single
    bands = averaged.assign(y=averaged["low"])[averaged["low"].notna()]
    ends = single[~single["state"].isin([State.FINISHED, State.RUNNING])].groupby("directory", sort=False).tail(1)
    place = _heights([*lines["y"], *raw["y"]], metric, log=log)
    return Curves(
        lines=_placed(_worded(lines, metric, over), place),
        raw=_placed(raw, place),
        bands=_placed(bands, place),
        ends=_placed(_worded(ends, metric, over), place),
        place=place,
        over=over,
        means=len(averaged) > 0,
    )


def describe(curves: Curves, metric: Metric) -> str:
    """Return the chart in a sentence, for screen readers."""
    names = list(dict.fromkeys(curves.lines["group"])) if curves.drawn else []
    shown = ", ".join(clipped(str(name)) for name in names[:12]) + (
        f" and {len(names) - 12} more" if names[12:] else ""
    )
    what = "means over seeds" if curves.means else amounts.count(curves.lines["series"].nunique(), "run")
    return f"{metric.name} against {PAYMENTS[curves.over].title.lower()}, {what}: {shown or 'no curve'}."


def _heights(values: Iterable[float], metric: Metric, *, log: bool) -> Heights:
    """Return the y axis of values: linear, or logarithmic where all places are above 0."""
    known = [float(value) for value in values if np.isfinite(value)] or [0.0, 1.0]
    error = metric.higher_is_better and metric.bounded
    places = [1 - value for value in known] if error else known
    if log and (positive := [place for place in places if place > 0]):
        low, high = min(positive), max(positive)
        return Heights(kind=metric, log=True, low=low / 1.1, high=max(high * 1.1, low * 1.3))
    low, high = min(known), max(known)
    pad = (high - low or abs(high) or 1.0) * 0.05
    top = min(high + pad, 1.0) if metric.bounded else high + pad
    return Heights(kind=metric, log=False, low=0.0 if 0 <= low < 0.25 * high else low - pad, high=top)


def _placed(frame: pd.DataFrame, place: Heights) -> pd.DataFrame:
    """Return the rows with places on the y axis instead of values, cut off at its ends."""
    columns = {name: place.within(frame[name]) for name in ("y", "high") if name in frame}
    words = [name for name in frame if str(name).endswith("_text")]
    return frame[[*COLUMNS, *words]].assign(**columns)


def _worded(frame: pd.DataFrame, metric: Metric, over: str) -> pd.DataFrame:
    """Return the rows with the words of their tooltips."""
    payment = PAYMENTS[over]
    spread = frame["low"] if "low" in frame else pd.Series(np.nan, index=frame.index)
    bands = [
        f" ({metric.show(low)} to {metric.show(high)})" if pd.notna(low) else ""
        for low, high in zip(spread, frame.get("high", spread), strict=True)
    ]
    seeds = frame["seed"] if "seed" in frame else pd.Series(np.nan, index=frame.index)
    state = frame["state"] if "state" in frame else pd.Series(None, index=frame.index, dtype=object)
    return frame.assign(
        recipe_text=frame["recipe"].map(lambda name: clipped(str(name))),
        value_text=[metric.show(value) + band for value, band in zip(frame["y"], bands, strict=True)],
        at_text=[amount(value, payment) for value in frame["x"]],
        run_text=[
            f"mean of {amounts.count(int(n), 'seed')}, budget {ssr:g}"
            if pd.isna(seed)
            else f"seed {int(seed)}, budget {ssr:g}" + (f", {run}" if run != State.FINISHED else "")
            for n, ssr, seed, run in zip(frame["n"], frame["ssr"], seeds, state, strict=True)
        ],
    )


# --- drawing ---


def _layers(curves: Curves, x: alt.X, y: alt.Y, look: theme.Look, *, interactive: bool) -> list[Any]:
    """Return the layers from bottom to top: bands, raw curves, lines, points, ends, and what the mouse finds."""
    colour, detail = look.colour(), alt.Detail("series:N")
    base = {"x": x, "y": y, "color": colour, "detail": detail}
    # Both the legend and the points answer the mouse. Vega-Lite fails on a legend with `clear` and without `on`.
    over: Any = alt.LegendStreamBinding("pointerover")
    isolated = alt.selection_point(name=ISOLATED, fields=["group"], bind=over, on="pointerover", clear="pointerout")

    def bright(opacity: float, dim: float) -> Any:
        if not interactive:
            return alt.OpacityValue(opacity)
        return alt.when(isolated).then(alt.value(opacity)).otherwise(alt.value(dim))

    layers: list[Any] = []
    if len(curves.bands):
        few = curves.bands["series"].nunique() <= 3
        area = alt.Chart(curves.bands, name="bands").mark_area(clip=True)
        layers.append(area.encode(**base, y2=alt.Y2("high:Q"), opacity=bright(0.16 if few else 0.09, 0.02)))
    if len(curves.raw):
        line = alt.Chart(curves.raw, name="raw").mark_line(strokeWidth=1, clip=True)
        layers.append(line.encode(**base, opacity=bright(FAINT, 0.03)))
    line = alt.Chart(curves.lines[[*COLUMNS]], name="lines").mark_line(strokeWidth=2, clip=True)
    layers.append(line.encode(**base, opacity=bright(1, 0.12)))
    counts = curves.lines.groupby("series")["x"].transform("size") if curves.drawn else pd.Series(dtype=float)
    few = curves.lines[counts <= FEW] if curves.drawn else curves.lines
    if len(few):
        point = alt.Chart(few[[*COLUMNS]], name="points").mark_point(size=26, filled=True, clip=True)
        layers.append(point.encode(**base, opacity=bright(1, 0.12)))
    if len(curves.ends):
        cross = alt.Chart(curves.ends, name="ends").mark_point(shape="cross", angle=45, size=90, filled=True)
        layers.append(cross.encode(**base, opacity=bright(1, 0.12), tooltip=_tooltip(curves)))
    if interactive:
        # Lines are too thin for a mouse: it finds the nearest of these points.
        places = curves.lines[_places(curves.lines)]
        near = alt.Chart(places, name="near").mark_point(size=160, filled=True, opacity=0, clip=True)
        layers.append(near.encode(**base, tooltip=_tooltip(curves)).add_params(isolated))
    return layers


def _places(lines: pd.DataFrame) -> pd.Series:
    """Mark about `MOST_PLACES` rows of each curve, its last one among them."""
    if lines.empty:
        return pd.Series(dtype=bool)
    curve = lines.groupby("series", sort=False)["x"]
    stride = -(-curve.transform("size") // MOST_PLACES)
    return curve.cumcount(ascending=False) % stride == 0


def _tooltip(curves: Curves) -> list[alt.Tooltip]:
    titles = {
        "recipe_text": "Recipe",
        "run_text": "Run",
        "value_text": curves.place.kind.name,
        "at_text": PAYMENTS[curves.over].label,
    }
    return [alt.Tooltip(f"{name}:N", title=title) for name, title in titles.items()]
