"""How a search came to its answer: regret against training spent, effects of methods, and all else that it answers."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import altair as alt
import pandas as pd

from explorer import run_files
from explorer.page import theme
from explorer.page.document import (
    Block,
    Bullets,
    Code,
    Facts,
    Heading,
    Paragraph,
    Row,
    Table,
    clipped,
    sentence,
    words,
)
from explorer.page.pictures import picture
from explorer.run_files import Metric
from explorer.search.search_answer import FILE, Answer, MethodEffect
from explorer.search.search_words import (
    EFFECTS,
    NO_CLAIM,
    NO_WINNER,
    confirm_command,
    effects_in_order,
    effects_table,
    kind_of,
    left_out_words,
    more_words,
    ranking_table,
    spent_words,
    target_words,
    tried_words,
    winner_words,
)
from explorer.views.explorer.axes import payment_axis
from explorer.views.explorer.payments import PAYMENTS

HEIGHT, ROW = 200, 26  # pixels of the first picture, and of a method in the second one
LONG = 200  # characters of a name with its figures
BY_ALL, THEN = "by all runs", "expected then"
REGRET = (
    "The recipe in front after so much training: the time that choosing it would lose against the winner, by all runs,"
    " and what was expected then. The dashed line is the baseline."
)


def searched(runs: Path, sweep: str) -> Answer | None:
    """Return the answer of the search that chose a sweep's runs; None if none did. Raises `RunError` if damaged."""
    path = runs / sweep / FILE
    return run_files.read(Answer, path) if path.exists() else None


def search_blocks(answer: Answer) -> list[Block]:
    """Return the answer of a search as every page shows it: the winner, how it came about, and how to confirm it."""
    ahead = [(name.capitalize(), clipped(said, LONG)) for name, said in winner_words(answer)]
    facts = [
        *(ahead or [("Winner", NO_WINNER)]),
        ("Target", target_words(answer)),
        ("Tried", tried_words(answer)),
        ("Spent", spent_words(answer)),
        ("Searcher", f"{answer.searcher}, seed {answer.seed}"),
    ]
    blocks: list[Block] = [Facts(facts), Paragraph(sentence(NO_CLAIM), "warning")]
    if (command := confirm_command(answer)) is not None:
        blocks.append(Code(command))
    if answer.history:
        blocks.append(picture("search-regret", partial(regret_chart, answer), REGRET))
    blocks += _on_page(ranking_table(answer))
    blocks += [Paragraph(sentence(more), "note") for more in more_words(len(answer.ranking))]
    if answer.effects:
        caption = sentence(f"{_effect(answer)}; {EFFECTS}")
        blocks.append(picture("search-effects", partial(effects_chart, answer), caption))
        blocks += _on_page(effects_table(answer))
    if answer.left_out:
        said = left_out_words((one.name, one.reason) for one in answer.left_out)
        blocks += [Heading(3, "Left out"), Bullets([clipped(line, LONG) for line in said])]
    return blocks


