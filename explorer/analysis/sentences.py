"""Sentences: the answers in words, the same in the terminal, in notebooks and in reports."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import pandas as pd

from explorer.analysis.comparison import LEAST_REACH_RATE
from explorer.analysis.composition import Composed, Composition, Pair
from explorer.analysis.controls import Controlled, Difference
from explorer.analysis.equal_budget import EqualBudget
from explorer.analysis.equal_quality import EQUIVALENT, Call, EqualQuality, Outcome
from explorer.analysis.ladders import amount_words, axis_words
from explorer.analysis.verdict import MOST_SEEDS, Verdict
from explorer.page.amounts import busy_times
from explorer.run_files import Metric

CONFIRM = "confirm on fresh seeds"


def answer(verdict: Verdict) -> str:
    """One sentence on one recipe.

    "fast reaches the baseline's accuracy in 0.62 of its time (95% interval 0.55-0.70 adjusted for 4 comparisons, 3
    seeds)"
    """
    result = verdict.comparison
    notes = [_control_note(verdict), _inference_note(result), _tuning_note(result), _left_out_note(result)]
    return "; ".join([_sentence(verdict), *(note for note in notes if note)])


def budget_answer(result: EqualBudget) -> str:
    """One sentence on one recipe that may use as much as the baseline.

    "fast is better than the baseline by 0.40 points in the same time (95% interval 0.10 to 0.70, 3 seeds)"
    """
    notes = [note for note in (_tuning_note(result), _left_out_note(result)) if note]
    return "; ".join([_budget_sentence(result), *(notes if result.difference is not None else [])])


_TIMES = {
    "profiled": "Times are profiled: steps times the time of a step on a quiet machine.",
    "measured": "Some times are measured in the runs themselves.",
    "predicted": "Some times are predicted: quality as it was on one machine, the time of a step from a profile of"
    " another, on which nothing was trained.",
}


def time_notes(sources: Iterable[str]) -> list[str]:
    """Where times come from, a sentence for each; `sources` are those of ladders, which may join several with "+"."""
    found = {each for source in sources for each in source.split("+")}
    return [words for source, words in _TIMES.items() if source in found]


def busy_recipes(rows: pd.DataFrame) -> list[str]:
    """The recipes in a table of results, or of means, whose times are known to be profiled on a busy machine."""
    if "busy_profile" not in rows:
        return []
    busy = rows["busy_profile"].astype("boolean").fillna(False).astype(bool)
    return list(dict.fromkeys(map(str, rows.loc[busy, "recipe"])))


def busy_notes(rows: pd.DataFrame) -> list[str]:
    """A sentence on these recipes, if there are any."""
    words = busy_times(busy_recipes(rows))
    return [words] if words else []


def summary(found: Sequence[Verdict]) -> str:
    """The most favourable verdict, or that there is none: the headline of a sweep."""
    if not found:
        return "nothing to compare: there is no recipe beside the baseline"
    if all(each.call is Call.UNKNOWN for each in found):
        return f"nothing can be compared: {found[0].comparison.reason}"
    if (best := headliner(found)) is not None:
        return f"{answer(best)}{fresh_words(best)}"
    singles = [each for each in found if each.call is Call.ONE_SEED]
    if singles:
        return f"{answer(_least(singles))}; more seeds are needed before that is a result"
    lowest = [each for each in found if each.call is Call.BELOW]
    if lowest:
        return f"{answer(lowest[0])}; lower budgets are needed to say by how much"
    alone = [each for each in found if each.call is Call.NO_BASELINE]
    if alone:
        return answer(min(alone, key=lambda each: each.comparison.recipe_x or 0.0))
    axis = axis_words(found[0].comparison.x)
    less = "fewer" if axis.endswith("s") else "less"  # fewer steps, less time
    label = found[0].comparison.label
    none = f"none of {len(found)} recipes is" if len(found) > 1 else f"{label} is not"
    return f"{none} shown to need {less} {axis} than the baseline at equal quality ({_counted(found)})"


def headliner(found: Sequence[Verdict]) -> Verdict | None:
    """The verdict that a headline is about: of the claims the one that needs least, one that no control takes away
    first; else what fresh seeds do not bear out; else what fresh seeds could make a claim of. None: there is none."""
    claims = [each for each in found if each.claims]
    for group in (
        [each for each in claims if each.control is None],
        claims,
        [each for each in found if each.call is Call.LESS],
        [] if any(each.call in (Call.ONE_SEED, Call.BELOW) for each in found) else _open(found),
    ):
        if group:
            return _least(group)
    return None


def _open(found: Sequence[Verdict]) -> list[Verdict]:
    return [each for each in found if each.confirmable and not each.is_refuted]


def fresh_words(verdict: Verdict, of: str = "") -> str:
    """What fresh seeds say, or that they are asked for, to be put behind a sentence; `of`: what the ratio is of."""
    if verdict.confirmation is not None:
        return f"; {verdict.confirmation.told(of)}"
    return f"; {CONFIRM}" if verdict.asks else ""


def call_words(verdict: Verdict) -> str:
    """The verdict in a few words, as tables have it.

    "inconclusive, about 9 seeds would decide"
    """
    if verdict.call is Call.EQUIVALENT:
        return f"{verdict.call} within {_margin()}"
    if verdict.call is Call.INCONCLUSIVE:
        return f"{verdict.call}, {decide_words(verdict)}"
    return str(verdict.call)


def control_words(verdict: Verdict) -> str:
    """Whether a control has the gain too, as tables have it; empty where none does."""
    return "" if verdict.control is None else f"no better than its control {verdict.control.name}"


def decide_words(verdict: Verdict) -> str:
    """What would decide an inconclusive comparison."""
    if verdict.seeds is None:
        return f"more than {MOST_SEEDS} seeds or quieter times would be needed to decide"
    return f"about {verdict.seeds} seeds would decide"


def ratio_interval(result: EqualQuality) -> str:
    """The interval that the verdict rests on, or why there is none."""
    if result.adjusted_low is not None and result.adjusted_high is not None:
        return f"{_ratio(result.adjusted_low)} to {_ratio(result.adjusted_high)}"
    if result.n == 1:
        return "n=1"
    if result.reach_rate is not None and result.reach_rate < LEAST_REACH_RATE:
        return "no interval"  # the reach rate that is shown with it says why
    return result.reason or ""


def inference_interval(result: EqualQuality) -> str:
    """The interval of the ratio of inference times; empty where there is no ratio."""
    if result.inference_ratio is None:
        return ""
    if result.inference_low is None or result.inference_high is None:
        return "no interval"
    return f"{_ratio(result.inference_low)} to {_ratio(result.inference_high)}"


def inference_words(result: EqualQuality) -> str:
    """What inference costs, beside the baseline's: "1.31 of the baseline's (1.26 to 1.36)"."""
    if result.inference_ratio is None:
        return "not measured"
    return f"{_ratio(result.inference_ratio)} of the baseline's ({inference_interval(result)})"


