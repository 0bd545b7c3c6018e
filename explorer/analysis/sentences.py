"""Sentences: the answers in words, the same in the terminal, in notebooks and in reports.

Comparisons are told as speedups, the baseline's time to the target over the recipe's: above 1x the recipe is faster.
Along other axes the same number is called a gain. Values keep ratios, recipe over baseline.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import pandas as pd

from explorer.analysis.axis_words import (
    amount_words,
    axis_words,
    gain_bound,
    gain_name,
    gain_number,
    gain_span,
    gain_words,
    ratio_words,
)
from explorer.analysis.comparison import LEAST_REACH_RATE
from explorer.analysis.composition import Composed, Composition, Pair
from explorer.analysis.controls import Controlled, Difference
from explorer.analysis.equal_budget import EqualBudget
from explorer.analysis.equal_quality import EQUIVALENT, Call, EqualQuality, Outcome
from explorer.analysis.verdict import Verdict, most_promising
from explorer.page.amounts import busy_times
from explorer.run_files import Metric

CONFIRM = "confirm on fresh seeds"


def answer(verdict: Verdict) -> str:
    """Return one sentence on one recipe.

    "fast reaches the baseline's accuracy 1.61x faster (95% interval 1.43x-1.82x adjusted for 4 comparisons, 3 seeds)"
    """
    result = verdict.comparison
    notes = [_control_note(verdict), _inference_note(result), _tuning_note(result), _left_out_note(result)]
    return "; ".join([_sentence(verdict), *filter(None, notes)])


def budget_answer(result: EqualBudget) -> str:
    """Return one sentence on one recipe at the baseline's budget.

    "fast is better than the baseline by 0.40 points in the same time (95% interval 0.10 to 0.70, 3 seeds)"
    """
    notes = [_tuning_note(result), _left_out_note(result)] if result.difference is not None else []
    return "; ".join([_budget_sentence(result), *filter(None, notes)])


_TIMES = {
    "profiled": "Times are profiled: steps times the time of a step on a quiet machine.",
    "measured": "Some times are measured in the runs themselves.",
    "predicted": "Some times are predicted: quality as it was on one machine, the time of a step from a profile of"
    " another, on which nothing was trained.",
    "imported": "Runs are imported from another tool and unverified: nothing about them was observed here.",
}


def time_notes(sources: Iterable[str]) -> list[str]:
    """Return a sentence for each source of times. `sources` are those of ladders, which may join several with "+"."""
    names = {name for source in sources for name in source.split("+")}
    return [words for name, words in _TIMES.items() if name in names]


def busy_recipes(rows: pd.DataFrame) -> list[str]:
    """Return the recipes, in a table of results or of means, whose times were profiled on a busy machine."""
    if "busy_profile" not in rows:
        return []
    busy = rows["busy_profile"].astype("boolean").fillna(False).astype(bool)
    return list(dict.fromkeys(map(str, rows.loc[busy, "recipe"])))


def busy_notes(rows: pd.DataFrame) -> list[str]:
    """Return a sentence on these recipes, if there are any."""
    words = busy_times(busy_recipes(rows))
    return [words] if words else []


# --- the headline of a sweep ---


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return the headline of a sweep: the most favourable verdict, or that no recipe beats the baseline."""
    if not verdicts:
        return "nothing to compare: the baseline is the only recipe"
    if all(verdict.call is Call.UNKNOWN for verdict in verdicts):
        return f"nothing can be compared: {verdicts[0].comparison.reason}"
    if all(verdict.call is Call.SEARCHED and not verdict.is_confirmed for verdict in verdicts):
        return f"{Call.SEARCHED}; the best recipe is still to be confirmed on fresh seeds"
    if (best := headliner(verdicts)) is not None:
        return f"{answer(best)}{fresh_words(best)}"
    # Without a claim, the most hopeful kind of missing evidence leads, with what would supply it.
    by_call = {verdict.call: [v for v in verdicts if v.call is verdict.call] for verdict in verdicts}
    if singles := by_call.get(Call.ONE_SEED):
        return f"{answer(_least(singles))}; more seeds are needed before that is a result"
    if lowest := by_call.get(Call.BELOW):
        return f"{answer(lowest[0])}; lower budgets are needed to say by how much"
    if unrivalled := by_call.get(Call.NO_BASELINE):
        return answer(min(unrivalled, key=lambda verdict: verdict.comparison.recipe_x or 0.0))
    counted = f"no recipe beats the baseline yet ({_counted(verdicts)})"
    hopeful = most_promising(verdicts)
    return counted if hopeful is None else f"{counted}: {answer(hopeful)}"


