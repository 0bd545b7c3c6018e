"""Layers without a deterministic kernel on the device that trains: torch refuses their operation, and names no layer.

Which operations these are depends on device and version of torch (the list is in the documentation of
`torch.use_deterministic_algorithms`): on GPUs among others the backward passes of MaxPool3d, AvgPool3d, adaptive
pooling, bilinear upsampling, reflection padding and EmbeddingBag with `max`. So they are found by running them.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

REFUSED = re.compile(r"^(\S+) does not have a deterministic implementation")


def refused_operation(error: BaseException) -> str | None:
    """Return the operation that torch refused for the sake of determinism; None for any other error."""
    words = REFUSED.match(str(error))
    return words[1] if words else None


def refused_layer(model: nn.Module, inputs: Tensor) -> str | None:
    """Return the name of the innermost module that torch refuses to run forward or backward; None: it is outside of the
    model, as a loss is. The empty name is the model itself.

    The model is run on these inputs, and may be changed by that.
    """
    calls: list[tuple[str, nn.Module, Any]] = []
    names = {module: name for name, module in model.named_modules()}
    # Inner modules end before those around them, so the first one that is refused is innermost.
    handles = [
        module.register_forward_hook(
            lambda module, args, kwargs, _: calls.append((names[module], module, (args, kwargs))), with_kwargs=True
        )
        for module in names
    ]
    try:
        with torch.no_grad(), _lenient():
            model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return next((name for name, module, given in calls if _is_refused(module, given)), None)


@contextmanager
def _lenient() -> Iterator[None]:
    """Let torch run all operations within the block."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _is_refused(module: nn.Module, given: Any) -> bool:
    """Return whether torch refuses to run a module, forward and backward, on these arguments."""

    def apart(value: object) -> object:
        if not isinstance(value, Tensor):
            return value
        # A clone, since a module may write to its input, and torch forbids writing to a leaf.
        return value.detach().requires_grad_(value.is_floating_point()).clone()

    args, kwargs = tree_map(apart, given)
    try:
        with torch.enable_grad():
            outputs = tree_leaves(module(*args, **kwargs))
            reached = [output for output in outputs if isinstance(output, Tensor) and output.requires_grad]
            if reached:
                torch.autograd.backward(reached, [torch.ones_like(output) for output in reached])
    except RuntimeError as error:
        return refused_operation(error) is not None
    return False
