"""Looking at a model without a trace: what scores examples, or probes layers, changes nothing by it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from explorer.data.batches import Batches
from explorer.data.streams import torch_stream


@contextmanager
def undisturbed(model: nn.Module, batches: Batches) -> Iterator[None]:
    """Within the block the model is in evaluation mode and nothing has a gradient; at its end every module's mode, and
    torch's generator, are as they were. Evaluation mode leaves BatchNorm's statistics and dropout alone."""
    training = {module: module.training for module in model.modules()}
    try:
        model.eval()
        with torch.no_grad(), torch_stream(batches.device, batches.seed, "undisturbed"):
            yield
    finally:
        for module, was in training.items():
            module.training = was