def headliner(verdicts: Sequence[Verdict]) -> Verdict | None:
    """Return the verdict that a headline is about; None if there is none.

    In this order, and in each group the recipe that needs least: claims whose gain no control has too, other claims,
    gains that fresh seeds did not confirm, and what fresh seeds could turn into a claim.
    """
    claims = [verdict for verdict in verdicts if verdict.claims]
    # One seed or a lowest budget that is too high looks like a larger gain than anything that was tested; the summary
    # then speaks of that, so nothing that is merely open takes its place.
    untested = any(verdict.call in (Call.ONE_SEED, Call.BELOW) for verdict in verdicts)
    for group in (
        [verdict for verdict in claims if verdict.control is None],
        claims,
        [verdict for verdict in verdicts if verdict.call is Call.LESS],
        [verdict for verdict in verdicts if verdict.confirmable and not verdict.is_refuted and not untested],
    ):
        if group:
            return _least(group)
    return None


def so_far(verdicts: Sequence[Verdict]) -> str:
    """Return the best answer of an unfinished sweep in a few words; empty while there is none.

    "so far fast 1.61x faster (1.43x-1.82x)"
    """
    known = [verdict for verdict in verdicts if verdict.comparison.ratio is not None]
    if not known:
        return ""
    result = (headliner(known) or _least(known)).comparison
    span = f"{_seeds(result)}, no interval"
    if result.adjusted_low is not None:
        span = gain_span(result.adjusted_low, result.adjusted_high)
    return f"so far {result.label} {gain_words(result.x, result.ratio or 1.0)} ({span})"


def fresh_words(verdict: Verdict) -> str:
    """Return the result on fresh seeds, or the request for it, to be appended to a sentence."""
    if verdict.confirmation is not None:
        return f"; {verdict.confirmation.sentence}"
    return f"; {CONFIRM}" if verdict.asks else ""


# --- verdicts and intervals as tables show them ---


def call_words(verdict: Verdict) -> str:
    """Return the verdict in a few words.

    "inconclusive, about 6 more seeds would decide"
    """
    call = _call_words(verdict)
    if verdict.call is Call.EQUIVALENT:
        return f"{call} within {_margin()}"
    return f"{call}, {decide_words(verdict)}" if verdict.call is Call.INCONCLUSIVE else call


def _call_words(verdict: Verdict) -> str:
    if verdict.call not in (Call.LESS, Call.MORE):
        return str(verdict.call)
    return f"{gain_name(verdict.comparison.x, more=verdict.call is Call.MORE)} than the baseline"


def control_words(verdict: Verdict) -> str:
    """Return which control has the gain too; empty if none has."""
    return "" if verdict.control is None else f"no better than its control {verdict.control.name}"


def decide_words(verdict: Verdict) -> str:
    """Return how many further seeds would decide an inconclusive comparison, or why none would.

    "about 6 more seeds would decide"
    """
    power = verdict.power
    if power is None:
        return "what would decide is not known"
    if power.seeds is None:
        return power.reason
    return f"about {power.seeds} more seed{'s' * (power.seeds != 1)} would decide"


def ratio_interval(result: EqualQuality) -> str:
    """Return the interval of the ratio that the verdict rests on, or why there is none."""
    if result.adjusted_low is not None and result.adjusted_high is not None:
        return f"{ratio_words(result.adjusted_low)} to {ratio_words(result.adjusted_high)}"
    if result.n == 1:
        return "n=1"
    if result.reach_rate is not None and result.reach_rate < LEAST_REACH_RATE:
        return "no interval"  # the reach rate, which is shown with it, is the reason
    return result.reason or ""


def inference_interval(result: EqualQuality) -> str:
    """Return the interval of the ratio of inference times; empty where there is no ratio."""
    if result.inference_ratio is None:
        return ""
    if result.inference_low is None or result.inference_high is None:
        return "no interval"
    return f"{ratio_words(result.inference_low)} to {ratio_words(result.inference_high)}"


def inference_words(result: EqualQuality) -> str:
    """Return inference time relative to the baseline: "1.31x the baseline's (1.26 to 1.36)"."""
    if result.inference_ratio is None:
        return "not measured"
    return f"{ratio_words(result.inference_ratio)}x the baseline's ({inference_interval(result)})"


