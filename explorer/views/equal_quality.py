"""The equal-quality table: what every recipe needs to be as good as the baseline, and how sure that is."""

from collections.abc import Sequence

from markupsafe import Markup

from explorer import costing
from explorer.analysis.comparison import LEAST_REACH_RATE
from explorer.analysis.equal_quality import EqualQuality, Outcome
from explorer.analysis.reprice import own_price
from explorer.analysis.sentences import is_winner
from explorer.views import text, theme
from explorer.views.axes import Payment, amount
from explorer.views.tables import Column, Row, swatch, table, with_note


def equal_quality_table(
    results: Sequence[EqualQuality],
    *,
    payment: Payment,
    look: theme.Look,
    usd_per_hour: float | None,
    caption: str | Markup = "",
) -> Markup:
    """The comparisons with one baseline as HTML: the baseline first, then the recipes from the cheapest on.

    `usd_per_hour` is what a run's machine costs; None where the hardware has no price.
    """
    columns = (
        Column(title="Recipe"),
        Column(title=f"{payment.label} needed", number=True),
        Column(title="Of baseline", number=True),
        Column(title="Reach rate", number=True),
        Column(title="Inference", number=True),
        Column(title="n", number=True),
    )
    ordered = sorted(results, key=_rank)
    rows = [_recipe(result, payment=payment, look=look, usd_per_hour=usd_per_hour) for result in ordered]
    if results:
        rows.insert(0, _baseline(results[0], payment=payment, look=look, usd_per_hour=usd_per_hour))
    return table(columns, rows, caption=caption)


def verdict(result: EqualQuality) -> str:
    """What the interval says, in a word or two."""
    if result.outcome == Outcome.REACHED and result.significant and result.ratio is not None:
        return "less than baseline" if result.ratio < 1 else "more than baseline"
    if result.outcome == Outcome.REACHED and result.ratio_low is not None:
        return "no difference"
    return ""


def interval(result: EqualQuality) -> str:
    """The interval of the ratio in words, or why there is none."""
    if result.ratio_low is not None and result.ratio_high is not None:
        return f"{result.ratio_low:.2f} to {result.ratio_high:.2f}"
    if result.n == 1:
        return "n=1"
    if result.reach_rate is not None and result.reach_rate < LEAST_REACH_RATE:
        return "no interval"  # the reach rate beside it says why
    return result.reason or ""


def _rank(result: EqualQuality) -> tuple[bool, float, str]:
    known = result.ratio is not None and result.outcome in (Outcome.REACHED, Outcome.BELOW)
    return not known, result.ratio or 0.0, result.label


def _baseline(any_result: EqualQuality, *, payment: Payment, look: theme.Look, usd_per_hour: float | None) -> Row:
    name, x = any_result.baseline, any_result.baseline_x
    note = "tuned baseline" if any_result.tuning else Markup('<span class="x-warn">untuned baseline</span>')
    cells = (
        with_note(swatch(name, look), note),
        _needed(x, payment=payment, usd_per_hour=usd_per_hour) if x is not None else Outcome.NOT_REACHED.value,
        text.ratio(None if x is None else 1.0),
        "",
        "",
        "",
    )
    return Row(cells=cells, quiet=x is None)


def _recipe(result: EqualQuality, *, payment: Payment, look: theme.Look, usd_per_hour: float | None) -> Row:
    cells = (
        with_note(swatch(result.label, look), verdict(result)),
        _outcome(result, payment=payment, usd_per_hour=usd_per_hour),
        _ratio(result),
        text.MISSING if result.reach_rate is None else f"{result.reach_rate:.0%}",
        _inference(result),
        str(result.n),
    )
    reached = result.outcome in (Outcome.REACHED, Outcome.BELOW)
    return Row(cells=cells, bold=is_winner(result), quiet=not reached)


def _outcome(result: EqualQuality, *, payment: Payment, usd_per_hour: float | None) -> str | Markup:
    if result.outcome == Outcome.REACHED:
        return _needed(result.recipe_x, payment=payment, usd_per_hour=usd_per_hour)
    if result.outcome == Outcome.BELOW:
        return with_note(f"at most {amount(result.recipe_x, payment)}", "its lowest budget")
    return str(result.outcome)


def _needed(x: float | None, *, payment: Payment, usd_per_hour: float | None) -> str | Markup:
    words = amount(x, payment)
    return with_note(words, _dollars(x, usd_per_hour)) if payment.key == "time" and x is not None else words


def _dollars(seconds: float, usd_per_hour: float | None) -> str:
    if usd_per_hour is None:
        return "no price"
    return text.dollars(costing.cost_usd(seconds, own_price(usd_per_hour)))


def _ratio(result: EqualQuality) -> str | Markup:
    if result.ratio is None or result.outcome not in (Outcome.REACHED, Outcome.BELOW):
        return text.MISSING
    sign = "at most " if result.outcome == Outcome.BELOW else ""
    return with_note(f"{sign}{text.ratio(result.ratio)}", interval(result))


def _inference(result: EqualQuality) -> str | Markup:
    if result.slower_inference:
        return Markup('<span class="x-warn" title="costs more at inference than the baseline">{}</span>').format(
            f"{text.ratio(result.inference_ratio)} slower"
        )
    return text.ratio(result.inference_ratio)
