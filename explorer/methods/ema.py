"""Exponential moving average of the weights: a smoothed model, which is evaluated and kept.

Polyak, Juditsky 1992; Tarvainen, Valpola 2017, arXiv:1703.01780. Floating-point tensors are averaged, BatchNorm's
statistics among them; integer buffers such as its counters are copied. At the end the average becomes the model.
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from explorer.engine.averages import Average, exchange, model_tensors, paired
from explorer.engine.forms import checked
from explorer.engine.method import Kind, Method, Moment, Unit
from explorer.engine.state import State
from explorer.entries.kinds import Traits


def decay(*, half_life: float, updates: int) -> float:
    """Return the weight of the old average at update `updates`: 1/2 after `half_life` updates. A half-life of 0 forgets
    everything at once."""
    # At most (1 + n) / (10 + n) at update n, as in TensorFlow's `num_updates`: the random initial weights fade quickly.
    if half_life == 0:
        return 0.0
    return min(2 ** (-1 / half_life), (1 + updates) / (10 + updates))


def ema(
    average: nn.Module, model: nn.Module, *, step: int, total_steps: int, half_life: float = 0.02, every: int = 1
) -> None:
    """Update an average of a model's weights after step `step` of `total_steps` (the first is 0), in place.

    `average` is a copy of the model, made before the first step. `half_life` is a share of all steps. Nothing else has
    to be saved to resume.

    In a loop:

        average = copy.deepcopy(model)
        for step, (x, y) in enumerate(batches):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            functional.ema(average, model, step=step, total_steps=len(batches))
        average.eval()  # and evaluate it
    """
    checked(EMA, half_life=half_life, every=every)
    averages = paired(average, model, step=step, total_steps=total_steps, form=EMA.name)
    # The last step always counts, so that the average holds all of training whatever `every` is.
    if (step + 1) % every and step + 1 != total_steps:
        return
    keep = decay(half_life=half_life * total_steps / every, updates=step // every)
    Average(averages, model).approach(1 - keep)


@dataclass(frozen=True, kw_only=True, slots=True)
class EMA(Method):
    """Training itself never sees the average. It costs one more copy of the model in memory."""

    name: ClassVar[str] = "ema"
    kind: ClassVar[Kind] = Kind.AVERAGE
    summary: ClassVar[str] = "Averages the weights over the last steps, evaluates the average and ends with it."
    source: ClassVar[str] = "Polyak, Juditsky 1992; Tarvainen, Valpola 2017, arXiv:1703.01780"
    formula: ClassVar[str] = (
        "a <- s a + (1 - s) w every `every` steps and after the last, s = min(2^(-`every` / h), (1 + n) / (10 + n)) at"
        " update n, h = `half_life` times all steps; at the end w = a"
    )
    changes: ClassVar[str] = "the weights that are evaluated and kept"
    traits: ClassVar[Traits] = Traits(remembers="model", averages=True)
    routing: ClassVar[str] = "Works: each tensor is averaged by itself, so its average holds only its own updates."

    half_life: Annotated[
        float, Field(ge=0, le=1, description="time for a weight to fade to half; 0 is off"), Unit("share of all steps")
    ] = 0.02
    every: Annotated[int, Field(ge=1, le=10_000_000, description="from one update to the next"), Unit("steps")] = 1

    def memory(self, state: State) -> dict[str, Tensor]:
        average = {f"average/{name}": tensor.clone() for name, tensor in model_tensors(state.model).items()}
        return average | {"updates": torch.zeros((), dtype=torch.int64)}

    def after_update(self, state: State) -> None:
        # The last step always counts, so that the average holds all of training whatever `every` is.
        if (state.step + 1) % self.every and state.step + 1 != state.total_steps:
            return
        updates = state.memory[self.name]["updates"]
        keep = decay(half_life=self.half_life * state.total_steps / self.every, updates=int(updates))
        state.once(Average, lambda: Average(self._average(state), state.model)).approach(1 - keep)
        updates += 1

    def phase(self, moment: Moment) -> str:
        return "averaging" if self.every > 1 and (moment.step + 1) % self.every == 0 else ""

    # Swapped in for an evaluation and back out after it, bit for bit. At the end of the run `after_fit` has swapped the
    # average in for good, and evaluation finds it there.
    def before_evaluation(self, state: State) -> None:
        if state.step < state.total_steps:
            exchange(self._average(state), model_tensors(state.model))

    def after_evaluation(self, state: State) -> None:
        if state.step < state.total_steps:
            exchange(self._average(state), model_tensors(state.model))

    def after_fit(self, state: State) -> None:
        exchange(self._average(state), model_tensors(state.model))

    def neutral(self) -> Self:
        return replace(self, half_life=0.0, every=1)

    def _average(self, state: State) -> dict[str, Tensor]:
        memory = state.memory[self.name]
        return {name.removeprefix("average/"): t for name, t in memory.items() if name.startswith("average/")}
