"""Where the time of a step goes: one bar a recipe, stacked by part."""

import altair as alt
import pandas as pd

from explorer.views import theme

PARTS = {
    "read": "reading",
    "preprocess": "preprocessing",
    "transfer": "transfer",
    "wait": "waiting for data",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimiser",
    "governance": "governance",
    "other": "other",
}
"""The parts of a step, keys of `records.Timings`, in the order in which they happen."""

# Neighbours stay apart on a dark ground too, where explorer.css lightens some of them.
COLOURS = ("#999999", "#BBBBBB", "#DDDDDD", "#8C6D1F", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#F0E442")


def step_times(
    frame: pd.DataFrame, *, runs: bool = False, width: int | str = "container", bar: int = 26
) -> alt.LayerChart:
    """Draw `frame`: recipe, part (a key of `PARTS`), seconds of one step, or of whole `runs`; at least one row."""
    scale_by, title = (1, "Seconds a run") if runs else (1000, "Milliseconds a step")
    shown = frame[frame["part"].isin(PARTS) & (frame["seconds"] > 0)]
    present = [part for part in PARTS if part in set(shown["part"])]
    rows = pd.DataFrame(
        {
            "recipe": shown["recipe"],
            "part": shown["part"].map(PARTS),
            "order": shown["part"].map(list(PARTS).index),
            "time": shown["seconds"] * scale_by,
        }
    )
    colours = [COLOURS[list(PARTS).index(part)] for part in present]
    scale = alt.Scale(domain=[PARTS[part] for part in present], range=colours)
    bars = (
        alt.Chart(rows, name="bars")
        .mark_bar(height=bar - 8)
        .encode(
            x=alt.X("sum(time):Q", title=title, axis=alt.Axis(tickCount=6)),
            y=alt.Y("recipe:N", title=None, sort=list(dict.fromkeys(rows["recipe"])), axis=alt.Axis(grid=False)),
            color=alt.Color("part:N", scale=scale, legend=alt.Legend(title=None, orient="top", symbolType="square")),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("recipe:N", title="Recipe"),
                alt.Tooltip("part:N", title="Part"),
                alt.Tooltip("sum(time):Q", title=title, format=".3~g"),
            ],
        )
    )
    words = f"Time of {'a whole run' if runs else 'one training step'} by part, for {rows['recipe'].nunique()} recipes."
    height = bar * max(1, rows["recipe"].nunique())
    return theme.styled(alt.LayerChart(layer=[bars]).properties(width=width, height=height, description=words))
