"""Scene: the content of a tradeoff chart, put together from the curves and the front of the analysis.

A curve is bright where no other curve is better for as much or less: all are linear in log x, and a curve that has
ended keeps its last quality. A point is bright if it is on the front of the means, and no curve passes above it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from explorer.analysis import curves, pareto
from explorer.analysis.curves import Curve
from explorer.analysis.ladders import Ladders, Machine, ladders_of
from explorer.page import theme
from explorer.run_files import Metric
from explorer.views.explorer.axes import Heights, heights
from explorer.views.explorer.choices import machines
from explorer.views.explorer.payments import Measure, Payment, measure_of

GRID = 240  # places along x at which curves are compared: two or three pixels apart
MAX_DRAWN = 400  # points of all lines together, where lines that are straight in log x bend on the axes
MAX_RUNS = 500  # marks; of more runs only the means are drawn
UNGOVERNED = "no policy"
NO_METHODS = "none"


DIVERGED = ("recipe", "ssr", "x", "message", "directory")


@dataclass(frozen=True, kw_only=True, slots=True)
class Gain:
    """The headline's speedup, between the two times at which it is read off. `claimed` ones have been shown."""

    recipe: str
    x: float
    baseline_x: float
    claimed: bool

    @property
    def words(self) -> str:
        return f"{self.baseline_x / self.x:.2f}x"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scene:
    """Content of a tradeoff chart. x is in seconds, dollars or a count (`payment`), y in the metric's unit.

    Every row has `recipe`, its label; `series`, the curve that it belongs to; `group`, which gives it its colour.

    `runs`: a row for each run: x, y, bright (its mean is), and the columns of `results`.
    `means`: a row for each budget of a curve: x, y, ssr, n, time_source, on_front, probability of being on it (NaN if
    unknown), bright, size.
    `lines`: a row for each drawn point of a curve: x, y, low, high (NaN without a band), and the piece of the curve
    that it belongs to, all bright or none; pieces share their ends.
    `front`: x, y of the frontier's corners, by x.
    `diverged`: a row for each run that diverged: recipe, ssr, x, message, directory.
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
    own_target: bool = False  # the target is the baseline's quality at its full budget
    gain: Gain | None = None
    errors: bool = True  # y may be a log scale of the error
    diverged: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(DIVERGED)))

    @property
    def metric(self) -> str:
        """The name of the metric."""
        return self.kind.name

    @property
    def heights(self) -> Heights:
        """Scale of the y axis, which holds runs and target; a band that goes further is cut off."""
        return heights(self.y_range, self.kind, log=self.errors)

    @property
    def groups(self) -> list[str]:
        """The groups, each with a colour of its own, in the order of the results and of the legend."""
        return self.means["group"].unique().tolist()

    @property
    def recipes(self) -> list[str]:
        """The labels of the recipes, in the order of the results."""
        return self.means["recipe"].unique().tolist()

    @property
    def controls(self) -> list[str]:
        """The recipes that exist for others to be compared with; they are never on the front."""
        if "control" not in self.runs:
            return []
        return self.runs.loc[self.runs["control"] == "random-subset", "recipe"].unique().tolist()

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


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Content:
    """Curves with their names, and the front: a scene without its axes. Rows are those of a `Scene`."""

    drawn: list[Curve]
    compared: "_Compared"
    names: "Names"
    groups: "Names"
    runs: pd.DataFrame
    means: pd.DataFrame
    payment: Payment
    baseline: str | None  # the label of the baseline
    compare: str


def content_of(
    rows: pd.DataFrame,
    *,
    payment: Payment,
    baseline: str | None,
    compare: str = "recipe",
    ladders: Ladders | None = None,
) -> Content | None:
    """Return what is drawn of some rows of `results`, all of one sweep and metric; None if none has an amount of
    `payment`. `ladders` are those of the rows along the payment's column, if they are known already.

    Raises `AnalysisError` for results that no curve can be made of.
    """
    lines = ladders_of(rows if ladders is None else ladders, x=payment.column)
    drawn = curves.curves(lines, x=payment.column)
    if not drawn:
        return None
    # Names and colours belong to curves; runs and means take theirs from the curve that they belong to.
    names, groups = series_names(drawn), group_of(rows, drawn, compare)
    compared = _compared(drawn, controls=_controls(rows))
    means = _means(drawn, names, groups, lines, payment).assign(bright=compared.at_points)
    means = means.assign(bright=means["bright"] & means["on_front"])
    return Content(
        drawn=drawn,
        compared=compared,
        names=names,
        groups=groups,
        runs=_lit(_runs(rows, drawn, names, groups, payment), means, baseline),
        means=means,
        payment=payment,
        baseline=baseline,
        compare=compare,
    )


def scene_of(
    content: Content,
    *,
    target: float | None,
    log: bool = True,
    size: str = "",
    deletion_of: str = "",
    errors: bool = True,
    own_target: bool = False,
    gain: Gain | None = None,
    diverged: pd.DataFrame | None = None,
    most: int = MAX_DRAWN,
) -> Scene:
    """Return the scene of a content on its axes.

    Args:
        content: what is drawn.
        target: a quality that is drawn as a line.
        log, size, deletion_of, errors: the fields of a `Question`.
        own_target, gain: those of a `Scene`.
        diverged: the runs that diverged; one without x is not drawn.
        most: points that bend the lines on the axes, of all lines together.
    """
    kind, runs, means = content.drawn[0].setting.kind, content.runs, content.means
    measure = measure_of(size, class_=deletion_of)
    if measure is not None:
        means = means.merge(_sizes(runs, measure), how="left", on=["series", "ssr"])
    # A single point is its own target, and a line through it says nothing.
    target = target if len(means) > 1 else None
    # The target belongs to the range of y: a target out of reach must stay visible.
    targets = () if target is None else (target,)
    y_range = extent([*runs["y"].tolist(), *means["y"].tolist(), *targets])
    place = heights(y_range, kind, log=errors)
    failed = pd.DataFrame(columns=list(DIVERGED)) if diverged is None else diverged[diverged["x"].notna()]
    baseline = content.baseline
    return Scene(
        runs=runs,
        means=means,
        lines=_lines(content, most=0 if log and not place.log else most),
        front=means.loc[means["on_front"], ["x", "y"]].sort_values("x"),
        payment=content.payment,
        kind=kind,
        baseline=baseline if content.compare == "recipe" else _group_of_baseline(means, baseline),
        base=baseline,
        target=target,
        size=measure,
        log=log,
        x_range=extent([*runs["x"].tolist(), *means["x"].tolist(), *failed["x"].tolist()]),
        y_range=y_range,
        own_target=own_target,
        gain=gain,
        errors=errors,
        diverged=failed,
    )


def build_scene(
    rows: pd.DataFrame, *, payment: Payment, baseline: str | None, compare: str = "recipe", **drawn: Any
) -> Scene | None:
    """Return the scene of some rows of `results`; None if none has an amount of `payment`.

    The arguments are those of `content_of` and `scene_of`, which say what is raised.
    """
    content = content_of(rows, payment=payment, baseline=baseline, compare=compare)
    return None if content is None else scene_of(content, **drawn)


def extent(values: Sequence[float]) -> tuple[float, float]:
    """Return the least and the largest value."""
    return float(min(values)), float(max(values))


Names = dict[tuple[Machine, str], str]
"""Texts for curves, by machine and label."""


def _means(drawn: list[Curve], names: Names, groups: Names, lines: Ladders, payment: Payment) -> pd.DataFrame:
    """Return the mean points, each with its place on the front over everything that is drawn."""
    places = {
        (ladder.setting, ladder.label, ssr): (on_front, probability)
        for front in pareto.fronts(lines, x=payment.column)
        for ladder, ssr, on_front, probability in front.points()
    }
    rows = []
    for curve in drawn:
        whose = curve.setting.machine, curve.label
        for point in curve.points:
            known = places.get((curve.setting, curve.label, point.ssr))  # of a control there is no place
            on_front, probability = known or (False, math.nan)
            own = curve.label, names[whose], groups[whose], point.x, point.mean, point.ssr, point.n, curve.time_source
            rows.append((*own, on_front, probability, known is not None))
    columns = ["recipe", "series", "group", "x", "y", "ssr", "n", "time_source", "on_front", "probability"]
    means = pd.DataFrame(rows, columns=[*columns, "candidate"])
    if len({(curve.setting.machine, curve.setting.sweep) for curve in drawn}) > 1:
        means = _front_over_all(means, higher=drawn[0].setting.higher_is_better)
    return means[columns]


def _front_over_all(means: pd.DataFrame, *, higher: bool) -> pd.DataFrame:
    """Return the means with the front over several machines or sweeps at once. Its probabilities are unknown: seeds are
    resampled only within one of them."""
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
        x=shown[payment.column].astype(float),
        y=shown["quality"],
    )


def _sizes(runs: pd.DataFrame, measure: Measure) -> pd.DataFrame:
    """Return the median of a measure at each budget of each curve."""
    grouped = runs.groupby(["series", "ssr"], sort=False)[measure.column].median()
    return grouped.rename("size").reset_index()


def _lit(runs: pd.DataFrame, means: pd.DataFrame, baseline: str | None) -> pd.DataFrame:
    """Return the runs with the mark `bright`: those whose mean is, and the baseline's."""
    best = set(means.loc[means["bright"], ["series", "ssr"]].itertuples(index=False, name=None))
    pairs = zip(runs["series"].tolist(), runs["ssr"].tolist(), strict=True)
    return runs.assign(bright=[pair in best for pair in pairs] | (runs["recipe"] == baseline).to_numpy())


