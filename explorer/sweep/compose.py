"""Recipes that follow from others: each method alone, each pair, a recipe with one method left out.

`compose: {each_of: [blurpool, ema], pairs_of: [mixup, sam], leave_one_out: fast}` adds to the baseline's methods, or
takes from `fast`, and names the result after what was added or left out: `blurpool`, `mixup-sam`,
`fast-without-ema`.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from explorer.document import Document, Key, spell
from explorer.errors import RecipeError, unknown
from explorer.recipes.choice import choose, written
from explorer.recipes.methods import METHODS
from explorer.recipes.recipe import Recipe

KEYS = ("each_of", "pairs_of", "leave_one_out")


@dataclass(frozen=True, kw_only=True, slots=True)
class Composition:
    """A recipe to be built: the methods, and the recipe whose task and training it shares."""

    name: str
    base: Recipe
    methods: list[Any]
    key: Key  # where it was asked for


def composed(document: Document, asked: Any, *, recipes: Sequence[Recipe], baseline: str) -> Iterator[Composition]:
    """What `compose` asks for, in the order of the keys above. Raises `SpecError`."""
    if not isinstance(asked, dict):
        raise document.error(("compose",), f"found {asked!r:.80}, expected a mapping with {', '.join(KEYS)}")
    for key in asked:
        if key not in KEYS:
            raise document.error(("compose", key), unknown("key", key, KEYS))
    base = next(recipe for recipe in recipes if recipe.name == baseline)
    for key, size in (("each_of", 1), ("pairs_of", 2)):
        methods = _methods(document, ("compose", key), asked.get(key, []), least=size if key in asked else 0)
        for group in itertools.combinations(methods, size):
            yield _added(base, group, key=("compose", key))
    for recipe in _left_out(document, ("compose", "leave_one_out"), asked.get("leave_one_out", []), recipes):
        yield from _without_each(recipe)


def _methods(document: Document, key: Key, asked: Any, *, least: int) -> list[Any]:
    if not isinstance(asked, list) or len(asked) < least:
        raise document.error(key, f"found {asked!r:.80}, expected a list of at least {least} methods")
    try:
        return [
            choose(METHODS, value, kind="method", where=f"{document.where}: {spell((*key, index))}")
            for index, value in enumerate(asked)
        ]
    except RecipeError as error:
        raise document.locate(error) from error


def _added(base: Recipe, group: Sequence[Any], *, key: Key) -> Composition:
    """The base with the group's methods; a method that the base has already is replaced."""
    names = [method.name for method in group]
    kept = [written(method) for method in base.methods if method.name not in names]
    return Composition(name="-".join(names), base=base, methods=[*kept, *map(written, group)], key=key)


def _left_out(document: Document, key: Key, asked: Any, recipes: Sequence[Recipe]) -> list[Recipe]:
    known = {recipe.name: recipe for recipe in recipes}
    names = [asked] if isinstance(asked, str) else asked
    if not isinstance(names, list):
        raise document.error(key, f"found {asked!r:.80}, expected the name of a recipe, or a list of names")
    for name in names:
        if name not in known:
            raise document.error(key, unknown("recipe", str(name), known))
        if len(known[name].methods) < 2:
            raise document.error(key, f"recipe {name!r} has fewer than two methods; nothing would be learnt")
    return [known[name] for name in names]


def _without_each(recipe: Recipe) -> Iterator[Composition]:
    for left_out in recipe.methods:
        yield Composition(
            name=f"{recipe.name}-without-{left_out.name}",
            base=recipe,
            methods=[written(method) for method in recipe.methods if method is not left_out],
            key=("compose", "leave_one_out"),
        )
