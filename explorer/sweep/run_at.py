"""The one unit of work of a sweep on many machines: claim a run at a place, train it here, publish what came of it.

Any scheduler may call it as often as it likes, on as many machines at once: a run that is done stays done, one that
another worker holds is left to it, and one that was interrupted anywhere continues from its newest checkpoint.
"""

import contextlib
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from explorer import rundir
from explorer.bundled import notebook_directory
from explorer.errors import ExplorerError, PlaceError, unknown
from explorer.machine_class import why_not_here
from explorer.place.attempt import Attempt
from explorer.place.leases import (
    LEASE,
    MOST_LOST,
    Claim,
    Ending,
    claims_of,
    end,
    held,
    losses,
    take,
    waits_until,
)
from explorer.place.published_sweep import ClassAt, FailureAt, PlanAt, Published, ResultAt, RunAt
from explorer.recipes.machine import this_machine
from explorer.repeated import repeated
from explorer.run_files import RunRecord
from explorer.runlog.documents import Documents
from explorer.sweep.commands.carried import checkpoints, unpack
from explorer.sweep.commands.command_record import lacking
from explorer.sweep.commands.command_task import CommandRecipe
from explorer.sweep.measure import measure
from explorer.sweep.notebooks import INTERRUPTED
from explorer.sweep.presence import timing, training
from explorer.sweep.profiles import read_profiles
from explorer.sweep.work import EngineName, Fault, Job, Outcome, measure_apart, perform
from explorer.training.run import documents_in, stop_signals

TASK = ".task"  # files of a command, next to the run's sweep
NOT_ALLOWED = "a command or notebook of its author's trains it, and was not allowed here: run-at --commands"

State = Literal[
    "done", "elsewhere", "preempted", "later", "full disk", "failed", "diverged", "set aside", "not here", "left"
]
FAILED: tuple[State, ...] = ("failed", "diverged", "set aside")
LOOK_EVERY = 2.0  # seconds between two looks at the permit, a request each


@dataclass(frozen=True, kw_only=True, slots=True)
class Worker:
    """Settings of a worker. None of them changes a result."""

    place: str  # URL or directory
    data: Path | None = None
    engine: EngineName = "warm"
    timeout: float | None = None  # seconds for a cell of a run's notebook
    commands: bool = False  # whether commands and notebooks that the place brings may be executed
    lease: float = LEASE
    scratch: Path | None = None  # a directory on a local disk; None: the system's for temporary files
    permit: str | None = None  # an object of the place: runs stop after their step once it is gone; None: no need


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """The outcome of a call.

    done       the run has its result: from this call, or from an earlier one
    elsewhere  another worker holds the run
    preempted  this process was asked to stop, and published a checkpoint: call again, here or elsewhere
    later      the run was lost here, or the place refused: call again, after a pause
    full disk  as later; on this machine it would fail again
    failed     the run raised, and is not tried again
    diverged   its loss, a metric or a weight was not finite; not tried again
    set aside  it cost several workers; not tried again
    not here   this machine is not the one that the run is planned for
    left       the same, of runs that this call was not asked for: they are left to machines of their class
    """

    run_id: str
    state: State
    message: str = ""
    hosts: tuple[str, ...] = ()  # that hold the run, or lost it: another call is better made elsewhere


def run_at(worker: Worker, run_id: str) -> Ended:
    """Execute one run of a place, unless it is done or another worker has it. Raises `PlaceError` for a place that
    cannot be used, and for a run that it does not have."""
    return _run(worker, Published.at(worker.place), run_id)


def profile_at(worker: Worker, *, name: str | None = None) -> Ended | None:
    """Measure the step times of a class, if they are wanted and no other worker does; publish them. `name` is that of
    its hardware; None: the class of this machine.

    Nothing else should run on this machine meanwhile: its other sweeps are waited for, as at home. None: there is
    nothing to measure. Raises `PlaceError` for a place that cannot be used.
    """
    published = Published.at(worker.place)
    plan = published.plan()
    if name is not None:
        return _profile(worker, published, class_named(plan, name, where=published.objects.url))
    own = next((own for own in plan.classes if _why_not(published, own) is None), plan.classes[0])
    return _profile(worker, published, own)


