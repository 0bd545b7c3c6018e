"""A sweep that is executed at a place: it is published there, and its results come back into the local directory.

Everything that reads runs, the database first of all, reads the local directory: a run that was executed elsewhere is
like any other.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from explorer import run_files, rundir
from explorer.errors import ExplorerError
from explorer.ledger.storage import LedgerDirectory
from explorer.place.attempt import collect
from explorer.place.published_sweep import AT_ONCE, ClassAt, PlanAt, Published
from explorer.provenance.trust import parse_trust
from explorer.run_files import ProfileRecord, RunRecord, check_profile
from explorer.runlog.countersign import countersign
from explorer.runlog.delegating import delegate
from explorer.runlog.documents import TRUST_FILE, keep, open_trainer
from explorer.sweep.commands.carried import carried
from explorer.sweep.commands.command_process import trained
from explorer.sweep.commands.tracked import read_tracked
from explorer.sweep.plan import Plan, PlannedRun
from explorer.sweep.run_at import State, Worker, run_at
from explorer.sweep.work import Fault, Outcome

DELEGATED = 30 * 86_400  # seconds; a run that was begun under one key cannot be continued under another

FAULTS: dict[State, Fault | None] = {
    "done": None,
    "elsewhere": "elsewhere",
    "preempted": "preempted",
    "later": "elsewhere",  # claims have pauses of their own
    "full disk": "full disk",
    "failed": "exception",
    "diverged": "diverged",
    "set aside": "set aside",
    "not here": "exception",
}


def at_place(plan: Plan) -> Plan:
    """Return the plan without steps that runs share: a worker elsewhere makes all the steps of its run."""
    runs = tuple(replace(run, place=None) for run in plan.runs)
    return replace(plan, runs=runs, others=tuple(map(at_place, plan.others)))


def publish(plan: Plan, url: str, *, profile: Sequence[Plan] = ()) -> Published:
    """Publish the runs of a plan. `profile` are the classes in which a worker measures step times before its first run.

    A governed run gets a key of its own, which the trainer's key lets sign this one ledger for `DELEGATED` seconds; the
    trainer's key stays here.

    The files of a command or notebook are published too, which `profile` does not change: its runs are timed while they
    train.

    Raises `PlaceError` where the place cannot be used, or holds another sweep, `ProvenanceError` for a key that is not
    a trainer's now, and `SpecError` for a command whose files cannot travel.
    """
    published = Published.at(url)
    command = plan.spec.command
    classes = tuple(
        ClassAt(
            machine=own.target.machine,
            runs=tuple(run.record.run_id for run in own.runs),
            profile=own in profile and command is None,
        )
        for own in plan.classes
    )
    task, contents = None, list[bytes]()
    if command is not None:  # its runs have the same files
        task, contents = carried(command, plan.runs[0].record, where=plan.spec.source)
    runs = [run for own in plan.classes for run in own.runs]
    documents = {run.record.run_id: run.documents for run in runs}

    def given(record: RunRecord) -> dict[str, bytes]:
        own, now = documents[record.run_id], int(time.time())
        return {} if own is None else delegate(own, record, now + DELEGATED, now=now)

    named = PlanAt(sweep=plan.spec.name, classes=classes)
    published.publish(named, [run.record for run in runs], given=given, task=task, contents=contents)
    return published


def fetch_results(published: Published, plan: Plan) -> dict[str, Outcome]:
    """Bring the published results of missing runs back, and return what came of it by run id. The cost is that of one
    listing, and of what is new."""
    done = published.names("results")
    missing = [run for own in plan.classes for run in own.missing]
    new = [run for run in missing if run.record.run_id in done and not (run.directory / rundir.RESULT).exists()]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = pool.map(lambda run: fetched(published, run), new)
        return {run.record.run_id: outcome for run, outcome in zip(new, outcomes, strict=True)}


def fetched(published: Published, run: PlannedRun) -> Outcome:
    """Bring one result back. What is damaged at the place is a fault of this run only."""
    try:
        bring_back(published, run)
    except ExplorerError as error:
        return Outcome(fault="exception", message=str(error))
    return Outcome()


def bring_back(published: Published, run: PlannedRun) -> None:
    """Write a published result into the run's directory. The ledger of a governed run is verified, and countersigned by
    the trainer's key, before the run counts as done.

    Raises `PlaceError` for a damaged result, and for the record of another run under the name of a governed one, and
    `LedgerError` for a ledger that does not verify.
    """
    documents = run.documents
    if documents is not None:
        keep(documents, run.directory)

    def check(directory: Path) -> None:
        if run.setting is not None:  # the worker counted the steps
            run_files.write(directory / rundir.RUN, trained(run.record, read_tracked(directory)))
        ledger, now = LedgerDirectory(directory / rundir.LEDGER), int(time.time())
        if documents is not None and ledger.path.exists():
            trust = parse_trust(documents.trust, where=str(documents.where / TRUST_FILE))
            _, key = open_trainer(documents.trainer, trust=trust, now=now)
            countersign(ledger, keys=[key], trust=trust, now=now)

    collect(published, run.record, run.directory, delegated=documents is not None, check=check)


def fetch_profiles(published: Published, plan: Plan) -> None:
    """Bring the step times back that workers measured. Raises `PlaceError` or `RunError` for damaged ones."""
    for listed in published.objects.list("profiles/"):
        if (profile := published.find(ProfileRecord, listed.key)) is not None:
            check_profile(profile, where=f"{published.objects.url}/{listed.key}")
            run_files.write(plan.directory / rundir.PROFILES / f"{profile.key}.json", profile)


def perform_at(worker: Worker, run_id: str) -> Outcome:
    """Execute one run at a place. The counterpart of `work.perform`, whose run directory is here."""
    ended = run_at(worker, run_id)
    return Outcome(fault=FAULTS[ended.state], message=ended.message, hosts=ended.hosts)
