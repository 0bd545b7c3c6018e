"""The tables in the report of a sweep."""

from collections.abc import Iterable, Sequence

from explorer import costing
from explorer.analysis.confirmed import Confirmation
from explorer.analysis.control_sentences import interval as points
from explorer.analysis.equal_budget import EqualBudget
from explorer.analysis.equal_quality import EqualQuality, Outcome
from explorer.analysis.reprice import own_price
from explorer.analysis.sentences import inference_interval, ratio_interval
from explorer.analysis.verdict import Verdict
from explorer.page import amounts
from explorer.page.document import Column, Row, Span, Table, Text, with_note
from explorer.records import Metric
from explorer.report.content import LedgerHead, RecipeLine, Section, rate_of
from explorer.report.negative import Negative
from explorer.views.explorer import control_rows
from explorer.views.explorer.comparison_table import SAID_TUNED, said
from explorer.views.explorer.payments import amount

NUMBERS = ("Budget", "Its budget", "n", "Speedup", "Predicted", "Quality beyond both", "Time beyond both")


def equal_quality(section: Section) -> Table:
    """What each recipe needs to be as good as the baseline: the baseline first, then the cheapest on."""
    payment = section.answer.question.paid_in
    found = sorted(section.answer.verdicts, key=lambda each: _least_first(each.comparison))
    first = max((each.comparison for each in found), key=lambda each: each.family)
    interval = "Adjusted interval" if first.family > 1 else "95% interval"
    titles = (f"{payment.label} needed", "Of baseline", interval, "Reach rate", "Adjusted p", "Inference", "n")
    columns = [Column("Recipe"), *(Column(title, number=True) for title in titles)]
    note = "baseline" if not first.n else SAID_TUNED if first.tuning else "untuned baseline"
    needed = amounts.MISSING if first.baseline_x is None else _needed(first.baseline_x, section)
    one = amounts.ratio(None if first.baseline_x is None else 1.0)
    baseline = (with_note(named(first.baseline, section), note), needed, one, "", "", "", "", "")
    return Table(columns, [Row(baseline), *(_equal_quality(each, section) for each in found)])


def recipes(section: Section) -> Table:
    """What each recipe is made of and reaches."""
    metric = section.metric
    titles = ("Recipe", "Methods", "Budgets", "Seeds", f"{metric} at full budget", f"{metric} in the baseline's time")
    columns = [Column(title, number=position > 1) for position, title in enumerate(titles)]
    columns += [Column("Adjusted p", number=True)]
    return Table(columns, [_recipe(line, section) for line in section.recipes])


def controls(section: Section) -> Table:
    """The recipes beside their controls; at least one."""
    columns = [Column(title, number=title in NUMBERS) for title in control_rows.CONTROLS]
    rows = [
        Row(cells, strong=each.verdict == "better", quiet=each.verdict == "not compared")
        for each, cells in zip(section.controls, control_rows.control_rows(section.controls), strict=True)
    ]
    return Table(columns, rows, caption=control_rows.CAPTION)


def confirmed(found: Iterable[Confirmation]) -> Table:
    """What fresh seeds say; at least one."""
    columns = [Column("Recipe"), Column("Fresh seeds"), Column("What they say"), Column("Run as")]
    rows = [
        Row((each.recipe, ", ".join(map(str, each.seeds)), each.sentence, ", ".join(each.sweeps))) for each in found
    ]
    return Table(columns, rows)


def negatives(found: Sequence[Negative]) -> Table:
    """The negative results; at least one."""
    rows = [Row((each.subject, each.topic, each.words, each.where)) for each in found]
    return Table([Column("Recipe or run"), Column("What"), Column("In numbers"), Column("Where")], rows)


def ledgers(found: Sequence[LedgerHead]) -> Table:
    """The heads of ledgers; at least one."""
    rows = [Row((each.run, each.origin, f"{each.size:,}", (Span(each.root, "code"),))) for each in found]
    columns = [Column("Run"), Column("Origin"), Column("Entries", number=True), Column("Root")]
    return Table(columns, rows, caption="The ledger of each governed run, as it was read. Nobody has verified it here.")


