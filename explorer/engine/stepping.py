"""Timing of single steps of a loop, from which profiles are made."""

import time
from dataclasses import asdict, dataclass
from typing import NamedTuple

import torch

from explorer.data.pace import Pace
from explorer.engine.clock import Clock
from explorer.engine.loop import Loop
from explorer.run_files import Timings


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A step of a schedule: its number, the schedule's length, and its batch sizes; None: those of the loop."""

    step: int
    total_steps: int
    pace: Pace | None = None


class Window(NamedTuple):
    """A step that was timed: seconds of one execution, and the processor time of this process over
    wall time."""

    seconds: float
    ratio: float


def time_steps(loop: Loop, place: Place, *, count: int) -> float:
    """Return the mean seconds of `count` executions of that step, with the device synchronised around them.

    The parameters move, the step number does not: data, sizes and frozen layers are those of that step.
    """
    return time_window(loop, place, count=count).seconds


def time_window(loop: Loop, place: Place, *, count: int) -> Window:
    """Time `count` executions like `time_steps`, and the processor time of all threads of this process meanwhile."""
    _synchronise(loop)
    processor, start = time.process_time(), time.perf_counter()
    for _ in range(count):
        _step(loop, place)
    _synchronise(loop)
    seconds = time.perf_counter() - start
    return Window(seconds / count, (time.process_time() - processor) / seconds)


def split_steps(loop: Loop, place: Place, *, count: int) -> dict[str, float]:
    """Return the mean seconds of that step by part (nonzero fields of `Timings`), synchronised at every part."""
    loop.clock = Clock(loop.setting.batches.device, warmup_steps=0, split=True)
    for _ in range(count):
        loop.clock.start_step(0)
        _step(loop, place)
        loop.clock.end_step()
    return {part: seconds / count for part, seconds in asdict(loop.clock.timings(Timings())).items() if seconds}


@torch.no_grad()
def time_inference(loop: Loop, *, examples: int, count: int) -> float:
    """Return the mean seconds for one example in evaluation mode, fp32, in batches of `examples`."""
    batches = loop.setting.batches
    inputs = batches.prepare(batches.dataset.test.inputs[:examples])
    loop.setting.model.eval()
    _synchronise(loop)
    start = time.perf_counter()
    for _ in range(count):
        loop.setting.model(inputs)
    _synchronise(loop)
    return (time.perf_counter() - start) / count / len(inputs)


def _step(loop: Loop, place: Place) -> None:
    loop.state.step, loop.state.total_steps = place.step, place.total_steps
    if place.pace is not None:
        loop.state.pace = loop.setting.batches.pace = place.pace
    loop.step()


def _synchronise(loop: Loop) -> None:
    if loop.setting.batches.device.type == "cuda":
        torch.cuda.synchronize()
