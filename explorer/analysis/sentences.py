"""The answers in words, the same in the terminal, in notebooks and in reports."""

from explorer.analysis.equal_quality import EqualQuality, Outcome
from explorer.analysis.ladders import axis_words

CONFIRM = "confirm on fresh seeds"


def answer(result: EqualQuality) -> str:
    """One sentence on one recipe.

    "fast reaches the baseline's accuracy in 0.62 of its time (95% interval 0.55-0.70, 3 seeds)"
    """
    sentence = _sentence(result)
    notes = [note for note in (_inference_note(result), _tuning_note(result), _left_out_note(result)) if note]
    return "; ".join([sentence, *notes])


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
    axis = _axis(results[0])
    less = "fewer" if axis.endswith("s") else "less"  # fewer steps, less time
    return f"none of {len(results)} recipes is shown to need {less} {axis} than the baseline at equal quality"


def is_winner(result: EqualQuality) -> bool:
    """Whether the recipe is shown to need less than the baseline, all comparisons taken into account."""
    return result.significant and result.ratio is not None and result.ratio < 1


def _sentence(result: EqualQuality) -> str:
    if result.outcome == Outcome.UNKNOWN:
        return f"{result.label} cannot be compared: {result.reason}"
    if result.outcome == Outcome.NOT_REACHED:
        return f"{result.label} does not reach {_target(result)} within its budgets ({_seeds(result)})"
    if result.outcome == Outcome.BELOW:
        within = "" if result.ratio is None else f", in less than {_ratio(result.ratio)} of its {_axis(result)}"
        return f"{result.label} is past {_target(result)} at its lowest budget already{within} ({_seeds(result)})"
    if result.ratio is None:
        return f"{result.label} reaches {_target(result)}, but there is nothing to compare with: {result.reason}"
    reached = f"{result.label} reaches {_target(result)} in {_ratio(result.ratio)} of its {_axis(result)}"
    if result.ratio_low is None or result.ratio_high is None:
        return f"{reached} ({_without_interval(result)})"
    interval = (
        f"{result.confidence:.0%} interval {_ratio(result.ratio_low)}-{_ratio(result.ratio_high)}, {_seeds(result)}"
    )
    if not result.differs:
        return (
            f"{result.label}: no difference to {result.baseline} in {_axis(result)} at {_target(result)} ({interval})"
        )
    if not result.significant:
        return f"{reached} ({interval}); no difference once all {result.family} comparisons are taken into account"
    return f"{reached} ({interval})"


def _without_interval(result: EqualQuality) -> str:
    if result.n == 1:
        return "n=1: one seed, no interval"
    return f"no interval: {result.reason}; {_seeds(result)}"


def _target(result: EqualQuality) -> str:
    metric = result.setting.metric
    if result.own_target:
        return f"{_possessive(result)} {metric}"
    return f"{metric} {result.target:g}"


def _possessive(result: EqualQuality) -> str:
    return "the baseline's" if result.baseline == "baseline" else f"{result.baseline}'s"


def _axis(result: EqualQuality) -> str:
    return axis_words(result.x)


def _seeds(result: EqualQuality) -> str:
    return f"{result.n} seed{'s' * (result.n != 1)}"


def _ratio(value: float) -> str:
    """Two decimals, or two digits where that would say nothing."""
    return f"{value:.2f}" if 0.1 <= value < 1000 else f"{value:.2g}"


def _inference_note(result: EqualQuality) -> str:
    if not result.slower_inference:
        return ""
    return f"inference costs {result.inference_ratio:.2f} of the baseline's"


def _tuning_note(result: EqualQuality) -> str:
    if result.tuning is not None or result.outcome == Outcome.UNKNOWN:
        return ""
    return f"{result.baseline} is not tuned"


def _left_out_note(result: EqualQuality) -> str:
    if not result.left_out:
        return ""
    budgets = ", ".join(f"{ssr:g}" for ssr in result.left_out)
    return f"budget {budgets} left out: not run with every seed"
