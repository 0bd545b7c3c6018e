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


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A GPU that notes when the program waits for it, and is always done with its work."""
    notes: list[str] = []

    class Stream:
        def query(self) -> bool:
            return "busy" not in notes

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: notes.append("wait"))
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    return notes


def test_a_gpu_is_waited_for_at_the_ends_of_spans_only(hands: Hands, device: list[str]) -> None:
    clock = Clock(torch.device("cuda"), warmup_steps=1, split=False)
    for number in range(9):
        clock.start_step(number)
        hands.now += 0.125
        clock.lap("forward")
        clock.end_step()
    assert len(device) == 2 + 2 + 2, "for the first step, and for two spans of half a second"
    assert clock.timings(Timings()) == Timings(warmup=0.125, other=1.0)
    assert (clock.timed_steps, len(device)) == (8, 6)
    clock.start_step(9)
    hands.now += 0.125
    clock.end_step()
    assert clock.timed_steps == 8, "its span is open"
    clock.restart()
    hands.now += 7
    clock.end("evaluation")
    assert clock.timings(Timings()) == Timings(warmup=0.125, other=1.125, evaluation=7)
    assert clock.timed_steps == 9


def test_a_span_in_which_something_compiled_is_apart_as_a_whole(hands: Hands, device: list[str]) -> None:
    clock = Clock(torch.device("cuda"), warmup_steps=0, split=False)
    for number in range(4):
        clock.start_step(number)
        hands.now += 0.125
        if number == 1:
            clock.set_aside("compile")
        clock.end_step()
    assert clock.timings(Timings()) == Timings(compile=0.25, other=0.25)
    assert clock.timed_steps == 2


@pytest.mark.parametrize("busy", [False, True])
def test_a_gpu_without_work_has_waited_for_the_rows(busy: bool, hands: Hands, device: list[str]) -> None:
    """The control: rows that come while it still computes cost nothing."""
    clock = Clock(torch.device("cuda"), warmup_steps=0, split=False)
    device.extend(["busy"] * busy)
    clock.start_step(0)
    hands.now += 0.25
    with clock.waiting():
        hands.now += 0.125
    hands.now += 0.25
    clock.end_step()
    assert clock.timings(Timings()) == (Timings(other=0.625) if busy else Timings(other=0.5, wait=0.125))


def test_with_a_split_waiting_is_a_lap(hands: Hands) -> None:
    clock = Clock(CPU, warmup_steps=0, split=False)
    clock.start_step(0)
    hands.now += 1
    clock.lap("other")
    with clock.waiting():
        hands.now += 2
    hands.now += 3
    clock.lap("forward")
    clock.end_step()
    assert clock.timings(Timings()) == Timings(other=1, wait=2, forward=3)
