"""The section that compares two recipes: what each reaches and takes, the differences with their intervals."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import ipywidgets as widgets

from explorer.analysis.axis_words import axis_words
from explorer.analysis.comparison import Estimate
from explorer.analysis.equal_quality import Call, Outcome
from explorer.analysis.sentences import by_how_much, inference_interval, interval, ratio_interval
from explorer.analysis.side_by_side import AtBudget, Duel, Reached, Side, duel, sentence
from explorer.errors import ExplorerError
from explorer.page import amounts, theme
from explorer.page.document import Block, Column, Paragraph, Row, Table, Text, clipped, isolated, with_note
from explorer.page.html import fragment
from explorer.views.explorer.answer import Answer
from explorer.views.explorer.payments import Payment, amount
from explorer.views.explorer.sections import Section
from explorer.views.explorer.snapshot import Snapshot
from explorer.views.notebook import joined, named, swatch

SAID = 160  # characters of a reason, which holds names of anybody's


def duel_blocks(found: Duel, *, look: theme.Look, payment: Payment) -> Iterator[Block]:
    """Yield the comparison as a sentence and a table. `payment` is what its x is."""
    named_ = {field: isolated(getattr(found.equal_quality, field)) for field in ("label", "baseline")}
    words = sentence(replace(found, equal_quality=replace(found.equal_quality, **named_)))
    yield Paragraph(f"{words}.", "note")
    if found.reason:  # there is no budget to compare at
        yield Paragraph(f"{_clipped(found.reason)}.", "note")
    columns = (
        Column("What"),
        Column(swatch(found.first.recipe, look), number=True),
        Column(swatch(found.second.recipe, look), number=True),
        Column("Difference", number=True),
    )
    caption = f"{found.confidence:.0%} intervals, Student's t over the seeds; the second less the first, or over it"
    yield Table(columns, list(_rows(found, payment)), caption)


def _rows(found: Duel, payment: Payment) -> Iterator[Row]:
    for at in found.budgets:
        yield _at(found, at, payment)
    yield _equal_x(found, payment)
    yield _equal_quality(found, payment)
    yield _inference(found)
    yield Row(cells=("Deletion", _deletion(found.first), _deletion(found.second), ""))
    yield Row(cells=("Methods that only it has", _only(found.first), _only(found.second), ""))


def _at(found: Duel, at: AtBudget, payment: Payment) -> Row:
    less = at.difference
    return Row(
        cells=(
            f"{found.setting.metric} at budget {at.ssr:g}",
            _reached(found, at.first, payment),
            _reached(found, at.second, payment),
            _difference(found, less),
        )
    )


def _reached(found: Duel, side: Reached, payment: Payment) -> Text:
    return with_note(amounts.quality(side.quality, found.setting.kind), f"{amount(side.x, payment)}, n={side.n}")


def _equal_x(found: Duel, payment: Payment) -> Row:
    at, kind = found.equal_x, found.setting.kind
    title = f"{found.setting.metric} at equal {axis_words(found.x)}"
    difference = Estimate(value=at.difference, low=at.low, high=at.high, n=at.n, reason=at.reason)
    return Row(
        cells=(
            with_note(title, "" if at.budget is None else amount(at.budget, payment)),
            amounts.quality(at.baseline_quality, kind),
            amounts.quality(at.recipe_quality, kind),
            _difference(found, difference),
        )
    )


def _equal_quality(found: Duel, payment: Payment) -> Row:
    at = found.equal_quality
    title = f"{payment.label} at equal {found.setting.metric}"
    return Row(
        cells=(
            with_note(title, "" if at.target is None else amounts.quality(at.target, found.setting.kind)),
            amount(at.baseline_x, payment),
            _needed(found, payment),
            amounts.MISSING if at.ratio is None else with_note(_ratio(found), _of_ratio(found)),
        )
    )


def _needed(found: Duel, payment: Payment) -> str:
    at = found.equal_quality
    if at.outcome == Outcome.REACHED:
        return amount(at.recipe_x, payment)
    if at.outcome == Outcome.BELOW:
        return f"at most {amount(at.recipe_x, payment)}"
    return str(at.outcome) if at.reason is None else _clipped(at.reason)


def _ratio(found: Duel) -> str:
    at_most = "at most " if found.equal_quality.outcome == Outcome.BELOW else ""
    return f"{at_most}{amounts.ratio(found.equal_quality.ratio)}"


def _of_ratio(found: Duel) -> str:
    at = found.equal_quality
    words = [ratio_interval(at)] if at.outcome == Outcome.REACHED else ["its lowest budget"]
    if at.call in (Call.INCONCLUSIVE, Call.EQUIVALENT):
        words.append(str(at.call))
    if at.reach_rate is not None:
        words.append(f"reach rate {at.reach_rate:.0%}")
    return _clipped(", ".join(word for word in words if word))


def _difference(found: Duel, less: Estimate) -> Text:
    kind = found.setting.kind
    if less.value is None:
        return with_note(amounts.MISSING, _clipped(less.reason or ""))
    unclear = ", inconclusive" if less.low is not None and not less.differs else ""
    span = _clipped(interval(less.low, less.high, kind, reason=less.reason))
    return with_note(by_how_much(less.value, kind), f"{span}, n={less.n}{unclear}")


def _inference(found: Duel) -> Row:
    first, second = found.first.inference_seconds, found.second.inference_seconds
    ratio = None if first is None or second is None else second / first
    beside = with_note(amounts.ratio(ratio), "" if ratio is None else inference_interval(found.equal_quality))
    return Row(cells=("Inference, one example", amounts.seconds(first), amounts.seconds(second), beside))


def _deletion(side: Side) -> Text:
    if side.deletion_level is None:
        return "no ledger"
    return with_note(side.deletion_level, amounts.seconds(side.deletion_seconds))


def _only(side: Side) -> Text:
    return joined(map(named, side.only)) or amounts.MISSING


def _clipped(words: str) -> str:
    return clipped(words, SAID)


class TwoRecipesSection(Section):
    """The two recipes that are chosen; without a choice the baseline and the recipe that needs least."""

    key, title = "versus", "Two recipes"

    def __init__(self, ask: Callable[..., None]) -> None:
        self.first = widgets.Dropdown(description="First recipe")
        self.second = widgets.Dropdown(description="Second recipe")
        for field in (self.first, self.second):
            field.observe(self._chosen, "value")
        self._shown = widgets.HTML()
        super().__init__(ask, [widgets.Box([self.first, self.second]).add_class("x-controls"), self._shown])

    def show(self, snapshot: Snapshot, answer: Answer) -> None:
        """Compare the two recipes."""
        recipes, asked = answer.settled.choices.recipes, answer.question
        if len(recipes) < 2:
            raise ExplorerError("There is one recipe here: nothing to set it beside.")
        chosen = asked.versus if len(asked.versus) == 2 else _default(answer, recipes)
        with self.quiet:
            for field, name in zip((self.first, self.second), chosen, strict=True):
                field.options = tuple((clipped(recipe), recipe) for recipe in recipes)
                field.value = name
        try:
            result = duel(answer.settled.rows, *chosen, x=asked.paid_in.column)
            self._shown.value = fragment(*duel_blocks(result, look=answer.look, payment=asked.paid_in))
        except ExplorerError as error:  # the fields stay, so that another pair can be chosen
            self._shown.value = fragment(Paragraph(str(error), "note"))

    def _chosen(self, _: Any) -> None:
        if not self.quiet and self.first.value != self.second.value:
            self.ask(versus=(str(self.first.value), str(self.second.value)))


def _default(found: Answer, recipes: tuple[str, ...]) -> tuple[str, str]:
    known = [each for each in found.comparisons if each.ratio is not None]
    best = min(known, key=lambda each: each.ratio or 0.0).recipe if known else ""
    first = found.settled.baseline or recipes[0]
    return first, best if best and best != first else next(name for name in recipes if name != first)
