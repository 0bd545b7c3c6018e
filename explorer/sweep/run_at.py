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

from explorer.bundled import notebook_directory
from explorer.errors import ExplorerError, PlaceError
from explorer.machine_class import why_not_here
from explorer.place.attempt import Attempt
from explorer.place.leases import LEASE, MOST_LOST, Claim, Ending, claims_of, end, held, losses, take
from explorer.place.published_sweep import FailureAt, PlanAt, Published, ResultAt
from explorer.recipes.machine import this_machine
from explorer.run_files import RunRecord
from explorer.runlog.documents import Documents
from explorer.sweep.measure import measure
from explorer.sweep.notebooks import INTERRUPTED
from explorer.sweep.presence import timing, training
from explorer.sweep.profiles import read_profiles
from explorer.sweep.work import EngineName, Fault, Job, Outcome, perform
from explorer.sweep.workers import LocalProcesses
from explorer.training.run import documents_in, stop_signals

PROFILE = "step-times"  # what is claimed to measure them, in place of a run

State = Literal["done", "elsewhere", "preempted", "later", "failed", "diverged", "set aside", "not here"]
FAILED: tuple[State, ...] = ("failed", "diverged", "set aside")


@dataclass(frozen=True, kw_only=True, slots=True)
class Worker:
    """Settings of a worker. None of them changes a result."""

    place: str  # URL or directory
    data: Path | None = None
    engine: EngineName = "warm"
    timeout: float | None = None  # seconds for a cell of a run's notebook
    lease: float = LEASE
    scratch: Path | None = None  # a directory on a local disk; None: the system's for temporary files


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """The outcome of a call.

    done       the run has its result: from this call, or from an earlier one
    elsewhere  another worker holds the run
    preempted  this process was asked to stop, and published a checkpoint: call again, here or elsewhere
    later      the run was lost here, or the place refused: call again, after a pause
    failed     the run raised, and is not tried again
    diverged   its loss, a metric or a weight was not finite; not tried again
    set aside  it cost several workers; not tried again
    not here   this machine is not the one that the run is planned for
    """

    run_id: str
    state: State
    message: str = ""


def run_at(worker: Worker, run_id: str) -> Ended:
    """Execute one run of a place, unless it is done or another worker has it. Raises `PlaceError` for a place that
    cannot be used, and for a run that it does not have."""
    published = Published.at(worker.place)
    return _run(worker, published, published.plan(), run_id)


def profile_at(worker: Worker) -> Ended | None:
    """Measure the step times of all recipes of a place, if they are wanted and no other worker does; publish them.

    Nothing else should run on this machine meanwhile: its other sweeps are waited for, as at home. None: there is
    nothing to measure. Raises `PlaceError` for a place that cannot be used.
    """
    published = Published.at(worker.place)
    return _profile(worker, published, published.plan())


def run_any(worker: Worker, *, on_end: Callable[[Ended], None]) -> None:
    """Execute the runs that are missing and free, in the plan's order, until there is none or this process has to
    stop. What every run came to goes to `on_end`.

    Raises `PlaceError` for a place that cannot be used.
    """
    published = Published.at(worker.place)
    again = True
    while again:
        again = False
        plan = published.plan()
        if (measured := _profile(worker, published, plan)) is not None:
            on_end(measured)
        for run_id in missing_in(published, plan):
            ended = _run(worker, published, plan, run_id)
            on_end(ended)
            if ended.state == "preempted":
                return
            # A run that took a while may have let others become free, earlier ones first.
            again = again or ended.state == "done"


def run_of_index(place: str, index: int) -> str | None:
    """Return the run at this place of the plan, from 0; None past its end, for arrays of jobs that are too long."""
    runs = Published.at(place).plan().runs
    return runs[index] if index < len(runs) else None


def state_of(failure: FailureAt) -> State:
    """Return the state of a run that is not tried again."""
    return "failed" if failure.kind == "exception" else failure.kind


def missing_at(place: str) -> list[str]:
    """Return the runs of a place that have neither a result nor a failure, in the plan's order."""
    published = Published.at(place)
    return missing_in(published, published.plan())


def missing_in(published: Published, plan: PlanAt) -> list[str]:
    """Return the runs of a plan that have neither a result nor a failure, in its order."""
    settled = published.names("results") | published.names("failures")
    return [run_id for run_id in plan.runs if run_id not in settled]


def _profile(worker: Worker, published: Published, plan: PlanAt) -> Ended | None:
    if not plan.profile or any(published.objects.list("profiles/")):
        return None
    if published.find(FailureAt, f"failures/{PROFILE}.json") is not None:
        return None
    records = [published.run(run_id).run for run_id in plan.runs]
    if (reason := why_not_here(records[0], this_machine(), planned=plan.machine)) is not None:
        return Ended(run_id=PROFILE, state="not here", message=reason)
    hardware = records[0].hardware
    claim = take(published.objects, PROFILE, host=socket.gethostname(), hardware=hardware.name, lease=worker.lease)
    if claim is None:
        return Ended(run_id=PROFILE, state="elsewhere", message="another worker measures")
    try:
        with held(published.objects, claim, lease=worker.lease):
            _measure(worker, published, records)
    except ExplorerError as error:
        # As at home, this costs the time axis and no run.
        published.fail(claim, "exception", str(error))
        end(published.objects, claim, "failed", str(error))
        return Ended(run_id=PROFILE, state="done", message=f"there are no step times: {error}")
    end(published.objects, claim, "done")
    return Ended(run_id=PROFILE, state="done", message="step times")


