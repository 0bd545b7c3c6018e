"""Initial weights by (run seed, module name): adding a layer does not change how the others start."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from explorer.data.streams import torch_stream

Module = TypeVar("Module", bound=nn.Module)


def initialise(model: nn.Module, *, seed: int, prefix: str = "") -> None:
    """Draw the parameters of every module that knows how (`reset_parameters`) from a stream of its own name.

    `prefix` is the name of `model` where it is a part of a larger one, as what surgery puts in is.
    """
    for name, module in model.named_modules(prefix=prefix):
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            with torch_stream(torch.device("cpu"), seed, "initialise", name):
                reset()


def initialised(build: Callable[[], Module], *, seed: int, name: str, like: Tensor) -> Module:
    """What `build` makes, with weights drawn by (seed, name), of the type of `like` and on its device.

    Built and drawn on the CPU, wherever it goes, so that the numbers are the same; the global generator stays.
    """
    with torch_stream(torch.device("cpu"), seed, "build", name), torch.device("cpu"):
        module = build()
        initialise(module, seed=seed, prefix=name)
    return module.to(device=like.device, dtype=like.dtype)
