"""Watching the machine while times are measured, for other processes that keep it busy.

Three things disturb a time, and each has its own sign.

    another process takes the core      the window's processor time falls behind its wall time
    another process takes other cores   the machine's processor time exceeds this process's own: a neighbour on the
                                        same core's second thread, the cache or the memory slows a step whose
                                        processor time still equals its wall time
    another guest of the same host      the kernel counts the time as stolen

An undisturbed window of one thread has a ratio of processor time to wall time of 1. With more threads, with a GPU, or
where a step waits for a disk, the ratio is another number, so each window is compared with the best window of the same
phase. Other processes are judged over 0.5 s at least, because the kernel counts in hundredths of a second. Other users
of a GPU are not detected.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeVar

import psutil

from explorer.run_files import Watch

OTHERS = 0.10  # of all cores: more of it taken by other processes, and the machine is busy
STOLEN = 0.05  # of all cores, by other guests of the host
LOAD = 0.25  # load average for each core beyond this process's threads; judged where processor times are not known
RATIO = 0.9  # of the best ratio of the phase: a window below it was disturbed
DISTURBED = 0.1  # of all windows: if more stay disturbed, the machine is busy
LEAST_SECONDS = 0.5  # over which processor times are judged: 50 ticks of the kernel's clock, for 2% precision

Result = TypeVar("Result")

_IDLE = ("idle", "iowait", "steal", "guest", "guest_nice")  # guests: Linux counts their time as user time already


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """Clocks at one moment, in seconds; None: this system does not say."""

    wall: float
    own: float  # processor time of this process, all its threads
    machine: float | None  # processor time of all processes, all cores
    stolen: float | None
    load: float | None  # the load average of the last minute, of the whole machine


def read_machine(*, family: bool = False) -> Reading:
    """Return the clocks of this machine now. `family`: the other children of this process's parent are its own."""
    try:
        times = psutil.cpu_times()
    except (psutil.Error, OSError):
        times = None
    try:
        load = psutil.getloadavg()[0]
    except (psutil.Error, OSError):
        load = None
    return Reading(
        wall=time.perf_counter(),
        own=_family_time() if family else time.process_time(),
        machine=None if times is None else sum(value for name, value in times._asdict().items() if name not in _IDLE),
        stolen=None if times is None else getattr(times, "steal", None),
        load=load,
    )


def _family_time() -> float:
    times = []
    for process in psutil.Process().parent().children():  # pyright: ignore[reportOptionalMemberAccess]
        with suppress(psutil.Error):
            times.append(sum(process.cpu_times()[:2]))
    return sum(times)


class Shares(NamedTuple):
    """Processor time that others took between two readings, as shares of all cores; None: unknown, or too short."""

    others: float | None
    stolen: float | None

    @property
    def busy(self) -> bool:
        return (self.others or 0.0) > OTHERS or (self.stolen or 0.0) > STOLEN


def shares(spans: Sequence[tuple[Reading, Reading]], *, cores: int) -> Shares:
    """Return the shares that other processes and guests took of all these spans together."""
    wall = sum(after.wall - before.wall for before, after in spans)
    if wall < LEAST_SECONDS:
        return Shares(None, None)
    # Summed before they are divided: a single short span is dominated by the kernel's tick.
    own = sum(after.own - before.own for before, after in spans)
    machine = [_difference(before.machine, after.machine) for before, after in spans]
    stolen = [_difference(before.stolen, after.stolen) for before, after in spans]
    return Shares(
        others=None if None in machine else max(0.0, sum(filter(None, machine)) - own) / (cores * wall),
        stolen=None if None in stolen else max(0.0, sum(filter(None, stolen))) / (cores * wall),
    )


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def is_disturbed(ratio: float, *, best: float) -> bool:
    """Return whether a window lost the processor, from its ratio and the best one of its phase."""
    return ratio < RATIO * best


@dataclass(slots=True)
class Watcher:
    """Spans of measured time, and the reasons to call the machine busy in those that count."""

    threads: int
    read: Callable[[], Reading] = read_machine
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    spans: list[tuple[Reading, Reading]] = field(default_factory=list)

    def attend(self, act: Callable[[], object], *, repeats: int = 0) -> int:
        """Act, and act again while other processes keep the machine busy, at most `repeats` times; return how many
        repeats there were. Only the last span counts."""
        span, again = self._span(act), 0
        while again < repeats and shares([span], cores=self.cores).busy:
            span, again = self._span(act), again + 1
        self.spans.append(span)
        return again

    def _span(self, act: Callable[[], object]) -> tuple[Reading, Reading]:
        before = self.read()
        act()
        return before, self.read()

    def watch(self, *, windows: int = 0, disturbed: int = 0, repeated: int = 0, reasons: Sequence[str] = ()) -> Watch:
        """Return the observations over all spans that count.

        Args:
            windows: how many windows were measured.
            disturbed: how many of them stayed disturbed.
            repeated: how many were taken again.
            reasons: further reasons to call the machine busy.
        """
        taken = shares(self.spans, cores=self.cores)
        loads = [reading.load for span in self.spans for reading in span if reading.load is not None]
        seen = Watch(
            cores=self.cores,
            load=max(loads) / self.cores if loads else None,
            others=taken.others,
            stolen=taken.stolen,
            repeated=repeated,
            disturbed=disturbed,
        )
        return replace(seen, reasons=(*reasons, *_reasons(seen, windows=windows, threads=self.threads)))


def watched(act: Callable[[], Result], *, threads: int, ranks: int = 1) -> tuple[Result, bool]:
    """Return the result of `act`, and whether something else kept the machine busy meanwhile. `ranks`: how many
    processes act, each with so many threads."""
    watcher = Watcher(threads=threads * ranks, read=read_machine if ranks == 1 else partial(read_machine, family=True))
    results: list[Result] = []
    watcher.attend(lambda: results.append(act()))
    return results[0], bool(watcher.watch().reasons)


def _reasons(seen: Watch, *, windows: int, threads: int) -> list[str]:
    """Return the reasons to call the machine busy, in words."""
    cores = "its core" if seen.cores == 1 else f"its {seen.cores} cores"
    reasons: list[str] = []
    if seen.others is not None and seen.others > OTHERS:
        reasons.append(f"other processes took {seen.others:.0%} of {cores}")
    if seen.stolen is not None and seen.stolen > STOLEN:
        reasons.append(f"the host gave {seen.stolen:.0%} of {cores} to other guests")
    # The load average lags by a minute and counts waiting for disks: it is used only where nothing better is known.
    if seen.others is None and seen.load is not None and seen.load - threads / seen.cores > LOAD:
        reasons.append(f"the load average was {seen.load:.1f} for each core")
    if seen.disturbed > DISTURBED * windows:
        reasons.append(f"{seen.disturbed} of {windows} windows lost the processor each time they were taken")
    return reasons
