"""The report's tables as rows of text, for every format."""

from explorer.analysis.equal_budget import EqualBudget
from explorer.analysis.equal_quality import EqualQuality, Outcome
from explorer.report.content import RecipeLine, Section
from explorer.views import text
from explorer.views.axes import amount
from explorer.views.equal_quality import interval, verdict

EQUAL_QUALITY = ("Recipe", "Time needed", "Of baseline", "95% interval", "Reach rate", "n", "Verdict")


def equal_quality_rows(section: Section) -> list[tuple[str, ...]]:
    """What each recipe needs at equal quality; the columns are `EQUAL_QUALITY`."""
    return [_equal_quality(result, section) for result in section.answer.comparisons]


def recipe_columns(section: Section) -> tuple[str, ...]:
    """The headings of the table of recipes."""
    metric = section.metric
    return ("Recipe", "Methods", "Budgets", "Seeds", f"{metric} at full budget", f"{metric} in the baseline's time")


def recipe_rows(section: Section) -> list[tuple[str, ...]]:
    """What each recipe is and reaches."""
    return [
        (
            line.label,
            line.methods,
            _budgets(line.budgets),
            str(line.seeds),
            text.quality(line.full_quality, section.unit),
            at_equal_budget(line, section),
        )
        for line in section.recipes
    ]


def _budgets(budgets: tuple[float, ...]) -> str:
    if len(budgets) == 1:
        return f"{budgets[0]:g}"
    return f"{len(budgets)} from {budgets[0]:g} to {budgets[-1]:g}"


def at_equal_budget(line: RecipeLine, section: Section) -> str:
    """The quality at the baseline's time, with the difference to it."""
    found = line.equal_budget
    if found is None:
        baseline = line.label == section.answer.question.baseline
        return text.quality(section.answer.target, section.unit) if baseline else text.MISSING
    if found.recipe_quality is None:
        payment = section.answer.question.paid_in
        return f"not tested at {amount(found.budget, payment)}" if found.budget else found.reason or text.MISSING
    return f"{text.quality(found.recipe_quality, section.unit)}{_difference(found, section.unit)}"


def _difference(found: EqualBudget, unit: str) -> str:
    if found.low is None or found.high is None:
        return f" ({found.reason})" if found.reason else ""
    scale, digits = (100, 2) if unit == "fraction" else (1, 4)
    low, high = found.low * scale, found.high * scale
    points = " points" if unit == "fraction" else ""
    return f" ({low:+.{digits}f} to {high:+.{digits}f}{points})"


def _equal_quality(result: EqualQuality, section: Section) -> tuple[str, ...]:
    payment = section.answer.question.paid_in
    reached = result.outcome in (Outcome.REACHED, Outcome.BELOW)
    upper = "at most " if result.outcome == Outcome.BELOW else ""
    return (
        result.label,
        f"{upper}{amount(result.recipe_x, payment)}" if reached else str(result.outcome),
        f"{upper}{text.ratio(result.ratio)}" if reached else text.MISSING,
        interval(result),
        text.MISSING if result.reach_rate is None else f"{result.reach_rate:.0%}",
        str(result.n),
        verdict(result),
    )
