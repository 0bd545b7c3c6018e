"""Chart of quality, cost and deletability: the quality of recipes, its price, and the time to delete a class.

A mark is the mean of a recipe at one budget; a thin line joins its budgets. Its place is quality against payment, its
colour the time of a deletion, dark for fast, and its shape the level: a circle where the classes can be dropped (G2),
a square where some need a replay (G3). Runs without a forecast are hollow: they keep no ledger, or their steps were
never measured.
"""

import altair as alt
import pandas as pd

from explorer.analysis.reprice import DELETION
from explorer.errors import AnalysisError, unknown
from explorer.page import amounts, theme
from explorer.run_files import Metric, metric_of
from explorer.views.explorer.axes import heights, payment_axis, quality_axis, round_ticks
from explorer.views.explorer.payments import PAYMENTS, payment_of

LEVELS = {"G2": "exact by structure (G2)", "G3": "exact by replay (G3)"}
SHAPES = ("circle", "square")


def deletability(
    results: pd.DataFrame,
    forecasts: pd.DataFrame,
    *,
    class_: str = "",
    payment: str = "cost",
    width: int | str = "container",
    height: int = 380,
) -> alt.LayerChart:
    """Draw runs of one setting: rows of `results`, and of `deletion_forecasts` for the colour.

    `class_` is the class to delete; empty for the costliest of each run. `payment` is the x axis, a key of
    `payments.PAYMENTS`. Raises `AnalysisError` if no run has an amount of it, and for a class that no run has.
    """
    known = sorted(forecasts["class"].unique())
    if class_ and class_ not in known:
        raise AnalysisError(unknown("class", class_, known))
    paid, deletion = PAYMENTS[payment], payment_of("deletion", class_=class_)
    means = _means(_deletions(results, forecasts, class_), paid.column)
    if means.empty:
        raise AnalysisError(f"no run here has a known {paid.label.lower()}: its step time or its price is unknown")
    kind = metric_of(results.iloc[0].to_dict())
    place = heights(means["quality"].tolist(), kind)
    means = means.assign(y=place.drawn(means["quality"]))
    x = payment_axis(paid, list(means["x"]), log=len(set(means["x"])) > 1)
    y = quality_axis(place)
    # Lines lie below marks. Hollow marks are a layer of their own, because an unknown time has no colour.
    base = alt.Chart(means)
    lines = base.mark_line(color=theme.TEXT, opacity=0.3, strokeWidth=1.2).encode(x=x, y=y, detail="recipe:N")
    marks = alt.Chart(means[means["seconds"].notna()], name="deletable").mark_point(size=170, filled=True, opacity=1)
    blank = alt.Chart(means[means["seconds"].isna()], name="unknown").mark_point(
        size=170, filled=False, color=theme.TEXT, opacity=0.5
    )
    names = base.transform_filter(alt.datum.last).mark_text(dy=-16, color=theme.TEXT, fontSize=12)
    shape = alt.Shape(
        "way:N",
        scale=alt.Scale(domain=[*LEVELS.values()], range=[*SHAPES]),
        legend=alt.Legend(
            title=None, orient="top", offset=34, symbolFillColor=theme.TEXT, symbolStrokeColor=theme.TEXT
        ),
    )
    layers = [lines, names.encode(x=x, y=y, text="recipe:N"), blank.encode(x=x, y=y, tooltip=_tooltip(paid.label))]
    if means["seconds"].notna().any():
        layers.append(
            marks.encode(
                x=x, y=y, shape=shape, color=_colour(deletion.title, means["seconds"]), tooltip=_tooltip(paid.label)
            )
        )
    chart = alt.LayerChart(layer=layers).properties(
        width=width,
        height=height,
        padding={"top": 18, "left": 2, "right": 12, "bottom": 4},
        description=describe(means, kind, what=deletion.title),
    )
    return theme.styled(chart)


def describe(means: pd.DataFrame, kind: Metric, *, what: str) -> str:
    """Return the chart in sentences, for screen readers."""
    said = []
    for recipe, rows in means.groupby("recipe", sort=False):
        last = rows.sort_values("x").iloc[-1]
        takes = "unknown" if amounts.missing(last["seconds"]) else f"{amounts.seconds(last['seconds'])}, {last['way']}"
        said.append(
            f"{recipe}: {kind.name} {amounts.quality(last['quality'], kind)}; {what[:1].lower()}{what[1:]}: {takes}."
        )
    return " ".join(said)


def _deletions(results: pd.DataFrame, forecasts: pd.DataFrame, class_: str) -> pd.DataFrame:
    """Return the rows with `seconds` and `level` of the deletion of a class."""
    if not class_:
        return results.assign(seconds=results[DELETION], level=results["deletion_level"])
    mine = forecasts.loc[forecasts["class"] == class_, ["directory", "seconds", "level"]]
    # The time of a deletion is known for the machine that trained, not for one whose times are predicted.
    rows = results.merge(mine, how="left", on="directory")
    return rows.assign(seconds=rows["seconds"].where(rows["time_source"] != "predicted"))


def _means(rows: pd.DataFrame, x: str) -> pd.DataFrame:
    """Return a row for each budget of a recipe: recipe, ssr, x, quality, seconds, way, n, and the tooltip's texts."""
    # The worst level counts: one run that needs a replay makes it G3.
    paid = rows[rows[x].notna() & rows["quality"].notna()]
    groups = paid.groupby(["recipe", "ssr"], sort=False)
    means = groups.agg(
        x=(x, "median"),
        quality=("quality", "mean"),
        seconds=("seconds", "median"),
        level=("level", lambda levels: max(levels.dropna(), default=None)),
        n=("seed", "nunique"),
    ).reset_index()
    last = means.groupby("recipe")["x"].transform("max") if len(means) else means["x"]
    kind = metric_of(rows.iloc[0].to_dict())
    return means.assign(
        way=means["level"].map(LEVELS),
        last=means["x"] == last,
        quality_text=[amounts.quality(value, kind) for value in means["quality"]],
        deletion_text=["unknown" if amounts.missing(value) else amounts.seconds(value) for value in means["seconds"]],
        budget=[f"{ssr:g} of the full schedule" for ssr in means["ssr"]],
    )


def _colour(title: str, seconds: pd.Series) -> alt.Color:
    """Return the colour channel: seconds on a log scale, whose ticks are labelled as times."""
    low, high = float(seconds.min()), float(seconds.max())
    ticks = round_ticks(low, high, log=True) if high > low else [low]
    words = [*(f"datum.value == {tick!r} ? '{amounts.seconds(tick)}'" for tick in ticks), "''"]
    legend = alt.Legend(
        title=title,
        titleFontWeight="normal",
        orient="right",
        offset=24,
        values=ticks,
        labelExpr=" : ".join(words),
        gradientLength=160,
    )
    scale = alt.Scale(type="log", domain=[low, max(high, low * 1.01)], scheme="viridis")
    return alt.Color("seconds:Q", scale=scale, legend=legend)


def _tooltip(paid: str) -> list[alt.Tooltip]:
    titles = {
        "recipe": "Recipe",
        "quality_text": "Mean quality",
        "deletion_text": "Deletion",
        "way": "Level",
        "budget": "Budget",
        "n": "Seeds (n)",
    }
    return [*(alt.Tooltip(f"{name}:N", title=title) for name, title in titles.items()), alt.Tooltip("x:Q", title=paid)]
