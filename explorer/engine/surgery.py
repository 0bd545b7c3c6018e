"""Changing a model's modules: what surgical methods share."""

from collections.abc import Callable

from torch import nn

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