def _controls(rows: pd.DataFrame) -> set[str]:
    return set(rows.loc[rows["control"] == "random-subset", "recipe"].unique()) if "control" in rows else set()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Compared:
    """Curves next to each other. L: curves, G: places along x, in its logarithm, with those of all points."""

    points: list[np.ndarray]  # of each curve: log x, fitted quality, low, high
    at_G: np.ndarray
    bright_LG: np.ndarray

    @property
    def at_points(self) -> np.ndarray:
        """Return whether each point lies on a bright part of its curve, curve by curve."""
        rows = zip(self.points, self.bright_LG, strict=True)
        return np.concatenate([bright_G[np.searchsorted(self.at_G, part[:, 0])] for part, bright_G in rows])


def _compared(drawn: Sequence[Curve], *, controls: set[str]) -> _Compared:
    """Return the curves, and where no candidate is better for as much or less. Controls are no candidates."""
    points = [np.array([[np.log(p.x), p.fitted, _number(p.low), _number(p.high)] for p in c.points]) for c in drawn]
    knots = np.concatenate([part[:, 0] for part in points])
    at_G = np.unique(np.concatenate([knots, np.linspace(knots.min(), knots.max(), GRID)]))
    sign = 1 if drawn[0].setting.higher_is_better else -1
    # Left of its first point a curve has nothing to offer; right of its last one it keeps what it has.
    value_LG = np.array([np.interp(at_G, part[:, 0], sign * part[:, 1], left=-np.inf) for part in points])
    value_LG[[curve.recipe in controls for curve in drawn]] = -np.inf
    best_G = value_LG.max(axis=0)
    reached_LG = np.isfinite(value_LG)
    tolerance_G = 1e-12 * np.abs(best_G, where=np.isfinite(best_G), out=np.zeros_like(best_G))
    return _Compared(points=points, at_G=at_G, bright_LG=reached_LG & (value_LG >= best_G - tolerance_G))


