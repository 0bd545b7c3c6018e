"""The controls of an honest comparison, which `controls:` adds to a sweep by one word.

rescaled   for each recipe and each of its budgets the baseline at the budget that takes as much uncontended time: all
           that a recipe gains over it, it gains by more than being given that time
twin       for each recipe that drops examples, `<recipe>-random`, which drops as many at random: all that the recipe
           gains over it, it gains by which examples it drops
all        both

A rescaled baseline is a run of the baseline like any other, with a schedule that ends where its budget ends. Its budget
follows from step times. A budget that the sweep has already, or had before its step times were measured again, is taken
in the place of one that would take the same time; so the same profiles always give the same budgets, and profiles that
hardly moved give the old ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from explorer import run_files, rundir
from explorer.costing import SAME_TIME, train_seconds
from explorer.engine.method import ordered
from explorer.errors import RecipeError, RunError
from explorer.recipes.recipe import Recipe
from explorer.run_files import ProfileRecord, RunRecord
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
    """Return the twins of all recipes that drop examples but the baseline, whose control each is, and which cannot be
    built.

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


# --- rescaled baselines ---

DIGITS = 3  # of a rescaled budget: half a percent at worst


@dataclass(frozen=True, kw_only=True, slots=True)
class Rescaled:
    """The budgets at which the baseline is a control of recipes, and the runs of recipes that wait for theirs."""

    budgets: dict[float, tuple[str, ...]]  # a budget that the sweep lacks: the recipes that it is the control of
    waiting: tuple[RunRecord, ...]  # the time of the recipe or of the baseline is not known yet


def rescaled(runs: Sequence[RunRecord], *, earlier: Sequence[float], profiles: dict[str, ProfileRecord]) -> Rescaled:
    """Return the rescaled budgets for the planned `runs` of recipes and of their baseline, each recipe's in order.

    `earlier` are budgets at which the sweep's directory has the baseline already.
    """
    ladder = [run for run in runs if run.recipe == run.baseline]
    longest = max(ladder, key=lambda run: run.ssr)
    whole = _seconds(longest, profiles)
    own = {run.ssr for run in ladder}
    known = [*own, *earlier]
    budgets: dict[float, tuple[str, ...]] = {}
    waiting: list[RunRecord] = []
    for run in runs:
        if run.recipe == run.baseline or run.control is not None:
            continue
        seconds = _seconds(run, profiles)
        if seconds is None or whole is None:
            waiting.append(run)
            continue
        exact = longest.ssr * seconds / whole
        budget = _nearest(exact, known, step=longest.ssr / longest.steps)
        if budget is None:
            budget = float(f"{exact:.{DIGITS}g}")
            known.append(budget)
        if budget not in own and run.recipe not in budgets.get(budget, ()):
            budgets[budget] = (*budgets.get(budget, ()), run.recipe)
    return Rescaled(budgets=budgets, waiting=tuple(waiting))


def _nearest(exact: float, known: Sequence[float], *, step: float) -> float | None:
    """Return the known budget that takes the same time, to within `SAME_TIME` or half a step."""
    nearest = min(known, key=lambda budget: abs(budget - exact))
    return nearest if abs(nearest - exact) <= max(SAME_TIME * exact, step / 2) else None


def _seconds(run: RunRecord, profiles: dict[str, ProfileRecord]) -> float | None:
    """Return how long the run takes alone on the machine; None while the recipe lacks a profile of all its phases."""
    profile = profiles.get(run.recipe_digest)
    if profile is None or not set(run.phases) <= set(profile.phases):
        return None
    return train_seconds(run.phases, profile.phases).seconds


def budgets_of(directory: Path, run: RunRecord) -> list[float]:
    """Return the budgets at which the directory has runs of the same recipe, whatever they were planned for."""
    start = f"{run.run_id.rpartition('-ssr')[0]}-ssr"
    budgets = set()
    for path in rundir.run_directories(directory):
        if not path.name.startswith(start):
            continue
        try:
            record = run_files.read(RunRecord, path / rundir.RUN)
        except RunError:
            continue  # a damaged record is written again
        if record.recipe_digest == run.recipe_digest:
            budgets.add(record.ssr)
    return sorted(budgets)
