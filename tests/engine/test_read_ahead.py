"""Rows that a second thread prepares: the bits of a run without it, the reader's own error, and what is not read."""

import threading
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from explorer.data.batches import Batches
from explorer.data.pace import Pace
from explorer.data.read_ahead import ReadAhead, Wanted
from explorer.engine.fit import state_digest
from explorer.engine.loop import Loop
from explorer.engine.state import State
from explorer.engine.stepping import Place, split_steps, time_steps
from explorer.errors import DataError
from explorer.methods.augmix import AugMix
from explorer.methods.ema import EMA
from explorer.methods.layer_freezing import LayerFreezing
from explorer.methods.mixup import MixUp
from tests.data_for_tests import CPU, noise, typed
from tests.loop_for_tests import noise_loop, small_net

MOVED = replace(noise(shape=(3, 6, 4)), crop=1, flip=True)
PACE = Pace(((0, 8), (3, 5)))
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "classes": {"typing": typed()},
    "lanes": {"lanes": 3, "typing": typed()},
    "methods": {"methods": [MixUp(), AugMix(), EMA(half_life=0.3)]},
    "batch sizes": {"pace": PACE},
}


class Watched(Batches):
    """Notes the thread of each read and its examples; fails at one of the steps, if that is asked for."""

    def __init__(self, *, fails_at: int | None = None, typing: Any = None, pace: Pace | None = None) -> None:
        super().__init__(MOVED, batch_size=8, seed=0, device=CPU, typing=typing, pace=pace)
        self.by: list[threading.Thread] = []
        self.asked: list[np.ndarray] = []
        self._fails_at = fails_at

    def read(self, examples: np.ndarray) -> tuple[Tensor, Tensor]:
        self.by.append(threading.current_thread())
        self.asked.append(examples)
        return super().read(examples)

    def augment(self, inputs: Tensor, step: int, slots: np.ndarray) -> Tensor:
        if step == self._fails_at:
            raise DataError(f"the rows of step {step} cannot be read")
        return super().augment(inputs, step, slots)


@dataclass(slots=True)
class Outcome:
    losses: list[Tensor] = field(default_factory=list)
    digest: str = ""
    error: str = ""


def loop_of(*, ahead: bool, fails_at: int | None = None, pace: Pace | None = None, **setting: Any) -> Loop:
    batches = Watched(fails_at=fails_at, typing=setting.pop("typing", None), pace=pace)
    return noise_loop(**setting, batches=batches, dataset=MOVED, model=small_net(channels=3), reads_ahead=ahead)


def trained(loop: Loop) -> Outcome:
    found = Outcome()
    try:
        while loop.state.step < loop.setting.total_steps:
            found.losses.append(loop.step())
    except DataError as error:
        found.error = f"step {loop.state.step}: {error}"
    found.digest = state_digest(loop)
    return found


def reads(loop: Loop) -> Watched:
    assert isinstance(loop.setting.batches, Watched)
    return loop.setting.batches


@pytest.mark.parametrize("kind", KINDS)
def test_the_bits_are_those_of_a_run_without_the_thread(kind: str) -> None:
    loops = [loop_of(ahead=ahead, **KINDS[kind]) for ahead in (True, False)]
    ahead, within = map(trained, loops)
    assert torch.equal(torch.stack(ahead.losses), torch.stack(within.losses))
    assert ahead.digest == within.digest
    here = threading.current_thread()
    assert [thread is here for thread in reads(loops[0]).by] == [True] + 9 * [False], "all but the first step's rows"
    assert all(thread is here for thread in reads(loops[1]).by)
    early, late = (np.concatenate(reads(loop).asked) for loop in loops)
    assert np.array_equal(early, late), "nothing is read twice, and nothing beyond the end"


