"""Many sweeps at once: the mean of every recipe at every budget, and the frontier over all of them.

Sweeps have no common baseline, so nothing is compared; what stands out leads to its own sweep. Of many thousands of
points those on the frontier are drawn and, of the rest, one for each place of the chart: nobody could tell more
apart.
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
from explorer.views.explorer.tradeoff import Scene, extent, group_name
from explorer.views.notebook import named, swatch

PLACES = (72, 44)  # of the chart, across and up: at most so many points are drawn beside the frontier
MAX_GROUPS = 24  # colours; further groups share one
REST = "others"
MAX_ROWS = 30


def survey_scene(
    means: pd.DataFrame, *, payment: Payment, metric: str, log: bool, compare: str, size: str
) -> Scene | None:
    """The scene of rows of `frames.means`; None when none of them has been paid in `payment`."""
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
        size=drawn[measure.column] if measure else np.nan,
    )
    columns = ["recipe", "series", "group", "x", "y", "ssr", "n", "time_source", "on_front", "probability", "size"]
    corners = paid.loc[front, ["x", "y"]].sort_values("x")
    return Scene(
        runs=pd.DataFrame(columns=["recipe", "series", "x", "y"]),
        means=frame[[*columns, "sweep", "recipe_digest"]],
        lines=pd.DataFrame(columns=["recipe", "series", "group", "x", "y", "low", "high"]),
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
    """What there is, and that nothing of it is compared."""
    recipes = amounts.count(means[["sweep", "recipe_digest"]].drop_duplicates().shape[0], "recipe")
    sweeps = amounts.count(means["sweep"].nunique(), "sweep")
    return f"{recipes} of {sweeps}: choose one sweep to compare its recipes with its baseline"


def survey_note(means: pd.DataFrame, scene: Scene) -> str:
    """How much of it is drawn."""
    drawn, points = len(scene.means), len(means)
    if drawn == points:
        runs = amounts.count(int(means["n"].sum()), "run")
        return f"{amounts.count(points, 'mean')} of {runs}; the frontier is over all."
    return f"{drawn:,} of {points:,} means are drawn, one for each place of the chart; the frontier is over all."


def frontier_table(scene: Scene, look: Look) -> Table:
    """Return the points on the frontier as a table, beside the chart."""
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
    candidates = paid[paid["control"].isna()] if "control" in paid else paid
    x, y = candidates["x"].to_numpy(), candidates["y"].to_numpy()
    return candidates.index[pareto.front(x, y, higher_is_better=higher)]


def _thin(paid: pd.DataFrame, *, log: bool) -> pd.DataFrame:
    """The points of the frontier, and one for each place of the chart."""
    across = np.log(paid["x"]) if log else paid["x"]
    cells = [_cells(np.asarray(values), count) for values, count in zip((across, paid["y"]), PLACES, strict=True)]
    place = pd.Series(cells[0] * PLACES[1] + cells[1], index=paid.index)
    return paid[paid["on_front"] | ~place.duplicated()]


def _cells(values: np.ndarray, count: int) -> np.ndarray:
    low, high = values.min(), values.max()
    return np.minimum(((values - low) / ((high - low) or 1.0) * count).astype(int), count - 1)


def _series(rows: pd.DataFrame) -> pd.Series:
    return rows["recipe"].astype(str) + ", " + rows["sweep"].astype(str) + ", " + rows["hardware_label"].astype(str)


def _groups(rows: pd.DataFrame, compare: str) -> list[str]:
    """What gives each point its colour; the groups that have most points on the frontier keep one of their own."""
    columns = (rows["recipe"], machines(rows), rows["methods"], rows["policy"])
    names = pd.Series([group_name(compare, *each) for each in zip(*columns, strict=True)], index=rows.index)
    rank = rows.groupby(names)["on_front"].sum() * len(rows) + names.value_counts()
    kept = set(rank.sort_values(ascending=False).index[:MAX_GROUPS])
    return [name if name in kept else REST for name in names]
