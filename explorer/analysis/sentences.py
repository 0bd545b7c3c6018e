"""The answers in words, the same in the terminal, in notebooks and in reports."""

from collections.abc import Iterable

from explorer.analysis.equal_budget import EqualBudget
from explorer.analysis.equal_quality import EqualQuality, Outcome
from explorer.analysis.ladders import amount_words, axis_words

CONFIRM = "confirm on fresh seeds"


def answer(result: EqualQuality) -> str:
    """One sentence on one recipe.

    "fast reaches the baseline's accuracy in 0.62 of its time (95% interval 0.55-0.70, 3 seeds)"
    """
    sentence = _sentence(result)
    notes = [note for note in (_inference_note(result), _tuning_note(result), _left_out_note(result)) if note]
    return "; ".join([sentence, *notes])


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


def summary(results: list[EqualQuality]) -> str:
    """The most favourable answer that stands when all comparisons are taken into account, or that there is none."""
    if not results:
        return "nothing to compare: there is no recipe beside the baseline"
    if all(result.outcome == Outcome.UNKNOWN for result in results):
        return f"nothing can be compared: {results[0].reason}"
    winners = [result for result in results if is_winner(result)]
    if winners:
        best = min(winners, key=lambda result: result.ratio or 0.0)
        return f"{answer(best)}; {CONFIRM}"
    single = [result for result in results if result.outcome == Outcome.REACHED and result.n == 1 and result.ratio]
    if single:
        best = min(single, key=lambda result: result.ratio or 0.0)
        return f"{answer(best)}; more seeds are needed before that is a result"
    lowest = [result for result in results if result.outcome == Outcome.BELOW]
    if lowest:
        return f"{answer(lowest[0])}; lower budgets are needed to say by how much"
    candidates = [result for result in results if result.differs and result.ratio is not None and result.ratio < 1]
    if candidates:
        best = min(candidates, key=lambda result: result.ratio or 0.0)
        return f"{answer(best)}; {CONFIRM}"
    alone = [result for result in results if result.outcome == Outcome.REACHED and result.ratio is None]
    if alone:
        return answer(min(alone, key=lambda result: result.recipe_x or 0.0))
    axis = _axis(results[0])
    less = "fewer" if axis.endswith("s") else "less"  # fewer steps, less time
    nobody = f"none of {len(results)} recipes is" if len(results) > 1 else f"{results[0].label} is not"
    return f"{nobody} shown to need {less} {axis} than the baseline at equal quality"


def is_winner(result: EqualQuality) -> bool:
    """Whether the recipe is shown to need less than the baseline, all comparisons taken into account."""
    return result.significant and result.ratio is not None and result.ratio < 1


def _sentence(result: EqualQuality) -> str:
    mine, others = _machines(result)
    label, axis = f"{result.label}{mine}", f"{_axis(result)}{others}"
    if result.outcome == Outcome.UNKNOWN:
        return f"{label} cannot be compared: {result.reason}"
    if result.outcome == Outcome.NOT_REACHED:
        return f"{label} does not reach {_target(result)} within its budgets ({_seeds(result)})"
    if result.outcome == Outcome.BELOW:
        within = "" if result.ratio is None else f", in less than {_ratio(result.ratio)} of its {axis}"
        return f"{label} is past {_target(result)} at its lowest budget already{within} (no interval, {_seeds(result)})"
    if result.ratio is None:
        return f"{label} reaches {_target(result)}, but there is nothing to compare with: {result.reason}"
    reached = f"{label} reaches {_target(result)} in {_ratio(result.ratio)} of its {axis}"
    if result.ratio_low is None or result.ratio_high is None:
        return f"{reached} ({_without_interval(result)})"
    interval = (
        f"{result.confidence:.0%} interval {_ratio(result.ratio_low)}-{_ratio(result.ratio_high)}, {_seeds(result)}"
    )
    if not result.differs:
        return f"{label}: no difference to {result.baseline} in {axis} at {_target(result)} ({interval})"
    if not result.significant:
        return f"{reached} ({interval}); {_not_of_all(result)}"
    return f"{reached} ({interval})"


def _budget_sentence(result: EqualBudget) -> str:
    mine, others = _machines(result)
    if result.difference is None:
        return f"{result.label}{mine} cannot be compared: {result.reason}"
    better = (result.difference > 0) == result.setting.higher_is_better
    side = "as good as" if result.difference == 0 else "better than" if better else "worse than"
    kind = result.setting.kind
    by = f" by {kind.number(abs(result.difference))}{kind.of_difference}" if result.difference else ""
    found = f"{result.label}{mine} is {side} {_named(result)}{others}{by} {_within(result)}"
    if result.low is None or result.high is None:
        return f"{found} ({_without_interval(result)})"
    how_sure = f"{result.confidence:.0%} interval"
    if result.better is None:
        interval = f"{kind.number(result.low, sign='+')} to {kind.difference(result.high)}"
        same = f"no difference to {result.baseline}{others} in {result.setting.metric} {_within(result)}"
        return f"{result.label}{mine}: {same} ({how_sure} {interval}, {_seeds(result)})"
    low, high = sorted((abs(result.low), abs(result.high)))
    found = f"{found} ({how_sure} {kind.number(low)} to {kind.number(high)}, {_seeds(result)})"
    return found if result.significant else f"{found}; {_not_of_all(result)}"


def _not_of_all(result: EqualQuality | EqualBudget) -> str:
    return f"no difference once all {result.family} comparisons are taken into account"


def _within(result: EqualBudget) -> str:
    """The budget in words."""
    if result.own_budget or result.budget is None:
        return _SAME.get(result.x) or f"at the same {_axis(result)}"
    return f"{_BEFORE.get(result.x) or f'at a {_axis(result)} of'} {amount_words(result.x, result.budget)}"


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


def _axis(result: EqualQuality | EqualBudget) -> str:
    return axis_words(result.x)


def _seeds(result: EqualQuality | EqualBudget) -> str:
    return f"{result.n} seed{'s' * (result.n != 1)}"


def _ratio(value: float) -> str:
    """Two decimals, or two digits where that would say nothing."""
    return f"{value:.2f}" if 0.1 <= value < 1000 else f"{value:.2g}"


def _inference_note(result: EqualQuality) -> str:
    if not result.slower_inference:
        return ""
    return f"inference costs {result.inference_ratio:.2f} of the baseline's"


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
