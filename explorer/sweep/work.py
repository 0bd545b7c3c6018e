"""The execution of one run of a sweep, in the process that does it: a notebook in, a short answer out.

Results travel through the run directory; the answer carries only the status. A process keeps its notebook engine for
its next run.

A run in progress is asked to stop in three ways, and leaves a checkpoint each time: by the signals of its process, by
`preempt`, and by the removal of the file `Job.permit`, which works wherever that file can be seen. Where a call was not
asked and does not come back, the mark that it left in the run directory says which worker died with it.
"""

import atexit
import contextlib
import errno
import os
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal, TypeVar

from explorer import run_files, rundir
from explorer.errors import ExplorerError, RunError, SweepError, unknown
from explorer.repeated import repeated
from explorer.run_files import ResultRecord
from explorer.sweep.commands.command_process import CommandEngine
from explorer.sweep.commands.command_task import CommandRecipe
from explorer.sweep.inline import InlineEngine
from explorer.sweep.kernels import KernelEngine
from explorer.sweep.notebooks import INTERRUPTED, NotebookEngine, NotebookError
from explorer.sweep.notebooks import Fault as NotebookFault
from explorer.sweep.workers import LocalProcesses, WorkerLost

RUNS_PER_KERNEL = 200  # a bound on what a slow leak in the kernel can grow to

EngineName = Literal["cold", "warm", "inline"]
ENGINES: tuple[EngineName, ...] = ("cold", "warm", "inline")

Fault = Literal[NotebookFault, "lost worker", "preempted", "full disk", "elsewhere", "set aside"]

Measured = TypeVar("Measured")