def test_draws_of_another_step_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: rows that the thread augments with another step's draws lead to other bits."""
    expected = trained(loop_of(ahead=False))
    original = Watched.augment

    def wrong(self: Watched, inputs: Tensor, step: int, slots: np.ndarray) -> Tensor:
        here = threading.current_thread() is threading.main_thread()
        return original(self, inputs, step if here else step + 1, slots)

    monkeypatch.setattr(Watched, "augment", wrong)
    assert trained(loop_of(ahead=False)).digest == expected.digest
    assert trained(loop_of(ahead=True)).digest != expected.digest


def test_an_error_of_the_reader_is_raised_in_the_step_of_its_rows() -> None:
    ahead, within = (trained(loop_of(ahead=ahead, fails_at=4)) for ahead in (True, False))
    assert ahead.error == within.error == "step 4: the rows of step 4 cannot be read"
    assert ahead.digest == within.digest, "four steps were made"


def test_rows_of_a_step_that_does_not_come_are_dropped() -> None:
    """As after a restore: the loop goes back, and reads the rows of the step that it is at."""
    loop, straight = loop_of(ahead=True), loop_of(ahead=False)
    loop.step()
    before = {name: tensor.clone() for name, tensor in loop.tensors().items()}
    for _ in range(3):
        loop.step()
    loop.restore(before, step=1)
    assert trained(loop).digest == trained(straight).digest


def test_nothing_is_read_ahead_where_a_method_plans_what_is_read() -> None:
    @dataclass(frozen=True)
    class Admits(LayerFreezing):
        def change_plan(self, state: State) -> None:
            nothing = frozenset[str]()
            state.shares = tuple(
                replace(share, parameters=nothing) if share.code == 1 and state.step % 2 else share
                for share in state.shares
            )

    loop = loop_of(ahead=True, typing=typed(), methods=[Admits()])
    trained(loop)
    assert all(thread is threading.main_thread() for thread in reads(loop).by)
    refused = [asked for asked in reads(loop).asked[1::2] if (typed().codes[asked] == 1).any()]
    assert not refused, "no row of the class in the steps that refuse it"


def test_a_step_that_is_timed_again_and_again_finds_its_rows_prepared() -> None:
    loop = loop_of(ahead=True)
    time_steps(loop, Place(step=4, total_steps=10), count=3)
    split = split_steps(loop, Place(step=4, total_steps=10, pace=PACE), count=3)
    assert "wait" in split and "read" not in split
    first, *others = reads(loop).by
    assert first is threading.main_thread(), "before any plan, nothing says which classes are read"
    assert others and threading.main_thread() not in others
    within = split_steps(loop_of(ahead=False), Place(step=4, total_steps=10), count=3)
    assert "wait" not in within and within["read"] > 0


def test_an_error_counts_only_where_its_rows_are_taken() -> None:
    batches = Watched(fails_at=3)
    ahead, slots = ReadAhead(batches, lambda part, start, end: None), np.arange(8)
    wanted = Wanted(3, batches.indices(3), slots)
    ahead.start(lambda: wanted)
    assert ahead.take(Wanted(3, batches.indices(3)[:4], slots[:4])) is None
    ahead.start(lambda: wanted)
    with pytest.raises(DataError, match="the rows of step 3 cannot be read"):
        ahead.take(wanted)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_rows_for_a_gpu_are_pinned_by_the_thread(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU is pretended; the control: rows for a CPU are not pinned."""
    pinned: list[threading.Thread] = []

    def pin(rows: Tensor) -> Tensor:
        pinned.append(threading.current_thread())
        return rows

    monkeypatch.setattr(Tensor, "pin_memory", pin)
    batches = Watched()
    batches.device = torch.device(device)
    ahead, wanted = ReadAhead(batches, lambda part, start, end: None), Wanted(0, batches.indices(0), np.arange(8))
    ahead.start(lambda: wanted)
    assert ahead.take(wanted) is not None
    assert len(pinned) == (2 if device == "cuda" else 0), "inputs and labels"
    assert threading.main_thread() not in pinned
    assert ahead.take(wanted) is None, "rows are given once"
