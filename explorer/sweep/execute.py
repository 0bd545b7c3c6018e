"""Execution of a sweep: the missing runs, in order, until all are done or the sweep is stopped.

One process executes a sweep at a time, by the workers of this machine or those of any `concurrent.futures.Executor`
that share its files. A run that raises is recorded as failed, and the others continue. A run whose kernel or worker
died is tried again after a pause, and set aside when three have died with it; one whose worker was called back
continues on another, and that is no fault. The first Ctrl-C or SIGTERM stops every run in progress after its current
step, the second stops at once. Either way the next start continues where this one ended.

Step times are measured first: a run then has its time as soon as it is finished, and rescaled controls have their
budgets before they begin. When all runs are done, a few windows of the baseline show whether the machine still runs at
the same speed. If it drifted, or was busy the first time, all recipes are measured again.
"""

import contextlib
import datetime
import hashlib
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from explorer import run_files, rundir
from explorer.bundled import notebook_directory
from explorer.errors import ExplorerError, RunError, SweepError
from explorer.place.published_sweep import FailureAt, Published
from explorer.run_files import FailureRecord, RunRecord
from explorer.runlog.documents import keep
from explorer.sweep.at_place import FAULTS, at_place, fetch_profiles, fetch_results, fetched, perform_at, publish
from explorer.sweep.measure import drift, measure
from explorer.sweep.notebooks import INTERRUPTED, check_notebook
from explorer.sweep.plan import Plan, PlannedRun, make_plan
from explorer.sweep.pool import Pool, Workers
from explorer.sweep.presence import timing, training
from explorer.sweep.profiles import busy_reasons, read_profiles, to_profile, unprofiled
from explorer.sweep.run_at import Worker, profile_at, state_of
from explorer.sweep.trunks import tidy, unused
from explorer.sweep.work import (
    ATTEMPTS,
    EngineName,
    Job,
    Outcome,
    close_engines,
    forget_lost,
    lost_on,
    lost_workers,
    make_engine,
    measure_apart,
    perform,
)
from explorer.sweep.workers import ExecutorLost, InProcess, LocalProcesses, WorkerLost, default_workers, make_executor
from explorer.training.branching import Branch
from explorer.training.run import on_stop_signals

NOTEBOOK = notebook_directory() / "run.ipynb"
BACKOFF = (1.0, 5.0)  # seconds before the first and the second retry
ELSEWHERE = 2.0  # seconds until a run that another worker holds is looked at again
RETRIED = ("dead kernel", "timeout", "lost worker")  # faults of the machine; a run that raises would raise again

Timed = TypeVar("Timed")

