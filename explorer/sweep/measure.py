"""The profile stage of a sweep: step times of every recipe, taken while nothing else runs."""

from collections.abc import Sequence
from pathlib import Path

from explorer import records, rundir
from explorer.recipes.profile import profile
from explorer.recipes.run import documents_in
from explorer.records import RunRecord
from explorer.sweep.plan import Plan, read_profiles


def unprofiled(plan: Plan) -> list[RunRecord]:
    """All runs of the sweep if any recipe lacks a complete profile for this hardware, none otherwise.

    Recipes are compared with each other, so they are measured together, in turn: a profile from another day would
    compare two states of the machine.
    """
    known = read_profiles(plan.directory)
    phases = {digest: set(profile.phases) for digest, profile in known.items()}
    runs = [run.record for run in plan.runs]
    complete = all(set(run.phases) <= phases.get(run.recipe_digest, set()) for run in runs)
    return [] if complete else runs


def measure(directory: Path, runs: Sequence[RunRecord], *, data: Path | None) -> int:
    """Profile the recipes of `runs` and write `_profiles/<key>.json` for each; how many. Nothing else should run."""
    found = profile(runs, data=data, documents_of=lambda run: documents_in(directory / run.run_id, run))
    for record in found:
        records.write(directory / rundir.PROFILES / f"{record.key}.json", record)
    return len(found)