# --- parts of a sentence ---


def _least(verdicts: Sequence[Verdict]) -> Verdict:
    return min(verdicts, key=lambda verdict: verdict.comparison.ratio or 0.0)


def _counted(verdicts: Sequence[Verdict]) -> str:
    """Return the number of verdicts of each kind: "3 inconclusive, 1 not reached"."""
    counts = Counter(_kind_words(verdict) for verdict in verdicts)
    return ", ".join(f"{number} {call}" for call, number in counts.items())


def _kind_words(verdict: Verdict) -> str:
    """Return the kind of a verdict, with the reason where nothing is known; without numbers, so that kinds are few."""
    result = verdict.comparison
    if verdict.call is Call.UNKNOWN:
        return f"{verdict.call}: {result.reason}"
    if verdict.call is not Call.NO_INTERVAL:
        return _call_words(verdict)
    if result.reach_rate is not None and result.reach_rate < LEAST_REACH_RATE:
        return "with no interval: too few resamples of the seeds reach the target"
    return f"with no interval: {result.reason}"


def _sentence(verdict: Verdict) -> str:
    result = verdict.comparison
    mine, others = _machines(result)
    label, target = f"{result.label}{mine}", f"{_target(result)}{others}"
    gain = "" if result.ratio is None else gain_words(result.x, result.ratio)
    match verdict.call:
        case Call.UNKNOWN:
            return f"{label} cannot be compared: {result.reason}"
        case Call.SEARCHED:
            return f"{label} was {result.reason}"
        case Call.NOT_REACHED:
            return f"{label} does not reach {target} within its budgets ({_seeds(result)})"
        case Call.BELOW:
            bound = "" if result.ratio is None else f", {gain_bound(result.x, result.ratio)}"
            return f"{label} is past {target} at its lowest budget already{bound} (no interval, {_seeds(result)})"
        case Call.NO_BASELINE:
            return f"{label} reaches {target}, but there is nothing to compare with: {result.reason}"
        case Call.ONE_SEED | Call.NO_INTERVAL:
            return f"{label} reaches {target} {gain} ({_without_interval(result)})"
        case Call.EQUIVALENT:
            return f"{label} is equivalent within {_margin()}: it reaches {target} {gain} ({_interval(result)})"
        case Call.INCONCLUSIVE:
            unadjusted = ""
            if result.less_alone:
                unadjusted = f"; {gain_span(result.ratio_low, result.ratio_high)} as the only comparison"
            than = f" than {_named(result)}{others}" if others else ""
            looks = f"{label} looks {gain}{than}, but {_seeds(result)} cannot tell ({_interval(result)}{unadjusted})"
            return f"{looks}; {decide_words(verdict)}"
        case _:
            return f"{label} reaches {target} {gain} ({_interval(result)})"


def _interval(result: EqualQuality) -> str:
    """Return the interval that the verdict rests on, as a speedup.

    "95% interval 1.43x-1.82x adjusted for 4 comparisons, 3 seeds"
    """
    span = gain_span(result.adjusted_low, result.adjusted_high)
    # Words such as "1.50x slower" turn the number round, and the interval does not: so the speedup is given with it.
    turned = f"{gain_number(result.x, result.ratio)}, " if result.ratio is not None and result.ratio > 1 else ""
    return f"{turned}{result.confidence:.0%} interval {span}{_of_family(result)}, {_seeds(result)}"


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
    compared = f"{side} {_named(result)}{others}{by} {_within(result)}"
    low, high = result.adjusted_low, result.adjusted_high
    if low is None or high is None:
        return f"{label} is {compared} ({_without_interval(result)})"
    confident = f"{result.confidence:.0%} interval"
    # An interval on both sides of 0 needs its signs; one on a single side follows the words "better by".
    if result.better is None:
        span = f"{kind.number(low, sign='+')} to {kind.difference(high)}"
        return f"{label} is inconclusive: {compared} ({confident} {span}{_of_family(result)}, {_seeds(result)})"
    low, high = sorted((abs(low), abs(high)))
    span = f"{kind.number(low)} to {kind.number(high)}"
    return f"{label} is {compared} ({confident} {span}{_of_family(result)}, {_seeds(result)})"


def _within(result: EqualBudget) -> str:
    """Return the budget in words."""
    if result.own_budget or result.budget is None:
        return _SAME.get(result.x) or f"at the same {axis_words(result.x)}"
    return f"{_BEFORE.get(result.x) or f'at a {axis_words(result.x)} of'} {amount_words(result.x, result.budget)}"


