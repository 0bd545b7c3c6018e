"""Controls of an honest comparison, which `controls:` adds to a sweep by one word.

rescaled   for each recipe at each of its budgets, the baseline at the budget that takes as much uncontended time. A
           recipe's gain over this control is not explained by the time it was given.
twin       for each recipe that drops examples, `<recipe>-random`, which drops as many at random. A recipe's gain over
           its twin is due to which examples it drops.
all        both

A rescaled baseline is an ordinary run of the baseline whose schedule ends where its budget ends. Its budget follows
from step times. A budget that the sweep already has, or had before its step times were measured again, is preferred to
a new one that would take the same time. So the same profiles always give the same budgets, and profiles that hardly
moved give the old ones.
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
    """The controls that a word adds."""

    rescaled: bool
    twins: bool


CONTROLS = {"rescaled": Chosen(True, False), "twin": Chosen(False, True), "all": Chosen(True, True)}

Twins = dict[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class NotRun:
    """A recipe or control that was asked for and cannot be run, and why."""

    name: str
    reason: str


def twins_of(recipes: Sequence[Recipe], *, baseline: str) -> tuple[list[Recipe], Twins, list[NotRun]]:
    """Return the twins of all recipes that drop examples, the recipes that every twin controls, and impossible twins.

    Where a recipe of the sweep equals the twin of another, it serves as that twin. The baseline needs no control.
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
        # The twin differs in the methods that choose examples; all others stay, in the order that they require.
        name = fitting(f"{recipe.name}-random")
        methods = [twin or method for twin, method in zip(twins, recipe.methods, strict=True)]
        try:
            twin = replace(recipe, name=name, methods=ordered(methods))
        except RecipeError as error:
            impossible.append(NotRun(name=name, reason=str(error)))
            continue
        # Two recipes may share a twin, but two different recipes cannot share a name.
        control = known.get(twin.digest, name)
        if control == name and name in names and twin.digest not in known:
            reason = f"another recipe has the name of the control of {recipe.name!r}; rename that recipe"
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

DIGITS = 3  # significant digits of a rescaled budget: it is rounded by half a percent at worst


@dataclass(frozen=True, kw_only=True, slots=True)
class Rescaled:
    """Budgets at which the baseline serves as a control, and runs whose control cannot be planned yet."""

    budgets: dict[float, tuple[str, ...]]  # a budget that the sweep lacks: the recipes that it controls
    waiting: tuple[RunRecord, ...]  # their recipe or the baseline has no step time yet


def rescaled(runs: Sequence[RunRecord], *, earlier: Sequence[float], profiles: dict[str, ProfileRecord]) -> Rescaled:
    """Return the rescaled budgets for the planned `runs` of recipes and their baseline.

    `earlier` are budgets at which the sweep's directory already has runs of the baseline.
    """
    # The baseline's longest run converts seconds to budgets, because rounding to whole steps matters least there.
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
        # A known budget is preferred, so that a control that was run before a new profile is not run again.
        exact = longest.ssr * seconds / whole
        budget = _nearest(exact, known, step=longest.ssr / longest.steps)
        if budget is None:
            budget = float(f"{exact:.{DIGITS}g}")
            known.append(budget)
        if budget not in own and run.recipe not in budgets.get(budget, ()):
            budgets[budget] = (*budgets.get(budget, ()), run.recipe)
    return Rescaled(budgets=budgets, waiting=tuple(waiting))


def _nearest(exact: float, known: Sequence[float], *, step: float) -> float | None:
    """Return the known budget that takes the same time: to within `SAME_TIME` or half a step, whichever is more."""
    nearest = min(known, key=lambda budget: abs(budget - exact))
    return nearest if abs(nearest - exact) <= max(SAME_TIME * exact, step / 2) else None


def _seconds(run: RunRecord, profiles: dict[str, ProfileRecord]) -> float | None:
    """Return the training time of the run on a quiet machine; None while a phase of its recipe has no profile."""
    profile = profiles.get(run.recipe_digest)
    if profile is None or not set(run.phases) <= set(profile.phases):
        return None
    return train_seconds(run.phases, profile.phases).seconds


def budgets_of(directory: Path, run: RunRecord) -> list[float]:
    """Return the budgets at which the directory has runs of the same recipe, controls included."""
    start = f"{run.run_id.rpartition('-ssr')[0]}-ssr"
    budgets = set()
    for path in rundir.run_directories(directory):
        if not path.name.startswith(start):
            continue
        try:
            record = run_files.read(RunRecord, path / rundir.RUN)
        except RunError:
            continue  # a damaged record is written again before the run starts
        if record.recipe_digest == run.recipe_digest:
            budgets.add(record.ssr)
    return sorted(budgets)
