"""The engines `cold` and `warm`: notebooks executed in a kernel, which is a process of its own.

A kernel belongs to one engine and talks to it through sockets in a private directory: papermill's default, TCP ports,
collides when several kernels start at once. Both engines are one class; `cold` takes a new kernel for every run.
"""

import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from queue import Empty

import psutil
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from jupyter_core.utils import run_sync
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NotebookExecutionManager

from explorer.guardian import child_environment
from explorer.sweep.notebooks import INTERRUPTED, NotebookEngine, NotebookError
from explorer.sweep.process_state import BEGIN, CLEAR

START_TIMEOUT = 120  # seconds; a loaded machine may need many
MAX_PATH = 90  # characters of a directory for sockets: the system allows 107 with the file name
CLEAR_TIMEOUT = 30  # seconds
INTERRUPT_EVERY = 1.0  # seconds; a kernel between two cells ignores an interrupt

_log = logging.getLogger("explorer.sweep.kernels")
_log.addHandler(logging.NullHandler())
_log.propagate = False  # nbclient logs errors that it also raises


class _Manager(AsyncKernelManager):
    """Manager that starts `explorer.sweep.kernel`, whatever kernels are installed on the machine."""

    threads: int = 1

    @property
    def kernel_spec(self) -> KernelSpec:
        argv = [sys.executable, "-m", "explorer.sweep.kernel", "-f", "{connection_file}"]
        private = str(Path(self.connection_file).parent)  # the user's start-up scripts are not part of a run
        return KernelSpec(
            argv=argv,
            display_name="Explorer",
            language="python",
            env={**child_environment(threads=self.threads), "IPYTHONDIR": private},
        )


@dataclass(kw_only=True, slots=True)
class Kernel:
    """A running kernel, its only client, and the directory that holds their sockets."""

    directory: Path
    manager: AsyncKernelManager
    client: AsyncKernelClient
    process: psutil.Process
    runs: int = 0
    first_memory: int = 0  # bytes after the first run
    clearing: str | None = None  # the request to clear it, sent after the last run and not answered yet

    @classmethod
    def start(cls, *, threads: int) -> "Kernel":
        """Start a kernel and wait until it answers. Raises `NotebookError` when it does not."""
        directory = _private_directory()
        manager = _Manager(kernel_name="python3", transport="ipc", connection_file=str(directory / "k.json"))
        manager.threads = threads
        # A kernel that never answers would otherwise stay behind, with its directory.
        try:
            client = run_sync(_start)(manager)
        except RuntimeError as error:
            run_sync(manager.shutdown_kernel)(now=True)
            shutil.rmtree(directory, ignore_errors=True)
            raise NotebookError("dead kernel", f"the kernel did not start: {error}") from error
        assert isinstance(manager.provisioner, LocalProvisioner)
        process = psutil.Process(manager.provisioner.pid)
        kernel = cls(directory=directory, manager=manager, client=client, process=process)
        kernel.clearing = client.execute(BEGIN, silent=True)
        return kernel

    def memory(self) -> int:
        """Return the resident bytes; 0 when the process is gone."""
        try:
            return self.process.memory_info().rss
        except psutil.Error:
            return 0

    def alive(self) -> bool:
        return run_sync(self.manager.is_alive)()

    def clear(self) -> None:
        """Ask the kernel to become like a fresh one, without waiting: the parent prepares the next run meanwhile."""
        self.clearing = self.client.execute(CLEAR, silent=True)

    def is_clear(self) -> bool:
        """Wait until the kernel is like a fresh one; return False if it could not be cleared."""
        if self.clearing is None:
            return True
        request, self.clearing = self.clearing, None
        return run_sync(_succeeds)(self.client, request)

    def stop(self) -> None:
        self.client.stop_channels()
        run_sync(self.manager.shutdown_kernel)(now=True)
        shutil.rmtree(self.directory, ignore_errors=True)


def _private_directory() -> Path:
    directory = tempfile.mkdtemp(prefix="explorer-")
    if len(directory) > MAX_PATH:  # a long TMPDIR, as on macOS and on clusters
        Path(directory).rmdir()
        directory = tempfile.mkdtemp(prefix="explorer-", dir="/tmp")
    return Path(directory)