def regret_chart(answer: Answer, *, width: int | str = "container") -> alt.LayerChart:
    """Draw what choosing the recipe in front would lose, by all runs and as it was expected, over training spent."""
    best = next((place.seconds for place in answer.ranking if place.seconds is not None), None)
    rows = [
        (moment.spent, regret, clipped(moment.recipe), moment.runs, kind, f"{regret:.1%}")
        for moment in answer.history
        for kind, regret in (
            (BY_ALL, None if moment.later is None or best is None else moment.later / best - 1.0),
            (THEN, moment.regret),
        )
        if regret is not None
    ]
    frame = pd.DataFrame(rows, columns=["x", "y", "recipe", "runs", "kind", "regret"])
    colour = alt.Color(
        "kind:N",
        scale=alt.Scale(domain=[BY_ALL, THEN], range=list(theme.PALETTE[:2])),
        legend=alt.Legend(**theme.LEGEND),
    )
    time = replace(PAYMENTS["time"], title="Training spent")
    y = alt.Y("y:Q", title="Regret: time to the target, beyond the winner's", axis=alt.Axis(format="~%", tickCount=5))
    base = alt.Chart(frame).encode(x=payment_axis(time, [0.0, answer.spent], log=False), y=y, color=colour)
    tooltip = [
        alt.Tooltip("recipe:N", title="in front"),
        alt.Tooltip("regret:N"),
        alt.Tooltip("kind:N", title="regret is"),
        alt.Tooltip("runs:Q"),
    ]
    layers: list[alt.Chart] = [
        base.mark_line(strokeWidth=1.8, interpolate="step-after"),
        base.mark_point(filled=True, size=34, opacity=1).encode(tooltip=tooltip),
    ]
    if answer.baseline_seconds is not None and best is not None:
        rule = pd.DataFrame({"y": [answer.baseline_seconds / best - 1.0], "words": ["baseline"]})
        layers.append(
            alt.Chart(rule)
            .mark_rule(strokeDash=[4, 3], color=theme.TEXT)
            .encode(y="y:Q", tooltip=alt.Tooltip("words:N"))
        )
    said = " ".join(f"{row[0]:.3g} s: {row[2]}, regret {row[5]} {row[4]}." for row in rows)
    return theme.styled(
        alt.LayerChart(layer=layers).properties(width=width, height=HEIGHT, description=f"Regret over training. {said}")
    )


def effects_chart(answer: Answer, *, width: int | str = "container") -> alt.LayerChart:
    """Draw the effect of each method on quality with its interval, the most helpful first."""
    kind, ordered = kind_of(answer), effects_in_order(answer)
    rows = [
        (one.method, one.quality, one.low, one.high, *_effect_words(kind, one), one.runs, f"{one.time:.2f}x")
        for one in ordered
    ]
    columns = ["method", "quality", "low", "high", "effect", "interval", "runs", "time"]
    frame = pd.DataFrame(rows, columns=columns)
    hover = [alt.Tooltip(f"{name}:N") for name in ("method", "effect", "interval", "runs")]
    base = alt.Chart(frame).encode(
        y=alt.Y("method:N", title=None, sort=[one.method for one in ordered]),
        tooltip=[*hover, alt.Tooltip("time:N", title="time of a run")],
    )
    factor = "100 * datum.value" if kind.percent else "datum.value"
    axis = alt.Axis(labelExpr=f"datum.value ? format({factor}, '+.3~g') : '0'", tickCount=6)
    title = f"{_effect(answer)}{f' ({kind.of_difference.strip()})' if kind.of_difference else ''}"
    low, quality = (alt.X(f"{name}:Q", title=title, axis=axis) for name in ("low", "quality"))
    zero = alt.Chart(pd.DataFrame({"at": [0.0]})).mark_rule(strokeDash=[4, 3], color=theme.TEXT).encode(x="at:Q")
    bars = base.mark_rule(strokeWidth=2, color=theme.PALETTE[0]).encode(x=low, x2="high:Q")
    points = base.mark_point(filled=True, size=60, opacity=1, color=theme.PALETTE[0]).encode(x=quality)
    said = " ".join(f"{row[0]}: {row[4]} ({row[5]})." for row in rows)
    chart = alt.LayerChart(layer=[zero, bars, points])
    return theme.styled(chart.properties(width=width, height=ROW * max(1, len(rows)), description=said))


def _effect(answer: Answer) -> str:
    better = "higher" if kind_of(answer).higher_is_better else "lower"
    return f"Effect on {answer.metric.replace('_', ' ')}, {better} is better"


def _effect_words(kind: Metric, one: MethodEffect) -> tuple[str, str]:
    return kind.difference(one.quality), f"{kind.number(one.low, sign='+')} to {kind.number(one.high, sign='+')}"


def _on_page(table: Table | str) -> Iterator[Table]:
    """Yield a table with the titles and the names that pages have."""
    if isinstance(table, Table):  # a table without rows is none
        columns = [replace(column, title=words(column.title).capitalize()) for column in table.columns]
        yield Table(columns, [Row([clipped(words(row.cells[0])), *row.cells[1:]]) for row in table.rows])
