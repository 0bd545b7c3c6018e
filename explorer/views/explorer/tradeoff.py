"""Tradeoff chart: the drawing of a scene.

What is on the front is bright, by point and by segment; the rest is grey. The baseline keeps the colour of the text.
Names take the place of a legend, to the right of the ends of their lines. On the screen the chart has parameters, which
Python sets without drawing again: the recipe that is isolated, the marks that are picked, and which bands are shown.

The chart is put together as Vega-Lite has it, a plain value: the same through Altair's classes takes ten times as long,
and a control has to answer at once.
"""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from explorer.page import amounts, theme
from explorer.page.document import clipped
from explorer.views.explorer.axes import payment_channel, quality_channel, spread
from explorer.views.explorer.payments import amount
from explorer.views.explorer.scene import Scene, look_of

BRUSH = "brush"
ISOLATED, PICKED, CHOSEN, BANDS = "isolated", "picked", "chosen", "bands"
"""Parameters: a recipe; keys of marks; the recipes of these marks; "selected" or "all"."""

FAINT = 0.1  # what is not isolated, picked or brushed
SIZES = (50, 600)  # of the smallest and the largest mark, in square pixels
LABEL = 15  # pixels between two names
FARTHEST = 30  # pixels from the end of its line to the name of a grey one
MOST_LETTERS = 24  # of a name at the end of its line
LABEL_AT, TEXT_AT = 14, 24  # pixels to the right of the chart: the symbols and the texts of the names
RINGED = 60  # picked marks with a ring; of more, those that are not picked are only dimmed

Brush = tuple[float, ...]
"""x from, x to, quality from, quality to; empty without a brush"""

Json = dict[str, Any]


def tradeoff(scene: Scene, *, width: int | str = "container", height: int = 400) -> alt.LayerChart:
    """Return the chart of a scene as an Altair chart, without parameters."""
    return alt.LayerChart.from_dict(tradeoff_spec(scene, width=width, height=height), validate=False)


def tradeoff_spec(
    scene: Scene, *, width: int | str = "container", height: int = 400, brush: Brush | None = None
) -> Json:
    """Return the chart of a scene as Vega-Lite has it.

    With `brush`, which may be empty, runs can be selected by dragging (`BRUSH`), and the other parameters are there.
    """
    drawn = Drawing(scene, look=look_of(scene), height=height, live=brush is not None)
    layers = drawn.layers()
    spec: Json = {
        "$schema": theme.SCHEMA,
        "layer": layers,
        "datasets": drawn.datasets,
        "width": width,
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"} if width == "container" else {"type": "pad"},
        "padding": {"top": 18, "left": 2, "right": 12, "bottom": 4},
        "description": describe(scene),
        "resolve": {"scale": {"color": "shared", "shape": "shared"}},
        "config": theme.CONFIG,
    }
    if brush is not None:
        spec["params"] = [*_parameters(), _brush(scene, brush, marks=drawn.marks)]
    return spec


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
    if scene.gain is not None and scene.gain.claimed:
        parts.append(f"{clipped(scene.gain.recipe)} reaches it {scene.gain.words} as fast.")
    if scene.size is not None:
        parts.append(f"The size of a mark is {scene.size.label.lower()}.")
    if len(scene.diverged):
        parts.append(f"Diverged: {amounts.count(len(scene.diverged), 'run')}, crosses at the bottom.")
    return " ".join(parts)


def legend_of_marks(scene: Scene) -> str:
    """Return what marks, lines, colours and bands of the chart mean, in a line; of those that it has."""
    several = len(scene.means) > len(scene.recipes)
    parts = ["large marks: means over seeds; small: runs" if scene.draws_runs else "marks: means over seeds"]
    if not measured(scene).all():
        parts.append(f"hollow: {scene.payment.label.lower()} not measured in the run itself")
    if len(scene.lines) and several:
        parts.append("lines: monotone fit")
    if len(scene.recipes) > 1:
        parts.append("bright: the front, where no recipe does better for less; grey: the rest")
    if scene.base is not None and scene.lines["low"].notna().any():
        winner = f" and {clipped(scene.gain.recipe, 24)}" if scene.gain is not None else ""
        parts.append(f"bands: 95% intervals of {clipped(scene.base, 24)}{winner}")
    if scene.controls:
        parts.append("dashed: controls")
    if len(scene.diverged):
        parts.append("crosses: diverged runs")
    first, *rest = parts
    return "; ".join([first[0].upper() + first[1:], *rest]) + "."