def run_any(worker: Worker, *, on_end: Callable[[Ended], None]) -> list[str]:
    """Execute the runs of this machine's class that are missing and free, in the plan's order, until there is none or
    this process has to stop. What every run came to goes to `on_end`. Return the runs of the class that are missing.

    Of another class, `on_end` gets why its runs are left. Raises `PlaceError` for a place that cannot be used.
    """
    published = Published.at(worker.place)
    again, told = True, False
    mine: list[ClassAt] = []
    while again:
        again = False
        plan = published.plan()
        reasons = [_why_not(published, own) for own in plan.classes]
        mine = [own for own, reason in zip(plan.classes, reasons, strict=True) if reason is None]
        for own, reason in zip(plan.classes, reasons, strict=True):
            if reason is not None and not told and (left := missing_in(published, own)):
                words = f"{len(left)} runs are left to machines of their class: {reason}"
                state = "left" if mine else "not here"
                on_end(Ended(run_id=own.machine.hardware.name, state=state, message=words))
        told = True
        for own in mine:
            if (measured := _profile(worker, published, own)) is not None:
                on_end(measured)
            for run_id in missing_in(published, own):
                ended = _run(worker, published, run_id)
                on_end(ended)
                if ended.state in ("preempted", "full disk"):
                    return [run_id]
                # A run that took a while may have let others become free, earlier ones first.
                again = again or ended.state == "done"
    return [run_id for own in mine for run_id in missing_in(published, own)]


def run_of_index(place: str, index: int, *, name: str | None = None) -> str | None:
    """Return the run at this place of the plan, from 0, in the class with hardware of this name; None past its end, for
    arrays of jobs that are too long.

    Raises `PlaceError` for a class that is not there, and where there are several and none is named.
    """
    published = Published.at(place)
    plan = published.plan()
    names = [own.machine.hardware.name for own in plan.classes]
    if name is None and len(names) > 1:
        raise PlaceError(
            f"--index: the sweep is for {len(names)} classes: add --class, one of {', '.join(map(repr, names))}"
        )
    own = class_named(plan, name or names[0], where=published.objects.url)
    return own.runs[index] if index < len(own.runs) else None


def class_named(plan: PlanAt, name: str, *, where: str) -> ClassAt:
    """Return the class of a plan with hardware of this name. Raises `PlaceError` that starts with `where`."""
    classes = {own.machine.hardware.name: own for own in plan.classes}
    if name not in classes:
        raise PlaceError(f"{where}: {unknown('class', name, classes)}")
    return classes[name]


def state_of(failure: FailureAt) -> State:
    """Return the state of a run that is not tried again."""
    return "failed" if failure.kind == "exception" else failure.kind


def missing_at(place: str) -> list[str]:
    """Return the runs of a place that have neither a result nor a failure, in the plan's order."""
    published = Published.at(place)
    return missing_in(published, published.plan())


def missing_in(published: Published, plan: PlanAt | ClassAt) -> list[str]:
    """Return the runs of a plan, or of one class, that have neither a result nor a failure, in their order."""
    settled = published.names("results") | published.names("failures")
    return [run_id for run_id in plan.runs if run_id not in settled]


def _why_not(published: Published, own: ClassAt) -> str | None:
    """Return why this machine is not of the class, by its first run; None: it is, or there is no run."""
    if not own.runs:
        return None
    return why_not_here(published.run(own.runs[0]).run, this_machine(), planned=own.machine)


def _profile(worker: Worker, published: Published, own: ClassAt) -> Ended | None:
    name = own.measuring
    if not own.profile or not own.runs or any(published.objects.list(own.profiles)):
        return None
    if published.find(FailureAt, f"failures/{name}.json") is not None:
        return None
    if (reason := _why_not(published, own)) is not None:
        return Ended(run_id=name, state="not here", message=reason)
    records = [published.run(run_id).run for run_id in own.runs]
    hardware = records[0].hardware
    claim = take(published.objects, name, host=socket.gethostname(), hardware=hardware.name, lease=worker.lease)
    if claim is None:
        return Ended(run_id=name, state="elsewhere", message="another worker measures")
    try:
        with held(published.objects, claim, lease=worker.lease):
            measured = _measure(worker, published, records, own.profiles)
    except ExplorerError as error:
        # As at home, this costs the time axis and no run.
        published.fail(claim, "exception", str(error))
        end(published.objects, claim, "failed", str(error))
        return Ended(run_id=name, state="done", message=f"there are no step times: {error}")
    if not measured:
        end(published.objects, claim, "preempted", INTERRUPTED)
        return Ended(run_id=name, state="preempted", message=INTERRUPTED)
    end(published.objects, claim, "done")
    return Ended(run_id=name, state="done", message="step times")