def _least(found: Sequence[Verdict]) -> Verdict:
    return min(found, key=lambda each: each.comparison.ratio or 0.0)


def _counted(found: Sequence[Verdict]) -> str:
    """How many there are of each kind.

    "3 inconclusive, 1 not reached"
    """
    counts = Counter(str(each.call) for each in found)
    return ", ".join(f"{number} {call}" for call, number in counts.items())


def _sentence(verdict: Verdict) -> str:
    result = verdict.comparison
    mine, others = _machines(result)
    label, axis = f"{result.label}{mine}", f"{axis_words(result.x)}{others}"
    reached = "" if result.ratio is None else f"reaches {_target(result)} in {_ratio(result.ratio)} of its {axis}"
    match verdict.call:
        case Call.UNKNOWN:
            return f"{label} cannot be compared: {result.reason}"
        case Call.NOT_REACHED:
            return f"{label} does not reach {_target(result)} within its budgets ({_seeds(result)})"
        case Call.BELOW:
            within = "" if result.ratio is None else f", in less than {_ratio(result.ratio)} of its {axis}"
            past = f"{label} is past {_target(result)} at its lowest budget already{within}"
            return f"{past} (no interval, {_seeds(result)})"
        case Call.NO_BASELINE:
            return f"{label} reaches {_target(result)}, but there is nothing to compare with: {result.reason}"
        case Call.ONE_SEED | Call.NO_INTERVAL:
            return f"{label} {reached} ({_without_interval(result)})"
        case Call.EQUIVALENT:
            return f"{label} {reached} ({_interval(result)}), which is equivalent within {_margin()}"
        case Call.INCONCLUSIVE:
            alone = f"; alone, its interval is {_span(result.ratio_low, result.ratio_high)}"
            shown = f"{_interval(result)}{alone if result.less_alone else ''}"
            return f"{label} is inconclusive: it {reached} ({shown}); {decide_words(verdict)}"
        case _:
            return f"{label} {reached} ({_interval(result)})"


