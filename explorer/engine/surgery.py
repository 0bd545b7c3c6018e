"""Changing a model's modules and reading its structure: what surgical methods share."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from explorer.errors import RecipeError

Replace = Callable[[nn.Module, str], nn.Module | None]  # of a module and its full name


def replace_modules(model: nn.Module, replace: Replace, *, method: str, target: str) -> list[str]:
    """Put `replace(module, name)` in the place of every module for which it is not None; return their names.

    A module that is shared stays shared. Raises `RecipeError` if nothing matched: surgery that changes nothing is a
    mistake in the recipe. `target` says in the message what was looked for.
    """
    made: dict[nn.Module, nn.Module] = {}
    names = []
    for parent_name, parent in list(model.named_modules()):
        for name, child in list(parent._modules.items()):  # named_children leaves out the second name of a module
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Leaf:
    """A module with parameters of its own, as the forward pass meets it."""

    name: str
    module: nn.Module
    parameters: tuple[str, ...]  # full names
    buffers: tuple[str, ...]  # full names
    cost: int  # multiply-adds of one example's forward pass, to first order


def leaves(model: nn.Module, example: Tensor) -> tuple[Leaf, ...]:
    """The parametric leaves in order of execution, each once. `example` is one input; the model is left as it was."""
    return leaves_met(model, lambda: model(example))


def leaves_met(model: nn.Module, forward: Callable[[], object]) -> tuple[Leaf, ...]:
    """The parametric leaves that `forward` meets, in order, each once; it runs the model on one example."""
    names = {module: name for name, module in model.named_modules()}
    found: dict[nn.Module, Leaf] = {}

    def record(module: nn.Module, _: object, output: Tensor) -> None:
        own = dict(module.named_parameters(recurse=False))
        if own and module not in found:
            prefix = f"{names[module]}." if names[module] else ""
            found[module] = Leaf(
                name=names[module],
                module=module,
                parameters=tuple(prefix + name for name in own),
                buffers=tuple(prefix + name for name, _ in module.named_buffers(recurse=False)),
                cost=sum(_uses(module, parameter, output) for parameter in own.values()),
            )

    handles = [module.register_forward_hook(record) for module in names]
    training = {module: module.training for module in names}
    try:
        model.eval()
        with torch.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
        for module, was in training.items():
            module.training = was
    return tuple(found.values())


def _uses(module: nn.Module, parameter: nn.Parameter, output: Tensor) -> int:
    """How often the parameter's numbers are multiplied: a filter once for each place, a matrix row for each token, an
    embedding never."""
    if isinstance(module, nn.Embedding):
        return 0
    places = output.numel() // output.shape[0] // max(1, len(parameter) if parameter.ndim else 1)
    return parameter.numel() * max(1, places)
