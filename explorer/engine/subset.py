"""Training on a part of each batch: when, on how many, on which, and what that does to the loss.

The rows that are kept count as if they were all: their loss is the mean over them, so the length of a step does not
depend on how many were dropped. Every slot of the nominal batch draws a number of its own, whether its example is here
or not, so leaving a class out changes nothing for the others.

Rows are drawn one after the other without replacement, with probabilities in proportion to weights w. Who divides an
exponential number by the weight of each row, and takes the smallest quotients, has drawn just so: the minimum falls to
a row with probability w over the sum of all w, and what is left of the others after it is exponential again.
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
    """Return how many of so many rows train: their share `keep`, rounded down, and one at least."""
    return max(1, int(rows * keep + 1e-9))  # 0.29 * 100 is just below 29


def race(log_weights_N: Tensor, numbers_N: Tensor, *, count: int) -> Tensor:
    """Return the `count` rows, ascending, that are drawn without replacement in proportion to weights, given by their
    logarithms; `numbers_N` are exponential."""
    times = numbers_N.log() - log_weights_N
    return times.sort(stable=True).indices[:count].sort().values


def numbers_of(draws: np.random.Generator, *, slots: Tensor, batch_size: int) -> Tensor:
    """Return an exponential number for every row, N, float64, on the device of `slots`: that of its slot. Rows of one
    slot, as pieces of a long text are, have one each."""
    order = slots.sort(stable=True)
    earlier = torch.empty_like(slots)  # how many rows of its slot come before a row
    earlier[order.indices] = torch.arange(len(slots), device=slots.device) - torch.searchsorted(
        order.values, order.values
    )
    numbers = torch.from_numpy(draws.exponential(size=(int(earlier.max()) + 1, batch_size))).to(slots.device)
    return numbers[earlier, slots]


def train_on(batch: Batch, rows: Tensor) -> Batch:
    """Return the batch with these rows only, weighted so that they stand for all."""
    return replace(batch.rows(rows), weight=batch.weight * len(batch) / len(rows))


@dataclass(frozen=True, kw_only=True, slots=True)
class Subset(Method):
    """A method that drops examples: from `start` to `end` of training, except in every `interrupt`-th step."""

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

    def phase(self, moment: Moment) -> str:
        if self.keep == 1:
            return ""
        return "selecting" if self._acts(moment.progress, moment.step) else "all examples"

    def change_batch(self, state: State) -> None:
        assert state.batch is not None
        count = kept(len(state.batch), keep=self.keep)
        if count == len(state.batch) or not self._acts(state.progress, state.step):
            return
        draws = stream(state.seed, self.name, state.step)
        numbers = numbers_of(draws, slots=state.batch.slots, batch_size=state.batch_size)
        state.batch = train_on(state.batch, race(self.log_weights(state), numbers, count=count))

    def neutral(self) -> Self:
        return replace(self, keep=1.0)

    def _acts(self, progress: float, step: int) -> bool:
        return self.start <= progress < self.end and not (self.interrupt and (step + 1) % self.interrupt == 0)
