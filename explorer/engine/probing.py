"""Evaluation of a model during training without side effects: for scores of examples and probes of layers."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from explorer.data.batches import Batches
from explorer.data.streams import torch_stream
from explorer.engine.guard import Guard, Open
from explorer.engine.state import State
from explorer.engine.task import Task

NOTHING = Open(frozenset(), frozenset())


@contextmanager
def undisturbed(state: State) -> Iterator[None]:
    """Put the model in evaluation mode without gradients for the block; restore modules' modes and torch's generator.

    Evaluation mode switches dropout off and keeps BatchNorm's statistics. Buffers that the model writes nevertheless
    are restored; `TrainingError` is raised for a parameter.
    """
    device = next(tensor.device for tensor in state.resource(Guard).parameters.values())
    with (
        _evaluating(state.model),
        state.resource(Guard).passing("what looks at the model without training", NOTHING),
        torch.no_grad(),
        torch_stream(device, state.seed, "undisturbed"),
    ):
        yield


@contextmanager
def observed(model: nn.Module) -> Iterator[None]:
    """Put a model outside of a run in evaluation mode without gradients for the block; restore modes and buffers."""
    with _evaluating(model), Guard(model).keeping_buffers(), torch.no_grad():
        yield


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    training = {module: module.training for module in model.modules()}
    try:
        model.eval()
        yield
    finally:
        for module, was in training.items():
            module.training = was


class Inspection(ABC):
    """The way of a run to its training examples, for what looks at the model without training it. Passes are made
    within `undisturbed`."""

    codes: np.ndarray  # N, int64: provenance class of each training example
    rows_first: ClassVar[bool] = True  # the first dimension of every layer's outputs is that of the examples

    @abstractmethod
    def forward(self, state: State, numbers: np.ndarray) -> object:
        """Run the model on the training examples with these numbers, as they were tagged."""

    @abstractmethod
    def scores(self, state: State, *names: str) -> dict[str, Tensor]:
        """Return the scores of these names of the rows in `state.batch`, B each. Raises `RecipeError` for a score that
        the run does not have."""


class RecipeInspection(Inspection):
    """The way of a recipe: its batches prepare the examples, and its task scores them."""

    def __init__(self, batches: Batches, task: Task) -> None:
        self.codes, self._batches, self._task = batches.typing.codes, batches, task

    def forward(self, state: State, numbers: np.ndarray) -> object:
        """Run the model on these examples."""
        return state.model(self._batches.prepare(self._batches.plain(numbers)[0]))

    def scores(self, state: State, *names: str) -> dict[str, Tensor]:
        """Return the loss or the entropy of each row. Raises `RecipeError` for an entropy that the task does not
        have."""
        assert state.batch is not None
        outputs, targets = state.model(state.batch.inputs).float(), state.batch.targets
        score_of = {"loss": lambda: self._task.loss(outputs, targets), "entropy": lambda: self._task.entropy(outputs)}
        return {name: score_of[name]() for name in names}
