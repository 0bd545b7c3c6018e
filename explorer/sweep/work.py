"""The execution of one run of a sweep, in the process that does it: a notebook in, a short answer out.

Results travel through the run directory; the answer carries only the status. A process keeps its notebook engine for
its next run.
"""

import atexit
import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from explorer import run_files, rundir
from explorer.errors import ExplorerError, SweepError, unknown
from explorer.run_files import ResultRecord
from explorer.sweep.commands.command_process import CommandEngine
from explorer.sweep.commands.command_task import CommandRecipe
from explorer.sweep.inline import InlineEngine
from explorer.sweep.kernels import KernelEngine
from explorer.sweep.notebooks import INTERRUPTED, NotebookEngine, NotebookError
from explorer.sweep.notebooks import Fault as NotebookFault

RUNS_PER_KERNEL = 200  # a bound on what a slow leak in the kernel can grow to

EngineName = Literal["cold", "warm", "inline"]
ENGINES: tuple[EngineName, ...] = ("cold", "warm", "inline")

Fault = Literal[NotebookFault, "lost worker"]


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


def make_engine(name: str, *, threads: int, timeout: float | None = None) -> NotebookEngine:
    """Return a notebook engine by name. Raises `SweepError` for an unknown one or a timeout that it cannot keep."""
    if name == "inline":
        if timeout is not None:
            raise SweepError("the engine 'inline' cannot stop a run after a timeout; 'warm' and 'cold' can")
        return InlineEngine()
    if name not in ENGINES:
        raise SweepError(unknown("notebook engine", name, ENGINES))
    runs = 1 if name == "cold" else RUNS_PER_KERNEL
    return KernelEngine(threads=threads, runs_per_kernel=runs, timeout=timeout)


_engines: dict[tuple[str, int, float | None], NotebookEngine] = {}  # of this process


def perform(job: Job) -> Outcome:
    """Execute the run's notebook. A fault of the run is an answer, not an exception: other runs must continue."""
    try:
        if job.setting is not None:
            command = CommandEngine(threads=job.threads)
            with _signals_for(command):
                command.run(job.directory, job.setting, contended=job.contended)
        else:
            engine = _engine(job)
            with _signals_for(engine):
                engine.run(job.notebook, job.parameters(), job.directory / rundir.NOTEBOOK)
        check_result(job.directory)  # a notebook of the user's may finish without having trained
    except NotebookError as error:
        return Outcome(fault=error.fault, message=str(error))
    except KeyboardInterrupt:
        return Outcome(fault="interrupted", message=INTERRUPTED)
    except ExplorerError as error:
        return Outcome(fault="exception", message=f"{type(error).__name__}: {error}")
    return Outcome()


def perform_command(directory: Path, setting: CommandRecipe, *, threads: int) -> ResultRecord:
    """Execute one run of a command outside a sweep, and return its result. Raises `NotebookError` for its faults."""
    engine = CommandEngine(threads=threads)
    with _signals_for(engine):
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
    key = (job.engine, job.threads, job.timeout)
    if key not in _engines:
        _engines[key] = make_engine(job.engine, threads=job.threads, timeout=job.timeout)
    return _engines[key]


@contextlib.contextmanager
def _signals_for(engine: NotebookEngine | CommandEngine) -> Iterator[None]:
    """Interrupt the engine at Ctrl-C and SIGTERM within the block, after the handler that was installed before."""
    if threading.current_thread() is not threading.main_thread():  # Python sets signal handlers only from there
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: FrameType | None) -> None:
        # The sweep's own handler comes first: it must know of the stop before this run ends. Python's default handler
        # would raise here, before the engine is interrupted.
        earlier = before[signal.Signals(number)]
        if callable(earlier) and earlier is not signal.default_int_handler:
            earlier(number, frame)
        engine.interrupt()

    try:
        for number in before:
            signal.signal(number, handle)
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
