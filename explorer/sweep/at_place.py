"""A sweep that is executed at a place: it is published there, and its results come back into the local directory.

Everything that reads runs, the database first of all, reads the local directory: a run that was executed elsewhere is
like any other.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from explorer import run_files, rundir
from explorer.errors import SpecError
from explorer.place.attempt import collect
from explorer.place.opened import open_objects
from explorer.place.published_sweep import AT_ONCE, PlanAt, Published
from explorer.run_files import ProfileRecord, check_profile
from explorer.sweep.plan import Plan
from explorer.sweep.run_at import State, Worker, run_at
from explorer.sweep.work import Fault, Outcome

FAULTS: dict[State, Fault | None] = {
    "done": None,
    "elsewhere": "elsewhere",
    "later": "preempted",
    "failed": "exception",
    "not here": "exception",
}


def at_place(plan: Plan) -> Plan:
    """Return the plan without steps that runs share: a worker elsewhere makes all the steps of its run.

    Raises `SpecError` for runs that need something that stays on this machine.
    """
    if plan.spec.command is not None:
        raise SpecError(f"{plan.spec.source}: a {plan.spec.command.kind} runs on this machine only: leave out --at")
    governed = next((run.record.recipe for run in plan.runs if run.documents is not None), None)
    if governed is not None:
        raise SpecError(
            f"{plan.spec.source}: recipes.{governed}: governed runs need the trainer's key, which stays on this"
            " machine: leave out --at"
        )
    return replace(plan, runs=tuple(replace(run, place=None) for run in plan.runs))


def publish(plan: Plan, url: str, *, profile: bool = False) -> Published:
    """Publish the runs of a plan. `profile`: a worker measures step times before the first run.

    Raises `PlaceError` where the place cannot be used, or holds another sweep.
    """
    published = Published(open_objects(url))
    runs = tuple(run.record.run_id for run in plan.runs)
    named = PlanAt(sweep=plan.spec.name, machine=plan.target.machine, runs=runs, profile=profile)
    published.publish(named, [(run.record, {}) for run in plan.runs])
    return published


def fetch_results(published: Published, plan: Plan) -> set[str]:
    """Bring the published results of missing runs back, and return their run ids. The cost is that of one listing, and
    of what is new. Raises `PlaceError` for a damaged result."""
    done = published.names("results")
    new = [run for run in plan.missing if run.record.run_id in done and not (run.directory / rundir.RESULT).exists()]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(lambda run: collect(published, run.record.run_id, run.directory), new):
            pass
    return {run.record.run_id for run in new}


def fetch_profiles(published: Published, plan: Plan) -> None:
    """Bring the step times back that workers measured. Raises `PlaceError` or `RunError` for damaged ones."""
    for listed in published.objects.list("profiles/"):
        if (profile := published.find(ProfileRecord, listed.key)) is not None:
            check_profile(profile, where=f"{published.objects.url}/{listed.key}")
            run_files.write(plan.directory / rundir.PROFILES / f"{profile.key}.json", profile)


def perform_at(worker: Worker, run_id: str) -> Outcome:
    """Execute one run at a place. The counterpart of `work.perform`, whose run directory is here."""
    ended = run_at(worker, run_id)
    return Outcome(fault=FAULTS[ended.state], message=ended.message)
