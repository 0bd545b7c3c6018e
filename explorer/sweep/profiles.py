"""Step times that a sweep has on this machine: reading them, and the recipes that lack them.

Recipes are compared with each other, so they are measured together, in turn: a profile from another day would compare
two states of the machine.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from explorer import run_files, rundir
from explorer.errors import RunError
from explorer.run_files import ProfileRecord, RunRecord


def read_profiles(directory: Path) -> dict[str, ProfileRecord]:
    """Return the profiles of the sweep in `directory`, by recipe digest, which covers the hardware.

    A damaged profile counts as missing, so that it is measured again.
    """
    profiles = {}
    for path in sorted((directory / rundir.PROFILES).glob("*.json")):
        try:
            profile = run_files.read(ProfileRecord, path)
        except RunError:
            continue
        profiles[profile.recipe_digest] = profile
    return profiles


def profiles_for(directory: Path, runs: Sequence[RunRecord]) -> dict[str, ProfileRecord]:
    """Return the profiles of a sweep whose runs are for another machine, by recipe digest: its own, and imported ones.

    An imported profile counts for a recipe on its hardware, by whatever versions it was made.
    """
    imported = {(own.effective, own.hardware): own for own in read_profiles(directory.parent).values()}
    fitting = {run.recipe_digest: imported.get((run.effective_digest, run.hardware)) for run in runs}
    return {digest: own for digest, own in fitting.items() if own is not None} | read_profiles(directory)


def busy_reasons(profiles: Mapping[str, ProfileRecord], digests: Collection[str]) -> tuple[str, ...]:
    """Return why the machine was busy while the recipes with these digests were profiled, without repeats.

    Empty: it was not busy, or no watch was kept.
    """
    reasons_of = [profile.watch.reasons for digest, profile in profiles.items() if digest in digests and profile.watch]
    return tuple(dict.fromkeys(reason for reasons in reasons_of for reason in reasons))


def unprofiled(directory: Path, runs: Sequence[RunRecord], *, failed: Collection[str] = ()) -> list[RunRecord]:
    """Return the runs whose recipes have to be profiled: all of them, or none.

    All, if a recipe lacks a complete profile or if the profiles come from several passes. `failed` are run ids; recipes
    of which every run failed are left out.
    """
    known = read_profiles(directory)
    wanted = to_profile(runs, failed=failed)
    passes = {known[run.recipe_digest].profile_pass for run in wanted if run.recipe_digest in known}
    phases = {digest: set(profile.phases) for digest, profile in known.items()}
    complete = all(set(run.phases) <= phases.get(run.recipe_digest, set()) for run in wanted)
    return [] if complete and len(passes) <= 1 else wanted


def to_profile(runs: Sequence[RunRecord], *, failed: Collection[str] = ()) -> list[RunRecord]:
    """Return these runs without those of recipes of which every run `failed`, and without those of several ranks, whose
    times are measured in the runs."""
    runs = [run for run in runs if run.hardware.world_size == 1]
    sound = {run.recipe_digest for run in runs if run.run_id not in failed}
    return [run for run in runs if run.recipe_digest in sound]