def _measure(worker: Worker, published: Published, records: Sequence[RunRecord], folder: str) -> bool:
    """Measure the recipes of these runs in a process of its own, and publish their profiles in a folder. False: the
    permit was taken back."""
    with (
        tempfile.TemporaryDirectory(prefix="explorer-profile-", dir=worker.scratch) as directory,
        timing() as reasons,
    ):
        scratch = Path(directory)
        given = {
            "data": None if worker.data is None else worker.data.resolve(),
            "documents": _documents(published, records, scratch),
            "reasons": reasons,
        }
        permit = None if worker.permit is None else scratch / rundir.PERMIT
        with _permitted(published, worker.permit, permit):
            threads = records[0].hardware.threads
            if measure_apart(measure, scratch, records, threads=threads, permit=permit, **given) is None:
                return False
        for profile in read_profiles(scratch).values():
            published.write(f"{folder}{profile.key}.json", profile)
    return True


def _documents(published: Published, records: Sequence[RunRecord], scratch: Path) -> dict[str, Documents | None]:
    """Return the documents that govern the recipes of these runs, by the recipe's digest, from copies in `scratch`."""
    documents: dict[str, Documents | None] = {}
    for record in records:
        if record.recipe_digest not in documents:
            published.give(published.run(record.run_id), scratch / record.run_id)
            documents[record.recipe_digest] = documents_in(scratch / record.run_id, record)
    return documents


def _run(worker: Worker, published: Published, run_id: str) -> Ended:
    with _told_to_stop() as told:  # before the run is claimed: a claim is always ended
        return _settled(worker, published, run_id, told)


def _settled(worker: Worker, published: Published, run_id: str, told: Callable[[], bool]) -> Ended:
    planned = published.run(run_id)
    reason = why_not_here(planned.run, this_machine(), planned=planned.machine)
    if reason is None and planned.task is not None and not worker.commands:
        reason = NOT_ALLOWED
    # Most runs were never claimed, and a request costs as much as a listing: so the first claim is tried at once. A run
    # that no worker has claimed has neither a result nor a failure. A command's files are not fetched on that chance.
    if reason is None and planned.task is None and (ended := _claimed(worker, published, planned, (), told)):
        return ended
    if claims := claims_of(published.objects, run_id):
        if published.find(ResultAt, f"results/{run_id}.json") is not None:
            return Ended(run_id=run_id, state="done")
        if (failure := published.find(FailureAt, f"failures/{run_id}.json")) is not None:
            return Ended(run_id=run_id, state=state_of(failure), message=failure.message)
    if reason is not None:
        return Ended(run_id=run_id, state="not here", message=reason)
    if (poison := _poison(published, claims)) is not None:
        return Ended(run_id=run_id, state="set aside", message=poison)
    now = time.time()
    hosts = tuple(sorted({claim.host for claim in (*claims[-1:], *losses(claims, now))}))
    if now >= waits_until(claims, now) and (ended := _claimed(worker, published, planned, claims, told)):
        return ended
    words = "another worker holds it, or it waits after a loss"
    return Ended(run_id=run_id, state="elsewhere", message=words, hosts=hosts)


def _claimed(
    worker: Worker, published: Published, planned: RunAt, claims: Sequence[Claim], told: Callable[[], bool]
) -> Ended | None:
    """Claim a run that has these claims, and execute it; None: another worker has claimed it."""
    run_id = planned.run.run_id
    try:
        scratch = Path(tempfile.mkdtemp(prefix="explorer-run-", dir=worker.scratch))
    except OSError as error:
        raise PlaceError(f"cannot make a directory for the run: {error.strerror or error}") from error
    try:
        setting = None
        if planned.task is not None:
            setting = unpack(published, planned.task, planned.run, scratch / TASK)
            if (reason := lacking(planned.run, setting)) is not None:
                return Ended(run_id=run_id, state="not here", message=reason)
        host, hardware = socket.gethostname(), planned.run.hardware.name
        claim = take(published.objects, run_id, host=host, hardware=hardware, lease=worker.lease, claims=claims)
        if claim is None:
            return None
        # The directory of a run is named like it, in that of its sweep.
        return _work(worker, published, claim, scratch / planned.run.sweep / run_id, planned, setting, told)
    except PlaceError as error:
        # Its lease runs out, and another call takes the run: what is wrong with a store may pass.
        return Ended(run_id=run_id, state="later", message=str(error))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _poison(published: Published, claims: Sequence[Claim]) -> str | None:
    """Set a run aside that cost several workers; return why, or None if it may be tried."""
    now = time.time()
    lost = losses(claims, now)
    if len(lost) < MOST_LOST or claims[-1].open(now):
        return None
    where = ", ".join(f"{claim.ending(now)} on {claim.host}" for claim in lost)
    message = f"set aside after {len(lost)} attempts that ended in the middle: {where}"
    published.fail(lost[-1], "set aside", message)
    return message


