"""The clock, with the time in our hands."""

import pytest
import torch

from explorer.engine import clock as module
from explorer.engine.clock import Clock
from explorer.run_files import Timings

CPU = torch.device("cpu")


class Hands:
    """A perf_counter that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    made = Hands()
    monkeypatch.setattr(module, "time", made)
    return made


def step(clock: Clock, hands: Hands, number: int) -> None:
    """One second of forward, two of backward, half a second of the rest; a gap between steps."""
    hands.now += 50
    clock.start_step(number)
    hands.now += 1
    clock.lap("forward")
    hands.now += 2
    clock.lap("backward")
    hands.now += 0.5
    clock.end_step()


def test_parts_add_up_and_warm_up_is_apart(hands: Hands) -> None:
    clock = Clock(CPU, warmup_steps=2, split=True)
    for number in range(5):
        step(clock, hands, number)
    timings = clock.timings(Timings())
    assert timings == Timings(forward=3, backward=6, other=1.5, warmup=7)
    assert timings.training() == 10.5
    assert clock.timed_steps == 3


def test_a_step_that_is_set_aside_is_whole_apart_from_the_others(hands: Hands) -> None:
    clock = Clock(CPU, warmup_steps=1, split=True)
    for number in range(4):
        hands.now += 50
        clock.start_step(number)
        hands.now += 1
        clock.lap("forward")
        if number in (0, 2):
            clock.set_aside("compile")
        hands.now += 0.5
        clock.end_step()
    assert clock.timings(Timings()) == Timings(forward=2, other=1, compile=3)
    assert clock.timings(Timings()).training() == 3
    assert clock.timed_steps == 2


def test_evaluation_and_checkpoints_are_no_training(hands: Hands) -> None:
    clock = Clock(CPU, warmup_steps=0, split=True)
    step(clock, hands, 0)
    hands.now += 9
    clock.restart()
    hands.now += 4
    clock.end("evaluation")
    clock.restart()
    hands.now += 5
    clock.end("checkpoint")
    timings = clock.timings(Timings())
    assert (timings.evaluation, timings.checkpoint, timings.training()) == (4, 5, 3.5)


def test_earlier_processes_are_added(hands: Hands) -> None:
    clock = Clock(CPU, warmup_steps=0, split=True)
    step(clock, hands, 0)
    assert clock.timings(Timings(forward=10, warmup=2)) == Timings(forward=11, backward=2, other=0.5, warmup=2)


def test_without_a_split_everything_is_other(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where a split would cost a synchronisation at every lap."""
    waits = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(1))
    clock = Clock(torch.device("cuda"), warmup_steps=0, split=False)
    step(clock, hands, 0)
    assert clock.timings(Timings()) == Timings(other=3.5)
    assert len(waits) == 2, "once at either end of the step"
    split = Clock(torch.device("cuda"), warmup_steps=0, split=True)
    step(split, hands, 0)
    assert split.timings(Timings()) == Timings(forward=1, backward=2, other=0.5)