_SAME = {"train_seconds": "in the same time", "wall_seconds": "in the same wall time", "steps": "in as many steps"}
_BEFORE = {"train_seconds": "in", "wall_seconds": "in", "steps": "in", "cost_usd": "for"}


def _machines(result: EqualQuality | EqualBudget) -> tuple[str, str]:
    """Return where the recipe and where the baseline ran; nothing if that is the same machine."""
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
    return f"{_named(result)}'s {metric}" if result.own_target else f"{result.target:g} {metric}"


def _named(result: EqualQuality | EqualBudget) -> str:
    return "the baseline" if result.baseline == "baseline" else result.baseline


def _seeds(result: EqualQuality | EqualBudget | Difference) -> str:
    if isinstance(result, EqualQuality) and result.first is not None:
        return f"{result.first} seeds, then {result.n - result.first} more by the two-stage rule (Stein)"
    return f"{result.n} seed{'s' * (result.n != 1)}"


def _control_note(verdict: Verdict) -> str:
    return "" if verdict.control is None else f"its gain vanishes against its control {verdict.control.name}"


def _inference_note(result: EqualQuality) -> str:
    return f"inference takes {inference_words(result)}" if result.slower_inference else ""


def _tuning_note(result: EqualQuality | EqualBudget) -> str:
    unknown = isinstance(result, EqualQuality) and result.outcome == Outcome.UNKNOWN
    return "" if result.tuning is not None or unknown else f"{result.baseline} is not tuned"


def _left_out_note(result: EqualQuality | EqualBudget) -> str:
    budgets = ", ".join(f"{ssr:g}" for ssr in result.left_out)
    return f"budget {budgets} left out: not run with every seed" if budgets else ""


# --- recipes and their controls ---

FULL = 1.0


def control_sentences(comparisons: Sequence[Controlled]) -> list[str]:
    """Return a sentence for each recipe and kind of control, at the full budget or else the largest comparable one."""
    chosen: dict[tuple[object, ...], Controlled] = {}
    # Sorted so that the preferred comparison of each recipe and control comes last, and stays in the dictionary.
    for pair in sorted(comparisons, key=lambda pair: (pair.against.difference is not None, pair.ssr == FULL, pair.ssr)):
        chosen[pair.setting, pair.label, pair.control] = pair
    order = dict.fromkeys((pair.setting, pair.label, pair.control) for pair in comparisons)
    return [control_sentence(chosen[key]) for key in order]


def control_sentence(pair: Controlled) -> str:
    """Return a sentence on one recipe and one control.

    "fast is better than baseline at the same budget (+1.20 points, 3 seeds), but is not shown to be better than
    baseline trained for as long (95% interval -0.30 to +0.60 points, 3 seeds): its gain vanishes against the control"
    """
    against = pair.against
    if against.difference is None:
        return f"{pair.label} has nothing to compare with {_control(pair)}: {against.reason}"
    if pair.gain_vanishes:
        return (
            f"{pair.label} is better than {pair.baseline} at the same budget ({_by(pair.plain, pair)}), but"
            f" {_but(pair)}: its gain vanishes against the control"
        )
    if pair.verdict == "the same":
        return f"{pair.label} is the same as {_control(pair)}, seed for seed ({_seeds(against)})"
    if pair.verdict in ("better", "worse"):
        return f"{pair.label} is {pair.verdict} than {_control(pair)} ({_by(against, pair)})"
    return f"{pair.label} against {_control(pair)} is inconclusive ({_by(against, pair)})"


def by_how_much(difference: float | None, kind: Metric) -> str:
    """Return a difference with its sign.

    >>> by_how_much(0.012, Metric(name="f1", higher_is_better=True))
    '+0.0120'
    """
    return "-" if difference is None else kind.difference(difference)


def interval(low: float | None, high: float | None, kind: Metric, *, reason: str | None = None) -> str:
    """Return the interval of a difference, or why there is none.

    >>> interval(-0.003, 0.012, Metric(name="f1", higher_is_better=True))
    '-0.0030 to +0.0120'
    """
    if low is None or high is None:
        return reason or "none"
    return f"{kind.number(low, sign='+')} to {kind.difference(high)}"


def _but(pair: Controlled) -> str:
    if pair.verdict == "the same":
        return f"is the same as {_control(pair)}, seed for seed"
    if pair.verdict == "worse":
        return f"is worse than {_control(pair)} ({_by(pair.against, pair)})"
    return f"is not shown to be better than {_control(pair)} ({_by(pair.against, pair)})"


