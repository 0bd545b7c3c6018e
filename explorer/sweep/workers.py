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
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, Protocol

from explorer.errors import SweepError
from explorer.machine_class import cores
from explorer.sweep.guardian import child_environment, die_with_parent

INTERRUPT_EVERY = 2.0  # seconds; a call that has not begun ignores the first interrupt
FAREWELL = 10.0  # seconds that an idle worker has to end by itself


class WorkerLost(SweepError):
    """End of a worker process before it answered its call."""


def default_workers(*, threads: int, device: str = "cpu") -> int:
    """Return the number of runs with `threads` threads that fit the machine: its cores, or its one GPU."""
    return 1 if device == "cuda" else max(1, cores() // threads)


class Interruptible(Protocol):
    """Executor whose calls can be asked to stop."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]: ...

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None: ...

    def interrupt(self) -> None: ...


class InProcess(Executor):
    """Executor that makes calls in `submit`, in the calling thread, where signals reach them directly."""

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
    """Pool of worker processes. A worker that dies fails only its own call, with `WorkerLost`, and is replaced."""

    def __init__(self, workers: int, *, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="worker")
        # Last in, first out: the worker that was used last has warm caches and a running kernel.
        self._idle: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        self._busy: set[_Worker] = set()
        self._interrupted = threading.Event()
        for _ in range(workers):
            self._idle.put(None)  # a place; its worker starts with the first call

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._pool.submit(self._call, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.shutdown(wait=wait, cancel_futures=cancel_futures)
        while not self._idle.empty():
            worker = self._idle.get()
            if worker is not None:
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
        worker = self._idle.get() or _Worker(self._threads)
        self._busy.add(worker)
        try:
            return worker.call(fn, args, kwargs)
        finally:
            self._busy.discard(worker)
            self._idle.put(worker if worker.alive() else None)  # a dead worker is replaced at the next call


class _Worker:
    """The parent's end of one worker process."""

    def __init__(self, threads: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "explorer.sweep.workers", str(theirs.fileno())],
                env={**os.environ, **child_environment(threads=threads)},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in the terminal is for the parent, who passes it on
            )
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


def make_executor(workers: int, *, threads: int) -> InProcess | LocalProcesses:
    """Return an executor for this number of workers; a single one needs no process of its own."""
    return InProcess() if workers == 1 else LocalProcesses(workers, threads=threads)


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