async def _start(manager: AsyncKernelManager) -> AsyncKernelClient:
    # A history would be a SQLite database that no run reads.
    await manager.start_kernel(extra_arguments=["--HistoryManager.enabled=False"])
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=START_TIMEOUT)
    except RuntimeError:
        client.stop_channels()
        raise
    client.allow_stdin = False  # a cell that asks for input fails, where it would wait for ever
    return client


async def _succeeds(client: AsyncKernelClient, request: str) -> bool:
    """Wait for the reply to a request; return True if it was executed without an exception."""
    while True:  # replies to earlier requests may come first
        try:
            message = await client.get_shell_msg(timeout=CLEAR_TIMEOUT)
        except Empty:
            return False
        if message["parent_header"].get("msg_id") == request:
            return message["content"]["status"] == "ok"


class KernelEngine(NotebookEngine):
    """Executor of notebooks in a kernel that serves `runs_per_kernel` runs before it is replaced.

    A kernel is also replaced when its memory has grown by `max_growth` bytes since its first run, and after every run
    that did not finish.
    """

    def __init__(
        self, *, threads: int, runs_per_kernel: int, timeout: float | None = None, max_growth: int = 2**30
    ) -> None:
        self.threads = threads
        self.runs_per_kernel = runs_per_kernel
        self.timeout = timeout  # seconds a cell may take
        self.max_growth = max_growth
        self._kernel: Kernel | None = None
        self._active = threading.Event()  # set during a run, also while its kernel is still starting
        self._interrupted = threading.Event()  # set by an interrupt, until the next run

    def execute(self, manager: NotebookExecutionManager) -> None:
        self._interrupted.clear()
        self._active.set()
        try:
            self._execute_in(self._ready(), manager)
        finally:
            self._active.clear()

    def _execute_in(self, kernel: Kernel, manager: NotebookExecutionManager) -> None:
        # Given a manager, nbclient neither starts nor stops a kernel; without `kc` it would open a second client.
        client = PapermillNotebookClient(manager, km=kernel.manager, timeout=self.timeout, log=_log)
        client.kc = kernel.client
        complete = False
        try:
            client.execute()
            complete = not manager.nb.metadata.papermill["exception"]
        except DeadKernelError as error:
            raise NotebookError("dead kernel", "the kernel died (killed, or out of memory)") from error
        except CellTimeoutError as error:
            raise NotebookError("timeout", f"a cell took longer than {self.timeout:g} s") from error
        finally:
            self._after(kernel, complete=complete)

    def interrupt(self) -> None:
        self._interrupted.set()
        # A thread, because the caller is a signal handler and the main thread waits for the kernel.
        threading.Thread(target=self._insist, name="interrupt", daemon=True).start()

    def close(self) -> None:
        if self._kernel is not None:
            self._kernel.stop()
            self._kernel = None

    def _ready(self) -> Kernel:
        """Return a kernel in the state of a fresh one; a kernel that died while it was idle is replaced."""
        if self._kernel is not None and not (self._kernel.alive() and self._kernel.is_clear()):
            self.close()
        if self._kernel is None:
            self._kernel = Kernel.start(threads=self.threads)
            if not self._kernel.is_clear():
                self.close()
                if self._interrupted.is_set():  # before its first cell
                    raise NotebookError("interrupted", INTERRUPTED)
                raise NotebookError("dead kernel", "the kernel started but does not answer")
        return self._kernel

    def _after(self, kernel: Kernel, *, complete: bool) -> None:
        kernel.runs += 1
        kernel.first_memory = kernel.first_memory or kernel.memory()
        grown = kernel.memory() - kernel.first_memory
        if not complete or kernel.runs >= self.runs_per_kernel or grown > self.max_growth:
            self.close()
        else:
            kernel.clear()

    def _insist(self) -> None:
        """Interrupt until the run has ended; a kernel that is still starting is interrupted once it runs."""
        while self._active.is_set() and self._interrupted.is_set():
            if (kernel := self._kernel) is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(kernel.process.pid, signal.SIGINT)
            time.sleep(INTERRUPT_EVERY)
