"""Survey of many sweeps: the mean of every recipe at every budget, and the frontier over all of them.

Few sweeps are compared with the baseline of one (`analysis.across_sweeps`). Here they are too many, so nothing is
compared: a point of interest leads to its own sweep. Of many thousands of points, those on the frontier are drawn and,
of the rest, one for each cell of the chart: more would overlap.
"""

from dataclasses import replace

import numpy as np
import pandas as pd

from explorer.analysis import pareto
from explorer.page import amounts
from explorer.page.document import Column, Row, Table
from explorer.page.theme import Look
from explorer.run_files import metric_of
from explorer.views.explorer.choices import machines
from explorer.views.explorer.payments import MEASURES, Payment, amount
from explorer.views.explorer.scene import Scene, extent, group_name
from explorer.views.notebook import named, swatch

CELLS = (72, 44)  # of the chart, across and up: each draws at most one point that is off the frontier
MAX_GROUPS = 24  # colours; further groups share one
REST = "others"
MAX_ROWS = 30


def survey_scene(
    means: pd.DataFrame, *, payment: Payment, metric: str, log: bool, compare: str, size: str
) -> Scene | None:
    """Return the scene of rows of `frames.means`; None if no row has an amount of `payment`.

    `metric`, `log`, `compare` and `size` are those of a `Question`.
    """
    # The front comes before the thinning, so that no cell can hide a point of it.
    paid = means[means[payment.column].notna() & means["quality"].notna()]
    if paid.empty:
        return None
    kind = metric_of(paid.iloc[0].to_dict())
    paid = paid.assign(x=paid[payment.column].astype(float), y=paid["quality"].astype(float))
    front = _front(paid, higher=kind.higher_is_better)
    paid = paid.assign(on_front=paid.index.isin(front))
    measure = MEASURES.get(size)
    drawn = _thin(paid, log=log)
    frame = drawn.assign(
        series=_series(drawn),
        group=_groups(drawn, compare),
        probability=np.nan,
        bright=drawn["on_front"],
        size=drawn[measure.column] if measure else np.nan,
    )
    columns = [
        "recipe",
        "series",
        "group",
        "x",
        "y",
        "ssr",
        "n",
        "time_source",
        "on_front",
        "probability",
        "bright",
        "size",
    ]
    corners = paid.loc[front, ["x", "y"]].sort_values("x")
    return Scene(
        runs=pd.DataFrame(columns=["recipe", "series", "x", "y", "bright"]),
        means=frame[[*columns, "sweep", "recipe_digest"]],
        lines=pd.DataFrame(columns=["recipe", "series", "group", "x", "y", "low", "high", "piece", "bright"]),
        front=corners,
        payment=payment,
        kind=replace(kind, name=metric),
        baseline=None,
        base=None,
        target=None,
        size=measure,
        log=log,
        x_range=extent([paid["x"].min(), paid["x"].max()]),
        y_range=extent([paid["y"].min(), paid["y"].max()]),
    )


def survey_sentence(means: pd.DataFrame) -> str:
    """Return the headline of a survey: the numbers of recipes and sweeps, and the way to a comparison."""
    recipes = amounts.count(means[["sweep", "recipe_digest"]].drop_duplicates().shape[0], "recipe")
    sweeps = amounts.count(means["sweep"].nunique(), "sweep")
    return f"{recipes} of {sweeps}: choose one sweep to compare its recipes with its baseline"


def survey_note(means: pd.DataFrame, scene: Scene) -> str:
    """Return a note on how many of the points are drawn."""
    drawn, points = len(scene.means), len(means)
    if drawn == points:
        runs = amounts.count(int(means["n"].sum()), "run")
        return f"{amounts.count(points, 'mean')} of {runs}; the frontier is over all."
    return f"{drawn:,} of {points:,} means are drawn, one for each cell of the chart; the frontier is over all."


def frontier_table(scene: Scene, look: Look) -> Table:
    """Return the points on the frontier as a table."""
    columns = (
        Column(title="On the frontier"),
        Column(title="Sweep"),
        Column(title="Budget", number=True),
        Column(title=scene.payment.label, number=True),
        Column(title=scene.metric, number=True),
        Column(title="n", number=True),
    )
    best = scene.means[scene.means["on_front"]].sort_values("x").head(MAX_ROWS)
    rows = [
        Row(
            cells=(
                swatch(str(row["group"]), look) if row["group"] == row["recipe"] else named(str(row["recipe"])),
                named(str(row["sweep"])),
                f"{row['ssr']:g}",
                amount(float(row["x"]), scene.payment),
                amounts.quality(float(row["y"]), scene.kind),
                str(row["n"]),
            )
        )
        for row in best.to_dict("records")
    ]
    return Table(columns, rows)


def _front(paid: pd.DataFrame, *, higher: bool) -> pd.Index:
    # A control exists for others to be compared with, so it is no candidate.
    candidates = paid[paid["control"].isna()] if "control" in paid else paid
    x, y = candidates["x"].to_numpy(), candidates["y"].to_numpy()
    return candidates.index[pareto.front(x, y, higher_is_better=higher)]


def _thin(paid: pd.DataFrame, *, log: bool) -> pd.DataFrame:
    """Return the points of the frontier, and one for each cell of the chart."""
    across = np.log(paid["x"]) if log else paid["x"]
    cells = [_cells(np.asarray(values), count) for values, count in zip((across, paid["y"]), CELLS, strict=True)]
    place = pd.Series(cells[0] * CELLS[1] + cells[1], index=paid.index)
    return paid[paid["on_front"] | ~place.duplicated()]


def _cells(values: np.ndarray, count: int) -> np.ndarray:
    low, high = values.min(), values.max()
    return np.minimum(((values - low) / ((high - low) or 1.0) * count).astype(int), count - 1)


def _series(rows: pd.DataFrame) -> pd.Series:
    return rows["recipe"].astype(str) + ", " + rows["sweep"].astype(str) + ", " + rows["hardware_label"].astype(str)


def _groups(rows: pd.DataFrame, compare: str) -> list[str]:
    """Return the group of each point, which gives its colour; small groups share one."""
    columns = (rows["recipe"], machines(rows), rows["methods"], rows["policy"])
    names = pd.Series([group_name(compare, *values) for values in zip(*columns, strict=True)], index=rows.index)
    # Points on the frontier count first, because they are what is read; the number of points breaks ties.
    rank = rows.groupby(names)["on_front"].sum() * len(rows) + names.value_counts()
    kept = set(rank.sort_values(ascending=False).index[:MAX_GROUPS])
    return [name if name in kept else REST for name in names]
