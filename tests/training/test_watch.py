"""Whether a machine was busy while something was timed: judged from clocks that the tests set, and once for real."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from explorer.training.watch import LEAST_SECONDS, Reading, Watcher, is_disturbed, read_machine, shares

SPIN = "print('spinning', flush=True)\nwhile True: pass"


class Clocks:
    """A machine of two cores: each span lasts a second, in which others take what the test says."""

    def __init__(self, *others: float, own: float = 1.0, stolen: float = 0.0, load: float = 0.5) -> None:
        self._others, self._own, self._stolen, self._load = list(others), own, stolen, load
        self._now = Reading(wall=100.0, own=7.0, machine=1000.0, stolen=3.0, load=load)
        self.spans = 0

    def __call__(self) -> Reading:
        return self._now

    def act(self) -> None:
        others = self._others[min(self.spans, len(self._others) - 1)]
        self.spans += 1
        now = self._now
        assert now.machine is not None and now.stolen is not None
        self._now = Reading(
            wall=now.wall + 1.0,
            own=now.own + self._own,
            machine=now.machine + self._own + others,
            stolen=now.stolen + self._stolen,
            load=self._load,
        )

    def watcher(self) -> Watcher:
        return Watcher(threads=1, read=self, cores=2)


def test_a_quiet_machine_is_quiet() -> None:
    clocks = Clocks(0.01)
    watcher = clocks.watcher()
    assert [watcher.attend(clocks.act, repeats=3) for _ in range(4)] == [0] * 4
    watch = watcher.watch(windows=8)
    assert (watch.others, watch.stolen, watch.load) == (pytest.approx(0.005), 0.0, 0.25)
    assert watch.reasons == ()


def test_another_process_makes_it_busy() -> None:
    clocks = Clocks(1.0)
    watcher = clocks.watcher()
    assert watcher.attend(clocks.act, repeats=2) == 2
    assert watcher.watch(windows=8).reasons == ("other processes took 50% of its 2 cores",)


def test_a_round_that_was_disturbed_is_taken_again_and_does_not_count() -> None:
    clocks = Clocks(1.0, 1.0, 0.0)
    watcher = clocks.watcher()
    assert watcher.attend(clocks.act, repeats=5) == 2
    assert clocks.spans == 3
    assert watcher.watch(windows=8).others == 0.0


def test_without_repeats_left_a_disturbed_round_counts() -> None:
    clocks = Clocks(1.0, 0.0)
    watcher = clocks.watcher()
    assert watcher.attend(clocks.act, repeats=0) == 0
    assert watcher.watch(windows=8).reasons


def test_time_that_the_host_gave_away_is_seen_although_no_process_took_it() -> None:
    clocks = Clocks(0.0, own=0.7, stolen=0.3)
    watcher = clocks.watcher()
    watcher.attend(clocks.act)
    assert watcher.watch(windows=8).reasons == ("the host gave 15% of its 2 cores to other guests",)


@pytest.mark.parametrize(("load", "busy"), [(0.6, False), (1.4, False), (1.6, True), (30.0, True)])
def test_the_load_average_is_judged_where_processor_times_are_not_known(load: float, busy: bool) -> None:
    """Of one thread on two cores; half a core of others is not told from the thread's own past."""
    reading = Reading(wall=0.0, own=0.0, machine=None, stolen=None, load=load)
    later = Reading(wall=10.0, own=10.0, machine=None, stolen=None, load=load)
    readings = iter((reading, later))
    watcher = Watcher(threads=1, read=lambda: next(readings), cores=2)
    watcher.attend(lambda: None)
    watch = watcher.watch(windows=8)
    assert (watch.others, watch.stolen) == (None, None)
    assert bool(watch.reasons) is busy


def test_a_machine_that_says_nothing_is_not_called_busy_and_its_shares_are_unknown() -> None:
    watcher = Watcher(threads=1, read=lambda: Reading(wall=0.0, own=0.0, machine=None, stolen=None, load=None), cores=2)
    watcher.attend(lambda: None)
    watch = watcher.watch()
    assert (watch.load, watch.others, watch.stolen, watch.reasons) == (None, None, None, ())


def test_too_short_a_time_is_not_judged() -> None:
    """The kernel counts in hundredths of a second: over a few of them it would count anything."""
    before = Reading(wall=0.0, own=0.0, machine=0.0, stolen=0.0, load=0.0)
    short = Reading(wall=LEAST_SECONDS / 2, own=0.0, machine=1.0, stolen=0.0, load=0.0)
    assert shares([(before, short)], cores=2) == (None, None)
    assert shares([(before, short)] * 3, cores=2).others == pytest.approx(3 / (2 * 1.5 * LEAST_SECONDS))


def test_windows_that_lost_the_processor_make_it_busy_from_a_tenth_on() -> None:
    clocks = Clocks(0.0)
    watcher = clocks.watcher()
    watcher.attend(clocks.act)
    assert watcher.watch(windows=20, disturbed=2).reasons == ()
    assert watcher.watch(windows=20, disturbed=3).reasons == (
        "3 of 20 windows lost the processor each time they were taken",
    )


def test_what_the_caller_knows_comes_first() -> None:
    clocks = Clocks(1.0)
    watcher = clocks.watcher()
    watcher.attend(clocks.act)
    assert watcher.watch(reasons=["sweep 'other' trained"]).reasons[0] == "sweep 'other' trained"


@pytest.mark.parametrize(("ratio", "best", "disturbed"), [(0.97, 1.0, False), (0.5, 1.0, True), (1.9, 2.0, False)])
def test_a_window_is_judged_by_the_best_of_its_phase(ratio: float, best: float, disturbed: bool) -> None:
    """Two threads have a ratio of two; a step that waits for a disk has less than one, in every window."""
    assert is_disturbed(ratio, best=best) is disturbed
    assert not is_disturbed(0.6, best=0.62)
    assert not is_disturbed(0.3, best=0.0)  # the first


@contextmanager
def spinning(count: int) -> Iterator[None]:
    """So many processes that do nothing but keep a core busy."""
    running = [subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        for process in running:
            assert process.stdout is not None and process.stdout.readline() == "spinning\n"
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _work(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


@pytest.mark.slow
@pytest.mark.real_machine
def test_a_real_busy_process_is_seen() -> None:
    """One spinning process for each core takes half of the machine at least, however busy it is otherwise."""
    cores = os.cpu_count() or 1
    with spinning(cores):
        watcher = Watcher(threads=1)
        watcher.attend(lambda: _work(3.0))
    watch = watcher.watch(windows=1)
    assert watch.others is not None and watch.others > 0.3
    assert any(reason.startswith("other processes took") for reason in watch.reasons)


@pytest.mark.real_machine
def test_this_machine_can_be_read() -> None:
    before = read_machine()
    _work(0.02)
    after = read_machine()
    assert after.wall > before.wall and after.own > before.own
    assert before.machine is None or after.machine is None or after.machine >= before.machine