def _lines(content: Content, *, most: int) -> pd.DataFrame:
    """Return the curves in pieces, each all bright or none. A curve is straight between two points in log x; where the
    axes bend it there are points in between, at `most` of them."""
    compared, drawn, names, groups = content.compared, content.drawn, content.names, content.groups
    at_G, stride = compared.at_G, max(1, -(-len(drawn) * GRID // max(1, most)))
    parts, keys, bright = [], [], []
    for curve, part, bright_G in zip(drawn, compared.points, compared.bright_LG, strict=True):
        within = (at_G >= part[0, 0]) & (at_G <= part[-1, 0])
        at, lit = at_G[within], bright_G[within]
        kept = np.isin(at, part[:, 0]) | ((np.arange(at.size) % stride == 0) & (most > 0))
        starts = [0, *(1 + np.flatnonzero(lit[1:] != lit[:-1]))]
        for start, end in zip(starts, [*starts[1:], at.size - 1], strict=True):
            ends = np.isin(np.arange(at.size), (start, end))
            places = at[start : end + 1][(kept | ends)[start : end + 1]]
            parts.append(np.column_stack([np.exp(places), *(np.interp(places, part[:, 0], y) for y in part.T[1:])]))
            keys.append((curve.setting.machine, curve.label))
            bright.append(bool(lit[start]))
    lengths = [len(part) for part in parts]
    return pd.DataFrame(np.concatenate(parts), columns=["x", "y", "low", "high"]).assign(
        recipe=np.repeat([label for _, label in keys], lengths),
        series=np.repeat([names[key] for key in keys], lengths),
        group=np.repeat([groups[key] for key in keys], lengths),
        piece=np.repeat([f"piece {number}" for number in range(len(keys))], lengths),
        bright=np.repeat(bright, lengths),
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
        for place, recipe, digest in zip(places, rows["recipe"].tolist(), rows["recipe_digest"].tolist(), strict=True)
    ]
    return places, labels


def group_of(rows: pd.DataFrame, drawn: Sequence[Curve], compare: str) -> dict[tuple[Machine, str], str]:
    """Return the group of each curve, which gives its colour, by machine and label; `compare` is a `Question`'s."""
    first = rows.drop_duplicates(["recipe", "recipe_digest", "device", "hardware", "threads", "world_size"])
    places, labels = run_labels(first, drawn)
    return {
        (place, label): group_name(compare, label, place, methods, policy)
        for place, label, methods, policy in zip(
            places, labels, first["methods"].tolist(), _policies(first).tolist(), strict=True
        )
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


@lru_cache(maxsize=8)  # every row of a table asks for it
def look_of(scene: Scene) -> theme.Look:
    """Return the colour of each group, and the group of each label."""
    first = scene.means.drop_duplicates("recipe")
    groups = {str(label): str(group) for label, group in zip(first["recipe"], first["group"], strict=True)}
    bright = {*scene.means.loc[scene.means["bright"].astype(bool), "group"]}
    if len(scene.lines):
        bright |= {*scene.lines.loc[scene.lines["bright"], "group"]}
    return theme.look(scene.groups, baseline=scene.baseline, groups=groups, bright=bright)
