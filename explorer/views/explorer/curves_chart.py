"""Chart of learning curves: a metric over steps, examples or time, by run, or by recipe with a band over seeds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from explorer.analysis.smoothing import over_seeds, smoothed
from explorer.page import amounts, theme
from explorer.page.document import clipped
from explorer.run_files import METRICS, PLAIN, TRAIN_LOSS, Metric
from explorer.store.examine import State
from explorer.views.explorer.axes import Heights, payment_channel, quality_channel
from explorer.views.explorer.payments import PAYMENTS, amount
from explorer.views.explorer.tradeoff import Json, records

HEIGHT = 300
LOSS = TRAIN_LOSS  # what every run measures, so the curve that is shown first
OVER = {"steps": "step", "examples": "examples", "time": "seconds"}
"""The columns of curves by the key of the x axis, one of `PAYMENTS`."""

FEW = 30  # points of a curve that are drawn as points too: evaluations are seldom more
MOST_PLACES, LEAST_PLACES = 60, 12  # of a curve, where the mouse finds a tooltip
ALL_PLACES = 1200  # of all curves, about
FAINT = 0.22
ISOLATED = "isolated"
COLUMNS = ("series", "group", "x", "y")
PARTLY = ("low", "high", "raw")  # what only some lines have


@dataclass(frozen=True, kw_only=True, slots=True)
class Curves:
    """Content of a chart of learning curves, with places on the axes in `x` and `y`.

    `lines` has a row for each point: series, group, x, y; low and high are the band of a mean, `raw` is the measurement
    behind a smoothed run, NaN elsewhere. `near` are the points among them where the mouse finds words, and `ends` the
    last points of runs that did not finish, both with the words of their tooltips.
    """

    lines: pd.DataFrame
    near: pd.DataFrame
    ends: pd.DataFrame
    place: Heights
    over: str  # a key of OVER
    means: bool

    @property
    def drawn(self) -> bool:
        return len(self.lines) > 0


def curves_chart(frame: pd.DataFrame, **options: Any) -> alt.LayerChart:
    """Draw a frame of `store.learning_curves` as an Altair chart; the options are those of `curves_spec`."""
    return alt.LayerChart.from_dict(curves_spec(frame, **options), validate=False)


def curves_spec(
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
) -> Json:
    """Return the chart of a frame of `store.learning_curves` as Vega-Lite has it.

    Args:
        frame: the curves; those whose amount on the x axis is unknown are not drawn.
        metric: the unit and format of the values.
        over: the x axis, a key of `OVER`: steps, examples or time.
        mean: draw the mean over the seeds of each recipe and budget, with its t interval, instead of each run.
        smooth: the share of a run that an exponential mean covers; 0 draws the measurements.
        log: a log scale; of the error, for a fraction that should be high.
        look: the colours of the recipes.
        width, height: in pixels, or the width "container".
        interactive: curves answer the mouse; a picture on paper has no use for that.
    """
    curves = place_curves(frame, metric=metric, over=over, mean=mean, smooth=smooth, log=log)
    look = look or look_of(frame)
    xs = [*curves.lines["x"].tolist(), *curves.ends["x"].tolist()] or [0.0, 1.0]
    x = payment_channel(PAYMENTS[over], [min(xs), max(xs)], log=False)
    drawing = _Drawing(curves, x=x, look=look, interactive=interactive)
    layers = drawing.layers()
    return {
        "$schema": theme.SCHEMA,
        "layer": layers,
        "datasets": drawing.datasets,
        "params": [ISOLATES] if interactive else [],
        "width": width,
        "height": height,
        "padding": {"top": 18, "left": 2, "right": 12, "bottom": 4},
        "description": describe(curves, metric),
        "resolve": {"scale": {"color": "shared"}},
        "config": theme.CONFIG,
    }


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


def metric_named(name: str, declared: Mapping[str, Metric] | None = None, *, of: pd.DataFrame | None = None) -> Metric:
    """Return the unit and format of a metric; plain numbers for one that is declared nowhere.

    Curves know the unit of their runs' training loss: with `of`, the loss has it, or none where their runs differ.
    """
    metric = (declared or {}).get(name) or METRICS.get(name) or Metric(name=name, higher_is_better=False)
    units = list(of["loss_unit"].dropna().unique()) if of is not None and name == LOSS else []
    return replace(metric, unit=units[0] if len(units) == 1 else PLAIN) if units else metric


def place_curves(frame: pd.DataFrame, *, metric: Metric, over: str, mean: bool, smooth: float, log: bool) -> Curves:
    """Return what is drawn; the arguments are those of `curves_spec`.

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
    raw = single["value"] if smooth else np.nan
    single = single.assign(series=single["directory"], y=single["smooth"], n=1, raw=raw, low=np.nan, high=np.nan)
    # --- means: of the smoothed curves, or of the measurements ---
    groups = dict(zip(frame["recipe"].tolist(), frame["group"].tolist(), strict=True))
    averaged = over_seeds(frame[whole], x=x, y="smooth" if smooth else "mean")
    averaged = averaged.assign(
        series=[
            f"{recipe} at {ssr:g}"
            for recipe, ssr in zip(averaged["recipe"].tolist(), averaged["ssr"].tolist(), strict=True)
        ],
        group=[groups[recipe] for recipe in averaged["recipe"].tolist()],
        raw=np.nan,
    )
    lines = pd.concat([averaged, single], ignore_index=True) if len(averaged) else single
    ends = single[~single["state"].isin([State.FINISHED, State.RUNNING])].groupby("directory", sort=False).tail(1)
    place = _heights([lines["y"], lines["raw"]], metric, log=log)
    return Curves(
        lines=_placed(lines, place),
        near=_placed(_worded(lines[_places(lines)], metric, over), place),
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


def _heights(values: Iterable[pd.Series], metric: Metric, *, log: bool) -> Heights:
    """Return the y axis of values: linear, or logarithmic where all places are above 0."""
    every = np.concatenate([np.asarray(part, dtype=float) for part in values])
    known = every[np.isfinite(every)] if np.isfinite(every).any() else np.array([0.0, 1.0])
    places = 1 - known if metric.higher_is_better and metric.bounded else known
    if log and (places > 0).any():
        low, high = float(places[places > 0].min()), float(places.max())
        return Heights(kind=metric, log=True, low=low / 1.1, high=max(high * 1.1, low * 1.3))
    low, high = float(known.min()), float(known.max())
    pad = (high - low or abs(high) or 1.0) * 0.05
    top = min(high + pad, 1.0) if metric.bounded else high + pad
    return Heights(kind=metric, log=False, low=0.0 if 0 <= low < 0.25 * high else low - pad, high=top)


def _placed(frame: pd.DataFrame, place: Heights) -> pd.DataFrame:
    """Return the rows with places on the y axis instead of values, cut off at its ends."""
    columns = {name: place.within(frame[name].to_numpy(dtype=float)) for name in ("y", *PARTLY)}
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
        recipe_text=[clipped(str(name)) for name in frame["recipe"].tolist()],
        value_text=[metric.show(value) + band for value, band in zip(frame["y"].tolist(), bands, strict=True)],
        at_text=[amount(value, payment) for value in frame["x"].tolist()],
        run_text=[
            f"mean of {amounts.count(int(n), 'seed')}, budget {ssr:g}"
            if pd.isna(seed)
            else f"seed {int(seed)}, budget {ssr:g}" + (f", {run}" if run != State.FINISHED else "")
            for n, ssr, seed, run in zip(
                frame["n"].tolist(), frame["ssr"].tolist(), seeds.tolist(), state.tolist(), strict=True
            )
        ],
    )


