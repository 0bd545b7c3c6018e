"""Executing a sweep: what is missing, in order, until it is complete or stopped.

One process executes a sweep at a time. A run that raises is recorded and the others go on; a run whose kernel or
worker died is tried again. Ctrl-C and SIGTERM stop after the current step of every run in progress, a second one
stops at once; either way the next start continues where this one ended.

Step times are measured first, so that a run has its time as soon as it is finished, and controls their budgets before
they begin. When all runs are done a few windows of the baseline show whether the machine is still what it was; if it
drifted, or was busy the first time, the recipes are measured again.
"""

import contextlib
import datetime
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

import explorer
import explorer.sweep.formats  # before nbformat
from explorer import run_files, rundir
from explorer.errors import ExplorerError
from explorer.run_files import FailureRecord, RunRecord
from explorer.runlog.documents import keep
from explorer.sweep.measure import drift, measure
from explorer.sweep.notebooks import check_notebook
from explorer.sweep.plan import Plan, PlannedRun, make_plan
from explorer.sweep.presence import timing, training
from explorer.sweep.profiles import busy_reasons, read_profiles, to_profile, unprofiled
from explorer.sweep.work import EngineName, Job, Outcome, close_engines, make_engine, perform
from explorer.sweep.workers import Interruptible, LocalProcesses, WorkerLost, default_workers, make_executor
from explorer.training.run import on_stop_signals

NOTEBOOK = Path(explorer.__file__).parent.parent / "notebooks" / "run.ipynb"
BACKOFF = (1.0, 5.0)  # seconds before the first and the second retry
RETRIED = ("dead kernel", "timeout", "lost worker")  # faults of the surroundings; a run that raises would raise again

Timed = TypeVar("Timed")

