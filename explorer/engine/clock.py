"""The clock of a run: how many seconds each part of a step takes.

A lap names the part that has just ended: `clock.lap("forward")` counts the time since the last lap as forward. A GPU
runs behind the program, so that a split by part is true only if the device is synchronised at every lap, which slows
the step down. Profiles do that; ordinary runs synchronise once a step.
"""

import time

import torch

from explorer.engine.meter import Meter
from explorer.run_files import Timings


class Clock:
    """Sums of seconds by part. The first `warmup_steps` steps count as warm-up as a whole, and a step that was set
    aside counts as a whole as the part that it was set aside for."""

    def __init__(self, device: torch.device, *, warmup_steps: int, split: bool) -> None:
        self._cuda = device.type == "cuda"
        self._split = split or not self._cuda
        self._warmup_steps = warmup_steps
        self._seconds: dict[str, float] = {}
        self._since = 0.0
        self._aside: str | None = None  # what this whole step counts as
        self._step: dict[str, float] = {}  # the seconds of this step by part
        self.timed_steps = 0
        self.meter: Meter | None = None  # of the energy of the timed steps

    def start_step(self, steps_here: int) -> None:
        """Begin a step, the `steps_here`-th that this process executes."""
        self._aside = "warmup" if steps_here < self._warmup_steps else None
        self._step = {}
        self._synchronise()
        if self.meter and self._aside is None:
            self.meter.start_step()
        self._since = time.perf_counter()

    def set_aside(self, part: str) -> None:
        """Count all of this step as `part`: its time says nothing about other steps."""
        self._aside = part

    def restart(self) -> None:
        """Begin something outside any step: forget the time since the last lap."""
        self._synchronise()
        if self.meter:
            self.meter.end()
        self._since = time.perf_counter()

    def lap(self, part: str) -> None:
        """Count the time since the last lap as `part`, a field of `Timings`."""
        if self._split:
            self._count(part, self._step)

    def end_step(self) -> None:
        """Count the rest of a step. Without a split, that is all of it."""
        self._count("other", self._step)
        self.timed_steps += self._aside is None
        for part, seconds in self._step.items():
            counted = self._aside or part
            self._seconds[counted] = self._seconds.get(counted, 0.0) + seconds
        if self.meter and self._aside is None:
            self.meter.end_step()
        elif self.meter:
            self.meter.drop()

    def end(self, part: str) -> None:
        """Count the time since `restart` as `part`, outside any step."""
        self._count(part, self._seconds)

    def timings(self, before: Timings) -> Timings:
        """Return the sums so far, added to those of earlier processes of the same run."""
        return Timings(
            **{name: getattr(before, name) + self._seconds.get(name, 0.0) for name in Timings.__dataclass_fields__}
        )

    def _count(self, part: str, sums: dict[str, float]) -> None:
        self._synchronise()
        now = time.perf_counter()
        sums[part] = sums.get(part, 0.0) + now - self._since
        self._since = now

    def _synchronise(self) -> None:
        if self._cuda:
            torch.cuda.synchronize()