def measured(scene: Scene) -> pd.Series:
    """Return which means have a measured amount. A count is known exactly, and a forecast never is measured."""
    return ((scene.means["time_source"] == "measured") & (not scene.payment.forecast)) | scene.payment.counted


def listed(names: list[str], *, most: int = 12) -> str:
    """Return names in a row, as many as a listener can follow."""
    rest = len(names) - most
    shown = ", ".join(clipped(name) for name in names[:most])
    return f"{shown} and {rest} more" if rest > 0 else shown


def _parameters() -> list[Json]:
    return [
        {"name": ISOLATED, "value": ""},
        {"name": PICKED, "value": []},
        {"name": CHOSEN, "value": []},
        {"name": BANDS, "value": "selected"},
    ]


def _brush(scene: Scene, brush: Brush, *, marks: str) -> Json:
    """Return the selection by dragging over some marks, which begins with the current brush."""
    select = {
        "type": "interval",
        "zoom": False,  # the wheel belongs to the page
        "mark": {"fill": theme.TEXT, "fillOpacity": 0.06, "stroke": theme.TEXT, "strokeOpacity": 0.4},
    }
    drawn = {}
    if len(brush) == 4:
        drawn = {"value": {"x": [*brush[:2]], "y": sorted(map(scene.heights.drawn, brush[2:]))}}
    return {"name": BRUSH, "select": select, "views": [marks], **drawn}