def _interval(result: EqualQuality) -> str:
    """The interval that the verdict rests on.

    "95% interval 0.55-0.70 adjusted for 4 comparisons, 3 seeds"
    """
    span = _span(result.adjusted_low, result.adjusted_high)
    return f"{result.confidence:.0%} interval {span}{_of_family(result)}, {_seeds(result)}"


def _span(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{_ratio(low)}-{_ratio(high)}"


def _of_family(result: EqualQuality | EqualBudget) -> str:
    return f" adjusted for {result.family} comparisons" if result.family > 1 else ""


def _margin() -> str:
    return f"{EQUIVALENT - 1:.0%}"


def _budget_sentence(result: EqualBudget) -> str:
    mine, others = _machines(result)
    label = f"{result.label}{mine}"
    if result.difference is None:
        return f"{label} cannot be compared: {result.reason}"
    better = (result.difference > 0) == result.setting.higher_is_better
    side = "as good as" if result.difference == 0 else "better than" if better else "worse than"
    kind = result.setting.kind
    by = f" by {kind.number(abs(result.difference))}{kind.of_difference}" if result.difference else ""
    found = f"{side} {_named(result)}{others}{by} {_within(result)}"
    low, high = result.adjusted_low, result.adjusted_high
    if low is None or high is None:
        return f"{label} is {found} ({_without_interval(result)})"
    how_sure = f"{result.confidence:.0%} interval"
    if result.better is None:
        span = f"{kind.number(low, sign='+')} to {kind.difference(high)}"
        return f"{label} is inconclusive: {found} ({how_sure} {span}{_of_family(result)}, {_seeds(result)})"
    low, high = sorted((abs(low), abs(high)))
    span = f"{kind.number(low)} to {kind.number(high)}"
    return f"{label} is {found} ({how_sure} {span}{_of_family(result)}, {_seeds(result)})"


def _within(result: EqualBudget) -> str:
    """The budget in words."""
    if result.own_budget or result.budget is None:
        return _SAME.get(result.x) or f"at the same {axis_words(result.x)}"
    return f"{_BEFORE.get(result.x) or f'at a {axis_words(result.x)} of'} {amount_words(result.x, result.budget)}"


_SAME = {"train_seconds": "in the same time", "wall_seconds": "in the same wall time", "steps": "in as many steps"}
_BEFORE = {"train_seconds": "in", "wall_seconds": "in", "steps": "in", "cost_usd": "for"}


def _machines(result: EqualQuality | EqualBudget) -> tuple[str, str]:
    """Where the recipe and where the baseline ran; nothing where that is the same machine."""
    mine, others = result.setting.machine, result.baseline_setting.machine
    if mine == others:
        return "", ""
    if mine.hardware != others.hardware:
        return f" on {mine.hardware}", f" on {others.hardware}"
    return f" ({mine})", f" ({others})"


def _without_interval(result: EqualQuality | EqualBudget) -> str:
    if result.n == 1:
        return "n=1: one seed, no interval"
    return f"no interval: {result.reason}; {_seeds(result)}"


def _target(result: EqualQuality) -> str:
    metric = result.setting.metric
    if result.own_target:
        return f"{_possessive(result)} {metric}"
    return f"{metric} {result.target:g}"


def _possessive(result: EqualQuality) -> str:
    return f"{_named(result)}'s"


def _named(result: EqualQuality | EqualBudget) -> str:
    return "the baseline" if result.baseline == "baseline" else result.baseline


def _seeds(result: EqualQuality | EqualBudget | Difference) -> str:
    return f"{result.n} seed{'s' * (result.n != 1)}"


def _ratio(value: float) -> str:
    """Two decimals, or two digits where that would say nothing; three where two would make 1 of what is not.

    >>> [_ratio(value) for value in (0.625, 0.0421, 0.9984, 1.0, 1e9)]
    ['0.62', '0.042', '0.998', '1.00', 'over 1000']
    """
    if value >= 1000:
        return "over 1000"
    if value < 0.1:
        return f"{value:.2g}" if value >= 1e-3 else "0.00"
    return f"{value:.3f}" if value != 1 and f"{value:.2f}" == "1.00" else f"{value:.2f}"


def _control_note(verdict: Verdict) -> str:
    control = verdict.control
    return "" if control is None else f"its gain vanishes against its control {control.name}"


def _inference_note(result: EqualQuality) -> str:
    if not result.slower_inference:
        return ""
    return f"inference costs {inference_words(result)}"


def _tuning_note(result: EqualQuality | EqualBudget) -> str:
    unknown = isinstance(result, EqualQuality) and result.outcome == Outcome.UNKNOWN
    if result.tuning is not None or unknown:
        return ""
    return f"{result.baseline} is not tuned"


def _left_out_note(result: EqualQuality | EqualBudget) -> str:
    if not result.left_out:
        return ""
    budgets = ", ".join(f"{ssr:g}" for ssr in result.left_out)
    return f"budget {budgets} left out: not run with every seed"


# ---- what comparing recipes with their controls says

FULL = 1.0


def control_sentences(found: Sequence[Controlled]) -> list[str]:
    """One sentence for each recipe and kind of control, at its full budget, or the largest at which they compare."""
    chosen: dict[tuple[object, ...], Controlled] = {}
    for each in sorted(found, key=lambda each: (each.against.difference is not None, each.ssr == FULL, each.ssr)):
        chosen[each.setting, each.label, each.control] = each  # the last one stays
    order = dict.fromkeys((each.setting, each.label, each.control) for each in found)
    return [control_sentence(chosen[place]) for place in order]


def control_sentence(found: Controlled) -> str:
    """One recipe beside one control.

    "fast is better than baseline at the same budget (+1.20 points, 3 seeds), but is not shown to be better than
    baseline trained for as long (95% interval -0.30 to +0.60 points, 3 seeds): its gain vanishes against the control"
    """
    against = found.against
    if against.difference is None:
        return f"{found.label} has nothing to compare with {_control(found)}: {against.reason}"
    if found.gain_vanishes:
        return (
            f"{found.label} is better than {found.baseline} at the same budget ({_by(found.plain, found)}), but"
            f" {_but(found)}: its gain vanishes against the control"
        )
    words = found.verdict
    if words == "the same":
        return f"{found.label} is the same as {_control(found)}, seed for seed ({_seeds(against)})"
    if words in ("better", "worse"):
        return f"{found.label} is {words} than {_control(found)} ({_by(against, found)})"
    return f"{found.label} against {_control(found)} is inconclusive ({_by(against, found)})"


def by_how_much(difference: float | None, kind: Metric) -> str:
    """A difference with its sign.

    >>> by_how_much(0.012, Metric(name="f1", higher_is_better=True))
    '+0.0120'
    """
    return "-" if difference is None else kind.difference(difference)


def interval(low: float | None, high: float | None, kind: Metric, *, reason: str | None = None) -> str:
    """The interval of a difference, or why there is none.

    >>> interval(-0.003, 0.012, Metric(name="f1", higher_is_better=True))
    '-0.0030 to +0.0120'
    """
    if low is None or high is None:
        return reason or "none"
    return f"{kind.number(low, sign='+')} to {kind.difference(high)}"


def _but(found: Controlled) -> str:
    if found.verdict == "the same":
        return f"is the same as {_control(found)}, seed for seed"
    if found.verdict == "worse":
        return f"is worse than {_control(found)} ({_by(found.against, found)})"
    return f"is not shown to be better than {_control(found)} ({_by(found.against, found)})"


def _control(found: Controlled) -> str:
    if found.control == "rescaled-baseline":
        return f"{found.baseline} trained for as long"
    return f"{found.name}, which chooses as many examples at random"


def _by(found: Difference, at: Controlled) -> str:
    kind = at.setting.kind
    words = by_how_much(found.difference, kind)
    if found.adjusted_low is None:
        return f"{words}, no interval: {found.reason}, {_seeds(found)}"
    adjusted = f" adjusted for {found.family} comparisons" if found.family > 1 else ""
    span = interval(found.adjusted_low, found.adjusted_high, kind)
    return f"{words}, {at.confidence:.0%} interval {span}{adjusted}, {_seeds(found)}"


# ---- how methods compose

WORDS = {"optimizer": "the optimiser", "wait": "waiting for data", "read": "reading", "preprocess": "preprocessing"}


def composed_words(recipe: Composed, *, confidence: float = 0.95) -> str:
    """One sentence on a recipe.

    "fast: 2.10x as fast as the baseline, where its methods alone predict 2.30x; it takes 1.10 of the predicted time
    (95% interval 1.05-1.15)"
    """
    if recipe.predicted_speedup is None or recipe.speedup is None or recipe.error.value is None:
        return f"{recipe.label}: no prediction: {recipe.reason}"
    said = f"{recipe.label}: {recipe.speedup:.2f}x as fast as the baseline"
    ratio = f"it takes {math.exp(recipe.error.value):.2f} of the predicted time"
    if recipe.error.low is None or recipe.error.high is None:
        interval = f"no interval: {recipe.error.reason}"
    else:
        interval = f"{confidence:.0%} interval {math.exp(recipe.error.low):.2f}-{math.exp(recipe.error.high):.2f}"
    return f"{said}, where its methods alone predict {recipe.predicted_speedup:.2f}x; {ratio} ({interval})"


def overlap_words(pair: Pair) -> str | None:
    """That two methods shorten the same part of the same steps; None if they do not.

    "channels_last and mixup both shorten forward: alone they save 12% and 40% of the baseline's time there, together
    no more than 45% can be expected"
    """
    found = pair.overlap
    if found is None:
        return None
    *others, last = [WORDS.get(part, part) for part in found.parts]
    parts = f"{', '.join(others)} and {last}" if others else last
    return (
        f"{pair.first} and {pair.second} both shorten {parts}: alone they save {found.first:.0%} and"
        f" {found.second:.0%} of the baseline's time there; together {found.together:.0%} can be expected, not"
        f" {found.first + found.second:.0%}"
    )


def composition_sentences(found: Composition) -> list[str]:
    """All that is worth saying, predictions first."""
    if found.reason is not None:
        return [f"Nothing can be said of composition: {found.reason}"]
    overlaps = [words for pair in found.pairs if (words := overlap_words(pair))]
    recipes = [composed_words(recipe, confidence=found.confidence) for recipe in found.recipes]
    return [*recipes, *_interactions(found), *overlaps]


def _interactions(found: Composition) -> list[str]:
    pairs = found.measured_pairs
    if not pairs:
        return []
    said = []
    for kind, estimates, better, independent in (
        (
            "quality",
            [pair.quality for pair in pairs],
            1 if found.kind is None or found.kind.higher_is_better else -1,
            "add up",
        ),
        ("time", [pair.time for pair in pairs], -1, "multiply"),
    ):
        sure = [
            f"{pair.first} with {pair.second} ({'better' if better * (each.value or 0) > 0 else 'worse'})"
            for pair, each in zip(pairs, estimates, strict=True)
            if each.p_holm is not None and each.p_holm < 1 - found.confidence
        ]
        tested = sum(each.p_value is not None for each in estimates)
        if not tested:
            said.append(f"no pair can be judged in {kind}: {estimates[0].reason}")
        elif sure:
            said.append(
                f"pairs whose effects on {kind} do not just {independent}: {', '.join(sure)}; {_tested(tested)} (Holm)"
            )
        else:
            said.append(f"no pair is shown to interact in {kind}; {_tested(tested)} (Holm)")
    return said


def _tested(count: int) -> str:
    return f"{count} pair{'s' * (count != 1)} tested"
