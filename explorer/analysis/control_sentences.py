"""What comparing recipes with their controls says, in words."""

from collections.abc import Sequence

from explorer.analysis.controls import Controlled, Difference
from explorer.run_files import Metric

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


def _seeds(found: Difference) -> str:
    return f"{found.n} seed{'s' * (found.n != 1)}"
