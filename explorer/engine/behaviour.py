"""Giving single modules of a model another behaviour, in place.

A behaviour is a class that is mixed into a module's own: it overrides `forward`, or what that calls, and goes on with
`super()`. The module stays what it was (parameters, buffers, hooks, children, mode, names), everybody who refers to it
meets the new behaviour, and several behaviours of one module all act. torch's parametrisations work in the same way.
"""

from collections.abc import Callable
from functools import cache

from torch import nn

from explorer.errors import RecipeError

Change = Callable[[nn.Module, str], bool]  # of a module and its full name: whether it was changed


def change_modules(model: nn.Module, change: Change, *, method: str, target: str) -> list[str]:
    """Ask `change(module, name)` of every module, the model itself included; return the names of those it changed.

    Raises `RecipeError` if there were none: surgery that changes nothing is a mistake in the recipe. `target` says in
    the message what was looked for.
    """
    names = [name for name, module in list(model.named_modules()) if change(module, name)]
    if not names:
        raise RecipeError(f"{method}: found nothing to change in {type(model).__name__}: expected {target}")
    return names


def mix_in(behaviour: type, module: nn.Module) -> None:
    """Put a behaviour before what the module does already.

    >>> class Doubled:
    ...     def forward(self, input):
    ...         return 2 * super().forward(input)
    >>> module = nn.Identity()
    >>> mix_in(Doubled, module)
    >>> module(3), type(module).__name__, isinstance(module, nn.Identity)
    (6, 'DoubledIdentity', True)
    """
    module.__class__ = _mixed(behaviour, type(module))


@cache
def _mixed(behaviour: type, kind: type) -> type:
    return type(behaviour.__name__ + kind.__name__, (behaviour, kind), {})
