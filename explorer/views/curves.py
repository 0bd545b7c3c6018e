"""Curves of a metric over the steps of training, one line a run, coloured by recipe."""

import altair as alt
import pandas as pd

from explorer.records import Metric
from explorer.views import theme

MAX_POINTS = 200  # a line; more cannot be told apart, and altair refuses more than 5,000 rows
MAX_ROWS = 4800


def metric_curves(
    frame: pd.DataFrame,
    *,
    metric: Metric,
    baseline: str | None = None,
    width: int | str = "container",
    height: int = 260,
) -> alt.LayerChart:
    """Draw `frame`: run_id, recipe, step, value; at least one row."""
    look = theme.look(frame["recipe"], baseline=baseline)
    thin = thinned(frame)
    lines = (
        alt.Chart(thin, name="lines")
        .mark_line(strokeWidth=1.6, opacity=0.85)
        .encode(
            x=alt.X(
                "step:Q", title="Optimiser step", axis=alt.Axis(tickCount=8, format=",~r"), scale=alt.Scale(nice=False)
            ),
            y=alt.Y("value:Q", title=metric.title(), scale=alt.Scale(zero=False)),
            color=look.colour("recipe"),
            detail="run_id:N",
            tooltip=[
                alt.Tooltip("recipe:N", title="Recipe"),
                alt.Tooltip("run_id:N", title="Run"),
                alt.Tooltip("step:Q", title="Step"),
                alt.Tooltip("value:Q", title=metric.name, format=".4~g"),
            ],
        )
    )
    runs = frame["run_id"].nunique()
    words = f"{metric.name} over training steps of {runs} {'run' if runs == 1 else 'runs'}."
    return theme.styled(
        alt.LayerChart(layer=[lines]).properties(
            width=width, height=height, description=words, padding={"top": 18, "right": 12}
        )
    )


def thinned(frame: pd.DataFrame) -> pd.DataFrame:
    """At most `MAX_POINTS` rows of each run, the last one among them, and at most `MAX_ROWS` in all."""
    runs = max(1, frame["run_id"].nunique())
    keep = max(2, min(MAX_POINTS, MAX_ROWS // runs))
    ordered = frame.sort_values(["run_id", "step"])
    from_end = ordered.groupby("run_id").cumcount(ascending=False)
    length = ordered.groupby("run_id")["step"].transform("size")
    stride = -(-length // keep)
    return ordered[from_end % stride == 0][["run_id", "recipe", "step", "value"]]