def plain(titles: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str) -> Table:
    """A table of words with these headings; at least one row."""
    columns = [Column(title, number=title in NUMBERS) for title in titles]
    return Table(columns, [Row(cells) for cells in rows], caption=caption)


def named(recipe: str, section: Section) -> Text:
    """A recipe's name behind its shape in its colour, as in the chart, if it is drawn there."""
    mark = section.answer.look.mark(recipe)
    return (Span(recipe, mark=mark),) if mark else recipe


def _least_first(found: EqualQuality) -> tuple[bool, float, str]:
    return not _reached(found), found.ratio or 0.0, found.label


def _equal_quality(verdict: Verdict, section: Section) -> Row:
    found = verdict.comparison
    needed: Text = str(found.outcome)
    if _reached(found) and found.recipe_x is not None:
        upper = "at most " if found.outcome == Outcome.BELOW else ""
        needed = _needed(found.recipe_x, section, upper=upper)
    sign = "at most " if found.outcome == Outcome.BELOW else ""
    inference = amounts.ratio(found.inference_ratio)
    cells: tuple[Text, ...] = (
        with_note(named(found.label, section), said(verdict)),
        needed,
        f"{sign}{amounts.ratio(found.ratio)}" if _reached(found) else amounts.MISSING,
        ratio_interval(found),
        amounts.MISSING if found.reach_rate is None else f"{found.reach_rate:.0%}",
        _p_value(found.p_adjusted),
        with_note(
            (Span(f"{inference} slower", "warn"),) if found.slower_inference else inference, inference_interval(found)
        ),
        str(found.n),
    )
    return Row(cells, strong=verdict.claims, quiet=not _reached(found))


def _reached(found: EqualQuality) -> bool:
    return found.outcome in (Outcome.REACHED, Outcome.BELOW) and found.ratio is not None


def _needed(x: float, section: Section, *, upper: str = "") -> Text:
    """An amount, and what it costs where it is a time and the hardware has a price."""
    payment = section.answer.question.paid_in
    words = f"{upper}{amount(x, payment)}"
    if payment.key != "time":
        return words
    rate = rate_of(section)
    cost = "no price" if rate is None else amounts.dollars(costing.cost_usd(x, own_price(rate)))
    return with_note(words, cost)


def _recipe(line: RecipeLine, section: Section) -> Row:
    budgets = line.budgets
    return Row(
        (
            named(line.label, section),
            line.methods,
            f"{budgets[0]:g}" if len(budgets) == 1 else f"{len(budgets)} from {budgets[0]:g} to {budgets[-1]:g}",
            str(line.seeds),
            amounts.quality(line.full_quality, section.kind),
            _at_equal_budget(line, section),
            _p_value(line.equal_budget.p_adjusted if line.equal_budget else None),
        )
    )


def _at_equal_budget(line: RecipeLine, section: Section) -> Text:
    """The quality at the baseline's time, with the difference to it."""
    found = line.equal_budget
    if found is None:
        baseline = line.label == section.answer.question.baseline
        return amounts.quality(section.answer.target, section.kind) if baseline else amounts.MISSING
    if found.recipe_quality is None:
        payment = section.answer.question.paid_in
        return f"not tested at {amount(found.budget, payment)}" if found.budget else found.reason or amounts.MISSING
    return with_note(amounts.quality(found.recipe_quality, section.kind), _difference(found, section.kind))


def _difference(found: EqualBudget, kind: Metric) -> str:
    if found.adjusted_low is None:
        return found.reason or ""
    return points(found.adjusted_low, found.adjusted_high, kind)


def _p_value(value: float | None) -> str:
    """
    >>> _p_value(0.0312), _p_value(0.00001), _p_value(None)
    ('0.031', 'below 0.001', '-')
    """
    if value is None:
        return amounts.MISSING
    return "below 0.001" if value < 0.001 else f"{value:.3f}"
