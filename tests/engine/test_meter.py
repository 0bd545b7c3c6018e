"""The meter of energy on the clock, with the time and the counter in our hands."""

import pytest
import torch

from explorer.engine import clock as clock_module
from explorer.engine import meter as module
from explorer.engine.clock import Clock
from explorer.engine.meter import CounterError, Meter


class Machine:
    """A machine that takes 10 W, whose clock and counter move only when they are moved; `broken` refuses readings."""

    def __init__(self) -> None:
        self.now, self.readings, self.broken = 100.0, 0, False

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def perf_counter(self) -> float:
        return self.now

    monotonic = perf_counter

    def joules(self) -> float:
        self.readings += 1
        if self.broken:
            raise CounterError("no more")
        return 10 * self.now


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    for one in (clock_module, module):
        monkeypatch.setattr(one, "time", made)
    return made


@pytest.fixture
def clock(machine: Machine) -> Clock:
    made = Clock(torch.device("cpu"), warmup_steps=2, split=False)
    made.meter = Meter(machine.joules)
    return made


def step(clock: Clock, machine: Machine, number: int, *, seconds: float = 0.125, part: str = "") -> None:
    clock.start_step(number)
    machine.pass_time(seconds)
    if part:
        clock.set_aside(part)
    clock.end_step()


def aside(clock: Clock, machine: Machine, part: str, *, seconds: float) -> None:
    clock.restart()
    machine.pass_time(seconds)
    clock.end(part)


def test_only_timed_steps_count(clock: Clock, machine: Machine) -> None:
    for number in range(2):
        step(clock, machine, number, seconds=50)  # warm-up
    for number in range(2, 5):
        step(clock, machine, number)
    aside(clock, machine, "evaluation", seconds=90)
    for number in range(5, 7):
        step(clock, machine, number)
    aside(clock, machine, "checkpoint", seconds=90)
    assert clock.meter is not None and clock.timed_steps == clock.meter.steps == 5
    assert clock.meter.joules == pytest.approx(10 * 0.125 * 5)


def test_the_counter_is_read_twice_in_half_a_second_and_not_at_every_step(clock: Clock, machine: Machine) -> None:
    for number in range(2002):
        step(clock, machine, number, seconds=0.01)
    clock.restart()
    assert clock.meter is not None and clock.meter.steps == 2000
    assert clock.meter.joules == pytest.approx(10 * 0.01 * 2000)
    assert machine.readings <= 2 * (2000 * 0.01 / module.SPAN_SECONDS + 1)


def test_a_step_that_compiled_takes_its_span_out(clock: Clock, machine: Machine) -> None:
    for number in range(2, 10):
        step(clock, machine, number)  # two whole spans
    assert clock.meter is not None and clock.meter.steps == 8
    step(clock, machine, 10)
    step(clock, machine, 11, seconds=300, part="compile")
    step(clock, machine, 12)
    clock.restart()
    assert clock.meter.steps == 9 and clock.timed_steps == 10
    assert clock.meter.joules == pytest.approx(10 * 0.125 * 9), "nothing of the 300 s"


def test_a_counter_that_is_lost_ends_the_measurement_and_not_the_run(clock: Clock, machine: Machine) -> None:
    for number in range(2, 10):
        step(clock, machine, number)
    machine.broken = True
    for number in range(10, 40):
        step(clock, machine, number)
    clock.restart()
    assert clock.meter is not None and str(clock.meter.fault) == "no more"
    assert clock.timed_steps == 38 and clock.meter.steps == 8
