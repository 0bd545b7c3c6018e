"""The two tables that compare recipes: with the baseline, and with their controls. Notebook and report share them."""

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from explorer import costing
from explorer.analysis.axis_words import gain_span, ratio_words
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
from explorer.run_files import TUNES_EVERY
from explorer.views.explorer.payments import Payment, amount
from explorer.views.notebook import swatch

# ---- recipes and the baseline

CLAIMS_TUNING = "baseline, tuned in its author's words"  # a claim of the specification, which nothing checks
TUNED = "baseline, tuned as every recipe"


def tuned_note(tuning: str) -> str:
    """Return how a baseline was tuned: by the sweep, with equal effort for all, or as its author says."""
    return TUNED if tuning.startswith(TUNES_EVERY) else CLAIMS_TUNING


def comparison_table(
    verdicts: Sequence[Verdict],
    budgets: Sequence[EqualBudget],
    *,
    payment: Payment,
    look: theme.Look,
    rates: Mapping[Machine, float],
    order: str = "least",
    p_values: bool = False,
) -> Iterator[Table]:
    """Yield the comparisons with a baseline as one table, if there are any: the baseline first, then the recipes.

    Args:
        verdicts: on the recipes at equal quality, a row each.
        budgets: the same recipes at equal budget; without any, the table has no column for them.
        payment: the resource that recipes are compared by, such as time.
        look: shapes and colours of the recipes, as the chart has them.
        rates: US dollars an hour of a run; a machine that is missing has no price.
        order: "least" sorts by the amount needed at equal quality, "best" by the quality at equal budget.
        p_values: adds a column for them, for readers on paper.
    """
    at_budget = {(result.setting, result.label): result for result in budgets}
    pairs = [(verdict, at_budget.get((verdict.comparison.setting, verdict.comparison.label))) for verdict in verdicts]
    pairs.sort(key=lambda pair: best_first(*pair) if order == "best" else least_first(pair[0].comparison))
    several = len({verdict.comparison.setting for verdict in verdicts}) > 1
    bases = {verdict.comparison.baseline_setting: verdict.comparison for verdict in reversed(verdicts)}
    cells = {
        f"{payment.label} to target": [_outcome(verdict.comparison, payment, rates) for verdict, _ in pairs],
        speedup_title(payment.column): [_speedup(verdict.comparison) for verdict, _ in pairs],
        f"At same {payment.label.lower()}": [difference(result) for _, result in pairs] if budgets else [],
        "Reach rate": [_reach_rate(verdict.comparison) for verdict, _ in pairs],
        "Adjusted p": [p_value(verdict.comparison.p_adjusted) for verdict, _ in pairs] if p_values else [],
        "Inference": [_inference(verdict.comparison) for verdict, _ in pairs],
    }
    cells = {title: column for title, column in cells.items() if column}
    rows = [_baseline(base, payment, look, rates, several, width=len(cells)) for base in reversed(bases.values())]
    for (verdict, _), *shown in zip(pairs, *cells.values(), strict=True):
        name = with_note(swatch(verdict.comparison.label, look), _note(verdict, payment, several))
        rows.append(Row((name, *shown), strong=verdict.claims, quiet=not _is_reached(verdict.comparison)))
    if pairs:
        yield Table([Column("Recipe"), *(Column(title, number=True) for title in cells)], rows)


def verdict_note(verdict: Verdict) -> str:
    """Return the verdict as the note under a recipe's name: what the sweep's own seeds show, what fresh seeds show, and
    the control that takes the gain away. A verdict that the column of amounts shows is not repeated."""
    shown = verdict.call in (Call.NOT_REACHED, Call.BELOW, Call.UNKNOWN, Call.NO_BASELINE)
    parts = ("" if shown else call_words(verdict), fresh_words(verdict).removeprefix("; "), control_words(verdict))
    return "; ".join(filter(None, parts))


def difference(result: EqualBudget | None) -> Text:
    """Return how much better or worse a recipe is at the baseline's budget, with the interval."""
    if result is None or result.difference is None:
        return amounts.MISSING
    words = by_how_much(result.difference, result.setting.kind)
    if result.adjusted_low is None:
        return with_note(words, "n=1" if result.n == 1 else result.reason or "")
    return with_note(words, interval(result.adjusted_low, result.adjusted_high, result.setting.kind))


def speedup(result: EqualQuality) -> str:
    """Return the speedup over the baseline, "1.61x"; below 1x the recipe needs more."""
    if result.ratio is None:
        return amounts.MISSING
    # A recipe that is past the target at its lowest budget needs at most this amount, so its speedup is a bound.
    bound = "at least " if result.outcome == Outcome.BELOW else ""
    return f"{bound}{ratio_words(1 / max(result.ratio, 1e-300))}x"


def speedup_title(x: str) -> str:
    """Return the name of that number along a column of `results`: only less time is a speedup."""
    return "Speedup" if x == "train_seconds" else "Gain"


def speedup_interval(result: EqualQuality) -> str:
    """Return the interval of the speedup, "1.43x-1.82x", or the reason why there is none."""
    if result.adjusted_low is None or result.adjusted_high is None:
        return ratio_interval(result)
    return gain_span(result.adjusted_low, result.adjusted_high)


