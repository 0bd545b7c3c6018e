"""Stochastic weight averaging: end with the plain mean of the weights along the last part of training.

Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization", 2018, arXiv:1803.05407. From
`start` to `end` of training the weights at every `interval` enter the mean. The first ones enter at `start`, so that
every run has a mean. Training never sees it. At the end the mean becomes the model, with the last integer buffers and
with fresh statistics of batch normalisation, computed on training data outside of any step (engine/averages.py).
"""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from explorer.data.batches import Batches
from explorer.engine.averages import Average, Held, model_tensors, paired, refresh_on_training_data
from explorer.engine.forms import checked
from explorer.engine.method import Kind, Method, Moment, Unit
from explorer.engine.state import State, progress
from explorer.entries.kinds import Traits
from explorer.errors import RecipeError

ROUNDING = 1e-9  # of a share of training: ten tenths add up to less than 1 in binary


def due(done: float, *, start: float, end: float, interval: float) -> int:
    """Return how many sets of weights have entered the mean once the share `done` of training is complete."""
    if done == 0 or done < start:
        return 0
    return 1 + int((min(done, end) - start) / interval + ROUNDING)


def swa(
    mean: nn.Module,
    model: nn.Module,
    *,
    step: int,
    total_steps: int,
    start: float = 0.7,
    end: float = 0.97,
    interval: float = 0.01,
) -> None:
    """Add a model's weights to their mean after step `step` of `total_steps` (the first is 0), in place, where they
    are due.

    `mean` is a copy of the model. `start`, `end` and `interval` are shares of training. Nothing else has to be saved to
    resume. At the end `refresh_statistics` gives the mean its own statistics of batch normalisation.

    In a loop:

        mean = copy.deepcopy(model)
        for step, (x, y) in enumerate(batches):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            functional.swa(mean, model, step=step, total_steps=len(batches), start=0.5)
        refresh_statistics(mean, (x for x, _ in batches))  # from explorer.engine.averages
    """
    checked(SWA, start=start, end=end, interval=interval)
    means = paired(mean, model, step=step, total_steps=total_steps, form=SWA.name)

    def sets(at: int) -> int:
        return due(at / total_steps, start=start, end=end, interval=interval)

    if sets(step + 1) == sets(step):
        return
    # Where `interval` is shorter than a step, every step adds one set, and `due` counts more than there are.
    first = bisect_left(range(total_steps), True, key=lambda at: sets(at + 1) > 0)
    taken = sets(step) if interval * total_steps >= 1 else step - first
    Average(means, model).approach(1 / (taken + 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class SWA(Method):
    """Training itself never sees the mean, which is evaluated from `start` on. It costs one copy of the model in
    memory."""

    name: ClassVar[str] = "swa"
    kind: ClassVar[Kind] = Kind.AVERAGE
    summary: ClassVar[str] = "Ends with the mean of the weights along the last part of training."
    source: ClassVar[str] = "Izmailov et al. 2018, arXiv:1803.05407"
    formula: ClassVar[str] = (
        "a <- (n a + w) / (n + 1) every `interval` from `start` to `end`, w the weights and n how many a has;"
        " `lr`: the learning rate from `start` on, as a share of its peak; at the end w = a, and batch normalisation"
        " gets new statistics"
    )
    changes: ClassVar[str] = "the weights that are evaluated and kept; with `lr`, the learning rate"
    traits: ClassVar[Traits] = Traits(remembers="model", averages=True)
    routing: ClassVar[str] = ""
    conflicts_with: ClassVar[dict[str, str]] = {
        "routing": "the statistics of batch normalisation are computed again on examples of every class, whether or"
        " not the policy admits them",
    }

    start: Annotated[
        float, Field(ge=0, le=1, description="when the first weights count"), Unit("share of training")
    ] = 0.7
    end: Annotated[float, Field(ge=0, le=1, description="when the last weights count"), Unit("share of training")] = (
        0.97
    )
    interval: Annotated[
        float, Field(gt=0, le=1, description="from one set of weights to the next"), Unit("share of training")
    ] = 0.01
    lr: Annotated[
        float | None,
        Field(ge=0, le=1, description="learning rate from `start` on; null: that of the schedule"),
        Unit("share of the peak"),
    ] = None

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise RecipeError(f"found start {self.start:g} and end {self.end:g}: expected a start before the end")

    def learning_rate(self, factor: float, moment: Moment) -> float:
        return factor if self.lr is None or moment.progress < self.start else self.lr

    def phase(self, moment: Moment) -> str:
        before, after = (
            self._due(progress(moment.pace, step, moment.total_steps)) for step in (moment.step, moment.step + 1)
        )
        return "averaging" if after > before else ""

    def memory(self, state: State) -> dict[str, Tensor]:
        mean = {f"mean/{name}": tensor.clone() for name, tensor in model_tensors(state.model).items()}
        return mean | {"taken": torch.zeros((), dtype=torch.int64)}

    # A pure function of progress decides when, so that a resumed run averages the same weights.
    def after_update(self, state: State) -> None:
        if self._due(progress(state.pace, state.step + 1, state.total_steps)) == self._due(state.progress):
            return
        taken = state.memory[self.name]["taken"]
        state.once(Average, lambda: Average(self._mean(state), state.model)).approach(1 / (int(taken) + 1))
        taken += 1

    # An evaluation before `start` finds no mean and shows the present weights.
    def before_evaluation(self, state: State) -> None:
        if state.step < state.total_steps and state.memory[self.name]["taken"]:
            state.resources[Held] = Held.of(state.model)
            self._become_the_mean(state)

    def after_evaluation(self, state: State) -> None:
        if Held in state.resources:
            state.resources.pop(Held).put_back()

    def after_fit(self, state: State) -> None:
        self._become_the_mean(state)

    @torch.no_grad()
    def _become_the_mean(self, state: State) -> None:
        mean = self._mean(state)
        for name, tensor in model_tensors(state.model).items():
            tensor.copy_(mean[name])
        refresh_on_training_data(state.model, state.resource(Batches))

    def _due(self, done: float) -> int:
        return due(done, start=self.start, end=self.end, interval=self.interval)

    def _mean(self, state: State) -> dict[str, Tensor]:
        memory = state.memory[self.name]
        return {name.removeprefix("mean/"): tensor for name, tensor in memory.items() if name.startswith("mean/")}