class Drawing:
    """Layers of a chart and their data. `prefix` keeps the data of several charts of one picture apart."""

    def __init__(self, scene: Scene, *, look: theme.Look, height: int, live: bool, prefix: str = "") -> None:
        self.scene, self.look, self.height, self.live, self.prefix = scene, look, height, live, prefix
        self.datasets: dict[str, list[Json]] = {}
        self.x = payment_channel(scene.payment, scene.x_range, log=scene.log)
        self.y = quality_channel(scene.heights)
        # Colours that mean recipes are explained by the names at the ends of the lines, others by a legend.
        self.by_recipe = set(look.recipes) == set(scene.recipes) and len(scene.lines) > 0
        self.many = len(look.recipes) > theme.MANY
        self._ends = self._spread() if self.by_recipe and not prefix else pd.DataFrame()

    @property
    def marks(self) -> str:
        """The name of the layer whose marks are brushed: single runs, or means where there are too many runs."""
        if self.scene.draws_runs:
            return "runs"
        return "filled" if measured(self.scene).any() else "hollow"

    def layers(self) -> list[Json]:
        """Return the layers from bottom to top. The topmost marks take the clicks."""
        parts = [
            self._bands(),
            self._front(),
            self._target(),
            *self._curves(),
            self._target_words(),
            *self._gain(),
            *self._means(),
            self._runs(),
            self._rings(),
            self._diverged(),
            *self._names(),
        ]
        return [layer for layer in parts if layer is not None]

    # ---- what is drawn

    def _bands(self) -> Json | None:
        scene, place = self.scene, self.scene.heights
        frame = scene.lines.dropna(subset=["low", "high"])
        if frame.empty:
            return None
        shown = (frame["recipe"] == scene.base) | (frame["recipe"] == (scene.gain.recipe if scene.gain else None))
        frame = frame[["recipe", "series", "group", "x"]].assign(
            y=place.within(frame["low"]), high=place.within(frame["high"]), shown=shown
        )
        data = self._data("bands", frame.drop_duplicates(["series", "x"]))
        value = 0.14 if len(scene.recipes) <= 3 else 0.1
        asked = f"datum.shown || {BANDS} === 'all' || indexof({CHOSEN}, datum.recipe) >= 0"
        test = f"{ISOLATED} === '' ? ({asked}) : datum.recipe === {ISOLATED}" if self.live else "datum.shown"
        return {
            "name": self._named("bands"),
            "data": data,
            "mark": {"type": "area", "clip": True, "aria": False},
            "encoding": {
                "x": self.x,
                "y": self.y,
                "y2": {"field": "high"},
                "color": self._plain_colour(),
                "detail": {"field": "series"},
                "opacity": _when([(test, value)], 0),
            },
        }

    def _front(self) -> Json | None:
        # Bright pieces of the curves are the front; only points without curves need a line of their own.
        if self.scene.front.empty or len(self.scene.lines):
            return None
        data = self._data("front", self._placed(self.scene.front[["x", "y"]]))
        mark = {
            "type": "line",
            "interpolate": "step-after",
            "color": theme.TEXT,
            "opacity": 0.35,
            "strokeWidth": 1.5,
            "clip": True,
        }
        return {
            "name": self._named("front"),
            "data": data,
            "mark": mark | {"aria": False},
            "encoding": {"x": self.x, "y": self.y},
        }

    def _target(self) -> Json | None:
        scene = self.scene
        if scene.target is None:
            return None
        whose = f" ({clipped(scene.base, 24)} at full budget)" if scene.own_target and scene.base else ""
        label = f"target {amounts.quality(scene.target, scene.kind)}{whose}"
        frame = pd.DataFrame({"y": scene.heights.drawn(np.array([scene.target])), "label": label})
        rule = {"type": "rule", "color": theme.TEXT, "opacity": 0.5, "strokeDash": [5, 4], "clip": True, "aria": False}
        data = self._data("target", frame)
        return {"name": self._named("target"), "data": data, "mark": rule, "encoding": {"y": self.y}}

    def _target_words(self) -> Json | None:
        """Return the words on the target's line. They lie over the curves; the style sheet gives them a rim."""
        scene = self.scene
        if scene.target is None:
            return None
        words = {"type": "text", "x": 0, "align": "left", "dx": 4, "color": theme.TEXT, "fontSize": 12, "opacity": 0.75}
        words["clip"] = True  # by the chart that is zoomed
        # A line close to the top has its words below it.
        below = float(scene.heights.share(scene.target)) >= 1 - 18 / self.height
        words |= {"baseline": "top", "dy": 5} if below else {"baseline": "bottom", "dy": -4}
        text = {"y": self.y, "text": {"field": "label"}}
        data = {"name": self._named("target")}
        return {"name": self._named("target-words"), "data": data, "mark": words, "encoding": text}

    def _gain(self) -> list[Json]:
        """Return the speedup where it is read off: between the two times at which the target is reached."""
        scene, gain = self.scene, self.scene.gain
        if gain is None or scene.target is None or self.prefix:
            return []
        mark = self.look.mark(gain.recipe)
        colour = mark.colour if mark is not None and gain.claimed else theme.GREY
        middle = float(np.sqrt(gain.x * gain.baseline_x)) if scene.log else (gain.x + gain.baseline_x) / 2
        frame = pd.DataFrame({"x": [gain.x], "x2": [gain.baseline_x], "middle": [middle], "text": [gain.words]})
        frame = frame.assign(y=scene.heights.drawn(np.array([scene.target])))
        data = self._data("gain", frame)
        common = {"clip": True, "aria": False}
        x, middle_x = self.x, self.x | {"field": "middle"}
        words = {"type": "text", "fontSize": 14, "fontWeight": 700, "dy": 14, "color": theme.TEXT, "clip": True}
        rule = {"type": "rule", "strokeWidth": 3.5, "color": colour, "strokeCap": "round"}
        return [
            {
                "name": self._named("gain"),
                "data": data,
                "mark": rule | common,
                "encoding": {"x": x, "x2": {"field": "x2"}, "y": self.y},
            },
            {
                "name": self._named("gain-words"),
                "data": data,
                "mark": words if gain.claimed else words | {"opacity": 0.75},
                "encoding": {"x": middle_x, "y": self.y, "text": {"field": "text"}},
            },
        ]

    def _curves(self) -> list[Json]:
        scene = self.scene
        if scene.lines.empty:
            return []
        frame = self._placed(scene.lines).assign(base=scene.lines["recipe"] == scene.base)
        frame = frame.assign(lit=frame["bright"] | frame["base"], control=frame["recipe"].isin(scene.controls))
        # Later lines cover earlier ones: grey, then bright, then the baseline.
        frame = frame.assign(rank=frame["lit"].astype(int) + frame["base"]).sort_values("rank", kind="stable")
        frame["recipe_text"] = _clipped(frame["recipe"])
        columns = ["recipe", "group", "piece", "x", "y", "lit", "base"]
        columns += ["recipe_text"] if self.live else []  # for the mouse
        columns += ["control"] if scene.controls else []
        data = self._data("curves", frame[columns])
        encoding = {
            "x": self.x,
            "y": self.y,
            "color": self._colour(),
            "detail": {"field": "piece"},
            "strokeWidth": _when([("datum.base", 3), ("datum.lit", 2.4)], 1.4),
            "opacity": self._opacity(bright=1, grey=0.55, fades=True),
        }
        if scene.controls:
            encoding["strokeDash"] = _when([("datum.control", [5, 4])], [1, 0])
        lines = {
            "name": self._named("curves"),
            "data": data,
            "mark": {"type": "line", "clip": True, "aria": False, "strokeCap": "round"},
            "encoding": encoding,
        }
        # A line of two pixels is hard to point at: wide ones that cannot be seen take the mouse.
        hits = {
            "name": self._named("hits"),
            "data": data,
            "mark": {"type": "line", "clip": True, "aria": False, "strokeWidth": 13, "opacity": 0.001},
            "encoding": {"x": self.x, "y": self.y, "detail": {"field": "piece"}, "tooltip": _WHOSE},
        }
        return [hits, lines] if self.live else [lines]

    def _means(self) -> list[Json]:
        """Return the means: filled marks for measured amounts, hollow ones for others, a cross in predicted ones."""
        scene = self.scene
        frame = self._worded(scene.means)
        frame = frame.assign(lit=scene.means["bright"].astype(bool) | (scene.means["recipe"] == scene.base))
        exact = scene.payment.counted
        known = measured(self.scene)
        predicted = ((frame["time_source"] == "predicted") | scene.payment.forecast) & (not exact)
        layers = []
        for name, rows in (("filled", known), ("hollow", ~known)):
            if not rows.any():
                continue
            mark: Json = {"type": "point", "filled": name == "filled", "size": 80, "strokeWidth": 2, "clip": True}
            encoding = {
                "x": self.x,
                "y": self.y,
                "color": self._colour(),
                "shape": self._shape(),
                "opacity": self._opacity(bright=1, grey=0.7, brushed=True, keys="" if scene.draws_runs else "place"),
                "tooltip": _tooltip(_MEAN_WORDS, frame, scene),
            }
            if scene.size is not None:
                mark["fillOpacity"] = 0.25  # large marks overlap
                encoding["size"] = _size(scene)
            elif self.many:
                encoding["size"] = _when([(self._lit(), 80)], 36)
            layers.append(
                {
                    "name": self._named(name),
                    "data": self._data(name, frame[rows]),
                    "mark": mark,
                    "encoding": encoding,
                }
            )
        if predicted.any():
            cross = {"type": "point", "shape": "cross", "filled": True, "size": 40, "clip": True, "aria": False}
            layers.append(
                {
                    "name": self._named("predicted"),
                    "data": self._data("predicted", frame[predicted]),
                    "mark": cross,
                    "encoding": {"x": self.x, "y": self.y, "color": self._colour()},
                }
            )
        return layers

    def _runs(self) -> Json | None:
        scene = self.scene
        if not scene.draws_runs:
            return None
        frame = self._worded(scene.runs).assign(lit=scene.runs["bright"])
        return {
            "name": self._named("runs"),
            "data": self._data("runs", frame),
            "mark": {"type": "point", "size": 24, "strokeWidth": 1.1, "clip": True},
            "encoding": {
                "x": self.x,
                "y": self.y,
                "color": self._colour(),
                "shape": self._shape(),
                "opacity": self._opacity(bright=0.65, grey=0.15 if self.many else 0.45, brushed=True, keys="directory"),
                "tooltip": _tooltip(_RUN_WORDS, frame, scene),
            },
        }

    def _rings(self) -> Json | None:
        """Return rings around the marks that are picked."""
        if not self.live:
            return None
        name, key = (self.marks, "directory" if self.scene.draws_runs else "place")
        test = f"length({PICKED}) <= {RINGED} && indexof({PICKED}, datum.{key}) >= 0"
        mark = {"type": "point", "shape": "circle", "filled": False, "size": 260, "strokeWidth": 2.2}
        return {
            "name": self._named("rings"),
            "data": {"name": self.prefix + name},
            "transform": [{"filter": test}],
            "mark": mark | {"color": theme.TEXT, "clip": True, "aria": False},
            "encoding": {"x": self.x, "y": self.y},
        }

    def _diverged(self) -> Json | None:
        frame = self.scene.diverged
        if frame.empty:
            return None
        frame = frame.assign(
            recipe_text=frame["recipe"].map(clipped),
            budget=[_budget(ssr) for ssr in frame["ssr"]],
            message_text=[clipped(str(words), 120) for words in frame["message"].fillna("")],
        )
        titles = {"recipe_text": "Diverged", "budget": "Budget", "message_text": "Message"}
        return {
            "name": self._named("diverged"),
            "data": self._data("diverged", frame),
            "mark": {
                "type": "point",
                "shape": "M-0.8,-0.8L0.8,0.8M-0.8,0.8L0.8,-0.8",
                "size": 110,
                "strokeWidth": 2.2,
                "color": theme.PALETTE[1],
                "yOffset": -9,
            },
            "encoding": {
                "x": self.x,
                "y": {"value": "height"},
                "tooltip": [{"field": name, "title": title} for name, title in titles.items()],
            },
        }

    def _names(self) -> list[Json]:
        """Return the names of the curves to the right of the chart, each with its mark and a line to its curve."""
        if self._ends.empty:
            return []
        data = self._data("names", self._ends)
        label_y = self.y | {"field": "label"}
        opacity = self._opacity(bright=1, grey=0.75)
        leader = {"type": "rule", "color": theme.TEXT, "strokeWidth": 0.8, "aria": False}
        return [
            {
                "name": self._named("leaders"),
                "data": data,
                "mark": leader,
                "encoding": {
                    "x": self.x | {"field": "x"},
                    "x2": {"value": "width"},
                    "y": self.y,
                    "y2": {"field": "label"},
                    "opacity": self._opacity(bright=0.35, grey=0 if self.many else 0.16),
                },
            },
            {
                "name": self._named("symbols"),
                "data": data,
                "mark": {"type": "point", "filled": True, "size": 60, "xOffset": LABEL_AT, "aria": False},
                "encoding": {
                    "x": {"value": "width"},
                    "y": label_y,
                    "color": self._colour(),
                    "shape": self._shape(),
                    "opacity": opacity,
                },
            },
            {
                "name": self._named("names"),
                "data": data,
                "mark": {
                    "type": "text",
                    "align": "left",
                    "baseline": "middle",
                    "xOffset": TEXT_AT,
                    "color": theme.TEXT,
                    "fontSize": 12,
                },
                "encoding": {
                    "x": {"value": "width"},
                    "y": label_y,
                    "text": {"field": "text"},
                    "opacity": opacity,
                    "tooltip": _WHOSE,
                },
            },
        ]

    def _spread(self) -> pd.DataFrame:
        """Return the ends of the curves with the places of their names, apart.

        All bright names are written. Of the others those that would come to stand too far from their line are not: the
        mouse and the table tell them.
        """
        scene, place = self.scene, self.scene.heights
        low, high = self.x["scale"]["domain"]
        seen = scene.lines[scene.lines["x"].between(low, high)]
        ends = seen.sort_values("x", kind="stable").groupby("series", sort=False).tail(1)
        lit = ends["series"].isin(set(seen.loc[seen["bright"], "series"])) | (ends["recipe"] == scene.base)
        ends = ends.assign(lit=lit, share=place.share(ends["y"]))
        ends = ends[ends["share"].between(-0.02, 1.02)]
        least = LABEL / self.height
        # More than fit are never tried: bright ones first, then the best.
        ends = ends.sort_values(["lit", "share"], ascending=False, kind="stable").head(int(1 / least))
        ends = ends.sort_values("share", kind="stable")
        placed = spread(ends["share"].to_numpy(), least=least)
        while len(ends):
            moved = np.where(ends["lit"], 0.0, np.abs(placed - ends["share"]))
            if moved.max() <= FARTHEST / self.height:
                break
            ends = ends.drop(ends.index[int(moved.argmax())])
            placed = spread(ends["share"].to_numpy(), least=least)
        texts = [clipped(str(name), MOST_LETTERS) for name in ends["series"]]
        columns = ["recipe", "series", "group", "x", "y", "lit"]
        whose = [clipped(str(name)) for name in ends["recipe"]]
        return self._placed(ends[columns]).assign(text=texts, recipe_text=whose, label=place.place_of(placed))

    # ---- channels

    def _lit(self) -> str:
        """Return the test for a mark in colour."""
        if not self.live:
            return "datum.lit"
        return f"datum.lit || datum.recipe === {ISOLATED} || indexof({CHOSEN}, datum.recipe) >= 0"

    def _opacity(
        self, *, bright: float, grey: float, brushed: bool = False, fades: bool = False, keys: str = ""
    ) -> Json:
        """Return the opacity: faint for what is not isolated, picked (`keys` names the field of the key) or brushed.

        What `fades` is weaker while there is a brush, wherever it is.
        """
        cases: list[tuple[Any, float]] = []
        if self.live:
            cases.append((f"{ISOLATED} !== '' && datum.recipe !== {ISOLATED}", FAINT))
            if keys:
                test = f"length({PICKED}) > 0 && indexof({PICKED}, datum.{keys}) < 0"
                cases.append((f"{test} && {ISOLATED} === ''", FAINT * 2))
            if brushed:
                cases.append(({"not": {"param": BRUSH}}, FAINT * 2))
            if fades:
                cases.append((f"{ISOLATED} === '' && isValid({BRUSH}.x)", FAINT * 4))
        return _when([*cases, (self._lit(), bright)], grey)

    def _colour(self) -> Json:
        """Return the colour of a mark: that of its group, or grey for what is dominated."""
        return {"condition": {"test": self._lit(), **self._plain_colour()}, "value": theme.GREY}

    def _plain_colour(self) -> Json:
        scale = self.look.scale(self.look.colours)
        return {"field": "group", "type": "nominal", "scale": scale, "legend": self._legend()}

    def _shape(self) -> Json:
        scale = self.look.scale(self.look.shapes)
        return {"field": "group", "type": "nominal", "scale": scale, "legend": self._legend()}

    def _legend(self) -> Json | None:
        return None if self.by_recipe and not self.prefix else self.look.legend

    # ---- data

    def _named(self, name: str) -> str:
        return self.prefix + name

    def _data(self, name: str, frame: pd.DataFrame) -> Json:
        """Keep the rows under a name, and return the reference to them."""
        self.datasets[self.prefix + name] = records(frame)
        return {"name": self.prefix + name}

    def _placed(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows with their qualities in `y` turned into places on the axis."""
        return frame.assign(y=self.scene.heights.drawn(frame["y"]))

    def _worded(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows with the texts of their tooltips."""
        scene = self.scene
        words: dict[str, Any] = {
            "recipe_text": _clipped(frame["series"]),
            "quality_text": [amounts.quality(value, scene.kind) for value in frame["y"].tolist()],
            "budget": [_budget(ssr) for ssr in frame["ssr"].tolist()],
        }
        # Rows of single runs have `train_seconds`; rows of means have not.
        if "train_seconds" in frame:
            sources = frame["time_source"].fillna("unknown").tolist()
            words["time_text"] = [
                f"{amounts.seconds(value)} ({source})"
                for value, source in zip(frame["train_seconds"].tolist(), sources, strict=True)
            ]
            words["cost_text"] = [
                "no price" if amounts.missing(v) else amounts.dollars(v) for v in frame["cost_usd"].tolist()
            ]
            words["methods_text"] = _clipped(frame["methods"].fillna(""))
            if scene.payment.forecast:
                words["deletion_text"] = [amount(value, scene.payment) for value in frame["x"]]
        else:
            words["time_text"] = [amount(value, scene.payment) for value in frame["x"].tolist()]
            words["place"] = [
                f"{name} at {ssr:g}" for name, ssr in zip(frame["series"].tolist(), frame["ssr"].tolist(), strict=True)
            ]
            known = frame["probability"].notna()
            words["front_text"] = [
                ("yes" if on else "no") + (f", in {p:.0%} of the resamples of the seeds" if sure else "")
                for on, p, sure in zip(frame["on_front"], frame["probability"], known, strict=True)
            ]
            if scene.size is not None:
                words["size_text"] = [scene.size.words(value) for value in frame["size"]]
        return self._placed(frame[[name for name in _KEPT if name in frame]]).assign(**words)


_KEPT = (
    *("run_id", "directory", "recipe", "series", "group", "x", "y", "n", "seed", "hardware", "time_source", "size"),
)
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


# Vega-Lite hands the mouse only to marks with a tooltip, as soon as a chart has a selection.
_WHOSE = [{"field": "recipe_text", "type": "nominal", "title": "Recipe"}]


def _clipped(names: pd.Series) -> list[str]:
    """Return the names as the texts of tooltips; of the same name there are as many as there are marks."""
    short = {name: clipped(str(name)) for name in names.unique()}
    return [short[name] for name in names.tolist()]


def _budget(ssr: float) -> str:
    return f"{ssr:g} of the full schedule"


def _when(cases: Sequence[tuple[Any, Any]], otherwise: Any) -> Json:
    """Return the value of the first case whose test holds, or else another."""
    return {"condition": [{"test": test, "value": value} for test, value in cases], "value": otherwise}


def _tooltip(words: dict[str, str], frame: pd.DataFrame, scene: Scene) -> list[Json]:
    """Return the tooltip: the columns that the frame has, with their titles."""
    titles = words | {
        "quality_text": f"{words['quality_text']}{scene.metric}",
        "time_text": words["time_text"] or scene.payment.label,
        "size_text": scene.size.label if scene.size else "",
    }
    return [{"field": name, "type": "nominal", "title": title} for name, title in titles.items() if name in frame]


def _size(scene: Scene) -> Json:
    """Return the size channel over the field `size`, labelled in words."""
    assert scene.size is not None  # the caller checks
    known = scene.means["size"].dropna()
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    # Vega formats no times: the labels of three ticks are spelt out in an expression.
    ticks = sorted({low, (low + high) / 2, high})
    words = " : ".join([*(f"datum.value == {tick!r} ? '{scene.size.words(tick)}'" for tick in ticks), "''"])
    legend = {
        "title": scene.size.label,
        "titleFontWeight": "normal",
        "orient": "bottom",
        "direction": "horizontal",
        "values": ticks,
        "labelExpr": words,
        "symbolFillColor": "transparent",
        "symbolStrokeColor": theme.TEXT,
        "symbolType": "circle",
    }
    scale = {"domain": [low, high if high > low else low + 1], "range": list(SIZES)}
    return {"field": "size", "type": "quantitative", "scale": scale, "legend": legend}


def records(frame: pd.DataFrame) -> list[Json]:
    """Return the rows as JSON has them: numbers and texts, nothing in place of NaN."""
    columns = {str(name): _values(frame[name]) for name in frame}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _values(column: pd.Series) -> list[Any]:
    known = column.notna()
    values = column.tolist()
    return values if known.all() else [value if sure else None for value, sure in zip(values, known, strict=True)]
