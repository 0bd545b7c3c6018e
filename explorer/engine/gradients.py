"""Gradients of a model, share by share within a step; and a diagnosis of losses that are not finite.

Autograd sees only the parameters that a share may change: for the rest it neither saves nor computes anything. The
guard keeps everything else unchanged during the share's passes (engine/guard.py). A parameter that no share reaches
keeps `None` for a gradient: with zeros, momentum and weight decay would still move it.

A step whose loss is not finite is not taken: weights and momenta are those of the step before, and existing checkpoints
stay. The message names the step, the class and the first layer at fault.
"""

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from explorer.engine.guard import Guard, Open
from explorer.engine.state import Share, State
from explorer.errors import DivergedError


class Gradients:
    """Parameters of one model, by name, and the way from losses to `.grad`."""

    def __init__(self, model: nn.Module) -> None:
        self.guard = Guard(model)
        self.parameters = self.guard.parameters
        self._summed: set[str] = set()  # parameters whose `.grad` is a tensor of its own rather than a share's

    @property
    def buffers(self) -> dict[str, Tensor]:
        """Return the buffers as they are now, by name."""
        return self.guard.buffers

    def clear(self) -> None:
        """Forget the step before."""
        for parameter in self.parameters.values():
            parameter.grad = None
        self._summed.clear()

    def admit(self, share: Share) -> dict[str, nn.Parameter]:
        """Let autograd see the share's parameters only; return them."""
        self.allow(share.parameters)
        return {name: parameter for name, parameter in self.parameters.items() if name in share.parameters}

    def allow(self, names: Collection[str]) -> None:
        """Let autograd see these parameters only."""
        for name, parameter in self.parameters.items():
            if parameter.requires_grad != (name in names):
                parameter.requires_grad_(name in names)

    def guarding(self, share: Share) -> AbstractContextManager[None]:
        """Guard the share's forward and backward passes: buffers that it may not change are restored at the end.
        Raises `TrainingError` for a parameter that changed."""
        # Both passes, since the backward pass needs the buffers as the forward pass left them.
        may = Open(share.parameters, share.buffers, strict=bool(share.name))
        return self.guard.passing(share.name, may)

    def take(self, loss: Tensor, admitted: dict[str, nn.Parameter], total: dict[str, Tensor]) -> None:
        """Add the loss's gradients to a share's sums; the first one assigns."""
        gradients = torch.autograd.grad(loss, list(admitted.values()), allow_unused=True)
        for (name, parameter), gradient in zip(admitted.items(), gradients, strict=True):
            if gradient is not None:
                gradient = _in_layout_of(parameter, gradient)
                before = total.get(name)
                total[name] = gradient if before is None else before + gradient

    def add(self, share: Share, gradients: dict[str, Tensor]) -> None:
        """Add a share's gradients, weighted, to those of the shares before it; the first one assigns."""
        sums: list[Tensor] = []
        terms: list[Tensor] = []
        for name, gradient in gradients.items():
            parameter, weight = self.parameters[name], share.weights.get(name, 1.0)
            weighted = gradient if weight == 1.0 else gradient * weight
            before = parameter.grad
            if before is None:
                parameter.grad = weighted
            elif name in self._summed:
                sums.append(before)
                terms.append(weighted)
            else:  # the first share's own tensor is left as it is
                parameter.grad = before + weighted
                self._summed.add(name)
        if sums:
            torch._foreach_add_(sums, terms)  # pyright: ignore[reportPrivateImportUsage]


def _in_layout_of(parameter: nn.Parameter, gradient: Tensor) -> Tensor:
    """Return the gradient with the parameter's strides: fused optimisers read both in memory order."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter, requires_grad=False).copy_(gradient)


# --- losses that are not finite ---


def diverged(state: State, modes: AbstractContextManager[object]) -> str:
    """Return the message for a step whose loss is not finite, from another pass of the same rows, layer by layer.
    `modes` are those of the training pass."""
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
    first = f"the first layer that gives something else is {layer or type(state.model).__name__!r}"
    half = isinstance(modes, torch.autocast) and modes.fast_dtype is torch.float16
    if half and first_not_finite(state.model, state.rows.inputs, nullcontext()) is None:
        return f"{first}, which is finite in fp32: fp16 ends at 65,504, and bf16 has the range of fp32"
    return first


@torch.no_grad()
def first_not_finite(model: nn.Module, inputs: Tensor, modes: AbstractContextManager[object]) -> str | None:
    """Return the name of the innermost module that first gives a number that is not finite, in the order of execution;
    None if all are finite. The empty name is the model itself. The model's buffers are restored."""
    # Forward hooks of inner modules run before those of the modules around them, so the first one is innermost.
    layers: list[str] = []
    names = {module: name for name, module in model.named_modules()}

    def look(module: nn.Module, _: object, output: object) -> None:
        if isinstance(output, Tensor) and not _finite(output) and not layers:
            layers.append(names[module])

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
    return layers[0] if layers else None


def check_finite(tensors: Mapping[str, Tensor], *, step: int) -> None:
    """Raise `DivergedError` if a checkpoint would hold a value that is not finite: an earlier one is worth more."""
    for name, tensor in tensors.items():
        if name.startswith("model/") and not _finite(tensor):
            raise DivergedError(f"training diverged: {name.removeprefix('model/')!r} is not finite after step {step}")


def _finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())
