"""Where the time of a run goes: its phases, how many steps each has, and what a step of each is spent on."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields

from explorer.errors import AnalysisError
from explorer.run_files import APART, Timings

PARTS = tuple(part.name for part in fields(Timings) if part.name not in APART)  # of a step, in the order they happen in
EVERY = "all steps"  # the phase of a recipe whose steps all take the same time


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
        """The training time of the whole run."""
        return sum(phase.steps * phase.seconds for phase in self.phases)

    def by_part(self) -> dict[str, float]:
        """The training time of the whole run by part of a step: every phase counts with its steps."""
        total: defaultdict[str, float] = defaultdict(float)
        for phase in self.phases:
            for part, seconds in phase.parts.items():
                total[part] += phase.steps * seconds
        return {part: total[part] for part in PARTS if part in total}

    def during(self, joint: str) -> Phase | None:
        """The phase that this recipe is in while one with more methods is in the phase `joint`.

        A joint phase is named after those of its methods, "12x12 px, 0.3 frozen", so it is the one of whose names all
        are there; of several the one with most. None if there is none.
        """
        if len(self.phases) == 1:
            return self.phases[0]
        there = names(joint)
        fitting = [phase for phase in self.phases if names(phase.name) <= there]
        return max(fitting, key=lambda phase: len(names(phase.name)), default=None)


def names(phase: str) -> frozenset[str]:
    """The phases of single methods that a joint phase is made of.

    >>> sorted(names("12x12 px, 0.3 frozen")), sorted(names("all steps"))
    (['0.3 frozen', '12x12 px'], [])
    """
    return frozenset() if phase == EVERY else frozenset(phase.split(", "))


def phase(
    name: str, *, steps: int, seconds: float, low: float, high: float, windows: int, split: Mapping[str, float]
) -> Phase:
    """A phase of a profile. `low` and `high` are the quartiles of the windows, `seconds` their median.

    `split` was timed apart, with the device synchronised at every part; what counts of it is its proportions.
    Raises `AnalysisError` for times that cannot be.
    """
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
    """From the quartiles, as of a normal distribution: the quartiles are what a profile keeps of its windows."""
    spread = (high - low) / 1.349
    return spread * math.sqrt(math.pi / 2 / windows)
