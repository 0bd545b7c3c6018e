"""Exponential moving average of the weights: evaluate, and end with, a smoothed model.

Polyak, Juditsky 1992; Tarvainen, Valpola 2017, arXiv:1703.01780. Floating tensors are averaged, integer buffers such
as BatchNorm's counters are copied. The average ends as the model's weights.
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from explorer.engine.method import Kind, Method, Moment
from explorer.engine.state import State


def decay(*, half_life: float, updates: int) -> float:
    """The weight of the old average: 1/2 after `half_life` updates, and no more than (1 + n) / (10 + n) at update n,
    so that the first weights are forgotten early. A half-life of 0 forgets everything at once."""
    if half_life == 0:
        return 0.0
    return min(2 ** (-1 / half_life), (1 + updates) / (10 + updates))


@torch.no_grad()
def update_average(average: dict[str, Tensor], current: dict[str, Tensor], *, keep: float) -> None:
    """Move the average towards the current tensors in place: `keep * average + (1 - keep) * current`."""
    for name, old in average.items():
        if old.is_floating_point():
            old.lerp_(current[name], 1 - keep)
        else:
            old.copy_(current[name])


@torch.no_grad()
def swap(average: dict[str, Tensor], current: dict[str, Tensor]) -> None:
    """Exchange the two sets of tensors in place, exactly."""
    for name, old in average.items():
        kept = current[name].clone()
        current[name].copy_(old)
        old.copy_(kept)


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers, detached."""
    return {name: tensor.detach() for name, tensor in model.state_dict(keep_vars=True).items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class EMA(Method):
    """Average the weights while training, evaluate the average, and end with it."""

    name: ClassVar[str] = "ema"
    kind: ClassVar[Kind] = Kind.AVERAGE
    summary: ClassVar[str] = "Averages the weights over the last steps, evaluates the average and ends with it."
    source: ClassVar[str] = "Polyak, Juditsky 1992; Tarvainen, Valpola 2017, arXiv:1703.01780"

    half_life: Annotated[
        float, Field(ge=0, le=1, description="share of all steps after which a weight counts half")
    ] = 0.02
    every: Annotated[int, Field(ge=1, description="steps between updates")] = 1

    def memory(self, state: State) -> dict[str, Tensor]:
        average = {f"average/{name}": tensor.clone() for name, tensor in _tensors(state.model).items()}
        return average | {"updates": torch.zeros((), dtype=torch.int64)}

    def after_update(self, state: State) -> None:
        if (state.step + 1) % self.every and state.step + 1 != state.total_steps:
            return
        updates = state.memory[self.name]["updates"]
        keep = decay(half_life=self.half_life * state.total_steps / self.every, updates=int(updates))
        update_average(self._average(state), _tensors(state.model), keep=keep)
        updates += 1

    def phase(self, moment: Moment) -> str:
        return "averaging" if self.every > 1 and (moment.step + 1) % self.every == 0 else ""

    def before_evaluation(self, state: State) -> None:
        if state.step < state.total_steps:
            swap(self._average(state), _tensors(state.model))

    def after_evaluation(self, state: State) -> None:
        if state.step < state.total_steps:
            swap(self._average(state), _tensors(state.model))

    def after_fit(self, state: State) -> None:
        swap(self._average(state), _tensors(state.model))

    def neutral(self) -> Self:
        return replace(self, half_life=0.0, every=1)

    def _average(self, state: State) -> dict[str, Tensor]:
        memory = state.memory[self.name]
        return {name.removeprefix("average/"): t for name, t in memory.items() if name.startswith("average/")}