Happening = Literal[
    "start",
    "done",
    "failed",
    "retry",
    "interrupted",
    "stopping",
    "waiting",
    "left",
    "profile",
    "busy",
    "warning",
    "end",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """An event of the execution, with the progress of the whole sweep after it."""

    kind: Happening
    run: PlannedRun | None = None
    message: str = ""
    done: int
    failed: int
    total: int
    fraction: float  # of the sweep's work
    seconds_left: float | None  # None: no run has finished yet


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A run without a result, and why."""

    run_id: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """The outcome of executing a sweep."""

    done: int  # runs with a result now
    executed: int  # of them, runs that this start completed
    failures: tuple[Failure, ...]
    waiting: int  # controls that are not planned yet, because their budgets need a profile
    interrupted: bool
    warnings: tuple[str, ...]
    seconds: float

    @property
    def complete(self) -> bool:
        """True if every run has its result."""
        return not self.failures and not self.interrupted and not self.waiting


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Settings of the execution. None of them changes a result."""

    engine: EngineName = "warm"
    workers: int | None = None  # runs side by side; None: as many as the cores allow
    timeout: float | None = None  # seconds for a cell of a run's notebook
    profile: bool = True  # measure step times first, and check at the end that they still hold
    notebook: Path = NOTEBOOK
    executor: Workers | None = None  # of workers that see these files; None: workers of this machine
    place: str | None = None  # where the sweep is published, and workers of other machines may take part
    on_event: Callable[[Event], None] = field(default=lambda event: None)
    on_result: Callable[[Path], None] = field(default=lambda directory: None)  # gets the directory of a finished run


class Source(Protocol):
    """Where the runs of a sweep come from, if its plan does not list them beforehand. Only its runs are executed."""

    @property
    def fraction(self) -> float:
        """Return the share of the work that is done."""
        ...

    def next(self) -> PlannedRun | None:
        """Return a run for a worker that would be idle; None: for now there is none, or for good if none is running."""
        ...

    def ended(self, run: PlannedRun, message: str | None) -> None:
        """Take note that a run has its result, or why it will not have one."""
        ...


def run_sweep(
    plan: Plan, settings: Settings | None = None, *, source: Source | None = None, executor: Workers | None = None
) -> Summary:
    """Execute the missing runs of the plan, or those that a source adds to it.

    `executor`, if given, is that of the settings: any `concurrent.futures.Executor`, which stays open, or a function
    that makes one for this sweep. `explorer.testing.ExecutorContract` says what it has to keep.

    Before any run starts, raises `RunError` when another process executes this sweep or its directory cannot be
    written, and `SweepError` for a notebook that cannot be used and for a plan that is for other machines. A disk that
    fills up later ends the sweep; files that were written stay valid.
    """
    settings = settings or Settings()
    if executor is not None:
        settings = replace(settings, executor=executor)
    # Elsewhere each worker looks whether its machine is of the plan's class.
    if settings.executor is None and settings.place is None:
        _check_here(plan)
    with rundir.locked(plan.directory, what=f"sweep {plan.spec.name!r}"):
        return _Execution(plan, settings, source).run()


def profile_sweep(plan: Plan, settings: Settings | None = None) -> Summary:
    """Measure the step times of all recipes of the plan again. The existing profiles stay until that is done.

    Raises `RunError` when another process executes this sweep, and `SweepError` for a plan that is for other machines.
    """
    _check_here(plan)
    with rundir.locked(plan.directory, what=f"sweep {plan.spec.name!r}"):
        return _Execution(plan, settings or Settings()).measure_again()


def _check_here(plan: Plan) -> None:
    reasons = [own.why_not_here for own in plan.classes]
    if None not in reasons:
        raise SweepError(f"{plan.spec.source}: this machine does not execute the sweep: {'; '.join(map(str, reasons))}")


@dataclass(slots=True)
class _Task:
    """A run that is not finished."""

    run: PlannedRun
    attempts: int = 0
    not_before: float = 0.0  # on the monotonic clock: the end of the pause before a retry
    suspected: bool = False  # of ending the executor, with a worker that died; nothing else runs while it does
    hosts: set[str] = field(default_factory=set)  # where it was lost: others are preferred


class _Execution:
    """One start of a sweep."""

    def __init__(self, plan: Plan, settings: Settings, source: Source | None = None) -> None:
        self.plan = plan if settings.place is None else at_place(plan)
        self.settings = settings
        self.source = source
        self.published: Published | None = None  # the sweep at its place
        self.permit: str | None = None  # an object there, for calls of an executor that cannot be interrupted
        self.waiting: deque[_Task] = deque()
        self.others: deque[_Task] = deque()  # of classes that only workers of the place serve
        self.served: set[str] = set()  # labels of the classes that this process has workers for
        self.rooms: dict[str, int | None] = {}  # by label: how many runs its workers make at once; None: not known
        self.pool: Pool = Pool(InProcess(), plan.directory)
        self.workers = 1
        self.running: dict[Future[Outcome], _Task] = {}
        self.failures = _damaged(run for own in plan.classes for run in own.runs)
        self.executed = 0
        self.warnings: list[str] = []
        self.stopping = threading.Event()
        self.announced = False
        self.begun = time.monotonic()
        self.work_done = 0.0  # in the units of `_work`
        self.before = 0.0 if source is None else source.fraction  # done by earlier starts

    # --- stages ---

    def _make_workers(self) -> None:
        threads, made = self.plan.spec.threads, self.settings.executor
        device = self.plan.runs[0].record.hardware.device
        ranks = max(run.record.hardware.world_size for run in self.plan.runs)
        usual = default_workers(threads=threads, device=device, ranks=ranks)
        if self.plan.spec.command is not None or ranks > 1:
            usual = 1  # their time is measured in the run, which has to be the only one
        if made is not None:
            self.workers = self.settings.workers or self.pool.workers or usual
            self.rooms = {own.target.machine.label: self._room(own) for own in self._own}
            return
        wanted = self.settings.workers or usual
        self.workers = wanted if self.source is not None else min(wanted, max(1, len(self.waiting)))
        make = partial(make_executor, threads=threads, device=device, ranks=ranks)
        self.pool = Pool(lambda: make(self.workers), self.plan.directory)

    def run(self) -> Summary:
        # A fault of the engine or the notebook would fail every run: it is reported before anything is written. So is
        # one of the executor.
        missing = any(own.missing or own.waiting for own in self.plan.classes)
        if self.plan.spec.command is None and (missing or self.source is not None):
            make_engine(self.settings.engine, threads=1, timeout=self.settings.timeout)
            check_notebook(self.settings.notebook, self._job(self.plan.runs[0]).parameters())
        try:
            with self._engaged(), on_stop_signals(self._stop):
                _write_if_changed(self.plan.directory / rundir.SWEEP, self.plan.to_json())
                if self.source is None:
                    self._share_out(run for own in self.plan.classes for run in own.missing)
                self._tell("start")
                self._tell_left()
                for own in self._own:
                    self._profile(unprofiled(self.plan.directory, _records(own)))
                self._add_controls()
                self._publish()
                self._execute_all()
                # The last profile can move the budgets of controls, or give budgets to those that waited for one.
                self._profile_late()
                self._add_controls()
                self._publish()
                self._execute_all()
                self._remove_unused()
        finally:
            close_engines()
        self._tell("end")
        return self._summary()

    def measure_again(self) -> Summary:
        """Measure all recipes, also those that have a profile."""
        if self.plan.spec.command is not None:
            raise SweepError(
                f"{self.plan.spec.source}: a {self.plan.spec.command.kind} has no step times to measure: every run is"
                " timed while it trains, if nothing else runs meanwhile"
            )
        with self._engaged(), on_stop_signals(self._stop):
            self._tell("start")
            self._profile(_records(self.plan))
        self._tell("end")
        return self._summary()

    def _execute_all(self) -> None:
        if self.waiting or self._refill():
            self._execute_own()
        if self.others:
            self._await_others()

    def _execute_own(self) -> None:
        """Execute the runs of the classes that this process has workers for."""
        if self.stopping.is_set():
            return
        self._make_workers()
        try:
            with self._present():
                while self.running or (not self.stopping.is_set() and (self.waiting or self._refill())):
                    self._submit()
                    self._announce_stop()
                    self._collect()
        except BaseException:
            self.pool.interrupt()
            raise
        finally:
            for future in self.running:
                future.cancel()
            if self.settings.executor is None:
                self.pool.shutdown()

    @contextlib.contextmanager
    def _engaged(self) -> Iterator[None]:
        """Use the executor of the settings within the block, if there is one."""
        if self.settings.executor is not None:
            self.pool = Pool(self.settings.executor, self.plan.directory)
        self.served = {own.target.machine.label for own in self.plan.classes if self._serves(own)}
        try:
            yield
        finally:
            if self.settings.executor is not None:
                self._take_back()
                self.pool.shutdown()

    @contextlib.contextmanager
    def _present(self) -> Iterator[None]:
        """Show other processes, while the block runs, that this one trains."""
        with contextlib.ExitStack() as stack:
            self._guarded(
                lambda: stack.enter_context(
                    training(self.plan.spec.name, on_wait=self._wait, stop=self.stopping.is_set)
                )
            )
            yield

    @property
    def _own(self) -> list[Plan]:
        """The classes that this process has workers for."""
        return [own for own in self.plan.classes if own.target.machine.label in self.served]

    @property
    def _followed(self) -> Sequence[Plan]:
        """The classes whose runs this start executes, or waits for at a place."""
        return self._own if self.settings.place is None else self.plan.classes

    def _class_of(self, run: PlannedRun) -> Plan:
        machine = run.record.hardware.of_a_process
        return next(own for own in self.plan.classes if own.runs[0].record.hardware.of_a_process == machine)

    def _label_of(self, run: PlannedRun) -> str:
        return self._class_of(run).target.machine.label

    def _room(self, own: Plan) -> int | None:
        return self.pool.room(own.runs[0].record.hardware)

    def _serves(self, own: Plan) -> bool:
        if self.settings.executor is not None:
            room = self._room(own)
            return own is self.plan if room is None else room > 0
        return own is self.plan and (self.settings.place is None or own.why_not_here is None)

    def _share_out(self, runs: Iterable[PlannedRun]) -> None:
        """Share missing runs out: what workers of this process execute, and what it waits for at the place."""
        for run in runs:
            if self._label_of(run) in self.served:
                self.waiting.append(_Task(run))
            elif self.settings.place is not None:
                self.others.append(_Task(run))

    def _tell_left(self) -> None:
        for own in [] if self.settings.place is not None else self.plan.classes:
            if own.missing and own.target.machine.label not in self.served:
                words = f"{len(own.missing)} runs are left to machines of their class, {own.target.machine.words}"
                self._tell("left", message=f"{words}; `explorer sweep run SPEC --at PLACE` publishes them for those")

    @property
    def _retried(self) -> tuple[str, ...]:
        """Faults after which a run is tried again; the timeout of a command is its author's, and would come again."""
        return RETRIED if self.plan.spec.command is None else tuple(fault for fault in RETRIED if fault != "timeout")

    # --- runs ---

    def _announce_stop(self) -> None:
        """Report the stop from here: a signal handler must not call the user's hooks."""
        if self.stopping.is_set() and not self.announced:
            self.announced = True
            self._tell("stopping")
            self._take_back()

    def _refill(self) -> bool:
        """Ask the source for a run for every worker that would be idle; return whether any run waits."""
        before = len(self.plan.runs)
        while self.source is not None and len(self.waiting) + len(self.running) < self.workers:
            run = self.source.next()
            if run is None:
                break
            if all(run.record.run_id != known.record.run_id for known in self.plan.runs):
                # The plan has the run before it begins, so that no run is one that no plan knows.
                self.plan = replace(self.plan, runs=(*self.plan.runs, run))
                _write_if_changed(self.plan.directory / rundir.SWEEP, self.plan.to_json())
            self.waiting.append(_Task(run))
        if self.published is not None and len(self.plan.runs) > before:
            self.published = self._publish_plan()
        return bool(self.waiting)

    def _submit(self) -> None:
        """Give every free worker a run. Without worker processes, `submit` returns only when the run has ended."""
        self._refill()
        while self.waiting and len(self.running) < self.workers and not self.stopping.is_set():
            task = None if any(task.suspected for task in self.running.values()) else self._next()
            if task is None:
                return
            if task.suspected and self.running:
                self.waiting.appendleft(task)
                return
            if not task.attempts:
                forget_lost(task.run.directory)  # of an earlier start
            # The run's process reads both files: they are written before it is called.
            if task.run.documents is not None:
                keep(task.run.documents, task.run.directory)
            _write_if_changed(task.run.directory / rundir.RUN, run_files.to_json(task.run.record))
            self._write_branch(task.run)
            task.attempts += 1
            self.running[self._begin(task)] = task

    def _begin(self, task: _Task) -> Future[Outcome]:
        """Give a run to a worker: here, or at the place where the sweep is published."""
        if self.settings.place is None:
            return self.pool.submit(perform, self._job(task.run), to=task.run.record.hardware, apart=task.hosts)
        run = task.run.record
        return self.pool.submit(perform_at, self._worker(), run.run_id, to=run.hardware, apart=task.hosts)

    def _publish(self) -> None:
        """Publish the runs at their place, and take what is there already."""
        if self.settings.place is not None and not self.stopping.is_set():
            first = self.published is None
            self.published = self._publish_plan()
            if first:  # as at home, every start tries again what failed
                self.published.forgive()
                self._permit()
            self._take_published()
            if self.settings.profile and self.settings.executor is not None and self.plan.spec.command is None:
                self._measure_there()

    def _publish_plan(self) -> Published:
        """Publish the runs of the plan that are not published yet."""
        assert self.settings.place is not None
        here = self.settings.executor is None and self.plan.why_not_here is None  # then they are measured here
        measured = [own for own in self.plan.classes if self.settings.profile and not (here and own is self.plan)]
        return publish(self.plan, self.settings.place, profile=measured)

    def _permit(self) -> None:
        """Let calls of this start work at the place, until they are asked to stop; a killed start leaves its permit to
        the next one from here."""
        if self.published is not None and self.pool.permit is not None:
            here = f"{socket.gethostname()}:{self.plan.directory.resolve()}"
            self.permit = f"permits/{hashlib.sha256(here.encode()).hexdigest()}"
            self.published.objects.put(self.permit, b"")

    def _take_back(self) -> None:
        """Ask the calls at the place to stop."""
        if self.published is not None and self.permit is not None:
            self._guarded(lambda: self.published and self.published.objects.remove(self.permit or ""))

    def _measure_there(self) -> None:
        """Let a worker of the executor measure at the place, for each class before its first run."""
        self._tell("profile")
        hardware = [own.runs[0].record.hardware for own in self._own]
        futures = [self.pool.submit(profile_at, self._worker(), name=one.name, to=one) for one in hardware]
        while wait(futures, timeout=0.2).not_done and not self.pool.abandoned:
            self._announce_stop()
        for future in futures:
            if future.done():
                self._guarded(future.result)
        self._take_published()

    def _worker(self) -> Worker:
        assert self.settings.place is not None
        return Worker(
            place=self.settings.place,
            data=self.plan.data,
            engine=self.settings.engine,
            timeout=self.settings.timeout,
            commands=self.plan.spec.command is not None,
            permit=self.permit,
        )

    def _take_published(self) -> None:
        """Settle the waiting runs that workers elsewhere have settled, and bring their results and step times back."""
        assert self.published is not None
        ended = fetch_results(self.published, self.plan)
        for run_id in self.published.names("failures") - ended.keys():
            if (failure := self.published.find(FailureAt, f"failures/{run_id}.json")) is not None:
                ended[run_id] = Outcome(fault=FAULTS[state_of(failure)], message=failure.message)
        for tasks in (self.waiting, self.others):
            for task in [task for task in tasks if task.run.record.run_id in ended]:
                outcome = ended[task.run.record.run_id]
                tasks.remove(task)
                self._settle(task, outcome)
                self._report(task.run, outcome)
        self._guarded(lambda: self.published and fetch_profiles(self.published, self.plan))

    def _await_others(self) -> None:
        """Take what workers of classes publish that this process does not serve, until every run is settled."""
        self._tell("waiting", message=f"workers take part by: explorer run-at {self.settings.place} --claim")
        while self.others and not self.stopping.wait(ELSEWHERE):
            self._take_published()
        self._announce_stop()

    def _fetched(self, task: _Task, outcome: Outcome) -> Outcome:
        """Bring the result of a run back from its place. What is damaged there is a fault of this run."""
        if self.published is None or outcome.fault is not None:
            return outcome
        if outcome.message:
            self._warn(f"{task.run.record.run_id}: {outcome.message}")
        return fetched(self.published, task.run)

    def _next(self) -> _Task | None:
        """Take the first task whose pause is over, that waits for no steps of a shorter run, and whose class has a free
        worker."""
        now = time.monotonic()
        busy = Counter(self._label_of(task.run) for task in self.running.values())
        unsettled = {task.run.record.run_id for task in (*self.waiting, *self.running.values())}

        def ready(task: _Task) -> bool:
            place = task.run.place
            waits = place is not None and place.after in unsettled and not place.awaited.exists()
            room = self.rooms.get(label := self._label_of(task.run))
            return task.not_before <= now and not waits and (room is None or busy[label] < room)

        first = next((task for task in self.waiting if ready(task)), None)
        if first is not None:
            self.waiting.remove(first)
        return first

    def _write_branch(self, run: PlannedRun) -> None:
        """Tell the run's process the lengths of the runs that can use its steps; without them it shares none."""
        path = run.directory / rundir.BRANCH
        if run.place is not None:
            _write_if_changed(path, run_files.to_json(Branch(longer=run.place.longer)))
        elif path.exists():  # of an earlier plan
            path.unlink()

    def _remove_used(self, run: PlannedRun) -> None:
        """Remove the states that no run needs any more, once this one has its result."""
        # Runs that failed may be tried again, and controls may still come: both can begin with them.
        if run.place is None or (own := self._class_of(run)).waiting:
            return
        others = [other for other in own.missing if other.place and other.place.trunk == run.place.trunk]
        needed = [other.place.step for other in others if other.place and not _is_done(other.directory)]
        self._guarded(lambda: tidy(run.place.trunk, needed) if run.place else None)

    def _remove_unused(self) -> None:
        """Remove what is left of trunks whose runs are all done."""
        runs = [run for own in self.plan.classes for run in own.runs]
        left = [run.record for run in runs if not _is_done(run.directory)]
        left += [record for own in self.plan.classes for record in own.waiting]
        for trunk in unused(self.plan.directory, ((record.recipe_digest, record.seed) for record in left)):
            self._guarded(lambda trunk=trunk: tidy(trunk, ()))

    def _collect(self) -> None:
        """Settle the runs that have ended, and start others before the hooks run: no worker waits for a hook."""
        if not self.running:
            time.sleep(0.05)  # every task is in the pause before its retry
            return
        ended, _ = wait(self.running, timeout=0.2, return_when=FIRST_COMPLETED)  # a stop signal is noticed in 0.2 s
        if self.pool.abandoned:
            ended = set(self.running)
        finished = [(task := self.running.pop(future), _outcome(future, task)) for future in ended]
        if self.workers > 1 and self.published is not None:
            self._submit()  # no worker waits until results are here
        brought = [(task, self._fetched(task, outcome)) for task, outcome in finished]
        settled = [(task, outcome) for task, outcome in brought if self._settle(task, outcome)]
        if self.workers > 1:
            self._submit()
        for task, outcome in settled:
            self._report(task.run, outcome)

    def _settle(self, task: _Task, outcome: Outcome) -> bool:
        """Record how the run ended. False: it will be retried."""
        if outcome.fault is None:
            self.executed += 1
            self.work_done += _work(task.run)
            if self.source is not None:
                self.source.ended(task.run, None)
            self._remove_used(task.run)
            return True
        fault, message = outcome.fault, outcome.message
        task.hosts |= {*outcome.hosts, *lost_on(task.run.directory)}
        # While the sweep stops, any fault may be a consequence of the signal, so it does not count as a failure.
        if self.stopping.is_set() or fault == "interrupted":
            self.stopping.set()
            fault = "interrupted"
        elif fault == "full disk" and not (self._may_retry(task) and all(map(self.pool.avoid, outcome.hosts))):
            # Every run there would fail like it, and none of them is to blame.
            raise RunError(f"{task.run.record.run_id}: {message}: free some space; the same command continues")
        elif fault == "elsewhere":
            task.attempts -= 1  # nothing is wrong with the run
            task.not_before = time.monotonic() + ELSEWHERE
            self.waiting.append(task)
            return False
        elif fault in ("preempted", "full disk") or (fault in self._retried and self._may_retry(task)):
            if fault == "preempted":
                task.attempts -= 1
            else:
                task.not_before = time.monotonic() + BACKOFF[task.attempts - 1]
            self.waiting.appendleft(task)  # first in line, so that runs still finish in their order
            self._tell("retry", run=task.run, message=message)
            return False
        _record_failure(task, fault, message)
        if fault != "interrupted":
            self.work_done += _work(task.run)
            self.failures.append(Failure(run_id=task.run.record.run_id, message=message))
            if self.source is not None:
                self.source.ended(task.run, message)
        return True

    def _may_retry(self, task: _Task) -> bool:
        """Return whether fewer workers than allowed have died with the run, also those that the executor replaced."""
        return max(task.attempts, len(lost_workers(task.run.directory))) < ATTEMPTS

    def _report(self, run: PlannedRun, outcome: Outcome) -> None:
        if outcome.fault is None:
            self._guarded(lambda: self.settings.on_result(run.directory))
            self._tell("done", run=run)
        elif self.stopping.is_set():
            self._tell("interrupted", run=run)
        else:
            self._tell("failed", run=run, message=outcome.message)

    # --- step times ---

    def _profile_late(self) -> None:
        """Measure what could not be measured first, and again what was measured on a busy or drifting machine."""
        for own in self._own:
            self._profile_again(_records(own))

    def _profile_again(self, records: Sequence[RunRecord]) -> None:
        failed = {failure.run_id for failure in self.failures}
        if lacking := unprofiled(self.plan.directory, records, failed=failed):
            self._profile(lacking, why="of recipes that have no step times yet")
        elif self.executed:
            everything = to_profile(records, failed=failed)
            digests = {record.recipe_digest for record in everything}
            if busy_reasons(read_profiles(self.plan.directory), digests):
                self._profile(everything, why="again, because the machine was busy")
                return
            # A few windows of the baseline cost little, and stand for all recipes: drift is the machine's.
            baseline = [record for record in everything if record.recipe == record.baseline]
            moved = self._time(drift, baseline, why="of the baseline, to see whether they still hold")
            if moved is not None:
                self._profile(everything, why=f"again, because those of the baseline moved by {moved:+.0%}")

    def _profile(self, run_files: Sequence[RunRecord], *, why: str = "") -> None:
        """Measure the step times of the recipes of these runs, and report a busy machine."""
        measured = self._time(measure, run_files, why=why)
        for fault in () if measured is None else measured.faults:
            self._warn(fault)
        if measured is not None and measured.busy:
            self._tell("busy", message="; ".join(measured.busy))

    def _time(self, act: Callable[..., Timed], run_files: Sequence[RunRecord], *, why: str) -> Timed | None:
        """Measure in a fresh process with the runs' thread count, while no other sweep of this user trains or measures.

        A failure costs the time axis, not the runs: it becomes a warning, and None is returned.
        """
        if not run_files or not self.settings.profile or self.stopping.is_set() or self.plan.spec.command is not None:
            return None
        if self.settings.place is not None and self.settings.executor is not None:
            return None  # workers of the place measure
        with contextlib.ExitStack() as stack:
            # Wait for other sweeps. Without the lock (a full disk) the measurement still takes place.
            reasons: list[str] = []
            lock = timing(on_wait=self._wait, stop=self.stopping.is_set)
            self._guarded(lambda: reasons.extend(stack.enter_context(lock)))
            if self.stopping.is_set():
                return None
            self._tell("profile", message=why)
            threads = self.plan.spec.threads
            documents = {run.record.recipe_digest: run.documents for own in self.plan.classes for run in own.runs}
            given = {"data": self.plan.data, "documents": documents, "reasons": reasons}
            # Thread counts must be set before torch is imported, so measuring needs a process of its own. A stop signal
            # interrupts whatever `self.pool` is.
            if self.settings.executor is None:
                self.pool = Pool(lambda: LocalProcesses(1, threads=threads), self.plan.directory)
                future = self.pool.submit(act, self.plan.directory, run_files, **given)
            else:
                apart = partial(measure_apart, act, threads=threads, permit=self.pool.permit)
                where, hardware = self.plan.directory.resolve(), run_files[0].hardware
                future = self.pool.submit(apart, where, run_files, to=hardware, **given)
            answer: list[Timed] = []
            try:
                while not wait([future], timeout=0.2).done and not self.pool.abandoned:
                    pass  # a wait without a timeout would not notice a signal
                self._guarded(lambda: answer.extend(filter(None, [future.result(timeout=0)])))
            except (KeyboardInterrupt, TimeoutError):
                self.stopping.set()
            finally:
                if self.settings.executor is None:
                    self.pool.shutdown()
            return answer[0] if answer else None

    def _wait(self, message: str) -> None:
        self._tell("waiting", message=message)

    def _add_controls(self) -> None:
        """Add the controls whose budgets follow from the profiles that there are now."""
        waiting = any(own.waiting for own in self._followed)
        if not waiting or self.stopping.is_set() or not self.settings.profile:
            return
        plans: list[Plan] = []
        plan, runs = self.plan, self.plan.directory.parent
        self._guarded(
            lambda: plans.append(make_plan(plan.spec, runs=runs, data=plan.data, rehearsed=True, targets=plan.targets))
        )
        # Only new runs are added: those already queued or done keep their place.
        for again in plans:
            known = {run.record.run_id for own in plan.classes for run in own.runs}
            self.plan = plan.extended(again if self.settings.place is None else at_place(again))
            added = [run for own in self.plan.classes for run in own.runs if run.record.run_id not in known]
            self.failures += _damaged(added)
            self._share_out(run for run in added if run.missing)
            _write_if_changed(self.plan.directory / rundir.SWEEP, self.plan.to_json())

    # --- events ---

    def _guarded(self, act: Callable[[], object]) -> None:
        """Turn an error into a warning: nothing that is done with results may end the sweep."""
        try:
            act()
        except ExplorerError as error:
            self._warn(str(error))

    def _warn(self, message: str) -> None:
        self.warnings.append(message)
        self._tell("warning", message=message)

    def _stop(self) -> None:
        """Stop the runs in progress. As a signal handler, it must not wait for a lock that the signal interrupted."""
        self.stopping.set()
        self.pool.interrupt()

    def _job(self, run: PlannedRun) -> Job:
        return Job(
            directory=run.directory.resolve(),
            notebook=self.settings.notebook.resolve(),
            engine=self.settings.engine,
            threads=self.plan.spec.threads,
            data=None if self.plan.data is None else self.plan.data.resolve(),
            contended=self.workers > 1,
            timeout=self.settings.timeout,
            setting=run.setting,
            permit=self.pool.permit,
            lost=len(lost_workers(run.directory)),
        )

    def _tell(self, kind: Happening, *, run: PlannedRun | None = None, message: str = "") -> None:
        # A control takes as long as the recipe that it waits for, so about as many steps are counted for it.
        runs = [run for own in self._followed for run in own.runs]
        controls = [record for own in self._followed for record in own.waiting]
        waiting = float(sum(record.steps for record in controls))
        todo = sum(_work(run) for run in runs if run.missing) + waiting
        whole = sum(map(_work, runs)) + waiting
        elapsed = time.monotonic() - self.begun
        fraction = 1.0 - (todo - self.work_done) / whole
        share = self.work_done / todo if todo else 0.0  # of what this start has to do
        if self.source is not None:
            fraction = self.source.fraction
            share = (fraction - self.before) / (1.0 - self.before) if self.before < 1 else 0.0
        self.settings.on_event(
            Event(
                kind=kind,
                run=run,
                message=message,
                done=self._done(),
                failed=len(self.failures),
                total=len(runs) + len(controls),
                fraction=fraction,
                seconds_left=elapsed * (1.0 / share - 1.0) if share > 0 else None,
            )
        )

    def _done(self) -> int:
        return sum(run.state == "done" for own in self._followed for run in own.runs) + self.executed

    def _summary(self) -> Summary:
        return Summary(
            done=self._done(),
            executed=self.executed,
            failures=tuple(self.failures),
            waiting=sum(len(own.waiting) for own in self._followed),
            interrupted=self.stopping.is_set(),
            warnings=tuple(self.warnings),
            seconds=time.monotonic() - self.begun,
        )


def _damaged(runs: Iterable[PlannedRun]) -> list[Failure]:
    """List the results that cannot be read. They are not repeated: their owner decides what they are worth."""
    return [Failure(run_id=run.record.run_id, message=run.message) for run in runs if run.state == "damaged"]


def _work(run: PlannedRun) -> float:
    """Return a run's part of the sweep's work: the steps that it makes, or its budget where a command decides on
    them."""
    return float(run.record.steps) * run.share or run.record.ssr


def _records(plan: Plan) -> list[RunRecord]:
    return [run.record for run in plan.runs]


def _is_done(directory: Path) -> bool:
    return (directory / rundir.RESULT).exists()


def _outcome(future: Future[Outcome], task: _Task) -> Outcome:
    """Return the worker's answer. An exception that it should not have raised fails only that run.

    Raises `ExecutorLost` where no worker is left.
    """
    task.suspected = False
    try:
        return future.result(timeout=0)
    except ExecutorLost:
        raise
    except WorkerLost as error:
        return Outcome(fault="lost worker", message=str(error))
    except (KeyboardInterrupt, CancelledError, TimeoutError):  # the last: abandoned while it was in progress
        return Outcome(fault="interrupted", message=INTERRUPTED)
    except Exception as error:
        task.suspected = isinstance(error, BrokenExecutor)
        # How an executor tells that a worker died is its own affair: a call that did not end left its mark in the run.
        lost = task.suspected or lost_workers(task.run.directory)
        first = (str(error).splitlines() or [""])[0]
        return Outcome(fault="lost worker" if lost else "exception", message=f"{type(error).__name__}: {first}")


def _record_failure(task: _Task, fault: str, message: str) -> None:
    """Write why the run has no result. Where workers died with it, all of them are named."""
    if fault == "lost worker" and (lost := lost_workers(task.run.directory)):
        message = f"{message} ({len(lost)} died with it: {'; '.join(lost)})"
    failure = FailureRecord(
        run_id=task.run.record.run_id,
        # What other workers set aside is shown like what was set aside here.
        kind="lost worker" if fault == "set aside" else fault,  # pyright: ignore[reportArgumentType]
        message=message,
        attempts=task.attempts,
        failed_at=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
    run_files.write(task.run.directory / rundir.FAILURE, failure)


def _write_if_changed(path: Path, value: object) -> None:
    with contextlib.suppress(ExplorerError):  # absent or damaged: written again
        if rundir.read_json(path) == value:
            return
    rundir.write_json(path, value)
