"""Training on a subset of each batch: when, on how many rows, which ones, and with what loss.

The loss is the mean over the rows that are kept, so the length of a step does not depend on how many were dropped.
Every slot of the nominal batch draws a number of its own, whether or not its example is present, so that leaving a
class out changes nothing for the others.

Rows are drawn one by one without replacement, with probabilities in proportion to weights w. An equivalent draw divides
an exponential number by the weight of each row and takes the smallest quotients: a row has the minimum with probability
w over the sum of all w, and what remains of the other numbers after it is exponential again (memoryless).
Efraimidis, Spirakis, "Weighted random sampling with a reservoir", 2006.

Shapes: N rows of a share, B slots of the nominal batch.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from explorer.data.batches import Batch
from explorer.data.streams import stream
from explorer.engine.method import Kind, Method, Moment, Unit
from explorer.engine.state import State
from explorer.errors import RecipeError

CHOSEN = "each method chooses the examples of a step: the second would choose among what the first one left"


def kept(rows: int, *, keep: float) -> int:
    """Return how many of these rows train: the share `keep`, rounded down, at least one."""
    return max(1, int(rows * keep + 1e-9))  # 0.29 * 100 is just below 29 in binary


def race(log_weights_N: Tensor, numbers_N: Tensor, *, count: int) -> Tensor:
    """Return `count` rows, ascending, drawn without replacement in proportion to weights, which are given as
    logarithms. `numbers_N` are exponential."""
    # In logarithms, where no weight under- or overflows; stable, so that equal times keep the order of rows everywhere.
    times = numbers_N.log() - log_weights_N
    return times.sort(stable=True).indices[:count].sort().values


def numbers_of(draws: np.random.Generator, *, slots: Tensor, batch_size: int, pieces: int = 1) -> Tensor:
    """Return the exponential number of each row's slot, N, float64, on the device of `slots`. A slot has up to `pieces`
    rows, such as those of a long text, with one number each."""
    # `pieces` is not counted from the slots: the host would have to wait for the device.
    order = slots.sort(stable=True)
    earlier = torch.empty_like(slots)  # how many rows of its slot come before a row
    earlier[order.indices] = torch.arange(len(slots), device=slots.device) - torch.searchsorted(
        order.values, order.values
    )
    numbers = torch.from_numpy(draws.exponential(size=(pieces, batch_size))).to(slots.device, non_blocking=True)
    return numbers[earlier, slots]


def draw_rows(draws: np.random.Generator, *, log_weights: Tensor, keep: float) -> Tensor:
    """Return the rows of a whole batch that train: the share `keep` of them, ascending, drawn in proportion to weights
    (N, float64, logarithms)."""
    rows = len(log_weights)
    slots = torch.arange(rows, device=log_weights.device)
    numbers = numbers_of(draws, slots=slots, batch_size=rows)
    return race(log_weights, numbers, count=kept(rows, keep=keep))


def train_on(batch: Batch, rows: Tensor) -> Batch:
    """Return the batch with these rows only, weighted so that they represent all."""
    return replace(batch.rows(rows), weight=batch.weight * len(batch) / len(rows))


@dataclass(frozen=True, kw_only=True, slots=True)
class Subset(Method):
    """Method that drops examples from `start` to `end` of training, except in every `interrupt`-th step."""

    kind: ClassVar[Kind] = Kind.SELECT

    start: Annotated[float, Field(ge=0, lt=1, description="where dropping begins"), Unit("share of training")] = 0.5
    end: Annotated[float, Field(gt=0, le=1, description="where dropping ends"), Unit("share of training")] = 0.9
    keep: Annotated[
        float, Field(gt=0, le=1, description="how many train, rounded down; 1 is off"), Unit("share of the batch")
    ] = 0.5
    interrupt: Annotated[
        int, Field(ge=0, le=1_000_000, description="every so many steps one takes all; 0: none does"), Unit("steps")
    ] = 2

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise RecipeError(f"found start {self.start} and end {self.end}: expected a start before the end")
        if self.interrupt == 1:
            raise RecipeError("interrupt: found 1, and with that every step takes all: expected 0, or 2 and more")

    @abstractmethod
    def log_weights(self, state: State) -> Tensor:
        """Return the logarithm of each row's weight in the draw, N, float64."""

    def any_length(self) -> bool:
        return (self.start, self.end) == (0, 1)

    def phase(self, moment: Moment) -> str:
        if self.keep == 1:
            return ""
        return "selecting" if self._acts(moment.progress, moment.step) else "all examples"

    def change_batch(self, state: State) -> None:
        assert state.batch is not None
        count = kept(len(state.batch), keep=self.keep)
        if count == len(state.batch) or not self._acts(state.progress, state.step):
            return
        batch, draws = state.batch, stream(state.seed, self.name, state.step)
        numbers = numbers_of(draws, slots=batch.slots, batch_size=state.batch_size, pieces=batch.pieces)
        state.batch = train_on(batch, race(self.log_weights(state), numbers, count=count))

    def neutral(self) -> Self:
        return replace(self, keep=1.0)

    def _acts(self, progress: float, step: int) -> bool:
        return self.start <= progress < self.end and not (self.interrupt and (step + 1) % self.interrupt == 0)
