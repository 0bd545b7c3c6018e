"""The one order in which a recipe's methods act, whatever order they were written in.

Kinds first, then what methods of a kind declare about each other (`before`, `after`), then the alphabet.
"""

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from itertools import combinations

from explorer.engine.method import Kind, Method
from explorer.errors import RecipeError

EXCLUSIVE = {
    Kind.OPTIMIZER: "each owns the update rule",
    Kind.AVERAGE: "each averages the same weights, and a run can end with one average only",
}


def ordered(methods: Iterable[Method]) -> tuple[Method, ...]:
    """Return the methods in acting order. Raises `RecipeError` for conflicts, repetitions and circles."""
    chosen = sorted(methods, key=lambda method: method.name)
    for one, other in combinations(chosen, 2):
        _refuse_conflict(one, other)
    kinds = sorted({method.kind for method in chosen})
    return tuple(method for kind in kinds for method in _within([m for m in chosen if m.kind == kind]))


def acting(hook: str, methods: Iterable[Method]) -> list[Method]:
    """Of methods in acting order, those that define a hook, in the order in which it runs."""
    users = [method for method in methods if getattr(type(method), hook) is not getattr(Method, hook)]
    if not hook.startswith("after_"):
        return users
    observers = [method for method in users if method.kind is Kind.RECORD]
    return [method for method in reversed(users) if method.kind is not Kind.RECORD] + observers


def _refuse_conflict(one: Method, other: Method) -> None:
    if one.name == other.name:
        raise RecipeError(f"method {one.name!r} is given twice: each method may stand once in a recipe")
    if one.kind is other.kind and one.kind in EXCLUSIVE:
        raise RecipeError(f"methods {one.name!r} and {other.name!r} cannot be combined: {EXCLUSIVE[one.kind]}")
    reason = one.conflicts_with.get(other.name) or other.conflicts_with.get(one.name)
    if reason:
        raise RecipeError(f"methods {one.name!r} and {other.name!r} cannot be combined: {reason}")


def _within(methods: list[Method]) -> list[Method]:
    """Methods of one kind, already alphabetical, by their declarations."""
    by_name = {method.name: method for method in methods}
    earlier: dict[str, set[str]] = {name: set() for name in by_name}
    for method in methods:
        earlier[method.name].update(name for name in method.after if name in by_name)
        for name in method.before:
            if name in by_name:
                earlier[name].add(method.name)
    sorter = TopologicalSorter(earlier)
    try:
        sorter.prepare()
    except CycleError as error:
        raise RecipeError(f"methods declare a circular order: {' -> '.join(error.args[1])}") from error
    result: list[Method] = []
    ready: set[str] = set()
    while sorter.is_active():
        ready.update(sorter.get_ready())
        first = min(ready)
        ready.remove(first)
        result.append(by_name[first])
        sorter.done(first)
    return result
