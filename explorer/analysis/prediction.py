"""How long a recipe would take if its methods did to each part of a step what each does alone (Amdahl 1967).

Baseline b, methods M, parts p of a step, each in seconds: a part that takes b_p takes m_p under the method m alone, so
the factor of the method is m_p / b_p and the recipe's step is predicted to take

    sum over p of  b_p * product over m in M of (m_p / b_p)

phase by phase: in a joint phase every method counts with the phase that it is in itself, and the phases count with the
recipe's steps. Where the baseline spends little on a part, or nothing, a factor would be noise over noise, and what
each method adds is added instead: b_p + sum over m of (m_p - b_p).

What the intervals say: step times are medians of windows, and the quartiles of those windows tell how exact they are.
Nothing in them covers another day or another machine, nor how steps were divided into parts: of that a profile keeps
the medians alone. That windows of all recipes are interleaved makes them wide
rather than narrow, because drift that recipes share counts as noise of each.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scipy.special import stdtr

from explorer.analysis.estimate import Estimate
from explorer.analysis.inference import t_quantile
from explorer.analysis.schedules import Phase, Schedule
from explorer.errors import AnalysisError

SMALL = 0.05  # share of the baseline's step below which a part is no base for a factor

Cell = tuple[str, str]  # a recipe's digest and a phase: one step time of a profile


@dataclass(frozen=True, kw_only=True, slots=True)
class Total:
    """The training time of a run, and how it depends on the step times that it is made of."""

    seconds: float
    slopes: Mapping[Cell, float]  # seconds by which the total grows with the logarithm of each step time


def measured(schedule: Schedule) -> Total:
    """The time of a run by its own profile."""
    slopes = {(schedule.recipe, phase.name): phase.steps * phase.seconds for phase in schedule.phases}
    return Total(seconds=schedule.seconds, slopes=slopes)


def predicted(baseline: Schedule, alone: Sequence[Schedule], *, recipe: Schedule) -> Total:
    """The time of `recipe` from what the baseline and its methods, each alone, take. Of the recipe only its phases and
    their steps count.

    Raises `AnalysisError` for a phase that one of them was not profiled in.
    """
    total = 0.0
    slopes: defaultdict[Cell, float] = defaultdict(float)
    for joint in recipe.phases:
        base, *methods = phases = [_during(schedule, joint) for schedule in (baseline, *alone)]
        cells = [(schedule.recipe, phase.name) for schedule, phase in zip((baseline, *alone), phases, strict=True)]
        for part in dict.fromkeys(part for phase in phases for part in phase.parts):
            whole, shares = _composed(part, base, methods)
            total += joint.steps * whole
            for cell, share in zip(cells, shares, strict=True):
                slopes[cell] += joint.steps * share
    return Total(seconds=total, slopes=slopes)


def log_ratio(
    over: Sequence[Total], under: Sequence[Total], *, schedules: Iterable[Schedule], confidence: float
) -> Estimate:
    """log of the product of `over` by that of `under`, with the interval that the windows of the profiles give.

    `schedules` hold every step time that the totals are made of. Student's t with one degree of freedom less than a
    step time has windows.
    """
    value = sum(math.log(total.seconds) for total in over) - sum(math.log(total.seconds) for total in under)
    slopes: defaultdict[Cell, float] = defaultdict(float)
    for sign, totals in ((1, over), (-1, under)):
        for total in totals:
            for cell, slope in total.slopes.items():
                slopes[cell] += sign * slope / total.seconds
    timed = {(schedule.recipe, phase.name): phase for schedule in schedules for phase in schedule.phases}
    windows = min((timed[cell].windows for cell in slopes), default=0)
    errors = [timed[cell].error for cell in slopes]
    if windows < 2 or None in errors:
        return Estimate(value=value, n=windows, reason="one window")
    variance = sum((slope * (timed[cell].error or 0)) ** 2 for cell, slope in slopes.items())
    half = float(t_quantile(confidence, windows - 1)) * math.sqrt(variance)
    if half == 0:
        return Estimate(value=value, n=windows, reason="the windows do not differ, so nothing tells the noise")
    p_value = float(2 * stdtr(windows - 1, -abs(value) / math.sqrt(variance)))
    return Estimate(value=value, low=value - half, high=value + half, p_value=p_value, n=windows)


def _during(schedule: Schedule, joint: Phase) -> Phase:
    found = schedule.during(joint.name)
    if found is None:
        raise AnalysisError(f"the phase {joint.name!r} has no counterpart among those of a method alone")
    return found


def _composed(part: str, base: Phase, methods: Sequence[Phase]) -> tuple[float, list[float]]:
    """Seconds of a part of a step, and by how much they grow with the logarithm of the step time of each: the
    baseline's first."""
    b_p, m_p = base.parts.get(part, 0.0), [method.parts.get(part, 0.0) for method in methods]
    if b_p < SMALL * base.seconds:
        return max(0.0, b_p + sum(m - b_p for m in m_p)), [(1 - len(m_p)) * b_p, *m_p]
    whole = b_p * math.prod(m / b_p for m in m_p)
    return whole, [(1 - len(m_p)) * whole, *(whole for _ in m_p)]