def _measure(worker: Worker, published: Published, records: Sequence[RunRecord]) -> None:
    """Measure the recipes of these runs in a process of its own, and publish their profiles."""
    with (
        tempfile.TemporaryDirectory(prefix="explorer-profile-", dir=worker.scratch) as scratch,
        timing() as reasons,
        LocalProcesses(1, threads=records[0].hardware.threads) as executor,
    ):
        data = None if worker.data is None else worker.data.resolve()
        documents = _documents(published, records, Path(scratch))
        executor.submit(measure, Path(scratch), records, data=data, documents=documents, reasons=reasons).result()
        for profile in read_profiles(Path(scratch)).values():
            published.write(f"profiles/{profile.key}.json", profile)


def _documents(published: Published, records: Sequence[RunRecord], scratch: Path) -> dict[str, Documents | None]:
    """Return the documents that govern the recipes of these runs, by the recipe's digest, from copies in `scratch`."""
    documents: dict[str, Documents | None] = {}
    for record in records:
        if record.recipe_digest not in documents:
            published.give(published.run(record.run_id), scratch / record.run_id)
            documents[record.recipe_digest] = documents_in(scratch / record.run_id, record)
    return documents


def _run(worker: Worker, published: Published, plan: PlanAt, run_id: str) -> Ended:
    with _told_to_stop() as told:  # before the run is claimed: a claim is always ended
        return _settled(worker, published, plan, run_id, told)


def _settled(worker: Worker, published: Published, plan: PlanAt, run_id: str, told: Callable[[], bool]) -> Ended:
    if published.find(ResultAt, f"results/{run_id}.json") is not None:
        return Ended(run_id=run_id, state="done")
    if (failure := published.find(FailureAt, f"failures/{run_id}.json")) is not None:
        return Ended(run_id=run_id, state=state_of(failure), message=failure.message)
    record = published.run(run_id).run
    if (reason := why_not_here(record, this_machine(), planned=plan.machine)) is not None:
        return Ended(run_id=run_id, state="not here", message=reason)
    if (poison := _poison(published, run_id)) is not None:
        return Ended(run_id=run_id, state="set aside", message=poison)
    claim = take(
        published.objects, run_id, host=socket.gethostname(), hardware=record.hardware.name, lease=worker.lease
    )
    if claim is None:
        return Ended(run_id=run_id, state="elsewhere", message="another worker holds it, or it waits after a loss")
    # The directory of a run is named like it, in that of its sweep.
    try:
        scratch = Path(tempfile.mkdtemp(prefix="explorer-run-", dir=worker.scratch))
    except OSError as error:
        raise PlaceError(f"cannot make a directory for the run: {error.strerror or error}") from error
    try:
        return _work(worker, published, claim, scratch / plan.sweep / run_id, record, told)
    except PlaceError as error:
        # Its lease runs out, and another call takes the run: what is wrong with a store may pass.
        return Ended(run_id=run_id, state="later", message=str(error))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _poison(published: Published, run_id: str) -> str | None:
    """Set a run aside that cost several workers; return why, or None if it may be tried."""
    now = time.time()
    claims = claims_of(published.objects, run_id)
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
    record: RunRecord,
    told: Callable[[], bool],
) -> Ended:
    """Execute a claimed run and settle its claim."""
    attempt = Attempt(published, claim, directory)
    finding = None
    with held(published.objects, claim, lease=worker.lease, also=attempt.save):
        attempt.begin()
        job = Job(
            directory=directory,
            notebook=notebook_directory() / "run.ipynb",
            engine=worker.engine,
            threads=record.hardware.threads,
            data=None if worker.data is None else worker.data.resolve(),
            contended=False,
            timeout=worker.timeout,
        )
        if told():
            outcome = Outcome(fault="interrupted", message=INTERRUPTED)
        else:
            with training(record.sweep, stop=told):
                outcome = perform(job)
    if outcome.fault is None:
        finding = attempt.finish()
    elif outcome.fault in ("interrupted", "preempted"):
        attempt.save()
    ending, state = ENDINGS[outcome.fault]
    if state in FAILED:
        published.fail(claim, "diverged" if outcome.fault == "diverged" else "exception", outcome.message)
    end(published.objects, claim, ending, outcome.message)
    if finding is not None:
        words = f"not reproducible: another result was first, and differs in {', '.join(finding.differs)}"
        return Ended(run_id=claim.run_id, state=state, message=words)
    return Ended(run_id=claim.run_id, state=state, message=outcome.message)


ENDINGS: dict[Fault | None, tuple[Ending, State]] = {
    None: ("done", "done"),
    "interrupted": ("preempted", "preempted"),
    "preempted": ("preempted", "preempted"),
    "full disk": ("full disk", "later"),
    "lost worker": ("lost worker", "later"),
    "dead kernel": ("dead kernel", "later"),
    "timeout": ("timeout", "later"),
    "exception": ("failed", "failed"),
    "diverged": ("failed", "diverged"),
}


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
