"""Schedules: the phases of a run with the steps of each and the parts of a step; and the time that is predicted for a
recipe if each of its methods does to each part of a step what it does by itself (Amdahl 1967).

Baseline b, methods M, parts p of a step, each in seconds: a part that takes b_p takes m_p under the single method m, so
the factor of the method is m_p / b_p and the recipe's step is predicted to take

    sum over p of  b_p * product over m in M of (m_p / b_p)

phase by phase: in a joint phase every method counts with the phase that it is in itself, and the phases count with the
recipe's steps. Where the baseline spends little on a part, or nothing, a factor would be noise over noise, and what
each method adds is added instead: b_p + sum over m of (m_p - b_p).

Intervals: step times are medians of windows, and the quartiles of those windows tell how exact they are.
They cover neither another day or machine, nor the division of steps into parts, of which a profile keeps only medians.
Interleaved windows make them wider rather than narrower, because drift that recipes share counts as noise of each.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from scipy.special import stdtr

from explorer.analysis.comparison import Estimate
from explorer.analysis.inference import t_quantile
from explorer.errors import AnalysisError
from explorer.run_files import ALL_STEPS, APART, Timings

PARTS = tuple(part.name for part in fields(Timings) if part.name not in APART)  # of a step, in the order they happen in


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """Steps of one speed. Seconds are of one step."""

    name: str
    steps: int
    seconds: float
    error: float | None  # relative standard error of `seconds`; None: one window tells none
    windows: int
    parts: Mapping[str, float]  # by part of a step; they add up to `seconds`


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """A run of a recipe at one budget, with the step times of its profile."""

    recipe: str  # its digest
    phases: tuple[Phase, ...]

    @property
    def seconds(self) -> float:
        """Return the training time of the whole run."""
        return sum(phase.steps * phase.seconds for phase in self.phases)

    def by_part(self) -> dict[str, float]:
        """Return the training time of the whole run by part of a step: every phase counts with its steps."""
        total: defaultdict[str, float] = defaultdict(float)
        for phase in self.phases:
            for part, seconds in phase.parts.items():
                total[part] += phase.steps * seconds
        return {part: total[part] for part in PARTS if part in total}

    def during(self, joint: str) -> Phase | None:
        """Return the phase that this recipe is in while one with more methods is in the phase `joint`; None if unknown.

        A joint phase is named after those of its methods, "12x12 px, 0.3 frozen", so it is the phase whose names all
        occur in it; of several, the one with most names.
        """
        if len(self.phases) == 1:
            return self.phases[0]
        there = names(joint)
        fitting = [phase for phase in self.phases if names(phase.name) <= there]
        return max(fitting, key=lambda phase: len(names(phase.name)), default=None)


def names(phase: str) -> frozenset[str]:
    """Return the phases of single methods that a joint phase is made of.

    >>> sorted(names("12x12 px, 0.3 frozen")), sorted(names("all steps"))
    (['0.3 frozen', '12x12 px'], [])
    """
    return frozenset() if phase == ALL_STEPS else frozenset(phase.split(", "))


def phase(
    name: str, *, steps: int, seconds: float, low: float, high: float, windows: int, split: Mapping[str, float]
) -> Phase:
    """Return a phase of a profile.

    Args:
        name: of the phase.
        steps: of the run in this phase.
        seconds, low, high: median and quartiles of the windows, for one step.
        windows: how many there are.
        split: seconds by part. They were timed separately, with the device synchronised at every part, which takes
            longer; so only their proportions count.

    Raises `AnalysisError` for times that are impossible.
    """
    # Profiles are files from outside: impossible numbers are refused, or they would turn up as NaN far from here.
    whole = math.fsum(split.values())
    if not (0 < seconds < math.inf and 0 <= low <= high < math.inf):
        raise AnalysisError(f"the profile of the phase {name!r} holds {seconds:g} s a step, from {low:g} to {high:g}")
    if not 0 < whole < math.inf or any(value < 0 for value in split.values()) or not set(split) <= set(PARTS):
        raise AnalysisError(f"the profile of the phase {name!r} does not say what a step is spent on")
    return Phase(
        name=name,
        steps=steps,
        seconds=seconds,
        error=standard_error_of_median(low, high, windows) / seconds if windows > 1 else None,
        windows=windows,
        parts={part: seconds * split[part] / whole for part in PARTS if part in split},
    )


def standard_error_of_median(low: float, high: float, windows: int) -> float:
    """Return the standard error from the quartiles, as of a normal distribution: a profile keeps only these."""
    # 1.349 standard deviations lie between the quartiles; the variance of a median is pi/2 times that of a mean.
    spread = (high - low) / 1.349
    return spread * math.sqrt(math.pi / 2 / windows)


# --- predicted times ---

SMALL = 0.05  # share of the baseline's step below which a ratio of parts would be noise over noise

Cell = tuple[str, str]  # a recipe's digest and a phase: one step time of a profile


@dataclass(frozen=True, kw_only=True, slots=True)
class Total:
    """The training time of a run, and its dependence on the step times that it is made of."""

    seconds: float
    slopes: Mapping[Cell, float]  # derivative of the total by the logarithm of each step time, seconds


def measured(schedule: Schedule) -> Total:
    """Return the time of a run by its own profile."""
    slopes = {(schedule.recipe, phase.name): phase.steps * phase.seconds for phase in schedule.phases}
    return Total(seconds=schedule.seconds, slopes=slopes)


def predicted(baseline: Schedule, alone: Sequence[Schedule], *, recipe: Schedule) -> Total:
    """Return the time of `recipe` predicted from the baseline and each single method in `alone`.

    Only the phases and steps of the recipe itself are used. Raises `AnalysisError` for a phase that one of the others
    was not profiled in.
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
    """Return log of the product of `over` divided by that of `under`, with the interval from the windows of profiles.

    `schedules` hold every step time that the totals are made of. Student's t with one degree of freedom less than a
    step time has windows.
    """
    # Errors propagate to first order (delta method). A step time in several totals has one slope, the sum, so that its
    # noise cancels where it is on both sides.
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
        return Estimate(value=value, n=windows, reason="the windows do not differ, so the noise is unknown")
    p_value = float(2 * stdtr(windows - 1, -abs(value) / math.sqrt(variance)))
    return Estimate(value=value, low=value - half, high=value + half, p_value=p_value, n=windows)


def _during(schedule: Schedule, joint: Phase) -> Phase:
    own = schedule.during(joint.name)
    if own is None:
        raise AnalysisError(f"the phase {joint.name!r} has no counterpart among those of a single method")
    return own


def _composed(part: str, base: Phase, methods: Sequence[Phase]) -> tuple[float, list[float]]:
    """Return seconds of a part of a step, and their slopes by the logarithm of each step time, the baseline's first."""
    b_p, m_p = base.parts.get(part, 0.0), [method.parts.get(part, 0.0) for method in methods]
    if b_p < SMALL * base.seconds:
        return max(0.0, b_p + sum(m - b_p for m in m_p)), [(1 - len(m_p)) * b_p, *m_p]
    whole = b_p * math.prod(m / b_p for m in m_p)
    return whole, [(1 - len(m_p)) * whole, *(whole for _ in m_p)]
