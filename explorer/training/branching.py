"""Runs that branch: which recipes share their first steps between budgets, and where the shared states are kept.

A run leaves its state where its schedule begins to decay; longer runs of its recipe and seed begin with the longest one
that they can use. They end with the bits and the records that they have without it, so that nothing has to be asked
for: a sweep of a recipe that can branch trains less. Without a usable state a run makes all its steps itself.

A run that keeps a ledger leaves its state where a segment of its ledger ends, and the longer run records the steps of
that ledger as its own (governance/taking_over.py). Policies whose weights change with progress, or by what was
measured, share nothing.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from explorer import run_files, rundir
from explorer.canonical import digest
from explorer.engine.loop import Loop
from explorer.engine.trunk import Shared
from explorer.errors import RunError
from explorer.governance.recorder import Recorder
from explorer.governance.shared_state import Session
from explorer.governance.taking_over import SharedRecord
from explorer.provenance.policy import RoutingPolicy
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


def why_not(recipe: Recipe, policy: RoutingPolicy | None) -> str | None:
    """Return why runs of a recipe cannot share steps between budgets; None if they can. `policy` is the one that it
    routes by."""
    schedule = recipe.schedule
    if schedule.stable() and schedule.warmup and schedule.scale_warmup:
        return "scale_warmup makes the first steps depend on the length"
    if not schedule.stable():
        return f"every step of the schedule {schedule.name!r} depends on the length; the first ones of 'wsd' do not"
    if looking := [method.name for method in recipe.methods if not method.any_length()]:
        return f"the steps of {', '.join(looking)} depend on the length"
    return None if policy is None else _changing(policy)


def _changing(policy: RoutingPolicy) -> str | None:
    """Return why steps under a policy are not the same in runs of any length, or not only steps are on record."""
    for at, rule in enumerate(policy.rules):
        which = f"rules[{at}] of the policy {policy.name!r}"
        if rule.progress is not None:
            return f"{which} holds for a share of the run, which depends on the length"
        if rule.condition is not None:
            return f"{which} has a condition, and what switches it on depends on the length"
        if rule.examples is not None:
            return f"{which} selects examples in each step, and only steps are shared, no decisions"
    return None


def branch_step(recipe: Recipe, policy: RoutingPolicy | None, *, steps: int, full_steps: int) -> int | None:
    """Return how many of its first steps a run shares with longer ones; None: none."""
    if why_not(recipe, policy) is not None:
        return None
    step = recipe.schedule.branch_step(total_steps=steps, full_steps=full_steps)
    return None if step is None else step - step % segment_of(recipe) or None


def segment_of(recipe: Recipe) -> int:
    """Return after how many steps each a run of the recipe can leave its state: where a segment of its ledger ends."""
    return next((method.every for method in recipe.methods if isinstance(method, Recorder)), 1)


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


def shared_of(directory: Path, record: RunRecord, recipe: Recipe, loop: Loop) -> Shared | None:
    """Return the place of a run on its trunk; None if the sweep has not written that it shares steps. The ledger of a
    recorded run is open.

    Raises `RunError` for a damaged file, and for a recipe whose steps depend on the length.
    """
    path = directory / rundir.BRANCH
    if not path.exists():
        return None
    branch = run_files.read(Branch, path)
    session = loop.state.resources.get(Session)
    policy = session.routing.policy if session is not None and session.routing is not None else None
    step = branch_step(recipe, policy, steps=record.steps, full_steps=loop.setting.full_steps)
    if step is None:
        reason = why_not(recipe, policy) or "none of them comes before its decay and ends a segment of its ledger"
        raise RunError(f"{path}: run {record.run_id} cannot share steps with longer ones: {reason}; remove the file")
    place = directory.parent / rundir.TRUNKS / trunk_name(record.recipe_digest, record.seed)
    return Shared(
        place=place,
        key=trunk_key(record),
        step=step,
        longer=tuple(n for n in branch.longer if n > step),
        record=SharedRecord(state=loop.state, runs=directory.parent) if is_recorded(recipe) else None,
    )