Happening = Literal[
    "start", "done", "failed", "retry", "interrupted", "stopping", "waiting", "profile", "busy", "warning", "end"
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """Something happened; the numbers are those of the sweep as a whole after it."""

    kind: Happening
    run: PlannedRun | None = None
    message: str = ""
    done: int
    failed: int
    total: int
    fraction: float  # of the sweep's work
    seconds_left: float | None  # None: nothing has finished yet


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A run without a result, and why."""

    run_id: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """How executing the sweep ended."""

    done: int  # runs with a result now
    executed: int  # of them, runs that this start completed
    failures: tuple[Failure, ...]
    waiting: int  # controls that are not planned yet, because no profile tells their budgets
    interrupted: bool
    warnings: tuple[str, ...]
    seconds: float

    @property
    def complete(self) -> bool:
        """Return whether every run has its result."""
        return not self.failures and not self.interrupted and not self.waiting


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """How to execute: nothing here changes a result."""

    engine: EngineName = "warm"
    workers: int | None = None  # runs side by side; None: as many as the cores allow
    timeout: float | None = None  # seconds for a cell of a run's notebook
    profile: bool = True  # measure step times first, and look at the end whether they still hold
    notebook: Path = NOTEBOOK
    on_event: Callable[[Event], None] = field(default=lambda event: None)
    on_result: Callable[[Path], None] = field(default=lambda directory: None)  # gets the directory of a finished run


def run_sweep(plan: Plan, settings: Settings | None = None) -> Summary:
    """Execute what is missing of the plan.

    Raises `RunError` when another process executes this sweep or the disk refuses to be written, and `SweepError` for
    a notebook that cannot be used, both before anything starts. A full disk ends the sweep later; what is written
    stays valid.
    """
    settings = settings or Settings()
    with rundir.locked(plan.directory, what=f"sweep {plan.spec.name!r}"):
        return _Execution(plan, settings).run()


def profile_sweep(plan: Plan, settings: Settings | None = None) -> Summary:
    """Measure the step times of all recipes of the plan again. The profiles that there are stay until that is done.

    Raises `RunError` when another process executes this sweep.
    """
    with rundir.locked(plan.directory, what=f"sweep {plan.spec.name!r}"):
        return _Execution(plan, settings or Settings()).measure_again()


@dataclass(slots=True)
class _Task:
    """A run that is still to do."""

    run: PlannedRun
    attempts: int = 0
    not_before: float = 0.0


class _Execution:
    """One start of a sweep."""

    def __init__(self, plan: Plan, settings: Settings) -> None:
        self.plan = plan
        self.settings = settings
        self.waiting = deque(_Task(run) for run in plan.missing)
        self._make_workers()
        self.running: dict[Future[Outcome], _Task] = {}
        self.failures = _damaged(plan.runs)
        self.executed = 0
        self.warnings: list[str] = []
        self.stopping = threading.Event()
        self.announced = False
        self.begun = time.monotonic()
        self.work_done = 0.0  # in the units of `_work`

    def _make_workers(self) -> None:
        threads = self.plan.spec.threads
        usual = default_workers(threads=threads, device=self.plan.runs[0].record.hardware.device)
        self.workers = min(self.settings.workers or usual, max(1, len(self.waiting)))
        self.executor: Interruptible = make_executor(self.workers, threads=threads)

    def run(self) -> Summary:
        if self.plan.missing or self.plan.waiting:
            make_engine(self.settings.engine, threads=1, timeout=self.settings.timeout)
            check_notebook(self.settings.notebook, self._job(self.plan.runs[0]).parameters())
        _write_if_changed(self.plan.directory / rundir.SWEEP, self.plan.to_json())
        self._tell("start")
        try:
            with on_stop_signals(self._stop):
                self._profile(unprofiled(self.plan.directory, self._records()))
                self._add_controls()
                self._execute_all()
                self._profile_late()
                self._add_controls()
                self._execute_all()
        finally:
            close_engines()
        self._tell("end")
        return self._summary()

    def measure_again(self) -> Summary:
        """Measure all recipes, whatever is known of them."""
        self._tell("start")
        with on_stop_signals(self._stop):
            self._profile(self._records())
        self._tell("end")
        return self._summary()

    def _execute_all(self) -> None:
        if not self.waiting or self.stopping.is_set():
            return
        self._make_workers()
        try:
            with self._present():
                while self.running or (self.waiting and not self.stopping.is_set()):
                    self._submit()
                    self._announce_stop()
                    self._collect()
        except BaseException:
            self.executor.interrupt()
            raise
        finally:
            self.executor.shutdown(wait=True, cancel_futures=True)

    @contextlib.contextmanager
    def _present(self) -> Iterator[None]:
        """Processes that want to time know meanwhile that this one trains."""
        with contextlib.ExitStack() as stack:
            self._guarded(
                lambda: stack.enter_context(
                    training(self.plan.spec.name, on_wait=self._wait, stop=self.stopping.is_set)
                )
            )
            yield

    def _announce_stop(self) -> None:
        if self.stopping.is_set() and not self.announced:
            self.announced = True
            self._tell("stopping")

    def _submit(self) -> None:
        """Keep the workers busy. In this process a call is over when `submit` returns, so one at a time."""
        while self.waiting and len(self.running) < self.workers and not self.stopping.is_set():
            task = self._next()
            if task is None:
                return
            if task.run.documents is not None:
                keep(task.run.documents, task.run.directory)
            _write_if_changed(task.run.directory / rundir.RUN, run_files.to_json(task.run.record))
            task.attempts += 1
            self.running[self.executor.submit(perform, self._job(task.run))] = task

    def _next(self) -> _Task | None:
        """Return the first task that need not wait for its retry."""
        now = time.monotonic()
        ready = next((task for task in self.waiting if task.not_before <= now), None)
        if ready is not None:
            self.waiting.remove(ready)
        return ready

    def _collect(self) -> None:
        """Take the runs that have ended; start others before the hooks run, so that no worker waits for them."""
        if not self.running:
            time.sleep(0.05)  # every task waits for its retry
            return
        ended, _ = wait(self.running, timeout=0.2, return_when=FIRST_COMPLETED)
        finished = [(self.running.pop(future), _outcome(future)) for future in ended]
        settled = [(task, outcome) for task, outcome in finished if self._settle(task, outcome)]
        if self.workers > 1:
            self._submit()
        for task, outcome in settled:
            self._report(task.run, outcome)

    def _settle(self, task: _Task, outcome: Outcome) -> bool:
        """Record how the run ended. False: it will be tried again."""
        if outcome.fault is None:
            self.executed += 1
            self.work_done += _work(task.run)
            return True
        fault, message = outcome.fault, outcome.message
        if self.stopping.is_set() or fault == "interrupted":
            self.stopping.set()
            fault = "interrupted"
        elif fault in RETRIED and task.attempts <= len(BACKOFF):
            task.not_before = time.monotonic() + BACKOFF[task.attempts - 1]
            self.waiting.appendleft(task)
            self._tell("retry", run=task.run, message=message)
            return False
        _record_failure(task, fault, message)
        if fault != "interrupted":
            self.work_done += _work(task.run)
            self.failures.append(Failure(run_id=task.run.record.run_id, message=message))
        return True

    def _report(self, run: PlannedRun, outcome: Outcome) -> None:
        if outcome.fault is None:
            self._guarded(lambda: self.settings.on_result(run.directory))
            self._tell("done", run=run)
        elif self.stopping.is_set():
            self._tell("interrupted", run=run)
        else:
            self._tell("failed", run=run, message=outcome.message)

    def _profile_late(self) -> None:
        """What could not be measured first, and what was measured on a machine that was busy or has drifted."""
        failed = {failure.run_id for failure in self.failures}
        if lacking := unprofiled(self.plan.directory, self._records(), failed=failed):
            self._profile(lacking, why="of recipes that have no step times yet")
        elif self.executed:
            everything = to_profile(self._records(), failed=failed)
            digests = {record.recipe_digest for record in everything}
            if busy_reasons(read_profiles(self.plan.directory), digests):
                self._profile(everything, why="again, for the machine was busy")
                return
            baseline = [record for record in everything if record.recipe == record.baseline]
            moved = self._time(drift, baseline, why="of the baseline, to see whether they still hold")
            if moved is not None:
                self._profile(everything, why=f"again, for those of the baseline moved by {moved:+.0%}")

    def _profile(self, run_files: Sequence[RunRecord], *, why: str = "") -> None:
        """Measure the step times of the recipes of these runs, and say so if the machine was busy."""
        measured = self._time(measure, run_files, why=why)
        for fault in () if measured is None else measured.faults:
            self._warn(fault)
        if measured is not None and measured.busy:
            self._tell("busy", message="; ".join(measured.busy))

    def _time(self, act: Callable[..., Timed], run_files: Sequence[RunRecord], *, why: str) -> Timed | None:
        """Time in a fresh process with the run's thread count, while no other sweep of this user does or trains. What
        fails here costs the time axis, not the runs: it is a warning, and the answer None."""
        if not run_files or not self.settings.profile or self.stopping.is_set():
            return None
        with contextlib.ExitStack() as stack:
            reasons: list[str] = []
            lock = timing(on_wait=self._wait, stop=self.stopping.is_set)
            self._guarded(lambda: reasons.extend(stack.enter_context(lock)))
            if self.stopping.is_set():
                return None
            self._tell("profile", message=why)
            self.executor = LocalProcesses(1, threads=self.plan.spec.threads)
            documents = {run.record.recipe_digest: run.documents for run in self.plan.runs}
            future = self.executor.submit(
                act, self.plan.directory, run_files, data=self.plan.data, documents=documents, reasons=reasons
            )
            answer: list[Timed] = []
            try:
                while not wait([future], timeout=0.2).done:
                    pass
                self._guarded(lambda: answer.append(future.result()))
            except KeyboardInterrupt:
                self.stopping.set()
            finally:
                self.executor.shutdown()
            return answer[0] if answer else None

    def _records(self) -> list[RunRecord]:
        return [run.record for run in self.plan.runs]

    def _wait(self, message: str) -> None:
        self._tell("waiting", message=message)

    def _add_controls(self) -> None:
        """Take up the controls whose budgets the profiles have told."""
        if not self.plan.waiting or self.stopping.is_set() or not self.settings.profile:
            return
        plans: list[Plan] = []
        runs, data = self.plan.directory.parent, self.plan.data
        self._guarded(lambda: plans.append(make_plan(self.plan.spec, runs=runs, data=data, rehearsed=True)))
        for again in plans:
            known = {run.record.run_id for run in self.plan.runs}
            added = tuple(run for run in again.runs if run.record.run_id not in known)
            self.plan = replace(self.plan, runs=self.plan.runs + added, waiting=again.waiting, not_run=again.not_run)
            self.failures += _damaged(added)
            self.waiting.extend(_Task(run) for run in added if run.missing)
            _write_if_changed(self.plan.directory / rundir.SWEEP, self.plan.to_json())

    def _guarded(self, act: Callable[[], object]) -> None:
        """What is done with results must not end the sweep: a fault becomes a warning."""
        try:
            act()
        except ExplorerError as error:
            self._warn(str(error))

    def _warn(self, message: str) -> None:
        self.warnings.append(message)
        self._tell("warning", message=message)

    def _stop(self) -> None:
        """In a signal handler: nothing here may wait for what the signal interrupted."""
        self.stopping.set()
        self.executor.interrupt()

    def _job(self, run: PlannedRun) -> Job:
        return Job(
            directory=run.directory.resolve(),
            notebook=self.settings.notebook.resolve(),
            engine=self.settings.engine,
            threads=self.plan.spec.threads,
            data=None if self.plan.data is None else self.plan.data.resolve(),
            contended=self.workers > 1,
            timeout=self.settings.timeout,
        )

    def _tell(self, kind: Happening, *, run: PlannedRun | None = None, message: str = "") -> None:
        waiting = float(sum(record.steps for record in self.plan.waiting))  # the baseline takes as long: about as many
        todo = sum(_work(run) for run in self.plan.missing) + waiting
        whole = sum(_work(run) for run in self.plan.runs) + waiting
        elapsed = time.monotonic() - self.begun
        self.settings.on_event(
            Event(
                kind=kind,
                run=run,
                message=message,
                done=self._done(),
                failed=len(self.failures),
                total=len(self.plan.runs) + len(self.plan.waiting),
                fraction=1.0 - (todo - self.work_done) / whole,
                seconds_left=elapsed * (todo / self.work_done - 1.0) if self.work_done else None,
            )
        )

    def _done(self) -> int:
        return sum(run.state == "done" for run in self.plan.runs) + self.executed

    def _summary(self) -> Summary:
        return Summary(
            done=self._done(),
            executed=self.executed,
            failures=tuple(self.failures),
            waiting=len(self.plan.waiting),
            interrupted=self.stopping.is_set(),
            warnings=tuple(self.warnings),
            seconds=time.monotonic() - self.begun,
        )


def _damaged(runs: Sequence[PlannedRun]) -> list[Failure]:
    """Return the results that cannot be read; their owner judges."""
    return [Failure(run_id=run.record.run_id, message=run.message) for run in runs if run.state == "damaged"]


def _work(run: PlannedRun) -> float:
    """Return how much of the sweep's work a run is: its steps, which are known before any of them was timed."""
    return float(run.record.steps)


def _outcome(future: Future[Outcome]) -> Outcome:
    """Return the answer of the worker. What it should not have raised is a failure of that run alone."""
    try:
        return future.result()
    except WorkerLost as error:
        return Outcome(fault="lost worker", message=str(error))
    except (KeyboardInterrupt, CancelledError):
        return Outcome(fault="interrupted", message="interrupted; run again to resume")
    except Exception as error:
        return Outcome(fault="exception", message=f"{type(error).__name__}: {error}")


def _record_failure(task: _Task, fault: str, message: str) -> None:
    failure = FailureRecord(
        run_id=task.run.record.run_id,
        kind=fault,  # pyright: ignore[reportArgumentType]
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
