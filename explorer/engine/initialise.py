"""Initial weights by (run seed, module name): adding a layer does not change how the others start."""

import torch
from torch import nn

from explorer.data.streams import torch_stream


def initialise(model: nn.Module, *, seed: int, prefix: str = "") -> None:
    """Draw the parameters of every module that knows how (`reset_parameters`) from a stream of its own name.

    `prefix` is the name of `model` where it is a part of a larger one, as what surgery puts in is.
    """
    for name, module in model.named_modules(prefix=prefix):
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            with torch_stream(torch.device("cpu"), seed, "initialise", name):
                reset()