def _control(pair: Controlled) -> str:
    if pair.control == "rescaled-baseline":
        return f"{pair.baseline} trained for as long"
    return f"{pair.name}, which chooses as many examples at random"


def _by(difference: Difference, pair: Controlled) -> str:
    kind = pair.setting.kind
    words = by_how_much(difference.difference, kind)
    if difference.adjusted_low is None:
        return f"{words}, no interval: {difference.reason}, {_seeds(difference)}"
    adjusted = f" adjusted for {difference.family} comparisons" if difference.family > 1 else ""
    span = interval(difference.adjusted_low, difference.adjusted_high, kind)
    return f"{words}, {pair.confidence:.0%} interval {span}{adjusted}, {_seeds(difference)}"


# --- how methods compose ---

WORDS = {"optimizer": "the optimiser", "wait": "waiting for data", "read": "reading", "preprocess": "preprocessing"}


def composed_words(recipe: Composed, *, confidence: float = 0.95) -> str:
    """Return a sentence on one recipe.

    "fast: speedup 2.10x, predicted from single methods 2.30x; it takes 1.10x the predicted time (95% interval
    1.05-1.15)"
    """
    if recipe.predicted_speedup is None or recipe.speedup is None or recipe.error.value is None:
        return f"{recipe.label}: no prediction: {recipe.reason}"
    speedup = f"{recipe.label}: speedup {recipe.speedup:.2f}x"
    ratio = f"it takes {math.exp(recipe.error.value):.2f}x the predicted time"
    if recipe.error.low is None or recipe.error.high is None:
        interval = f"no interval: {recipe.error.reason}"
    else:
        interval = f"{confidence:.0%} interval {math.exp(recipe.error.low):.2f}-{math.exp(recipe.error.high):.2f}"
    return f"{speedup}, predicted from single methods {recipe.predicted_speedup:.2f}x; {ratio} ({interval})"


def overlap_words(pair: Pair) -> str | None:
    """Return that two methods shorten the same part of the same steps; None if they do not.

    "channels_last and mixup both shorten forward: separately they save 12% and 40% of the baseline's time there;
    together 45% can be expected, not 52%"
    """
    overlap = pair.overlap
    if overlap is None:
        return None
    *others, last = [WORDS.get(part, part) for part in overlap.parts]
    parts = f"{', '.join(others)} and {last}" if others else last
    return (
        f"{pair.first} and {pair.second} both shorten {parts}: separately they save {overlap.first:.0%} and"
        f" {overlap.second:.0%} of the baseline's time there; together {overlap.together:.0%} can be expected, not"
        f" {overlap.first + overlap.second:.0%}"
    )


def composition_sentences(composition: Composition) -> list[str]:
    """Return the predictions of recipes, then the interactions and overlaps of pairs."""
    if composition.reason is not None:
        return [f"Composition is unknown: {composition.reason}"]
    overlaps = [words for pair in composition.pairs if (words := overlap_words(pair))]
    recipes = [composed_words(recipe, confidence=composition.confidence) for recipe in composition.recipes]
    return [*recipes, *_interactions(composition), *overlaps]


def _interactions(composition: Composition) -> list[str]:
    pairs = composition.measured_pairs
    if not pairs:
        return []
    up = 1 if composition.kind is None or composition.kind.higher_is_better else -1
    sentences = []
    for kind, estimates, better, independent in (
        ("quality", [pair.quality for pair in pairs], up, "add up"),
        ("time", [pair.time for pair in pairs], -1, "multiply"),
    ):
        sure = [
            f"{pair.first} with {pair.second} ({'better' if better * (estimate.value or 0) > 0 else 'worse'})"
            for pair, estimate in zip(pairs, estimates, strict=True)
            if estimate.p_holm is not None and estimate.p_holm < 1 - composition.confidence
        ]
        tested = sum(estimate.p_value is not None for estimate in estimates)
        count = f"{tested} pair{'s' * (tested != 1)} tested (Holm)"
        if not tested:
            sentences.append(f"no pair can be judged in {kind}: {estimates[0].reason}")
        elif sure:
            sentences.append(f"pairs whose effects on {kind} do not just {independent}: {', '.join(sure)}; {count}")
        else:
            sentences.append(f"no pair is shown to interact in {kind}; {count}")
    return sentences