# --- drawing ---

# The points, since lines are too thin for a mouse, and the legend. Vega-Lite fails on a legend without `bind`'s event.
ISOLATES: Json = {
    "name": ISOLATED,
    "select": {"type": "point", "fields": ["group"], "on": "pointerover", "clear": "pointerout"},
    "bind": {"legend": "pointerover"},
    "views": ["near"],
}


class _Drawing:
    """Layers of a chart and their data."""

    def __init__(self, curves: Curves, *, x: Json, look: theme.Look, interactive: bool) -> None:
        self.curves, self.interactive = curves, interactive
        self.datasets: dict[str, list[Json]] = {}
        self.y = quality_channel(curves.place)
        colour = {"field": "group", "type": "nominal", "scale": look.scale(look.colours), "legend": look.legend}
        self.base = {"x": x, "y": self.y, "color": colour, "detail": {"field": "series", "type": "nominal"}}

    def layers(self) -> list[Json]:
        """Return the layers from bottom to top: bands, raw curves, lines, points, ends, and what the mouse finds."""
        curves = self.curves
        layers = []
        known = curves.lines[[*PARTLY]].notna()
        partly = known.any()
        # One row holds all that is drawn of a point, so that no place is sent twice.
        lines = self._data("lines", curves.lines[[*COLUMNS, *(name for name in PARTLY if partly[name])]])
        if partly["low"]:
            few = curves.lines.loc[known["low"], "series"].nunique() <= 3
            area = self._layer("bands", lines, {"type": "area"}, opacity=(0.16 if few else 0.09, 0.02), only="low")
            area["encoding"] |= {"y": self.y | {"field": "low"}, "y2": {"field": "high"}}
            layers.append(area)
        if partly["raw"]:
            raw = self._layer("raw", lines, {"type": "line", "strokeWidth": 1}, opacity=(FAINT, 0.03), only="raw")
            raw["encoding"] |= {"y": self.y | {"field": "raw"}}
            layers.append(raw)
        layers.append(self._layer("lines", lines, {"type": "line", "strokeWidth": 2}, opacity=(1, 0.12)))
        counts = curves.lines.groupby("series")["x"].transform("size") if curves.drawn else pd.Series(dtype=float)
        few = curves.lines[counts <= FEW] if curves.drawn else curves.lines
        if len(few):
            points = self._data("points", few[[*COLUMNS]])
            layers.append(
                self._layer("points", points, {"type": "point", "size": 26, "filled": True}, opacity=(1, 0.12))
            )
        if len(curves.ends):
            cross = {"type": "point", "shape": "cross", "angle": 45, "size": 90, "filled": True}
            ends = self._layer(
                "ends", self._data("ends", curves.ends.drop(columns=[*PARTLY])), cross, opacity=(1, 0.12)
            )
            ends["mark"] |= {"clip": False}
            ends["encoding"] |= {"tooltip": self._tooltip()}
            layers.append(ends)
        if self.interactive:
            mark = {"type": "point", "size": 160, "filled": True, "opacity": 0}
            near = self._layer("near", self._data("near", curves.near.drop(columns=[*PARTLY])), mark)
            near["encoding"] |= {"tooltip": self._tooltip()}
            layers.append(near)
        return layers

    def _layer(
        self, name: str, data: Json, mark: Json, *, opacity: tuple[float, float] | None = None, only: str = ""
    ) -> Json:
        """Return a layer; `opacity` is that of its curves, and of those that are not isolated. Rows without a value in
        the field `only` are left out."""
        bright, dim = opacity or (None, None)
        seen: Json = {}
        if opacity is not None and self.interactive:
            seen = {"opacity": {"condition": {"param": ISOLATED, "value": bright}, "value": dim}}
        elif opacity is not None:
            seen = {"opacity": {"value": bright}}
        filtered: Json = {"transform": [{"filter": f"isValid(datum.{only})"}]} if only else {}
        return {"name": name, "data": data, **filtered, "mark": mark | {"clip": True}, "encoding": self.base | seen}

    def _data(self, name: str, frame: pd.DataFrame) -> Json:
        self.datasets[name] = records(frame)
        return {"name": name}

    def _tooltip(self) -> list[Json]:
        titles = {
            "recipe_text": "Recipe",
            "run_text": "Run",
            "value_text": self.curves.place.kind.name,
            "at_text": PAYMENTS[self.curves.over].label,
        }
        return [{"field": name, "type": "nominal", "title": title} for name, title in titles.items()]


def _places(lines: pd.DataFrame) -> pd.Series:
    """Mark at most about `MOST_PLACES` rows of each curve, its last one among them."""
    if lines.empty:
        return pd.Series(dtype=bool)
    curve = lines.groupby("series", sort=False)["x"]
    stride = -(-curve.transform("size") // min(MOST_PLACES, max(LEAST_PLACES, ALL_PLACES // curve.ngroups)))
    return curve.cumcount(ascending=False) % stride == 0