def p_value(value: float | None) -> str:
    """Return a p-value, no smaller than bootstrap resamples can show.

    >>> p_value(0.0312), p_value(0.00001), p_value(None)
    ('0.031', 'below 0.001', '-')
    """
    if value is None:
        return amounts.MISSING
    return "below 0.001" if value < 0.001 else f"{value:.3f}"


def _is_reached(result: EqualQuality) -> bool:
    return result.outcome in (Outcome.REACHED, Outcome.BELOW) and result.ratio is not None


# Unknown amounts come last, and equal ones in the order of their names, so that a table is the same every time.


def least_first(result: EqualQuality) -> tuple[bool, float, str]:
    """Return what sorts recipes by the amount that they need."""
    return not _is_reached(result), result.ratio or 0.0, result.label


def best_first(verdict: Verdict, at_budget: EqualBudget | None) -> tuple[bool, float, str]:
    """Return what sorts recipes by their quality at the baseline's budget."""
    label, higher = verdict.comparison.label, verdict.comparison.setting.higher_is_better
    if at_budget is None or at_budget.difference is None:
        return True, 0.0, label
    return False, -at_budget.difference if higher else at_budget.difference, label


def _baseline(
    result: EqualQuality,
    payment: Payment,
    look: theme.Look,
    rates: Mapping[Machine, float],
    several: bool,
    *,
    width: int,
) -> Row:
    """Return the row of the baseline that a comparison was made with; `width` counts the columns after the name."""
    note = Span(tuned_note(result.tuning)) if result.tuning else Span("untuned baseline", "warn")
    unknown = result.outcome == Outcome.UNKNOWN
    if unknown and not result.n:  # no run of the baseline here, so its tuning is no matter
        note = Span("baseline")
    x, machine = result.baseline_x, result.baseline_setting.machine
    where = Span(f"; {machine}" if several else "")
    nowhere = Outcome.UNKNOWN if unknown else Outcome.NOT_REACHED
    needed = nowhere.value if x is None else _needed(x, payment, rates.get(machine))
    cells = (with_note(swatch(result.baseline, look), (note, where)), needed, amounts.ratio(None if x is None else 1.0))
    return Row((*cells, *[""] * (width - 2)), quiet=x is None)


def _note(verdict: Verdict, payment: Payment, several: bool) -> str:
    result = verdict.comparison
    is_time = not (payment.counted or payment.forecast)
    predicted = is_time and "predicted" in result.time_source.split("+")
    parts = (
        verdict_note(verdict),
        str(result.setting.machine) if several else "",
        "predicted" if predicted else "",
    )
    return "; ".join(filter(None, parts))


def _outcome(result: EqualQuality, payment: Payment, rates: Mapping[Machine, float]) -> Text:
    if result.outcome == Outcome.REACHED:
        return _needed(result.recipe_x, payment, rates.get(result.setting.machine))
    if result.outcome == Outcome.BELOW:
        return with_note(f"at most {amount(result.recipe_x, payment)}", "its lowest budget")
    return str(result.outcome)


def _needed(x: float | None, payment: Payment, rate: float | None) -> Text:
    """Return an amount, and for a time its cost at `rate` dollars an hour."""
    words = amount(x, payment)
    if payment.key != "time" or x is None:
        return words
    return with_note(words, "no price" if rate is None else amounts.dollars(costing.cost_usd(x, own_price(rate))))


def _speedup(result: EqualQuality) -> Text:
    return with_note(speedup(result), speedup_interval(result)) if _is_reached(result) else amounts.MISSING


def _reach_rate(result: EqualQuality) -> Text:
    return with_note(amounts.MISSING if result.reach_rate is None else f"{result.reach_rate:.0%}", f"n={result.n}")


def _inference(result: EqualQuality) -> Text:
    words: Text = amounts.ratio(result.inference_ratio)
    if result.slower_inference:
        words = (Span(f"{words} slower", "warn", hover="costs more at inference than the baseline"),)
    return with_note(words, inference_interval(result))


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
            # the adjusted interval, because the verdict rests on it
            interval(
                pair.against.adjusted_low,
                pair.against.adjusted_high,
                pair.setting.kind,
                reason=pair.against.reason,
            ),
            str(pair.against.n),
            f"{pair.verdict}: the gain vanishes" if pair.gain_vanishes else pair.verdict,
        )
        for pair in pairs
    ]


def control_table(pairs: Sequence[Controlled]) -> Table:
    """Return the table of recipes and their controls, in which a recipe that beats its control is strong."""
    columns = [Column(title, number=title in ("Budget", "Its budget", "n")) for title in CONTROLS]
    rows = [
        Row(cells, strong=pair.verdict == "better", quiet=pair.verdict == "not compared")
        for pair, cells in zip(pairs, control_rows(pairs), strict=True)
    ]
    return Table(columns, rows, CAPTION)


def control_blocks(rows: pd.DataFrame) -> Iterator[Block]:
    """Yield the table and sentences on the controls among some rows of `results`; nothing without controls."""
    pairs = controlled(rows)
    if not pairs:
        return
    yield control_table(pairs)
    for words in control_sentences(pairs):
        yield Paragraph(f"{words}.", "note")
