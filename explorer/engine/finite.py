"""Where a loss stopped being a number: the step, the class and the layer that first gave something else.

The step is not made: weights and momenta are those of the step before, and checkpoints stay, where the
run was long enough to have any.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from explorer.engine.state import State
from explorer.errors import TrainingError


def diverged(state: State, modes: AbstractContextManager[object]) -> str:
    """What to say of a step whose loss is not finite: the same rows once more, layer by layer. `modes` are those of
    the training pass."""
    assert state.loss is not None and state.rows is not None and state.share is not None
    of = f", class {state.share.name}" if state.share.name else ""
    return (
        f"training diverged: the loss is {state.loss.item()} at step {state.step + 1}{of}: {_cause(state, modes)};"
        " the step was not made, and checkpoints of earlier ones are kept; a lower learning rate or a warm-up may help"
    )


def _cause(state: State, modes: AbstractContextManager[object]) -> str:
    assert state.rows is not None
    if not _finite(state.rows.inputs):
        return "its inputs are not finite already"
    for name, parameter in state.model.named_parameters():  # buffers this very pass has written
        if not _finite(parameter):
            return f"{name!r} is not finite already"
    layer = first_not_finite(state.model, state.rows.inputs, modes)
    if layer is None:
        return "every layer gives finite numbers, and the loss of them is not"
    return f"the first layer that gives something else is {layer or type(state.model).__name__!r}"


@torch.no_grad()
def first_not_finite(model: nn.Module, inputs: Tensor, modes: AbstractContextManager[object]) -> str | None:
    """The name of the innermost module that first gives a number that is not finite, in the order of execution; None
    if all are finite. A module without a name is the model itself. The model's buffers are left as they were."""
    found: list[str] = []
    names = {module: name for name, module in model.named_modules()}

    def look(module: nn.Module, _: object, output: object) -> None:
        if isinstance(output, Tensor) and not _finite(output) and not found:
            found.append(names[module])

    handles = [module.register_forward_hook(look) for module in names]
    kept = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        with modes:
            model(inputs)
    finally:
        for handle in handles:
            handle.remove()
        for buffer, before in kept:
            buffer.copy_(before)
    return found[0] if found else None


def check_finite(tensors: Mapping[str, Tensor], *, step: int) -> None:
    """Raise `TrainingError` if what a checkpoint would hold is not finite: an earlier one is worth more."""
    for name, tensor in tensors.items():
        if name.startswith("model/") and not _finite(tensor):
            raise TrainingError(f"training diverged: {name.removeprefix('model/')!r} is not finite after step {step}")


def _finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())
