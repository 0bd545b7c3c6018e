"""Timing of single steps of a loop, from which profiles are made, and counting of their operations."""

import time
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

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
    _go_to(loop, place)
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
    _go_to(loop, place)
    for _ in range(count):
        loop.clock.start_step(0)
        _step(loop, place)
        loop.clock.end_step()
    return {part: seconds / count for part, seconds in asdict(loop.clock.timings(Timings())).items() if seconds}


def issue_share(loop: Loop, place: Place) -> float:
    """Return the share of that step in which the program hands its work to the device, which is idle at its beginning.

    Near 1, the device is done as soon as it has its work: it waits for the program. A device that queues no more work
    also makes the program wait, so of a step with more than about 1,000 kernels the share is an upper bound.
    """
    _go_to(loop, place)
    _synchronise(loop)
    start = time.perf_counter()
    _step(loop, place)
    issued = time.perf_counter()
    _synchronise(loop)
    return (issued - start) / (time.perf_counter() - start)


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


def count_flops(loop: Loop, place: Place) -> int:
    """Return the floating-point operations of that step: of its matrix products, convolutions and attention, forward
    and backward, and of what its methods add. The step takes two or three times as long as others.

    Compiled passes run uncompiled, since nothing is compiled under a counter; the operations are the same.
    """
    _go_to(loop, place)
    with torch.compiler.set_stance("force_eager"), FlopCounterMode(display=False, custom_mapping=_ON_CPU) as counter:
        _step(loop, place)
    return counter.get_total_flops()


def _attention(query: Any, key: Any, value: Any, *args: Any, **named: Any) -> int:
    return sdpa_flop_count(query, key, value)


def _attention_backward(grad: Any, query: Any, key: Any, value: Any, *args: Any, **named: Any) -> int:
    return sdpa_backward_flop_count(grad, query, key, value)


# torch's counter knows the kernels of attention on GPUs only. As there, causal attention counts as if it were full.
_ON_CPU = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}


def _go_to(loop: Loop, place: Place) -> None:
    """Bring the loop to that step, as if the one before it had just prepared its rows."""
    loop.state.step, loop.state.total_steps = place.step, place.total_steps
    if place.pace is not None:
        loop.state.pace = loop.setting.batches.pace = place.pace
    loop.read_ahead(place.step)


def _step(loop: Loop, place: Place) -> None:
    loop.state.step = place.step
    loop.step(then=place.step)


def _synchronise(loop: Loop) -> None:
    if loop.setting.batches.device.type == "cuda":
        torch.cuda.synchronize()
