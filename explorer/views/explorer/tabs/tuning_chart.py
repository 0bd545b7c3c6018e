"""Quality against tuning spent, as a chart, and what the tuning of each recipe took and is worth, as a table."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import altair as alt
import pandas as pd

from explorer.page import amounts, theme
from explorer.page.document import Block, Column, Paragraph, Row, Table, as_baseline, clipped
from explorer.page.pictures import picture
from explorer.run_files import Metric
from explorer.search.tuning_worth import TRAININGS, Worth
from explorer.sweep.tuned import TunedRecord
from explorer.views.explorer.axes import payment_axis
from explorer.views.explorer.curves_chart import with_others
from explorer.views.explorer.payments import PAYMENTS

HEIGHT = 260
CAPTION = (
    "Expected quality of the best of as many points as the time on the x axis pays for, over all orders in which the"
    " points may come: at the tuning budget, on the tuning seeds, which also chose, so it is too good at the right end."
    " Points that diverged count as the worst."
)
SHARED = (
    f"Over {', '.join(map(str, TRAININGS))} trainings with the values chosen: the speedup with the tuning of both"
    " recipes, spread over so many, added to their times to the target. Every recipe got as many points at the same"
    " budget."
)


def developed(worths: Sequence[Worth]) -> pd.DataFrame:
    """Return a row for each recipe and number of points: recipe, points, x (seconds) and y (expected quality)."""
    rows = [
        (own.recipe, points, own.spent(points), quality)
        for own in worths
        for points, quality in enumerate(own.best, start=1)
    ]
    return pd.DataFrame(rows, columns=["recipe", "points", "x", "y"])


def tuning_chart(
    worths: Sequence[Worth], *, metric: Metric, look: theme.Look, width: int | str = "container"
) -> alt.LayerChart:
    """Draw the quality that tuning is expected to find against the time that it takes."""
    frame = developed(worths)
    frame = frame.assign(spent=[amounts.seconds(x) for x in frame["x"]], quality=[metric.show(y) for y in frame["y"]])
    base = next((own.recipe for own in worths if own.is_baseline), None)
    look = look if look.recipes else theme.look((), baseline=base)
    colour = with_others(look, frame["recipe"]).colour("recipe")
    style = ".1~%" if metric.percent else ".4~g"
    y = alt.Y(
        "y:Q",
        title=metric.title("expected best"),
        scale=alt.Scale(zero=False, nice=True),
        axis=alt.Axis(format=style, tickCount=6),
    )
    time = replace(PAYMENTS["time"], title="Tuning spent")
    x = payment_axis(time, frame["x"].tolist(), log=False)
    tooltip = [
        alt.Tooltip("recipe:N"),
        alt.Tooltip("points:Q"),
        alt.Tooltip("spent:N", title="tuning spent"),
        alt.Tooltip("quality:N", title=f"expected {metric.name}"),
    ]
    base = alt.Chart(frame).encode(x=x, y=y, color=colour)
    layers = [base.mark_line(strokeWidth=1.8), base.mark_point(filled=True, size=30, opacity=1).encode(tooltip=tooltip)]
    return theme.styled(
        alt.LayerChart(layer=layers).properties(width=width, height=HEIGHT, description=describe(worths, metric))
    )


def describe(worths: Sequence[Worth], metric: Metric) -> str:
    """Return the chart in sentences, for screen readers."""
    parts = [
        f"{own.recipe}: {metric.show(own.best[0])} with one point, {metric.show(own.best[-1])} with {own.points} in"
        f" {amounts.seconds(own.seconds)}."
        for own in worths
    ]
    return " ".join([f"Expected best {metric.name} against tuning spent.", *parts])


def tuning_blocks(tuned: TunedRecord, worths: Sequence[Worth], look: theme.Look) -> Iterator[Block]:
    """Yield what was chosen for each recipe, what that took and what it is worth, and values at an edge."""
    yield Paragraph(f"Tuned {tuned.words}.")
    yield picture("tuning", partial(tuning_chart, worths, metric=tuned.metric, look=look), CAPTION)
    of = {own.recipe: own for own in tuned.recipes}
    columns = (
        *(Column("Recipe"), Column("Chosen"), Column(f"{tuned.metric.name} (tuning)", number=True)),
        *(Column(title, number=True) for title in ("Tuning spent", "Time to target", "Speedup")),
        *(Column(f"Over {count}", number=True) for count in TRAININGS),
    )
    rows = [
        Row(
            (
                clipped(as_baseline(own.recipe) if own.is_baseline else own.recipe),
                of[own.recipe].words,
                amounts.MISSING if (quality := of[own.recipe].quality) is None else tuned.metric.show(quality),
                amounts.seconds(own.seconds),
                amounts.seconds(own.time),
                amounts.MISSING if own.speedup is None else f"{own.speedup:.2f}x",
                *(amounts.MISSING if share is None else f"{share:.2f}x" for share in own.shared),
            )
        )
        for own in worths
    ]
    yield Table(columns, rows)
    yield Paragraph(SHARED, "note")
    measured = [own.recipe for own in worths if not own.profiled]
    if measured and tuned.contended:
        yield Paragraph(
            f"Tuning spent by {', '.join(measured)} was measured while other runs shared the machine.", "note"
        )
    for own in tuned.recipes:
        yield from (Paragraph(f"{own.recipe}: {words}.", "note") for words in own.edge_words)
