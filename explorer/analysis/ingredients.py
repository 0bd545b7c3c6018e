"""What recipes are made of: the methods, with their parameters, that each adds to the baseline's."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from explorer.canonical import canonical, digest
from explorer.errors import AnalysisError


@dataclass(frozen=True, slots=True)
class Ingredient:
    """A method with its parameters, as canonical JSON: with others it is another ingredient."""

    name: str
    parameters: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """A recipe: its methods in acting order, and everything else that makes it, as a digest."""

    methods: tuple[Ingredient, ...]
    rest: str


def made(identity: str) -> Made:
    """From the identity of a run, which is JSON. Raises `AnalysisError` where it does not list the recipe's methods."""
    try:
        content = json.loads(identity)
        recipe = dict(content["recipe"])
        methods = tuple(_ingredient(method) for method in recipe.pop("methods"))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise AnalysisError("its runs do not say which methods they were made with") from error
    rest = {key: value for key, value in content.items() if key not in ("ssr", "seed")}
    return Made(methods=methods, rest=digest({**rest, "recipe": recipe}))


def added(recipe: Made, *, baseline: Made) -> tuple[Ingredient, ...]:
    """The methods that the recipe has beyond the baseline, in acting order.

    Raises `AnalysisError` where it differs in anything else.
    """
    if recipe.rest != baseline.rest:
        raise AnalysisError("it differs from the baseline in more than its methods")
    missing = [method.name for method in baseline.methods if method not in recipe.methods]
    if missing:
        raise AnalysisError(f"it does not have the baseline's {', '.join(missing)} as it is there")
    return tuple(method for method in recipe.methods if method not in baseline.methods)


def labels(methods: Iterable[Ingredient]) -> dict[Ingredient, str]:
    """A name for each: the method's, with the parameters that tell it from others of that name.

    >>> labels([Ingredient("ema", '{"half_life":10,"start":0}'), Ingredient("ema", '{"half_life":20,"start":0}')])[
    ...     Ingredient("ema", '{"half_life":20,"start":0}')]
    'ema (half_life 20)'
    """
    by_name: defaultdict[str, list[Ingredient]] = defaultdict(list)
    for method in dict.fromkeys(methods):
        by_name[method.name].append(method)
    return {method: _label(method, variants) for variants in by_name.values() for method in variants}


def _ingredient(written: Any) -> Ingredient:
    ((name, parameters),) = written.items() if isinstance(written, Mapping) else ((written, {}),)
    if not isinstance(name, str) or not isinstance(parameters, Mapping):
        raise TypeError("not a method")
    return Ingredient(name, canonical(dict(parameters)).decode())


def _label(method: Ingredient, variants: list[Ingredient]) -> str:
    if len(variants) == 1:
        return method.name
    mine, *others = (json.loads(each.parameters) for each in (method, *variants))
    telling = [key for key in mine if any(other.get(key) != mine[key] for other in others)]
    return f"{method.name} ({', '.join(f'{key} {mine[key]}' for key in telling)})"
