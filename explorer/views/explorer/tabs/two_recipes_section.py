"""Section that compares two recipes: quality, amounts, and the differences with their intervals."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import altair as alt
import ipywidgets as widgets
import pandas as pd

from explorer.analysis.axis_words import axis_words
from explorer.analysis.comparison import Estimate
from explorer.analysis.equal_quality import Call, Outcome
from explorer.analysis.sentences import by_how_much, inference_interval, interval
from explorer.analysis.side_by_side import AtBudget, Duel, Reached, Side, duel, sentence
from explorer.errors import ExplorerError
from explorer.page import amounts, theme
from explorer.page.document import Block, Column, Paragraph, Row, Table, Text, clipped, isolated, with_note
from explorer.page.html import fragment
from explorer.run_files import Metric
from explorer.views.explorer.answer import Answer
from explorer.views.explorer.comparison_tables import speedup, speedup_interval, speedup_title
from explorer.views.explorer.payments import Payment, amount
from explorer.views.explorer.snapshot import Snapshot
from explorer.views.explorer.tabs.sections import Section
from explorer.views.live_chart import LiveChart
from explorer.views.notebook import joined, named, swatch

LONGEST = 160  # characters of a reason, which may contain long names


def duel_blocks(pair: Duel, *, look: theme.Look, payment: Payment) -> Iterator[Block]:
    """Yield the comparison as a sentence and a table. `payment` is its x axis."""
    # The sentence is plain text: names that are written from right to left must not turn it around.
    named_ = {field: isolated(getattr(pair.equal_quality, field)) for field in ("label", "baseline")}
    words = sentence(replace(pair, equal_quality=replace(pair.equal_quality, **named_)))
    yield Paragraph(f"{words}.", "note")
    if pair.reason:  # there is no budget to compare at
        yield Paragraph(f"{_clipped(pair.reason)}.", "note")
    columns = (
        Column(""),
        Column(swatch(pair.first.recipe, look), number=True),
        Column(swatch(pair.second.recipe, look), number=True),
        Column("Difference", number=True),
    )
    caption = f"{pair.confidence:.0%} intervals, Student's t over the seeds; second minus first, or second over first"
    yield Table(columns, list(_rows(pair, payment)), caption)


def _rows(pair: Duel, payment: Payment) -> Iterator[Row]:
    for at in pair.budgets:
        yield _at(pair, at, payment)
    yield _equal_x(pair, payment)
    yield _equal_quality(pair, payment)
    yield _inference(pair)
    yield Row(cells=("Deletion", _deletion(pair.first), _deletion(pair.second), ""))
    yield Row(cells=("Methods only here", _only(pair.first), _only(pair.second), ""))


def _at(pair: Duel, at: AtBudget, payment: Payment) -> Row:
    less = at.difference
    return Row(
        cells=(
            f"{pair.setting.metric} at budget {at.ssr:g}",
            _reached(pair, at.first, payment),
            _reached(pair, at.second, payment),
            _difference(pair, less),
        )
    )


def _reached(pair: Duel, side: Reached, payment: Payment) -> Text:
    return with_note(amounts.quality(side.quality, pair.setting.kind), f"{amount(side.x, payment)}, n={side.n}")


def _equal_x(pair: Duel, payment: Payment) -> Row:
    at, kind = pair.equal_x, pair.setting.kind
    title = f"{pair.setting.metric} at same {axis_words(pair.x)}"
    difference = Estimate(value=at.difference, low=at.low, high=at.high, n=at.n, reason=at.reason)
    return Row(
        cells=(
            with_note(title, "" if at.budget is None else amount(at.budget, payment)),
            amounts.quality(at.baseline_quality, kind),
            amounts.quality(at.recipe_quality, kind),
            _difference(pair, difference),
        )
    )


def _equal_quality(pair: Duel, payment: Payment) -> Row:
    at = pair.equal_quality
    title = f"{payment.label} at equal {pair.setting.metric}"
    return Row(
        cells=(
            with_note(title, "" if at.target is None else amounts.quality(at.target, pair.setting.kind)),
            amount(at.baseline_x, payment),
            _needed(pair, payment),
            amounts.MISSING
            if at.ratio is None
            else with_note(f"{speedup_title(at.x).lower()} {speedup(at)}", _speedup_note(pair)),
        )
    )


def _needed(pair: Duel, payment: Payment) -> str:
    at = pair.equal_quality
    if at.outcome == Outcome.REACHED:
        return amount(at.recipe_x, payment)
    if at.outcome == Outcome.BELOW:
        return f"at most {amount(at.recipe_x, payment)}"
    return str(at.outcome) if at.reason is None else _clipped(at.reason)


def _speedup_note(pair: Duel) -> str:
    at = pair.equal_quality
    words = [speedup_interval(at)] if at.outcome == Outcome.REACHED else ["its lowest budget"]
    if at.call in (Call.INCONCLUSIVE, Call.EQUIVALENT):
        words.append(str(at.call))
    if at.reach_rate is not None:
        words.append(f"reach rate {at.reach_rate:.0%}")
    return _clipped(", ".join(word for word in words if word))


def _difference(pair: Duel, less: Estimate) -> Text:
    kind = pair.setting.kind
    if less.value is None:
        return with_note(amounts.MISSING, _clipped(less.reason or ""))
    # An interval with 0 in it shows no difference, and no equality either.
    unclear = ", inconclusive" if less.low is not None and not less.differs else ""
    span = _clipped(interval(less.low, less.high, kind, reason=less.reason))
    return with_note(by_how_much(less.value, kind), f"{span}, n={less.n}{unclear}")


def _inference(pair: Duel) -> Row:
    first, second = pair.first.inference_seconds, pair.second.inference_seconds
    ratio = None if first is None or second is None else second / first
    difference = with_note(amounts.ratio(ratio), "" if ratio is None else inference_interval(pair.equal_quality))
    return Row(cells=("Inference per example", amounts.seconds(first), amounts.seconds(second), difference))


def _deletion(side: Side) -> Text:
    if side.deletion_level is None:
        return "no ledger"
    return with_note(side.deletion_level, amounts.seconds(side.deletion_seconds))


def _only(side: Side) -> Text:
    return joined(map(named, side.only)) or amounts.MISSING


def _clipped(words: str) -> str:
    return clipped(words, LONGEST)


def differences(pair: Duel) -> alt.LayerChart | None:
    """Draw the second recipe's quality less the first's at each budget, with its interval; None without any."""
    kind = pair.setting.kind
    scale = 100 if kind.percent else 1
    points = [
        {
            "budget": at.ssr,
            "difference": scale * at.difference.value,
            "low": None if at.difference.low is None else scale * at.difference.low,
            "high": None if at.difference.high is None else scale * at.difference.high,
            "words": by_how_much(at.difference.value, kind),
            "interval": interval(at.difference.low, at.difference.high, kind, reason=at.difference.reason),
            "n": at.difference.n,
        }
        for at in pair.budgets
        if at.difference.value is not None
    ]
    if not points:
        return None
    budgets = [point["budget"] for point in points]
    base = alt.Chart(pd.DataFrame(points))
    x = alt.X("budget:Q", title="Budget (share of the full schedule)", axis=alt.Axis(values=budgets, format=".4~g"))
    y = alt.Y(
        "difference:Q", title=f"{clipped(pair.second.recipe, 40)} less {clipped(pair.first.recipe, 40)}, {_unit(kind)}"
    )
    hover = {"words": "Difference", "interval": "95% interval", "budget": "Budget", "n": "Seeds (n)"}
    tooltip = [alt.Tooltip(f"{name}:N", title=title) for name, title in hover.items()]
    layers = [
        alt.Chart(pd.DataFrame({"difference": [0]})).mark_rule(color=theme.TEXT, opacity=0.5).encode(y=y),
        base.mark_rule(color=theme.TEXT, strokeWidth=3, opacity=0.45).encode(x=x, y=alt.Y("low:Q"), y2="high:Q"),
        base.mark_point(color=theme.TEXT, filled=True, size=80, opacity=1).encode(x=x, y=y, tooltip=tooltip),
    ]
    said = "; ".join(f"budget {point['budget']:g}: {point['words']} ({point['interval']})" for point in points)
    chart = alt.LayerChart(layer=layers).properties(
        width="container",
        height=220,
        padding={"top": 18, "left": 2, "right": 12, "bottom": 4},
        description=f"{pair.setting.metric} of the second recipe less the first: {said}.",
    )
    return theme.styled(chart)


def _unit(kind: Metric) -> str:
    return kind.of_difference.strip() or kind.name


class TwoRecipesSection(Section):
    """Two chosen recipes; without a choice, the baseline and the recipe that needs least."""

    key, title = "versus", "Two recipes"

    def __init__(self, ask: Callable[..., None]) -> None:
        self.first = widgets.Dropdown(description="First recipe")
        self.second = widgets.Dropdown(description="Second recipe")
        for field in (self.first, self.second):
            field.observe(self._chosen, "value")
        self._shown, self._chart = widgets.HTML(), LiveChart()
        fields = widgets.Box([self.first, self.second]).add_class("x-controls")
        drawn = widgets.VBox([self._chart]).add_class("x-chart")
        super().__init__(ask, [fields, widgets.Box([self._shown, drawn]).add_class("x-halves")])

    def show(self, snapshot: Snapshot, answer: Answer) -> None:
        """Compare the two recipes."""
        recipes, asked = answer.settled.choices.recipes, answer.question
        if len(recipes) < 2:
            raise ExplorerError("There is only one recipe here, and none to compare it with.")
        chosen = asked.versus if len(asked.versus) == 2 else _default(answer, recipes)
        with self.quiet:
            for field, name in zip((self.first, self.second), chosen, strict=True):
                field.options = tuple((clipped(recipe), recipe) for recipe in recipes)
                field.value = name
        try:
            result = duel(answer.settled.rows, *chosen, x=asked.paid_in.column)
            chart = differences(result)
            self._chart.draw(chart)
            self._shown.value = fragment(*duel_blocks(result, look=answer.look, payment=asked.paid_in))
        except ExplorerError as error:  # the fields stay, so that another pair can be chosen
            self._chart.draw(None)
            self._shown.value = fragment(Paragraph(str(error), "note"))

    def _chosen(self, _: Any) -> None:
        if not self.quiet and self.first.value != self.second.value:
            self.ask(versus=(str(self.first.value), str(self.second.value)))


def _default(answer: Answer, recipes: tuple[str, ...]) -> tuple[str, str]:
    known = [result for result in answer.comparisons if result.ratio is not None]
    best = min(known, key=lambda result: result.ratio or 0.0).recipe if known else ""
    # The recipe that needs least is the likeliest question; the baseline is what it has to beat.
    first = answer.settled.baseline or recipes[0]
    return first, best if best and best != first else next(name for name in recipes if name != first)