def _work(
    worker: Worker,
    published: Published,
    claim: Claim,
    directory: Path,
    planned: RunAt,
    setting: CommandRecipe | None,
    told: Callable[[], bool],
) -> Ended:
    """Execute a claimed run and settle its claim."""
    attempt = Attempt(published, claim, directory, newest=None if setting is None else checkpoints)
    finding = None
    with held(published.objects, claim, lease=worker.lease, also=attempt.save):
        attempt.begin(planned)
        job = Job(
            directory=directory,
            notebook=notebook_directory() / "run.ipynb",
            engine=worker.engine,
            threads=planned.run.hardware.threads,
            data=None if worker.data is None else worker.data.resolve(),
            contended=False,
            timeout=worker.timeout,
            setting=setting,
            permit=None if worker.permit is None else directory / rundir.PERMIT,
        )
        if told():
            outcome = Outcome(fault="interrupted", message=INTERRUPTED)
        else:
            with _permitted(published, worker.permit, job.permit), training(planned.run.sweep, stop=told):
                outcome = perform(job)
    # While this process stops, any fault may be a consequence of the signal, so it does not count as one.
    fault: Fault | None = "interrupted" if outcome.fault is not None and told() else outcome.fault
    with held(published.objects, claim, lease=worker.lease):  # files may be large, and the link slow
        if fault is None:
            finding = attempt.finish()
        elif fault in ("interrupted", "preempted"):
            attempt.save()
    if setting is not None and fault == "timeout":  # it is its author's, and would come again
        fault = "exception"
    ending, state = ENDINGS[fault]
    if state in FAILED:
        published.fail(claim, "diverged" if fault == "diverged" else "exception", outcome.message)
    end(published.objects, claim, ending, outcome.message)
    if finding is not None:
        words = f"not reproducible: another result was first, and differs in {', '.join(finding.differs)}"
        return Ended(run_id=claim.run_id, state=state, message=words)
    return Ended(run_id=claim.run_id, state=state, message=outcome.message, hosts=outcome.hosts)


ENDINGS: dict[Fault | None, tuple[Ending, State]] = {
    None: ("done", "done"),
    "interrupted": ("preempted", "preempted"),
    "preempted": ("preempted", "preempted"),
    "full disk": ("full disk", "full disk"),
    "lost worker": ("lost worker", "later"),
    "dead kernel": ("dead kernel", "later"),
    "timeout": ("timeout", "later"),
    "exception": ("failed", "failed"),
    "diverged": ("failed", "diverged"),
}


@contextlib.contextmanager
def _permitted(published: Published, key: str | None, permit: Path | None) -> Iterator[None]:
    """Keep the file `permit` within the block for as long as the place has the object."""
    if key is None or permit is None:
        yield
        return

    def look() -> bool:
        with contextlib.suppress(PlaceError):  # a place that does not answer takes nothing back
            if not published.has(key):
                permit.unlink(missing_ok=True)
                return True
        return False

    rundir.write_bytes(permit, b"")
    try:
        look()
        with repeated(look, every=LOOK_EVERY, name="permit"):
            yield
    finally:
        permit.unlink(missing_ok=True)


@contextlib.contextmanager
def _told_to_stop() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether this process was told to stop; USR1, which schedulers send a while before
    they kill, counts as SIGTERM."""
    with stop_signals() as told:
        if threading.current_thread() is not threading.main_thread():
            yield told
            return
        before = signal.signal(signal.SIGUSR1, lambda *_: signal.raise_signal(signal.SIGTERM))
        try:
            yield told
        finally:
            signal.signal(signal.SIGUSR1, before)
