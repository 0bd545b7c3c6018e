"""Where the time of a step goes.

Seconds are added to the part that has just ended: `clock.lap("forward")` counts everything since the last lap as
forward. On a GPU the device runs behind the program, so a split is only true if the device is synchronised at every
lap, which slows the step down: profiles do that, ordinary runs synchronise once a step.
"""

import time

import torch

from explorer.records import Timings


class Clock:
    """Sums of seconds by part. Steps below `warmup_steps` are counted as warm-up, whatever their parts."""

    def __init__(self, device: torch.device, *, warmup_steps: int, split: bool) -> None:
        self._cuda = device.type == "cuda"
        self._split = split or not self._cuda
        self._warmup_steps = warmup_steps
        self._seconds: dict[str, float] = {}
        self._since = 0.0
        self._warm = False
        self.timed_steps = 0

    def start_step(self, steps_here: int) -> None:
        """Begin a step, the `steps_here`-th that this process executes."""
        self._warm = steps_here >= self._warmup_steps
        self.timed_steps += self._warm
        self.restart()

    def restart(self) -> None:
        """Forget the time since the last lap."""
        self._synchronise()
        self._since = time.perf_counter()

    def lap(self, part: str) -> None:
        """Count the time since the last lap as `part`, a field of `Timings`."""
        if self._split:
            self._count(part if self._warm else "warmup")

    def end_step(self) -> None:
        """Count what is left of a step. Without a split, that is all of it."""
        self._count("other" if self._warm else "warmup")

    def end(self, part: str) -> None:
        """Count the time since `restart` as `part`, outside any step."""
        self._count(part)

    def timings(self, before: Timings) -> Timings:
        """The sums so far, added to those of earlier processes of the same run."""
        return Timings(
            **{name: getattr(before, name) + self._seconds.get(name, 0.0) for name in Timings.__dataclass_fields__}
        )

    def _count(self, part: str) -> None:
        self._synchronise()
        now = time.perf_counter()
        self._seconds[part] = self._seconds.get(part, 0.0) + now - self._since
        self._since = now

    def _synchronise(self) -> None:
        if self._cuda:
            torch.cuda.synchronize()
