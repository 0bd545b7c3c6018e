"""What a tradeoff chart draws, put together from the curves and the front that the analysis found."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from explorer.analysis import curves, pareto
from explorer.analysis.curves import Curve
from explorer.analysis.ladders import Machine
from explorer.records import Metric
from explorer.views.axes import Heights, Payment, heights
from explorer.views.measures import Measure, measure_of
from explorer.views.series import group_of, run_labels, series_names

BETWEEN = 6  # drawn points between two budgets where a line that is straight in log x is not so on the axes
MAX_DRAWN = 600  # points of all lines together; where there are many, each has fewer
MAX_RUNS = 500  # marks; of more runs the means are drawn alone


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """A tradeoff chart's content. x is in seconds, dollars or a count (`payment`), y in the metric's unit.

    Every row has `recipe`, its label; `series`, the curve that it belongs to; `group`, what gives it its colour.

    `runs`: a row a run: x, y, and the columns of `results`.
    `means`: a row a budget of a curve: x, y, ssr, n, time_source, on_front, probability of being on it (NaN where that
    is not known), size.
    `lines`: a row a drawn point of a curve: x, y, low, high (NaN where there is no band).
    `front`: x, y of the frontier's corners, by x.
    """

    runs: pd.DataFrame
    means: pd.DataFrame
    lines: pd.DataFrame
    front: pd.DataFrame
    payment: Payment
    kind: Metric  # of the qualities
    baseline: str | None  # its group, which is drawn in the colour of the text
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
        """How qualities are placed: after runs and target; a band that goes further is cut off."""
        return heights(self.y_range, self.kind)

    @property
    def groups(self) -> list[str]:
        """What has a colour of its own, in the order of the legend: as they come in the results."""
        return list(dict.fromkeys(self.means["group"]))

    @property
    def recipes(self) -> list[str]:
        """The labels of the recipes, as they come in the results."""
        return list(dict.fromkeys(self.means["recipe"]))

    @property
    def controls(self) -> list[str]:
        """The recipes that are there for others to be compared with; they are never on the front."""
        if "control" not in self.runs:
            return []
        return list(dict.fromkeys(self.runs.loc[self.runs["control"] == "random-subset", "recipe"]))

    @property
    def draws_runs(self) -> bool:
        """Whether single runs are drawn beside the means."""
        return 0 < len(self.runs) <= MAX_RUNS

    def of(self, series: Sequence[str], runs: pd.Series | None = None) -> "Scene":
        """The part of some curves, on the same axes; of their runs those that are marked."""
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
    """The scene of some rows of `results`, all of one sweep and metric; None when none of them has been paid in
    `payment`.

    `target` is drawn as a line; `compare`, `size` and `deletion_of` are those of a `Question`. Raises `AnalysisError`
    for results that no curve can be made of.
    """
    found = curves.curves(rows, x=payment.column)
    if not found:
        return None
    setting = found[0].setting
    names, groups = series_names(found), group_of(rows, found, compare)
    runs = _runs(rows, found, names, groups, payment)
    means = _means(found, names, groups, rows, payment)
    measure = measure_of(size, class_=deletion_of)
    if measure is not None:
        means = means.merge(_sizes(runs, measure), how="left", on=["series", "ssr"])
    targets = () if target is None else (target,)
    y_range = extent([*runs["y"], *means["y"], *targets])
    place = heights(y_range, setting.kind)
    return Scene(
        runs=runs,
        means=means,
        lines=_lines(found, names, groups, straight=log and not place.log),
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
    """The least and the largest value."""
    return float(min(values)), float(max(values))


Names = dict[tuple[Machine, str], str]
"""Something of each curve, by its machine and label."""


def _means(found: list[Curve], names: Names, groups: Names, rows: pd.DataFrame, payment: Payment) -> pd.DataFrame:
    """The mean points, with their places on the front over everything that is drawn."""
    front = pareto.front_table(rows, x=payment.column)
    keys = ["label", "ssr", "device", "hardware", "threads", "world_size"]
    front = front[[*keys, "on_front", "probability"]] if len(front) else pd.DataFrame(columns=[*keys, "on_front"])
    means = curves.table(found).merge(front, on=keys, how="left")
    places = [curve.setting.machine for curve in found for _ in curve.points]
    means = means.assign(
        recipe=means["label"],
        series=[names[place, label] for place, label in zip(places, means["label"], strict=True)],
        group=[groups[place, label] for place, label in zip(places, means["label"], strict=True)],
        y=means["mean"],
        candidate=means["on_front"].notna(),  # controls are none
        on_front=means["on_front"].eq(True),
    )
    if len({curve.setting.machine for curve in found}) > 1:
        means = _front_over_all(means, higher=found[0].setting.higher_is_better)
    columns = ["recipe", "series", "group", "x", "y", "ssr", "n", "time_source", "on_front", "probability"]
    return means.reindex(columns=columns)


def _front_over_all(means: pd.DataFrame, *, higher: bool) -> pd.DataFrame:
    """The front over several hardwares at once; how sure it is, is then not known."""
    candidates = means[means["candidate"]]
    best = candidates.index[
        pareto.front(candidates["x"].to_numpy(), candidates["y"].to_numpy(), higher_is_better=higher)
    ]
    return means.assign(on_front=means.index.isin(best), probability=np.nan)


def _runs(rows: pd.DataFrame, found: list[Curve], names: Names, groups: Names, payment: Payment) -> pd.DataFrame:
    shown = rows[rows[payment.column].notna()]
    places, labels = run_labels(shown, found)
    pairs = list(zip(places, labels, strict=True))
    return shown.assign(
        recipe=labels,
        series=[names[pair] for pair in pairs],
        group=[groups[pair] for pair in pairs],
        x=shown[payment.column],
        y=shown["quality"],
    )


def _sizes(runs: pd.DataFrame, measure: Measure) -> pd.DataFrame:
    """The median of a measure at each budget of each curve."""
    grouped = runs.groupby(["series", "ssr"], sort=False)[measure.column].median()
    return grouped.rename("size").reset_index()


def _lines(found: list[Curve], names: Names, groups: Names, *, straight: bool) -> pd.DataFrame:
    """The curves with as many points as it takes: they are linear in log x, as the analysis has it, on every axis."""
    parts, of_all = [], sum(len(curve.points) for curve in found)
    for curve in found:
        points = np.array([[p.x, p.fitted, _number(p.low), _number(p.high)] for p in curve.points])
        between = 1 if straight else max(1, min(BETWEEN, MAX_DRAWN // of_all))
        at, corners = np.arange((len(points) - 1) * between + 1), np.arange(len(points)) * between
        log_x = np.log(points[:, 0])
        places = np.interp(at, corners, log_x)
        ends = [np.interp(places, log_x, column) for column in points[:, 1:].T]
        parts.append(np.column_stack([np.exp(places), *ends]))
    keys = [(curve.setting.machine, curve.label) for curve in found]
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
    """The group that the baseline is in, where it has one to itself."""
    mine = set(means.loc[means["recipe"] == baseline, "group"])
    others = set(means.loc[means["recipe"] != baseline, "group"])
    return next(iter(mine)) if len(mine) == 1 and not mine & others else None
