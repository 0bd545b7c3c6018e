"""Executors of runs: `concurrent.futures.Executor`s for this process and for worker processes of this machine.

    InProcess        calls are made here, in `submit`: nothing to set up, one run at a time
    LocalProcesses   long-lived workers, which share the cores equally

Both have `interrupt`, which asks the calls in progress to stop, as Ctrl-C would.

A worker process is `python -m explorer.sweep.workers DESCRIPTOR`, where the descriptor is an inherited socket. It takes
calls from its parent, one at a time, and answers with a value or an exception. Messages are pickled, which is safe
because both ends are this program and no other process holds the socket. A worker ignores Ctrl-C between calls: its
parent decides when to stop.
"""

import contextlib
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from explorer.errors import SweepError
from explorer.guardian import child_environment, die_with_parent
from explorer.machine_class import cores

INTERRUPT_EVERY = 2.0  # seconds; a call that has not begun ignores the first interrupt
FAREWELL = 10.0  # seconds that an idle worker has to end by itself


class WorkerLost(SweepError):
    """End of a worker process before it answered its call."""


class ExecutorLost(SweepError):
    """Loss of an executor with all its workers, such as a scheduler that was killed. No run is to blame."""


def gpus() -> tuple[str, ...]:
    """Return the GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` names them."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return tuple(filter(None, chosen.split(",")))
    # Not by torch, which takes seconds to import. A container or a batch job has the device files of its own GPUs only.
    return tuple(map(str, range(sum(path.name[6:].isdigit() for path in Path("/dev").glob("nvidia*")))))


def use_gpus(written: str) -> None:
    """Let this process, and those that it starts, use these GPUs only, such as `0,1`. Raises `SweepError`."""
    known, wanted = gpus(), tuple(written.split(","))
    if not set(wanted) <= set(known) or len(set(wanted)) < len(wanted):
        allowed = f"some of {','.join(known)}" if known else "none, because this machine shows no GPU"
        raise SweepError(f"--device: found {written!r:.80}, expected {allowed}")
    os.environ["CUDA_VISIBLE_DEVICES"] = written


def default_workers(*, threads: int, device: str = "cpu", ranks: int = 1) -> int:
    """Return the number of runs that fit the machine: by its GPUs, one for each rank, or else by its cores."""
    return max(1, len(gpus()) // ranks if device == "cuda" else cores() // (threads * ranks))


class InProcess(Executor):
    """Executor that makes calls in `submit`, in the calling thread, where signals reach them directly."""

    workers = 1

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future

    def interrupt(self) -> None:
        """Do nothing: no call is in progress outside `submit`."""


class LocalProcesses(Executor):
    """Pool of worker processes. A worker that dies fails only its own call, with `WorkerLost`, and is replaced.

    With `devices`, the names of GPUs, workers use them in turn and share the cores out: none runs on another's.
    """

    def __init__(self, workers: int, *, threads: int, devices: Sequence[str] = ()) -> None:
        self.workers = workers
        self._threads = threads
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="worker")
        # Last in, first out: the worker that was used last has warm caches and a running kernel.
        self._idle: queue.LifoQueue[_Worker | _Seat] = queue.LifoQueue()
        self._busy: set[_Worker] = set()
        self._interrupted = threading.Event()
        for at in reversed(range(workers)):  # its worker starts with the first call
            self._idle.put(_Seat(gpu=devices[at % len(devices)], part=(at, workers)) if devices else _Seat())

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._pool.submit(self._call, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.shutdown(wait=wait, cancel_futures=cancel_futures)
        while not self._idle.empty():
            worker = self._idle.get()
            if isinstance(worker, _Worker):
                worker.close()

    def interrupt(self) -> None:
        """Interrupt the calls in progress until they end. The second call of this method kills their workers."""
        if self._interrupted.is_set():
            for worker in list(self._busy):
                worker.kill()
        else:
            self._interrupted.set()
            threading.Thread(target=self._insist, name="interrupt", daemon=True).start()

    def _insist(self) -> None:
        while busy := list(self._busy):
            for worker in busy:
                worker.interrupt()
            time.sleep(INTERRUPT_EVERY)

    def _call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        worker = self._idle.get()
        if isinstance(worker, _Seat) or not worker.alive():  # what ends an idle worker is no fault of its next call
            worker = _Worker(self._threads, worker if isinstance(worker, _Seat) else worker.seat)
        self._busy.add(worker)
        try:
            return worker.call(fn, args, kwargs)
        finally:
            self._busy.discard(worker)
            self._idle.put(worker if worker.alive() else worker.seat)  # a dead worker is replaced at the next call


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seat:
    """A place for a worker."""

    gpu: str | None = None  # its device; None: whatever the machine has
    part: tuple[int, int] | None = None  # its share of the cores: the first of two equal ones is (0, 2)


class _Worker:
    """The parent's end of one worker process."""

    def __init__(self, threads: int, seat: _Seat) -> None:
        self.seat = seat
        device = {} if seat.gpu is None else {"CUDA_VISIBLE_DEVICES": seat.gpu}
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "explorer.sweep.workers", str(theirs.fileno())],
                env={**os.environ, **child_environment(threads=threads), **device},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in the terminal is for the parent, who passes it on
            )
        if seat.part is not None and hasattr(os, "sched_setaffinity"):
            at, of = seat.part
            if own := sorted(os.sched_getaffinity(0))[at::of]:
                os.sched_setaffinity(self._process.pid, own)  # at once: the threads that it starts inherit it
        self._connection = Connection(ours.detach())

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            self._connection.send((fn, args, kwargs))
            failed, value = self._connection.recv()
        except (EOFError, ConnectionError, BrokenPipeError) as error:  # killed, for example for lack of memory
            self._connection.close()
            code = self._process.wait()
            raise WorkerLost(f"its worker process {self._process.pid} ended ({_ending(code)})") from error
        if failed:
            raise value
        return value

    def alive(self) -> bool:
        return self._process.poll() is None

    def interrupt(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._connection.close()  # the worker reads the end of its input, and ends
        try:
            self._process.wait(FAREWELL)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _ending(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def make_executor(workers: int, *, threads: int, device: str = "cpu", ranks: int = 1) -> InProcess | LocalProcesses:
    """Return an executor for this number of workers; a single one needs no process of its own. Each has a GPU for every
    rank."""
    names = gpus() if device == "cuda" else ()
    devices = [",".join(names[at : at + ranks]) for at in range(0, len(names) - ranks + 1, ranks)]
    return InProcess() if workers == 1 else LocalProcesses(workers, threads=threads, devices=devices)


# --- the worker process ---


def answer(call: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bytes:
    """Make the call and pickle `(failed, value or exception)`. The worker survives whatever the call raises."""
    # Only the call itself can be interrupted, never the reading and writing of messages.
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        failed, value = False, call(*arguments, **keywords)
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        failed, value = True, error
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return pickle.dumps((failed, value))
    except Exception as error:  # pickle raises many types
        return pickle.dumps((True, RuntimeError(f"{value!r:.500} cannot be sent: {error}")))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(os.environ)
    with Connection(int(sys.argv[1])) as parent:
        while True:
            try:
                request = parent.recv()
            except EOFError:
                return
            parent.send_bytes(answer(*request))


if __name__ == "__main__":
    main()
