"""Ingredients of recipes: the methods, with their parameters, that each recipe adds to the baseline's; and its runs."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from explorer.analysis.schedules import Schedule, phase
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
    """Parse the identity of a run, which is JSON. Raises `AnalysisError` if it does not list the recipe's methods."""
    try:
        content = json.loads(identity)
        recipe = dict(content["recipe"])
        methods = tuple(_ingredient(method) for method in recipe.pop("methods"))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise AnalysisError("its runs do not record their methods") from error
    # Budget and seed vary within a recipe; everything else in the identity has to agree with the baseline's.
    rest = {key: value for key, value in content.items() if key not in ("ssr", "seed")}
    return Made(methods=methods, rest=digest({**rest, "recipe": recipe}))


def added(recipe: Made, *, baseline: Made) -> tuple[Ingredient, ...]:
    """Return the methods that the recipe has beyond the baseline's, in acting order.

    Raises `AnalysisError` if it differs in anything else.
    """
    if recipe.rest != baseline.rest:
        raise AnalysisError("it differs from the baseline in more than its methods")
    missing = [method.name for method in baseline.methods if method not in recipe.methods]
    if missing:
        raise AnalysisError(f"it lacks the baseline's {', '.join(missing)}, or has other parameters")
    return tuple(method for method in recipe.methods if method not in baseline.methods)


def labels(methods: Iterable[Ingredient]) -> dict[Ingredient, str]:
    """Return a label for each: the method's name, with the parameters that distinguish it from others of that name.

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
    mine, *others = (json.loads(variant.parameters) for variant in (method, *variants))
    telling = [key for key in mine if any(other.get(key) != mine[key] for other in others)]
    return f"{method.name} ({', '.join(f'{key} {mine[key]}' for key in telling)})"


# --- the recipes of a setting at one budget ---

Qualities = Mapping[int, float]  # by seed


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeRuns:
    """A recipe at the budget. `problem` says why there is no schedule, or why its methods cannot be compared."""

    label: str  # its name; with its digest where several recipes have that name
    methods: tuple[Ingredient, ...]  # beyond the baseline's, in acting order; empty where they cannot be compared
    qualities: Qualities
    schedule: Schedule | None
    problem: str = ""


def recipe_runs(rows: pd.DataFrame, schedules: pd.DataFrame, *, base: str) -> dict[str, RecipeRuns]:
    """Return the recipes by digest, in the order of `rows`. `base` is the digest of the baseline.

    `rows` have the columns of `results` and `schedules` those of `frames.schedules`, both of one setting and budget.
    Raises `AnalysisError` if the ingredients of the baseline are not known.
    """
    phases = {str(digest): group for digest, group in schedules.groupby("recipe_digest", sort=False)}
    if base not in phases:
        raise AnalysisError("the baseline's phases are not known")
    origin = made(phases[base]["identity"].iloc[0])
    names = rows.drop_duplicates("recipe_digest").set_index("recipe_digest")["recipe"]
    several = Counter(names)
    return {
        str(digest): _recipe(
            f"{name} ({str(digest)[:6]})" if several[name] > 1 else str(name),
            rows[rows["recipe_digest"] == digest],
            phases.get(str(digest)),
            origin,
        )
        for digest, name in names.items()
    }


def _recipe(label: str, rows: pd.DataFrame, phases: pd.DataFrame | None, origin: Made) -> RecipeRuns:
    means = rows.dropna(subset=["quality"]).groupby("seed")["quality"].mean()
    qualities = dict(zip(means.index.tolist(), means.tolist(), strict=True))
    runs = RecipeRuns(label=label, methods=(), qualities=qualities, schedule=None)
    if phases is None:
        return replace(runs, problem=f"the phases of {label} are not known")
    try:
        runs = replace(runs, methods=added(made(phases["identity"].iloc[0]), baseline=origin))
        return replace(runs, schedule=_schedule(label, phases))
    except AnalysisError as error:
        return replace(runs, problem=str(error))


def _schedule(label: str, phases: pd.DataFrame) -> Schedule:
    missing = phases.loc[phases["seconds"].isna(), "phase"]
    if len(missing):
        raise AnalysisError(f"{label} was not profiled in its phase {missing.iloc[0]!r}")
    return Schedule(
        recipe=str(phases["recipe_digest"].iloc[0]),
        phases=tuple(
            phase(
                str(row["phase"]),
                steps=int(row["steps"]),
                seconds=float(row["seconds"]),
                low=float(row["low"]),
                high=float(row["high"]),
                windows=int(row["windows"]),
                split=dict(row["split"]),
            )
            for row in phases.to_dict("records")
        ),
    )
