"""The clock of a run: how many seconds each part of a step takes.

A lap names the part that has just ended: `clock.lap("forward")` counts the time since the last lap as forward. A GPU
runs behind the program, so that a split by part is true only if the device is synchronised at every lap, which slows
the step down. Profiles do that. Ordinary runs on a GPU synchronise at the ends of a span of steps, about half a second,
and count it as a whole; of what a step waits for its rows they count what left the device without work.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import torch

from explorer.engine.meter import SPAN_SECONDS, Meter
from explorer.run_files import Interval, Timeline, Timings

SHOWN_FROM, SHOWN = 8, 12  # the first timed step whose parts are kept, and how many


class Ahead:
    """The work of the second thread, and the parts of a few steps with it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._sums = {"read": 0.0, "preprocess": 0.0}
        self._steps = 0
        self._begin: float | None = None  # of the first step that is shown
        self._over = False
        self._shown: list[Interval] = []

    def show(self, step: int, now: float) -> None:
        """Begin to keep parts, or stop, by the number of steps that were timed."""
        if step == SHOWN_FROM:
            self._begin = now
        self._over = step >= SHOWN_FROM + SHOWN

    def note(self, part: str, start: float, end: float, *, ahead: bool) -> None:
        """Note a part of a step, or of the second thread."""
        with self._lock:
            if ahead:
                self._sums[part] += end - start
                self._steps += part == "preprocess"
            if self._begin is not None and not self._over and start >= self._begin:
                since = self._begin
                self._shown.append(Interval(part=part, start=start - since, end=end - since, ahead=ahead))

    def timeline(self) -> Timeline | None:
        """Return what was noted; None where no thread read ahead."""
        if not self._steps:
            return None
        return Timeline(**self._sums, steps=self._steps, shown=tuple(self._shown))


class Clock:
    """Sums of seconds by part. The first `warmup_steps` steps count as warm-up as a whole, and a step that was set
    aside counts as a whole as the part that it was set aside for; on a GPU, so does the span of steps that it ends."""

    def __init__(self, device: torch.device, *, warmup_steps: int, split: bool) -> None:
        self._cuda = device.type == "cuda"
        self._split = split or not self._cuda
        self._warmup_steps = warmup_steps
        self._seconds: dict[str, float] = {}
        self._since = 0.0
        self._aside: str | None = None  # what this whole span counts as
        self._span: dict[str, float] = {}  # the seconds of the open span by part; with a split, a span is a step
        self._steps = 0  # that ended in it
        self.timed_steps = 0
        self.meter: Meter | None = None  # of the energy of the timed steps
        self.ahead = Ahead()

    def start_step(self, steps_here: int) -> None:
        """Begin a step, the `steps_here`-th that this process executes."""
        if self._steps:  # it is one more of the open span
            return
        self._aside = "warmup" if steps_here < self._warmup_steps else None
        self._span = {}
        self._synchronise()
        if self.meter and self._aside is None:
            self.meter.start_step()
        self._since = time.perf_counter()
        self.ahead.show(steps_here - self._warmup_steps, self._since)

    def set_aside(self, part: str) -> None:
        """Count all of this step as `part`: its time says nothing about other steps."""
        self._aside = part

    def restart(self) -> None:
        """Begin something outside any step: forget the time since the last lap."""
        self._end_span()
        self._synchronise()
        if self.meter:
            self.meter.end()
        self._since = time.perf_counter()

    def lap(self, part: str) -> None:
        """Count the time since the last lap as `part`, a field of `Timings`."""
        if self._split:
            self._count(part, self._span)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the block as waiting for rows."""
        start = time.perf_counter()
        yield
        if self._split:
            self._count("wait", self._span)
        elif torch.cuda.current_stream().query():  # the device has done all that it was given
            waited = time.perf_counter() - start
            self._span["wait"] = self._span.get("wait", 0.0) + waited
            self._since += waited  # and is not counted a second time at the end of the span

    def end_step(self) -> None:
        """Count the rest of a step. Without a split, that is all of it, at the end of the span."""
        self._steps += 1
        lasted = time.perf_counter() - self._since >= SPAN_SECONDS
        if self._split or self._aside or lasted:
            self._end_span()

    def _end_span(self) -> None:
        if not self._steps:
            return
        self._count("other", self._span)
        self.timed_steps += 0 if self._aside else self._steps
        for part, seconds in self._span.items():
            counted = self._aside or part
            self._seconds[counted] = self._seconds.get(counted, 0.0) + seconds
        if self.meter and self._aside is None:
            self.meter.end_step(self._steps)
            if not self._split:  # between the ends of a span the device lags behind
                self.meter.end()
        elif self.meter:
            self.meter.drop()
        self._steps = 0

    def end(self, part: str) -> None:
        """Count the time since `restart` as `part`, outside any step."""
        self._count(part, self._seconds)

    def timings(self, before: Timings) -> Timings:
        """Return the sums so far, added to those of earlier processes of the same run. Ends the open span."""
        self._end_span()
        return Timings(
            **{name: getattr(before, name) + self._seconds.get(name, 0.0) for name in Timings.__dataclass_fields__}
        )

    def _count(self, part: str, sums: dict[str, float]) -> None:
        self._synchronise()
        now = time.perf_counter()
        sums[part] = sums.get(part, 0.0) + now - self._since
        self.ahead.note(part, self._since, now, ahead=False)
        self._since = now

    def _synchronise(self) -> None:
        if self._cuda:
            torch.cuda.synchronize()
