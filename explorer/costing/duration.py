"""From the time of a step in each phase to that of a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from explorer.errors import RunError, unknown

SAME_TIME = 0.02  # two training times that differ by no more are equal: measured again, a step time moves as much


class StepTime(Protocol):
    """The time of one optimiser step in one phase, in seconds, with its quartiles."""

    @property
    def seconds(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Duration:
    """A time with its lower and upper quartile, in seconds."""

    seconds: float
    low: float
    high: float


def train_seconds(phases: Mapping[str, int], step_times: Mapping[str, StepTime]) -> Duration:
    """The training time of a run: for every phase, its steps times the time of one step in that phase, added up.

    Raises `RunError` if a phase has no step time: such a run's time is unknown.
    """
    phases = {phase: steps for phase, steps in phases.items() if steps}
    for phase in phases:
        if phase not in step_times:
            raise RunError(f"no step time: {unknown('phase', phase, step_times)}; profile the recipe again")
    return Duration(
        seconds=sum(steps * step_times[phase].seconds for phase, steps in phases.items()),
        low=sum(steps * step_times[phase].low for phase, steps in phases.items()),
        high=sum(steps * step_times[phase].high for phase, steps in phases.items()),
    )
