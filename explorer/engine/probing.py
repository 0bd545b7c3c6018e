"""Evaluation of a model during training without side effects: for scores of examples and probes of layers."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from explorer.data.batches import Batches
from explorer.data.streams import torch_stream
from explorer.engine.guard import Guard, Open
from explorer.engine.state import State

NOTHING = Open(frozenset(), frozenset())


@contextmanager
def undisturbed(state: State) -> Iterator[None]:
    """Put the model in evaluation mode without gradients for the block; restore modules' modes and torch's generator.

    Evaluation mode switches dropout off and keeps BatchNorm's statistics. Buffers that the model writes nevertheless
    are restored; `TrainingError` is raised for a parameter.
    """
    model, batches = state.model, state.resource(Batches)
    training = {module: module.training for module in model.modules()}
    try:
        model.eval()
        with (
            state.resource(Guard).passing("what looks at the model without training", NOTHING),
            torch.no_grad(),
            torch_stream(batches.device, batches.seed, "undisturbed"),
        ):
            yield
    finally:
        for module, was in training.items():
            module.training = was
