"""Runs that branch: which recipes share their first steps between budgets, and where the shared states are kept.

A run leaves its state where its schedule begins to decay; longer runs of its recipe and seed begin with the longest one
that they can use. They end with the bits and the records that they have without it, so that nothing has to be asked
for: a sweep of a recipe that can branch trains less. Without a usable state a run makes all its steps itself.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from explorer import run_files, rundir
from explorer.canonical import digest
from explorer.engine.trunk import Shared
from explorer.errors import RunError
from explorer.recipes import machine
from explorer.recipes.recipe import Recipe
from explorer.run_files import RunRecord
from explorer.schema import record
from explorer.training.ledgered import is_recorded


@record
class Branch:
    """`branch.json`: a run shares its first steps with longer ones."""

    format: Literal[1] = 1
    longer: tuple[Annotated[int, Field(ge=1)], ...]  # steps of those that are still to come


def why_not(recipe: Recipe) -> str | None:
    """Return why runs of a recipe cannot share steps between budgets; None if they can."""
    schedule = recipe.schedule
    if schedule.stable() and schedule.warmup and schedule.scale_warmup:
        return "scale_warmup makes the first steps depend on the length"
    if not schedule.stable():
        return f"every step of the schedule {schedule.name!r} depends on the length; those of 'wsd' do not"
    if is_recorded(recipe):
        return "it keeps a ledger, which has to hold every step"
    if looking := [method.name for method in recipe.methods if not method.any_length()]:
        return f"the steps of {', '.join(looking)} depend on the length"
    return None


def branch_step(recipe: Recipe, *, steps: int, full_steps: int) -> int | None:
    """Return how many of its first steps a run shares with longer ones; None: none."""
    return None if why_not(recipe) else recipe.schedule.branch_step(total_steps=steps, full_steps=full_steps)


def trunk_name(recipe_digest: str, seed: int) -> str:
    """Return the name of the directory of a trunk below `_trunks`."""
    return f"{recipe_digest[:16]}-s{seed}"


def trunk_key(record: RunRecord) -> str:
    """Return the digest of what all runs of a trunk have in common; other code leaves states of its own."""
    return digest(
        {
            "recipe": record.recipe_digest,
            "seed": record.seed,
            "training_code": machine.code_digest(machine.TRAINING),
        }
    )


def shared_of(directory: Path, record: RunRecord, recipe: Recipe, *, full_steps: int) -> Shared | None:
    """Return the place of a run on its trunk; None if the sweep has not written that it shares steps.

    Raises `RunError` for a damaged file, and for a recipe whose steps depend on the length.
    """
    path = directory / rundir.BRANCH
    if not path.exists():
        return None
    branch = run_files.read(Branch, path)
    step = branch_step(recipe, steps=record.steps, full_steps=full_steps)
    if step is None:
        reason = why_not(recipe) or "its warm-up takes as long as the run"
        raise RunError(f"{path}: run {record.run_id} cannot share steps with longer ones: {reason}; remove the file")
    place = directory.parent / rundir.TRUNKS / trunk_name(record.recipe_digest, record.seed)
    return Shared(place=place, key=trunk_key(record), step=step, longer=tuple(n for n in branch.longer if n > step))
