"""The two tables that compare recipes: with the baseline, and with their controls. Notebook and report share them."""

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from explorer import costing
from explorer.analysis.controls import Controlled, controlled
from explorer.analysis.equal_budget import EqualBudget
from explorer.analysis.equal_quality import Call, EqualQuality, Outcome
from explorer.analysis.ladders import Machine
from explorer.analysis.reprice import own_price
from explorer.analysis.sentences import (
    by_how_much,
    call_words,
    control_sentences,
    control_words,
    fresh_words,
    inference_interval,
    interval,
    ratio_interval,
)
from explorer.analysis.verdict import Verdict
from explorer.page import amounts, theme
from explorer.page.document import Block, Column, Paragraph, Row, Span, Table, Text, with_note
from explorer.views.explorer.payments import Payment, amount
from explorer.views.notebook import swatch

SAID_TUNED = "baseline, tuned in its author's words"  # nobody has checked it


def comparison_table(
    found: Sequence[Verdict],
    budgets: Sequence[EqualBudget],
    *,
    payment: Payment,
    look: theme.Look,
    rates: Mapping[Machine, float],
    order: str = "least",
    caption: Text = "",
) -> Iterator[Table]:
    """Yield the comparisons with a baseline as a table, if there are any: the baseline first, then the recipes, by what
    they need at equal quality or, for the order "best", by what they reach at equal budget.

    `rates` are US dollars an hour of a run; a machine that is not there has no price.
    """
    columns = (
        Column(title="Recipe"),
        Column(title=f"{payment.label} needed", number=True),
        Column(title="Of baseline", number=True),
        Column(title=f"At equal {payment.label.lower()}", number=True),
        Column(title="Reached", number=True),
        Column(title="Inference", number=True),
    )
    beside = {(each.setting, each.label): each for each in budgets}
    several = len({each.comparison.setting for each in found}) > 1
    pairs = [(each, beside.get((each.comparison.setting, each.comparison.label))) for each in found]
    pairs.sort(key=lambda pair: _best_first(*pair) if order == "best" else _least_first(pair[0].comparison))
    rows = [_recipe(*pair, payment=payment, look=look, rates=rates, several=several) for pair in pairs]
    bases = {each.comparison.baseline_setting: each.comparison for each in reversed(found)}
    for result in bases.values():
        rows.insert(0, _baseline(result, payment=payment, look=look, rates=rates, several=several))
    if rows:
        yield Table(columns, rows, caption)


def said(found: Verdict) -> str:
    """The verdict as the note of a recipe: what the sweep says, what fresh seeds say or that they are asked for, and
    whether a control takes the gain away. What the column of the amounts says already is left out."""
    shown = found.call in (Call.NOT_REACHED, Call.BELOW, Call.UNKNOWN, Call.NO_BASELINE)
    words = ["" if shown else call_words(found), fresh_words(found).removeprefix("; "), control_words(found)]
    return "; ".join(each for each in words if each)


def difference(result: EqualBudget | None) -> Text:
    """How much better or worse a recipe is for as much as the baseline is paid, with the interval."""
    if result is None or result.difference is None:
        return amounts.MISSING
    shown = by_how_much(result.difference, result.setting.kind)
    if result.adjusted_low is None:
        return with_note(shown, "n=1" if result.n == 1 else result.reason or "")
    return with_note(shown, interval(result.adjusted_low, result.adjusted_high, result.setting.kind))


def _least_first(result: EqualQuality) -> tuple[bool, float, str]:
    known = result.ratio is not None and result.outcome in (Outcome.REACHED, Outcome.BELOW)
    return not known, result.ratio or 0.0, result.label


def _best_first(found: Verdict, beside: EqualBudget | None) -> tuple[bool, float, str]:
    result = found.comparison
    if beside is None or beside.difference is None:
        return True, 0.0, result.label
    return False, -beside.difference if result.setting.higher_is_better else beside.difference, result.label


def _baseline(
    any_result: EqualQuality, *, payment: Payment, look: theme.Look, rates: Mapping[Machine, float], several: bool
) -> Row:
    name, x, setting = any_result.baseline, any_result.baseline_x, any_result.baseline_setting
    note = Span(SAID_TUNED) if any_result.tuning else Span("untuned baseline", "warn")
    nowhere = Outcome.UNKNOWN if any_result.outcome == Outcome.UNKNOWN else Outcome.NOT_REACHED
    if any_result.outcome == Outcome.UNKNOWN and not any_result.n:  # it was not compared, so nothing is said of it
        note = Span("baseline")
    where = str(setting.machine) if several else ""
    cells = (
        with_note(swatch(name, look), (note, Span(f"; {where}" if where else ""))),
        _needed(x, payment=payment, rate=rates.get(setting.machine)) if x is not None else nowhere.value,
        amounts.ratio(None if x is None else 1.0),
        "",
        "",
        "",
    )
    return Row(cells=cells, quiet=x is None)


