"""Recipes composed from others: single methods, pairs, all subsets; a recipe with one method left out.

`compose: {each_of: [blurpool, ema], pairs_of: [mixup, sam], powerset: {of: [ema, mixup, sam], up_to: 2},
leave_one_out: fast}` adds to the baseline's methods, or takes from `fast`, and names the result after what was added
or left out: `blurpool`, `mixup-sam`, `fast-without-ema`. `powerset: [ema, mixup, sam]` is every subset but the empty
one. Methods that cannot be combined are not an error: the combination is left out, and the plan says why.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from explorer.canonical import digest
from explorer.engine.method import ordered
from explorer.errors import RecipeError, unknown
from explorer.recipes.choice import choose, written
from explorer.recipes.recipe import Recipe
from explorer.recipes.settings import METHODS
from explorer.yaml_document import Document, Key, spell

KEYS = ("each_of", "pairs_of", "powerset", "leave_one_out")
MAX_NAME = 64  # characters; names become names of directories


@dataclass(frozen=True, kw_only=True, slots=True)
class Composition:
    """A recipe to build: its methods, and the recipe whose task and training settings it shares."""

    name: str
    base: Recipe
    methods: list[Any]
    key: Key  # of the request, for messages
    conflict: str | None = None  # why the methods cannot be combined; None: they can


def composed(
    document: Document, asked: Any, *, recipes: Sequence[Recipe], baseline: str, most: int
) -> Iterator[Composition]:
    """Yield the recipes that `compose` asks for, in the order of `KEYS`.

    document  the specification, for messages
    asked     the value of `compose`
    recipes   the recipes that are written out in the specification
    baseline  the name of the recipe that methods are added to
    most      how many recipes the sweep has room for

    Raises `SpecError`, also for more than `most` recipes.
    """
    if not isinstance(asked, dict):
        raise document.error(("compose",), f"found {asked!r:.80}, expected a mapping with {', '.join(KEYS)}")
    for key in asked:
        if key not in KEYS:
            raise document.error(("compose", key), unknown("key", key, KEYS))
    base = next(recipe for recipe in recipes if recipe.name == baseline)
    # Recipes are counted before the first is built: a powerset of 30 methods has a billion.
    groups = [_group(document, key, asked[key]) for key in KEYS[:-1] if key in asked]
    left_out = _left_out(document, ("compose", "leave_one_out"), asked.get("leave_one_out", []), recipes)
    room = most - sum(len(recipe.methods) for recipe in left_out)
    for group in groups:
        room -= group.count(room)
        if room < 0:
            raise document.error(
                group.key,
                f"too many combinations of {len(group.methods)} methods: with its budgets and seeds, this sweep has"
                f" room for {max(most, 0)} more recipes",
            )
    # Then they are built, group by group.
    for group in groups:
        for methods in group.combinations():
            yield _added(base, methods, key=group.key)
    for recipe in left_out:
        yield from _without_each(recipe)


def fitting(name: str) -> str:
    """Return the name, cut to `MAX_NAME` characters where it is longer: its beginning, and a digest of all of it.

    >>> fitting("a" * 100)
    'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-9391a077'
    """
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 9]}-{digest(name)[:8]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Group:
    """Methods to combine with each other, as many at a time as `sizes` says."""

    key: Key
    methods: list[Any]
    sizes: range

    def count(self, most: int) -> int:
        """Return the number of combinations; any number above `most` means too many."""
        count = 0
        for size in self.sizes:
            count += math.comb(len(self.methods), size)
            if count > most:  # of thousands of methods, the exact number would have thousands of digits
                break
        return count

    def combinations(self) -> Iterator[tuple[Any, ...]]:
        for size in self.sizes:
            yield from itertools.combinations(self.methods, size)


def _group(document: Document, name: str, asked: Any) -> _Group:
    key: Key = ("compose", name)
    if name == "each_of":
        return _Group(key=key, methods=methods_of(document, key, asked, least=1), sizes=range(1, 2))
    if name == "pairs_of":
        return _Group(key=key, methods=methods_of(document, key, asked, least=2), sizes=range(2, 3))
    if not isinstance(asked, dict):
        methods = methods_of(document, key, asked, least=2)
        return _Group(key=key, methods=methods, sizes=range(1, len(methods) + 1))
    for inner in asked:
        if inner not in ("of", "up_to"):
            raise document.error((*key, inner), unknown("key", str(inner), ("of", "up_to")))
    methods = methods_of(document, (*key, "of"), asked.get("of"), least=2)
    most = asked.get("up_to", len(methods))
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= len(methods):
        raise document.error(
            (*key, "up_to"),
            f"found {most!r:.80}, expected a whole number from 1 to {len(methods)}, the number of methods given",
        )
    return _Group(key=key, methods=methods, sizes=range(1, most + 1))


def methods_of(document: Document, key: Key, asked: Any, *, least: int) -> list[Any]:
    """Return the methods in a list of at least `least`. Raises `SpecError`."""
    if not isinstance(asked, list) or len(asked) < least:
        shown = "nothing" if asked is None else f"{asked!r:.80}"
        raise document.error(key, f"found {shown}, expected a list of at least {least} methods")
    try:
        return [
            choose(METHODS, value, kind="method", where=f"{document.where}: {spell((*key, index))}", code=None)
            for index, value in enumerate(asked)
        ]
    except RecipeError as error:
        raise document.locate(error) from error


def _added(base: Recipe, group: Sequence[Any], *, key: Key) -> Composition:
    """Compose the base and the group's methods; a method that the base already has is replaced."""
    names = [method.name for method in group]
    methods = [*(method for method in base.methods if method.name not in names), *group]
    return Composition(
        name=fitting("-".join(names)),
        base=base,
        methods=[written(method) for method in methods],
        key=key,
        conflict=conflict_of(methods),
    )


def conflict_of(methods: Sequence[Any]) -> str | None:
    """Return why the methods cannot be combined; None if they can."""
    try:
        ordered(methods)
    except RecipeError as error:
        return str(error)
    return None


def _left_out(document: Document, key: Key, asked: Any, recipes: Sequence[Recipe]) -> list[Recipe]:
    known: Mapping[str, Recipe] = {recipe.name: recipe for recipe in recipes}
    names = [asked] if isinstance(asked, str) else asked
    if not isinstance(names, list):
        raise document.error(key, f"found {asked!r:.80}, expected the name of a recipe, or a list of names")
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise document.error(key, unknown("recipe", str(name), known))
        if len(known[name].methods) < 2:
            raise document.error(
                key, f"recipe {name!r} has fewer than two methods; expected a recipe with at least two to leave one out"
            )
    return [known[name] for name in names]


def _without_each(recipe: Recipe) -> Iterator[Composition]:
    for left_out in recipe.methods:
        yield Composition(
            name=fitting(f"{recipe.name}-without-{left_out.name}"),
            base=recipe,
            methods=[written(method) for method in recipe.methods if method is not left_out],
            key=("compose", "leave_one_out"),
        )
