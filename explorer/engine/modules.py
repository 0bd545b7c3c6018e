"""In-place changes of a model's modules, which surgical methods share.

    replace_modules    replaces modules by others
    change_modules     changes modules where they are, mostly by `mix_in`
    lower              makes layers normalise in the number format of autocast
    initialise         draws initial weights by (run seed, module name)

A behaviour is a class that is mixed into a module's own class: it overrides `forward`, or a method that `forward`
calls, and calls `super()`. The module keeps its parameters, buffers, hooks, children, mode and names, every reference
to it sees the new behaviour, and several behaviours of one module all act. torch's parametrisations work in this way.
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import cache
from inspect import unwrap
from typing import TypeVar

import torch
from torch import Tensor, nn

from explorer.data.streams import torch_stream
from explorer.engine.method import Planned
from explorer.engine.precision import HALF, autocast_type
from explorer.errors import RecipeError

Replace = Callable[[nn.Module, str], nn.Module | None]  # of a module and its full name


def replace_modules(model: nn.Module, replace: Replace, *, method: str, target: str) -> list[str]:
    """Replace every module by `replace(module, name)` where that is not None; return their names.

    A shared module stays shared. Raises `RecipeError` if nothing matched, since surgery that changes nothing is a
    mistake in the recipe; the message names `target` as what was expected.
    """
    made: dict[nn.Module, nn.Module] = {}
    names = []
    for parent_name, parent in list(model.named_modules()):
        for name, child in list(parent._modules.items()):  # `named_children` omits the second name of a shared module
            if child is None:
                continue
            full = f"{parent_name}.{name}".lstrip(".")
            new = made[child] if child in made else replace(child, full)
            if new is None:
                continue
            made[child] = new
            new.train(child.training)
            parent.add_module(name, new)
            names.append(full)
    if not names:
        raise RecipeError(f"{method}: found nothing to change in {type(model).__name__}: expected {target}")
    return names


# --- mixing in ---

Change = Callable[[nn.Module, str], bool]  # of a module and its full name: whether it was changed


def change_modules(model: nn.Module, change: Change, *, method: str, target: str) -> list[str]:
    """Call `change(module, name)` for every module, the model included; return the names of those that it changed.

    Raises `RecipeError` if there were none, since surgery that changes nothing is a mistake in the recipe; the message
    names `target` as what was expected.
    """
    names = [name for name, module in list(model.named_modules()) if change(module, name)]
    if not names:
        raise RecipeError(f"{method}: found nothing to change in {type(model).__name__}: expected {target}")
    return names


def mix_in(behaviour: type, module: nn.Module) -> None:
    """Give the module a behaviour, on top of those that it has.

    >>> class Doubled:
    ...     def forward(self, input):
    ...         return 2 * super().forward(input)
    >>> module = nn.Identity()
    >>> mix_in(Doubled, module)
    >>> module(3), type(module).__name__, isinstance(module, nn.Identity)
    (6, 'DoubledIdentity', True)
    """
    module.__class__ = _mixed(behaviour, type(module))


def check_reaches(module: nn.Module, kind: type[nn.Module], inner: str, *, method: str, name: str) -> None:
    """Raise `RecipeError` for a module whose class replaces the `forward` of `kind` without calling it or `inner`.

    A behaviour that overrides `inner` would have no effect there.
    """
    for between in type(module).__mro__[: type(module).__mro__.index(kind)]:
        forward = between.__dict__.get("forward")
        if forward is None:
            continue
        called = getattr(getattr(unwrap(forward), "__code__", None), "co_names", ())
        if "forward" not in called and inner not in called:
            raise RecipeError(
                f"{method}: found {name} ({type(module).__name__}), whose forward does not call that of"
                f" {kind.__name__}: expected one that does"
            )


@cache
def _mixed(behaviour: type, kind: type) -> type:
    return type(behaviour.__name__ + kind.__name__, (behaviour, kind), {})


# --- normalisation in low precision ---


class LowPrecision(nn.Module):
    """Behaviour of normalisation layers in low precision; a subclass defines how its kind of layer normalises.

    On GPUs, autocast runs normalisation in fp32 and returns fp32. Here input, gain and shift are rounded to the format
    of autocast first, and the result stays in it; the kernel's own sums are fp32 either way. Where autocast is off, as
    in every evaluation, nothing changes. On CPUs, autocast already leaves bf16 input of such a layer in bf16, so only
    fp32 input changes there, and no time is saved.
    """

    weight: Tensor | None
    bias: Tensor | None
    wraps: bool  # whether the class of the layer has a forward of its own, such as one that moves dimensions first

    @abstractmethod
    def normalised(self, input: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """Return the layer's output, all tensors in one number format."""

    def forward(self, input: Tensor) -> Tensor:
        dtype = autocast_type(input.device)
        if dtype is None:
            return super().forward(input)
        low = {name: tensor.to(dtype) for name, tensor in self._parameters.items() if tensor is not None}
        with torch.autocast(input.device.type, enabled=False):
            if not self.wraps:
                return self.normalised(input.to(dtype), low.get("weight"), low.get("bias"))
            # Its forward reads the parameters where they are, so the rounded ones take their place for this call.
            kept = dict(self._parameters)
            self._parameters.update(low)  # pyright: ignore[reportArgumentType, reportCallIssue]
            try:
                return super().forward(input.to(dtype))
            finally:
                self._parameters.update(kept)


def lower(model: nn.Module, kind: type[nn.Module], by: type[LowPrecision], *, method: str, target: str) -> list[str]:
    """Mix `by` into every layer of type `kind`, in place; return their names.

    `method` and `target` name the method and the expected layers in the `RecipeError` raised if there are none.
    """

    def change(module: nn.Module, name: str) -> bool:
        if not isinstance(module, kind) or isinstance(module, by):
            return False
        wraps = type(module).forward is not kind.forward
        mix_in(by, module)
        module.wraps = wraps  # pyright: ignore[reportArgumentType]
        return True

    return change_modules(model, change, method=method, target=target)


def check_precision(planned: Planned) -> None:
    """Raise `RecipeError` for a run without autocast, where low precision would change nothing."""
    if planned.precision not in HALF:
        raise RecipeError(f"found precision {planned.precision}, where it changes nothing: expected bf16 or fp16")


# --- initial weights ---

Module = TypeVar("Module", bound=nn.Module)


def initialise(model: nn.Module, *, seed: int, prefix: str = "") -> None:
    """Draw the parameters of every module that defines `reset_parameters` from a stream keyed by its name.

    `prefix` is the name of `model` within a larger model, such as that of a module that surgery adds.
    """
    for name, module in model.named_modules(prefix=prefix):
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            with torch_stream(torch.device("cpu"), seed, "initialise", name):
                reset()


def initialised(build: Callable[[], Module], *, seed: int, name: str, like: Tensor) -> Module:
    """Return the module that `build` makes, with weights drawn by (seed, name), of the type and on the device of
    `like`."""
    # Built and drawn on the CPU, whatever its device, so that the numbers are the same everywhere. The build has a
    # stream of its own, since constructors draw too.
    with torch_stream(torch.device("cpu"), seed, "build", name), torch.device("cpu"):
        module = build()
        initialise(module, seed=seed, prefix=name)
    return module.to(device=like.device, dtype=like.dtype)
