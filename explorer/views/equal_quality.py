"""The comparison table: what every recipe needs to be as good as the baseline, what it reaches for as much as the
baseline is paid, and how sure either is."""

from collections.abc import Collection, Mapping, Sequence

from markupsafe import Markup

from explorer import costing
from explorer.analysis.comparison import LEAST_REACH_RATE
from explorer.analysis.confirmed import Confirmation
from explorer.analysis.control_sentences import by_how_much
from explorer.analysis.control_sentences import interval as points
from explorer.analysis.equal_budget import EqualBudget
from explorer.analysis.equal_quality import EqualQuality, Outcome
from explorer.analysis.ladders import Machine, Setting
from explorer.analysis.reprice import own_price
from explorer.analysis.sentences import CONFIRM, is_winner
from explorer.views import text, theme
from explorer.views.axes import Payment, amount
from explorer.views.tables import Column, Row, swatch, table, with_note

Confirmed = Mapping[tuple[Setting, str], Confirmation]
"""What fresh seeds said of comparisons, by `confirmable`: on one machine nothing is confirmed for another."""


def confirmable(result: EqualQuality) -> tuple[Setting, str]:
    """What a confirmation confirms: a recipe where it was compared."""
    return result.setting, result.label


def comparison_table(
    results: Sequence[EqualQuality],
    budgets: Sequence[EqualBudget],
    *,
    payment: Payment,
    look: theme.Look,
    rates: Mapping[Machine, float],
    order: str = "least",
    confirmed: Confirmed | None = None,
    vanishing: Collection[str] = (),
    caption: str | Markup = "",
) -> Markup:
    """The comparisons with a baseline as HTML: the baseline first, then the recipes, by what they need at equal quality
    or, for the order "best", by what they reach at equal budget.

    `rates` are US dollars an hour of a run; a machine that is not there has no price. `confirmed` are winners that were
    run again on fresh seeds. `vanishing` are the labels of
    recipes whose gain is none beside a control.
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
    several = len({result.setting for result in results}) > 1
    pairs = [(result, beside.get((result.setting, result.label))) for result in results]
    pairs.sort(key=lambda pair: _best_first(pair) if order == "best" else _least_first(pair[0]))
    fresh = confirmed or {}
    rows = [
        _recipe(
            *pair,
            payment=payment,
            look=look,
            rates=rates,
            several=several,
            fresh=fresh.get(confirmable(pair[0])),
            vanishes=pair[0].label in vanishing,
        )
        for pair in pairs
    ]
    bases = {result.baseline_setting: result for result in reversed(results)}
    for result in bases.values():
        rows.insert(0, _baseline(result, payment=payment, look=look, rates=rates, several=several))
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


def difference(result: EqualBudget | None) -> str | Markup:
    """How much better or worse a recipe is for as much as the baseline is paid, with the interval."""
    if result is None or result.difference is None:
        return text.MISSING
    shown = by_how_much(result, result.setting.kind)
    if result.low is None or result.high is None:
        return with_note(shown, "n=1" if result.n == 1 else result.reason or "")
    return with_note(shown, points(result, result.setting.kind))


def _least_first(result: EqualQuality) -> tuple[bool, float, str]:
    known = result.ratio is not None and result.outcome in (Outcome.REACHED, Outcome.BELOW)
    return not known, result.ratio or 0.0, result.label


def _best_first(pair: tuple[EqualQuality, EqualBudget | None]) -> tuple[bool, float, str]:
    result, beside = pair
    if beside is None or beside.difference is None:
        return True, 0.0, result.label
    return False, -beside.difference if result.setting.higher_is_better else beside.difference, result.label


def _baseline(
    any_result: EqualQuality, *, payment: Payment, look: theme.Look, rates: Mapping[Machine, float], several: bool
) -> Row:
    name, x, setting = any_result.baseline, any_result.baseline_x, any_result.baseline_setting
    note = "tuned baseline" if any_result.tuning else Markup('<span class="x-warn">untuned baseline</span>')
    nowhere = Outcome.UNKNOWN if any_result.outcome == Outcome.UNKNOWN else Outcome.NOT_REACHED
    if any_result.outcome == Outcome.UNKNOWN and not any_result.n:  # it was not compared, so nothing is said of it
        note = "baseline"
    where = str(setting.machine) if several else ""
    cells = (
        with_note(swatch(name, look), Markup("{}{}").format(note, f"; {where}" if where else "")),
        _needed(x, payment=payment, rate=rates.get(setting.machine)) if x is not None else nowhere.value,
        text.ratio(None if x is None else 1.0),
        "",
        "",
        "",
    )
    return Row(cells=cells, quiet=x is None)


def _recipe(
    result: EqualQuality,
    beside: EqualBudget | None,
    *,
    payment: Payment,
    look: theme.Look,
    rates: Mapping[Machine, float],
    several: bool,
    fresh: Confirmation | None,
    vanishes: bool,
) -> Row:
    setting = result.setting
    said = [(fresh.sentence if fresh else CONFIRM) if is_winner(result) else verdict(result)]
    if vanishes:
        said.append("no better than its control")
    if several:
        said.append(str(setting.machine))
    if _is_predicted(result, payment):
        said.append("predicted")
    cells = (
        with_note(swatch(result.label, look), "; ".join(words for words in said if words)),
        _outcome(result, payment=payment, rate=rates.get(setting.machine)),
        _ratio(result),
        difference(beside),
        with_note(text.MISSING if result.reach_rate is None else f"{result.reach_rate:.0%}", f"n={result.n}"),
        _inference(result),
    )
    reached = result.outcome in (Outcome.REACHED, Outcome.BELOW)
    return Row(cells=cells, bold=is_winner(result), quiet=not reached)


def _is_predicted(result: EqualQuality, payment: Payment) -> bool:
    """Whether what is paid is known of another machine's profile alone."""
    return not (payment.counted or payment.forecast) and "predicted" in result.time_source.split("+")


def _outcome(result: EqualQuality, *, payment: Payment, rate: float | None) -> str | Markup:
    if result.outcome == Outcome.REACHED:
        return _needed(result.recipe_x, payment=payment, rate=rate)
    if result.outcome == Outcome.BELOW:
        return with_note(f"at most {amount(result.recipe_x, payment)}", "its lowest budget")
    return str(result.outcome)


def _needed(x: float | None, *, payment: Payment, rate: float | None) -> str | Markup:
    words = amount(x, payment)
    return with_note(words, _dollars(x, rate)) if payment.key == "time" and x is not None else words


def _dollars(seconds: float, rate: float | None) -> str:
    return "no price" if rate is None else text.dollars(costing.cost_usd(seconds, own_price(rate)))


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
