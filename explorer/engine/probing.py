"""Looking at a model without a trace: what scores examples, or probes layers, changes nothing by it."""

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
    """Within the block the model is in evaluation mode and nothing has a gradient; at its end every module's mode, and
    torch's generator, are as they were. Evaluation mode leaves BatchNorm's statistics and dropout alone; what a model
    writes to itself all the same is put back, and `TrainingError` raised if it is a parameter."""
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
