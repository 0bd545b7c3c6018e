"""The controls of an honest comparison, which `controls:` adds to a sweep by one word.

rescaled   for each recipe and each of its budgets the baseline at the budget that takes as much uncontended time: all
           that a recipe gains over it, it gains by more than being given that time
twin       for each recipe that drops examples, `<recipe>-random`, which drops as many at random: all that the recipe
           gains over it, it gains by which examples it drops
all        both

What `rescaled` adds follows from step times: see `explorer.sweep.rescaled`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from explorer.engine.order import ordered
from explorer.errors import RecipeError
from explorer.recipes.recipe import Recipe
from explorer.sweep.compose import fitting


class Chosen(NamedTuple):
    """What a word adds."""

    rescaled: bool
    twins: bool


CONTROLS = {"rescaled": Chosen(True, False), "twin": Chosen(False, True), "all": Chosen(True, True)}

Twins = dict[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class NotRun:
    """What was asked for and cannot be run, and why."""

    name: str
    reason: str


def twins_of(recipes: Sequence[Recipe], *, baseline: str) -> tuple[list[Recipe], Twins, list[NotRun]]:
    """The twins of all recipes that drop examples but the baseline, whose control each is, and which cannot be built.

    A recipe of the sweep that is what a twin would be is the control in its place.
    """
    made: list[Recipe] = []
    controls: Twins = {}
    impossible: list[NotRun] = []
    known = {recipe.digest: recipe.name for recipe in recipes}
    names = set(known.values())
    for recipe in recipes:
        twins = [method.twin() for method in recipe.methods]
        if recipe.name == baseline or not any(twins):
            continue
        name = fitting(f"{recipe.name}-random")
        methods = [twin or method for twin, method in zip(twins, recipe.methods, strict=True)]
        try:
            twin = replace(recipe, name=name, methods=ordered(methods))
        except RecipeError as error:
            impossible.append(NotRun(name=name, reason=str(error)))
            continue
        control = known.get(twin.digest, name)
        if control == name and name in names and twin.digest not in known:
            reason = f"another recipe has this name; give it another, for this is the control of {recipe.name!r}"
            impossible.append(NotRun(name=name, reason=reason))
            continue
        if twin.digest not in known:
            known[twin.digest] = name
            names.add(name)
            made.append(twin)
        if control not in (recipe.name, baseline):
            controls[control] = (*controls.get(control, ()), recipe.name)
    return made, controls, impossible