ATTEMPTS = 3  # workers that may die with a run before it is set aside
LOOK_EVERY = 0.25  # seconds between two looks at the permit
MARK = 200  # characters that are read of what names a worker
FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A request for one run of a sweep. Everything else is in the run directory."""

    directory: Path
    notebook: Path
    engine: EngineName
    threads: int
    data: Path | None
    contended: bool
    timeout: float | None  # seconds that a cell of the notebook may take
    setting: CommandRecipe | None = None  # of a run that a command trains, which has no notebook of ours
    permit: Path | None = None  # a file: the run stops after its step once it is gone; None: it needs none
    lost: int = 0  # workers that died with the run, as far as the sweep knew when it made the call

    def parameters(self) -> dict[str, Any]:
        """Return the notebook's parameters."""
        return {
            "directory": str(self.directory),
            "data": None if self.data is None else str(self.data),
            "contended": self.contended,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The end of a run. Without a fault, it has its result."""

    fault: Fault | None = None
    message: str = ""
    hosts: tuple[str, ...] = ()  # where the run was lost, or the disk is full: others are preferred for it


def check_engine(name: str) -> EngineName:
    """Return the name of a notebook engine. Raises `SweepError` for an unknown one."""
    for known in ENGINES:
        if name == known:
            return known
    raise SweepError(unknown("notebook engine", name, ENGINES))


def make_engine(name: str, *, threads: int, timeout: float | None = None) -> NotebookEngine:
    """Return a notebook engine by name. Raises `SweepError` for an unknown one or a timeout that it cannot keep."""
    if name == "inline":
        if timeout is not None:
            raise SweepError("the engine 'inline' cannot stop a run after a timeout; 'warm' and 'cold' can")
        return InlineEngine()
    check_engine(name)
    runs = 1 if name == "cold" else RUNS_PER_KERNEL
    return KernelEngine(threads=threads, runs_per_kernel=runs, timeout=timeout)


_engines: dict[tuple[str, int, float | None, int], NotebookEngine] = {}  # of this process, one for each thread


@dataclass(eq=False, slots=True)
class _Call:
    """A run in progress in this process, and the handler of signals while it is."""

    engine: NotebookEngine | CommandEngine
    preempted: bool = False
    before: dict[int, Any] = field(default_factory=dict)  # the handlers that were installed, by signal

    def __call__(self, number: int, frame: FrameType | None) -> None:
        # The sweep's own handler comes first: it must know of the stop before this run ends. Python's default handler
        # would raise here, before the engine is interrupted.
        if self._is_handled(number):
            self.before[number](number, frame)
        self.note(number)
        self.engine.interrupt()

    def note(self, number: int) -> None:
        """Take note of a signal; training in this process handles it."""
        # Two signals tell a process that its time on this machine is over. A batch system sends them to workers; to a
        # process that executes the sweep too, they are a wish to stop it.
        if number != signal.SIGINT and not self._is_handled(number):
            self.preempted = True

    def _is_handled(self, number: int) -> bool:
        earlier = self.before.get(number)
        return callable(earlier) and earlier is not signal.default_int_handler


_calls: list[_Call] = []


def perform(job: Job) -> Outcome:
    """Execute the run's notebook. A fault of the run is an answer, not an exception: other runs must continue."""
    if job.permit is not None and not job.permit.exists():  # the sweep was stopped while the call waited for a worker
        return Outcome(fault="interrupted", message=INTERRUPTED)
    if len(lost := lost_workers(job.directory)) > job.lost:
        # An executor that repeats calls of workers that died does not know how often, and where, a run may be tried.
        return Outcome(fault="lost worker", message=f"its worker process on {lost[-1]} ended")
    call: _Call | None = None
    try:
        with _marked(job.directory):
            call = _Call(_engine(job) if job.setting is None else CommandEngine(threads=job.threads))
            _run(job, call)
            check_result(job.directory)  # a notebook of the user's may finish without having trained
    except NotebookError as error:
        outcome = Outcome(fault=error.fault, message=str(error))
    except KeyboardInterrupt:
        outcome = Outcome(fault="interrupted", message=INTERRUPTED)
    except ExplorerError as error:
        outcome = Outcome(fault="exception", message=f"{type(error).__name__}: {error}")
    else:
        return Outcome()
    if call is not None and call.preempted:  # whatever came of it
        return Outcome(fault="preempted", message="its worker was called back; it continues from its checkpoint")
    if job.permit is not None and not job.permit.exists():
        return Outcome(fault="interrupted", message=INTERRUPTED)  # likewise: a kernel that is starting just fails
    if outcome.fault == "exception" and any(os.strerror(number) in outcome.message for number in FULL):
        host = socket.gethostname()
        return Outcome(fault="full disk", message=f"{outcome.message} (on {host})", hosts=(host,))
    return outcome


def _run(job: Job, call: _Call) -> None:
    engine = call.engine
    _calls.append(call)
    try:
        with _signals_for(call), _permitted(job.permit, engine.interrupt):
            if isinstance(engine, CommandEngine):
                assert job.setting is not None
                engine.run(job.directory, job.setting, contended=job.contended)
            else:
                engine.run(job.notebook, job.parameters(), job.directory / rundir.NOTEBOOK)
    finally:
        _calls.remove(call)


def preempt() -> None:
    """Ask the runs in progress in this process to leave a checkpoint, because the process is about to end."""
    for call in list(_calls):
        call.preempted = True
        call.engine.interrupt()


@contextlib.contextmanager
def _permitted(permit: Path | None, stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` within the block, in a thread of its own, once the permit is gone."""
    if permit is None:
        yield
        return

    def look() -> bool:
        if gone := not permit.exists():
            stop()
        return gone

    with repeated(look, every=LOOK_EVERY, name="permit"):  # a stop after the block would be that of the next run
        yield


# --- workers that died with a run ---


@contextlib.contextmanager
def _marked(directory: Path) -> Iterator[None]:
    """Keep a file in the run directory within the block that names host and process; a process that dies leaves it."""
    mark = directory / f"{rundir.BEGUN}{uuid.uuid4().hex}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        mark.write_text(f"{socket.gethostname()}, process {os.getpid()}")
    except OSError as error:
        raise RunError(f"cannot write {mark}: {error.strerror or error}") from error
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


def lost_workers(directory: Path) -> list[str]:
    """Return the hosts and processes whose marks are in the run directory: they died with the run, or execute it."""
    lost = []
    for mark in sorted(directory.glob(f"{rundir.BEGUN}*")):
        with contextlib.suppress(FileNotFoundError):  # that worker has just ended its call
            lost.append(mark.read_text(errors="replace")[:MARK])
    return lost


def lost_on(directory: Path) -> set[str]:
    """Return the hosts of the workers that died with the run."""
    return {mark.rpartition(", process ")[0] for mark in lost_workers(directory)}


def forget_lost(directory: Path) -> None:
    """Remove the marks of workers that died with the run."""
    for mark in directory.glob(f"{rundir.BEGUN}*"):
        mark.unlink(missing_ok=True)


def measure_apart(
    measure: Callable[..., Measured], /, *args: Any, threads: int, permit: Path | None, **kwargs: Any
) -> Measured | None:
    """Measure in a fresh process of this machine; None: the permit was taken back."""
    with LocalProcesses(1, threads=threads) as process:
        future = process.submit(measure, *args, **kwargs)
        while not wait([future], timeout=LOOK_EVERY).done:
            if permit is not None and not permit.exists():
                process.interrupt()
                wait([future])
        try:
            return future.result()
        except (KeyboardInterrupt, WorkerLost):  # the second from a process that was still starting
            if permit is not None and not permit.exists():
                return None
            raise


def perform_command(directory: Path, setting: CommandRecipe, *, threads: int) -> ResultRecord:
    """Execute one run of a command outside a sweep, and return its result. Raises `NotebookError` for its faults."""
    engine = CommandEngine(threads=threads)
    with _signals_for(_Call(engine)):
        engine.run(directory, setting, contended=False)
    return check_result(directory)


def check_result(directory: Path) -> ResultRecord:
    """Return the result of a successful run. Raises `RunError` if it is missing, damaged or that of another run."""
    result = run_files.read(ResultRecord, directory / rundir.RESULT)
    if result.run_id != directory.name:
        raise SweepError(f"{directory / rundir.RESULT}: the result of another run, {result.run_id!r}")
    return result


def close_engines() -> None:
    """End the kernels of this process."""
    while _engines:
        _engines.popitem()[1].close()


atexit.register(close_engines)  # a worker ends normally when its parent has no more work for it


def _engine(job: Job) -> NotebookEngine:
    thread = threading.get_ident()  # an engine serves the thread that made it, because its sockets do
    if job.engine == "inline" and threading.current_thread() is not threading.main_thread():
        raise SweepError("the engine 'inline' trains in the main thread of a process only; 'warm' and 'cold' in any")
    key = (job.engine, job.threads, job.timeout, thread)
    if key not in _engines:
        _engines[key] = make_engine(job.engine, threads=job.threads, timeout=job.timeout)
    return _engines[key]


@contextlib.contextmanager
def _signals_for(call: _Call) -> Iterator[None]:
    """Interrupt the engine at Ctrl-C, SIGTERM and SIGUSR1 within the block, after the handler that was installed
    before."""
    if threading.current_thread() is not threading.main_thread():  # Python sets signal handlers only from there
        yield
        return
    call.before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}
    try:
        for number in call.before:
            signal.signal(number, call)
        yield
    finally:
        for number, earlier in call.before.items():
            signal.signal(number, earlier)
