"""Executing a sweep: what is missing, in order, until it is complete or stopped.

One process executes a sweep at a time. A run that raises is recorded and the others go on; a run whose kernel or
worker died is tried again. Ctrl-C and SIGTERM stop after the current step of every run in progress, a second one
stops at once; either way the next start goes on where this one ended. When all runs are done, recipes without a
profile are measured, because then the machine is quiet; the controls whose budgets follow from that come last.
"""

import contextlib
import datetime
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import explorer
import explorer.sweep.formats  # before nbformat
from explorer import records, rundir
from explorer.errors import ExplorerError
from explorer.governance.documents import keep
from explorer.records import FailureRecord
from explorer.sweep.executors import Interruptible, LocalProcesses, WorkerLost, default_workers, make_executor
from explorer.sweep.measure import measure, unprofiled
from explorer.sweep.notebooks import check_notebook
from explorer.sweep.plan import Plan, PlannedRun, make_plan
from explorer.sweep.work import EngineName, Job, Outcome, close_engines, make_engine, perform

NOTEBOOK = Path(explorer.__file__).parent.parent / "notebooks" / "run.ipynb"
BACKOFF = (1.0, 5.0)  # seconds before the first and the second retry
RETRIED = ("dead kernel", "timeout", "lost worker")  # faults of the surroundings; a run that raises would raise again

Happening = Literal["start", "done", "failed", "retry", "interrupted", "stopping", "profile", "warning", "end"]


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
        """Whether every run has its result."""
        return not self.failures and not self.interrupted and not self.waiting


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """How to execute: nothing here changes a result."""

    engine: EngineName = "warm"
    workers: int | None = None  # runs side by side; None: as many as the cores allow
    timeout: float | None = None  # seconds for a cell of a run's notebook
    profile: bool = True  # measure step times at the end
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
        self._make_workers()
        self.waiting = deque(_Task(run) for run in plan.missing)
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
        self.workers = min(self.settings.workers or usual, max(1, len(self.plan.missing)))
        self.executor: Interruptible = make_executor(self.workers, threads=threads)

    def run(self) -> Summary:
        if self.plan.missing or self.plan.waiting:
            make_engine(self.settings.engine, threads=1, timeout=self.settings.timeout)
            check_notebook(self.settings.notebook, self._job(self.plan.runs[0]).parameters())
        _write_if_changed(self.plan.directory / rundir.SWEEP, self.plan.to_json())
        self._tell("start")
        try:
            with _stop_signals(self._stop):
                self._execute_all()
                if self.settings.profile:
                    self._profile()
                    if self._add_controls():
                        self._execute_all()
                        self._profile()
        finally:
            close_engines()
        self._tell("end")
        return self._summary()

    def _execute_all(self) -> None:
        try:
            while self.running or (self.waiting and not self.stopping.is_set()):
                self._submit()
                self._announce_stop()
                self._collect()
        except BaseException:
            self.executor.interrupt()
            raise
        finally:
            self.executor.shutdown(wait=True, cancel_futures=True)

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
            _write_if_changed(task.run.directory / rundir.RUN, records.to_json(task.run.record))
            task.attempts += 1
            self.running[self.executor.submit(perform, self._job(task.run))] = task

    def _next(self) -> _Task | None:
        """The first task that need not wait for its retry."""
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

    def _profile(self) -> None:
        """Measure in a fresh process with the run's thread count. What fails here costs the time axis, not the runs."""
        if self.stopping.is_set():
            return
        failed = {failure.run_id for failure in self.failures}
        records = [record for record in unprofiled(self.plan) if record.run_id not in failed]
        if not records:
            return
        self._tell("profile")
        self.executor = LocalProcesses(1, threads=self.plan.spec.threads)
        future = self.executor.submit(measure, self.plan.directory, records, data=self.plan.data)
        try:
            while not wait([future], timeout=0.2).done:
                pass
            self._guarded(future.result)
        except KeyboardInterrupt:
            self.stopping.set()
        finally:
            self.executor.shutdown()

    def _add_controls(self) -> bool:
        """Take up the controls whose budgets the profiles have told; whether any of them is to be executed."""
        if not self.plan.waiting or self.stopping.is_set():
            return False
        found: list[Plan] = []
        runs, data = self.plan.directory.parent, self.plan.data
        self._guarded(lambda: found.append(make_plan(self.plan.spec, runs=runs, data=data)))
        for again in found:
            known = {run.record.run_id for run in self.plan.runs}
            added = tuple(run for run in again.runs if run.record.run_id not in known)
            self.plan = replace(self.plan, runs=self.plan.runs + added, waiting=again.waiting, not_run=again.not_run)
            self.failures += _damaged(added)
            self.waiting.extend(_Task(run) for run in added if run.missing)
            _write_if_changed(self.plan.directory / rundir.SWEEP, self.plan.to_json())
        self._make_workers()
        return bool(self.waiting)

    def _guarded(self, act: Callable[[], object]) -> None:
        """What is done with results must not end the sweep: a fault becomes a warning."""
        try:
            act()
        except ExplorerError as error:
            self.warnings.append(str(error))
            self._tell("warning", message=str(error))

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
    """The results that nobody can read; their owner judges."""
    return [Failure(run_id=run.record.run_id, message=run.message) for run in runs if run.state == "damaged"]


def _work(run: PlannedRun) -> float:
    """How much of the sweep's work a run is: its steps, which are known before any of them was timed."""
    return float(run.record.steps)


def _outcome(future: Future[Outcome]) -> Outcome:
    """The answer of the worker. What it should not have raised is a failure of that run alone."""
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
    records.write(task.run.directory / rundir.FAILURE, failure)


def _write_if_changed(path: Path, value: object) -> None:
    with contextlib.suppress(ExplorerError):  # absent or damaged: written again
        if rundir.read_json(path) == value:
            return
    rundir.write_json(path, value)


@contextlib.contextmanager
def _stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Within the block Ctrl-C and SIGTERM call `stop`. Only the main thread hears signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: stop()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