def _recipe(
    found: Verdict,
    beside: EqualBudget | None,
    *,
    payment: Payment,
    look: theme.Look,
    rates: Mapping[Machine, float],
    several: bool,
) -> Row:
    result = found.comparison
    notes = [said(found), str(result.setting.machine) if several else ""]
    notes.append("predicted" if _is_predicted(result, payment) else "")
    cells = (
        with_note(swatch(result.label, look), "; ".join(words for words in notes if words)),
        _outcome(result, payment=payment, rate=rates.get(result.setting.machine)),
        _ratio(result),
        difference(beside),
        with_note(amounts.MISSING if result.reach_rate is None else f"{result.reach_rate:.0%}", f"n={result.n}"),
        _inference(result),
    )
    reached = result.outcome in (Outcome.REACHED, Outcome.BELOW)
    return Row(cells=cells, strong=found.claims, quiet=not reached)


def _is_predicted(result: EqualQuality, payment: Payment) -> bool:
    """Whether what is paid is known of another machine's profile alone."""
    return not (payment.counted or payment.forecast) and "predicted" in result.time_source.split("+")


def _outcome(result: EqualQuality, *, payment: Payment, rate: float | None) -> Text:
    if result.outcome == Outcome.REACHED:
        return _needed(result.recipe_x, payment=payment, rate=rate)
    if result.outcome == Outcome.BELOW:
        return with_note(f"at most {amount(result.recipe_x, payment)}", "its lowest budget")
    return str(result.outcome)


def _needed(x: float | None, *, payment: Payment, rate: float | None) -> Text:
    words = amount(x, payment)
    return with_note(words, _dollars(x, rate)) if payment.key == "time" and x is not None else words


def _dollars(seconds: float, rate: float | None) -> str:
    return "no price" if rate is None else amounts.dollars(costing.cost_usd(seconds, own_price(rate)))


def _ratio(result: EqualQuality) -> Text:
    if result.ratio is None or result.outcome not in (Outcome.REACHED, Outcome.BELOW):
        return amounts.MISSING
    sign = "at most " if result.outcome == Outcome.BELOW else ""
    return with_note(f"{sign}{amounts.ratio(result.ratio)}", ratio_interval(result))


def _inference(result: EqualQuality) -> Text:
    if result.slower_inference:
        hover = "costs more at inference than the baseline"
        slower = (Span(f"{amounts.ratio(result.inference_ratio)} slower", "warn", hover=hover),)
        return with_note(slower, inference_interval(result))
    return with_note(amounts.ratio(result.inference_ratio), inference_interval(result))


# ---- recipes and their controls

CONTROLS = (
    "Recipe",
    "Budget",
    "Control",
    "Its budget",
    "Time of control",
    "Difference",
    "95% interval",
    "n",
    "Verdict",
)
CAPTION = (
    "Recipes and their controls: the baseline trained for as long, and examples chosen at random. Intervals are"
    " adjusted for all recipes with the same control at the same budget."
)


def control_rows(pairs: Sequence[Controlled]) -> list[tuple[str, ...]]:
    """Return a row for each recipe, budget and control; the columns are `CONTROLS`."""
    return [
        (
            pair.label,
            f"{pair.ssr:g}",
            pair.name if pair.control == "random-subset" else f"{pair.name} for as long",
            amounts.MISSING if pair.control_ssr is None else f"{pair.control_ssr:g}",
            amounts.seconds(pair.control_seconds),
            by_how_much(pair.against.difference, pair.setting.kind),
            _interval(pair),
            str(pair.against.n),
            f"{pair.verdict}: the gain vanishes" if pair.gain_vanishes else pair.verdict,
        )
        for pair in pairs
    ]


def _interval(pair: Controlled) -> str:
    """Return the interval that the verdict rests on."""
    at = pair.against
    return interval(at.adjusted_low, at.adjusted_high, pair.setting.kind, reason=at.reason)


def control_table(pairs: Sequence[Controlled]) -> Table:
    """Return the table of recipes and their controls, in which a recipe that beats its control is strong."""
    columns = [Column(title, number=title in ("Budget", "Its budget", "n")) for title in CONTROLS]
    rows = [
        Row(cells, strong=pair.verdict == "better", quiet=pair.verdict == "not compared")
        for pair, cells in zip(pairs, control_rows(pairs), strict=True)
    ]
    return Table(columns, rows, CAPTION)


def control_blocks(rows: pd.DataFrame) -> Iterator[Block]:
    """Yield what the controls among some rows of `results` show: the table and sentences; nothing without controls."""
    pairs = controlled(rows)
    if not pairs:
        return
    yield control_table(pairs)
    for words in control_sentences(pairs):
        yield Paragraph(f"{words}.", "note")
