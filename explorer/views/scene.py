"""What a tradeoff chart draws, put together from the curves and the front that the analysis found."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from explorer.analysis import curves, pareto
from explorer.analysis.curves import Curve
from explorer.views.axes import Heights, Payment, heights

BETWEEN = 12  # drawn points between two budgets, because a line that is straight in log x is not so on every axis


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """A tradeoff chart's content. x is in seconds, dollars or steps (`payment`), y in the metric's unit.

    `runs`: a row a run: recipe, x, y, and the columns of `results`.
    `means`: a row a budget of a recipe: recipe, x, y, ssr, n, time_source, on_front.
    `lines`: a row a drawn point of a curve: recipe, x, y, low, high (NaN where there is no band).
    `front`: x, y of the frontier's corners, by x.
    """

    runs: pd.DataFrame
    means: pd.DataFrame
    lines: pd.DataFrame
    front: pd.DataFrame
    payment: Payment
    metric: str
    unit: str
    higher_is_better: bool
    baseline: str | None
    target: float | None
    log: bool = True

    @property
    def heights(self) -> Heights:
        """How qualities are placed: after runs and target; a band that goes further is cut off."""
        targets = () if self.target is None else (self.target,)
        values = [*self.runs["y"], *self.means["y"], *targets]
        return heights(values, unit=self.unit, higher_is_better=self.higher_is_better)

    @property
    def recipes(self) -> list[str]:
        """The recipes in the order of the legend: as they come in the results."""
        return list(dict.fromkeys(self.means["recipe"]))

    @property
    def controls(self) -> list[str]:
        """The recipes that are there for others to be compared with; they are never on the front."""
        return list(dict.fromkeys(self.runs.loc[self.runs["control"] == "random-subset", "recipe"]))


def build_scene(
    rows: pd.DataFrame, *, payment: Payment, baseline: str | None, target: float | None, log: bool = True
) -> Scene | None:
    """The scene of some rows of `results`, all of one setting; None when none of them has been paid in `payment`.

    `target` is drawn as a line. Raises `AnalysisError` for results that no curve can be made of.
    """
    found = curves.curves(rows, x=payment.column)
    if not found:
        return None
    setting = found[0].setting
    means = _means(found, pareto.front_table(rows, x=payment.column))
    return Scene(
        runs=_runs(rows, found, payment),
        means=means,
        lines=pd.concat([_line(curve) for curve in found], ignore_index=True),
        front=means.loc[means["on_front"], ["x", "y"]].sort_values("x"),
        payment=payment,
        metric=setting.metric,
        unit=setting.unit,
        higher_is_better=setting.higher_is_better,
        baseline=baseline,
        target=target,
        log=log,
    )


def _means(found: list[Curve], front: pd.DataFrame) -> pd.DataFrame:
    means = curves.table(found).merge(front[["label", "ssr", "on_front"]], on=["label", "ssr"], how="left")
    means = means.assign(recipe=means["label"], y=means["mean"], on_front=means["on_front"].eq(True))  # controls never
    return means[["recipe", "x", "y", "ssr", "n", "time_source", "on_front"]]


def _runs(rows: pd.DataFrame, found: list[Curve], payment: Payment) -> pd.DataFrame:
    shown = rows[rows[payment.column].notna()]
    labels = {curve.label for curve in found}
    names = [
        recipe if recipe in labels else f"{recipe} ({digest[:6]})"
        for recipe, digest in zip(shown["recipe"], shown["recipe_digest"], strict=True)
    ]
    return shown.assign(recipe=names, x=shown[payment.column], y=shown["quality"])


def _line(curve: Curve) -> pd.DataFrame:
    points = pd.DataFrame([{name: getattr(p, name) for name in ("x", "fitted", "low", "high")} for p in curve.points])
    points = points.astype(float).rename(columns={"fitted": "y"})
    return _denser(points).assign(recipe=curve.label)


def _denser(points: pd.DataFrame) -> pd.DataFrame:
    """The same curve with more points: it is linear in log x, as the analysis has it, on every axis."""
    count = (len(points) - 1) * BETWEEN + 1
    places = np.interp(np.arange(count), np.arange(len(points)) * BETWEEN, np.log(points["x"]))
    dense = {name: np.interp(places, np.log(points["x"]), points[name]) for name in ("y", "low", "high")}
    return pd.DataFrame({"x": np.exp(places), **dense})
