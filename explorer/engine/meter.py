"""The energy of the timed steps of a run, from a counter that the machine keeps.

The counter is read where a span of timed steps begins and ends, and never within a step. So evaluations, checkpoints
and the first steps stay out of it, as they do of `Timings.training`. A span lasts about half a second: counters move
once in a millisecond (RAPL) to a tenth of a second (NVML), and a reading may take as long as a short step. A step that
compiled something takes the span that it lies in out of the sum; the steps that remain stand for all.
"""

import time
from collections.abc import Callable

from explorer.errors import ExplorerError

SPAN_SECONDS = 0.5


class CounterError(ExplorerError):
    """There is no counter of energy that this process may read."""


class Meter:
    """Sums of joules over spans of timed steps, and how many steps they had."""

    def __init__(self, read: Callable[[], float]) -> None:
        """Take a function that returns joules since some moment, or raises `CounterError`."""
        self._read = read
        self._since: float | None = None  # what the counter said at the beginning of the open span; None: none is open
        self._begun, self._open = 0.0, 0
        self.joules, self.steps = 0.0, 0
        self.fault: CounterError | None = None  # it could not be read any more

    def start_step(self) -> None:
        """Begin a span, unless one is open."""
        if self._since is None and self.fault is None:
            self._since, self._begun, self._open = self._value(), time.monotonic(), 0

    def end_step(self, steps: int = 1) -> None:
        """Count one timed step, or several, and end a span that has lasted."""
        self._open += steps
        if time.monotonic() - self._begun >= SPAN_SECONDS:
            self.end()

    def end(self) -> None:
        """End the open span, if there is one."""
        if self._since is not None and self._open and (now := self._value()) is not None:
            self.joules, self.steps = self.joules + now - self._since, self.steps + self._open
        self._since = None

    def drop(self) -> None:
        """Leave out the open span."""
        self._since = None

    def _value(self) -> float | None:
        try:
            return self._read()
        except CounterError as error:  # the run is worth more than its energy: the result says why there is none
            self.fault = error
            return None
