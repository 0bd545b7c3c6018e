"""Runs on a Dask cluster: `--on local-dask:4`, or the address of a scheduler whose workers see the same files.

Dask decides where a call is made, and makes it again when its worker is gone. What a run is, when it is done and how
often it may take a worker with it is decided by `explorer.sweep.work`, which every worker imports from its own
installation. Results travel through the run directory; Dask carries only the status.

Every worker declares, as a resource of Dask's, the class of machines that it is of, and a run asks for its own: so none
is given to a worker of another class, also to one that joins later.

A worker that has to end (at the SIGTERM that `dask worker` handles, or where the scheduler scales down) leaves
checkpoints first: `Farewell` asks its runs to.
"""

import ipaddress
import logging
import re
import signal
import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from dask import config  # pyright: ignore[reportMissingImports]
from distributed import Client, KilledWorker, LocalCluster, WorkerPlugin  # pyright: ignore[reportMissingImports]
from distributed import Future as Remote  # pyright: ignore[reportMissingImports]
from distributed.client import ClosedClientError  # pyright: ignore[reportMissingImports]
from distributed.core import Status  # pyright: ignore[reportMissingImports]
from distributed.security import Security  # pyright: ignore[reportMissingImports]

from explorer.canonical import digest
from explorer.errors import SweepError
from explorer.guardian import child_environment
from explorer.machine_class import Machine, why_not_here
from explorer.recipes.machine import this_machine
from explorer.run_files import Hardware, RunRecord
from explorer.sweep.work import preempt
from explorer.sweep.workers import ExecutorLost, WorkerLost

LOCAL = "local-dask"
GPU = "GPU"  # the resource of workers with a GPU
PATIENCE = 60.0  # seconds to wait for the scheduler, and for its first worker
# Runs take long, and each is a process of its own. Without these, Dask takes queued runs from one worker to the next,
# gives out more than a worker can do, forbids the processes of kernels, and blames a run for deaths that it only saw.
SETTINGS = {
    "distributed.worker.daemon": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.scheduler.allowed-failures": 10,
}


class Farewell(WorkerPlugin):
    """Plugin of a worker that lets its runs leave checkpoints before it ends."""

    name = "explorer-farewell"

    def __init__(self, *, ours: bool) -> None:
        self._ours = ours  # the worker was started here: Ctrl-C in the terminal reaches it, and is for the sweep

    def setup(self, worker: Any) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def teardown(self, worker: Any) -> None:
        preempt()


class Belonging(NamedTuple):
    """One of the runs of a class and the machine that it is planned for, by which a worker knows whether it is one."""

    record: RunRecord
    machine: Machine

    def asked(self, devices: int) -> dict[str, int]:
        """Return the resources of a run: a worker that has declared the class, and devices of one node."""
        return {self.resource: 1, **({GPU: devices} if devices else {})}

    @property
    def resource(self) -> str:
        """The name that workers of the class declare: sweeps of other software have another one for its hardware."""
        software = [self.machine.versions, self.machine.torch_build, self.machine.training_code]
        return f"hw:{self.machine.hardware.name} ({digest(software)[:8]})"

    def why_not(self) -> str | None:
        """Return why the machine of this process is not of the class; None: it is."""
        return why_not_here(self.record, this_machine(), planned=self.machine)


class Declaration(WorkerPlugin):
    """Plugin of a worker that declares the classes that it is of: how many of their runs it makes at once."""

    name = "explorer-declaration"

    def __init__(self, classes: Sequence[Belonging]) -> None:
        self._classes = classes

    async def setup(self, worker: Any) -> None:
        for own in self._classes:
            if own.why_not() is None:  # a run has the GPUs that its worker sees to itself
                most = 1 if own.record.hardware.devices else worker.state.nthreads
                await worker.set_resources(**{own.resource: most})
        # Dask gives calls that wait for a resource to a worker that begins to run, and this one began before it had
        # declared any: without a second beginning, calls that outlived all workers would wait for ever.
        if worker.status == Status.running:
            worker.status = Status.paused
            worker.status = Status.running


def _reasons(classes: Sequence[Belonging]) -> list[str | None]:
    """Return, for each class, why the machine of this process is not of it."""
    return [own.why_not() for own in classes]


class DaskWorkers(Executor):
    """Executor whose calls are made by the workers of a Dask cluster."""

    def __init__(self, on: str, *, threads: int, classes: Sequence[tuple[RunRecord, Machine]] = ()) -> None:
        """Start a cluster of this machine, or reach the scheduler of one.

        on       `local-dask:N`, `tls://HOST:PORT`, or `tcp://` and an address of this machine
        threads  of a run
        classes  those that runs are submitted for, by a run and its machine; none: every worker makes every call

        Raises `SweepError` for an address that is not one of these, if nothing answers there, and if no worker is of
        any of the classes.
        """
        self._classes = {record.hardware.of_a_process: Belonging(record, machine) for record, machine in classes}
        devices = max((record.hardware.devices for record, _ in classes), default=0)
        self._cluster: LocalCluster | None = None
        self._avoided: set[str] = set()  # hosts
        self._chosen: list[str] | None = None  # addresses of the workers on other hosts; None: all workers
        for name in ("distributed", "distributed.client"):  # what died is an event of the sweep
            logging.getLogger(name).setLevel(logging.CRITICAL)
        if (local := re.fullmatch(rf"{LOCAL}:([1-9]\d{{0,3}})", on)) is not None:
            with config.set(SETTINGS):
                self._cluster = LocalCluster(
                    n_workers=int(local[1]),
                    threads_per_worker=1,
                    memory_limit=None,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",  # with None all clusters of a machine want the same port
                    silence_logs=logging.CRITICAL,
                    env=child_environment(threads=threads),
                    resources={GPU: devices} if devices else {},
                )
            self._client = Client(self._cluster)
        else:
            self._client = _connected(on)
        try:
            with _reached():
                self._client.register_plugin(Farewell(ours=self._cluster is not None))
                self._client.wait_for_workers(1, timeout=PATIENCE)
                if self._classes:
                    self._client.register_plugin(Declaration(tuple(self._classes.values())))
                self._check(on)
        except TimeoutError as error:
            self.shutdown()
            raise SweepError(
                f"--on {on}: the scheduler has no worker after {PATIENCE:g} s: start `dask worker`"
            ) from error
        except BaseException:
            self.shutdown()
            raise

    @property
    def workers(self) -> int:
        """The number of calls that the cluster can make at once now."""
        with _reached():
            return max(1, sum(self._threads().values()))

    def room(self, hardware: Hardware) -> int | None:
        """Return how many runs for this hardware the cluster can make at once now; None: it was given no classes."""
        if not self._classes:
            return None
        known = self._client.scheduler_info(n_workers=-1)["workers"]
        declared = [known[one]["resources"] for one in known if self._chosen is None or one in self._chosen]
        asked = self._classes[hardware.of_a_process].asked(hardware.devices)
        return sum(min(int(has.get(name, 0) // amount) for name, amount in asked.items()) for has in declared)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._submit({"workers": self._chosen}, fn, *args, **kwargs)

    def submit_to(
        self, hardware: Hardware, apart: Collection[str], fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        """Submit a call for workers with this hardware, and for those on hosts in `apart` if there are no others."""
        own = self._classes[hardware.of_a_process] if self._classes else None
        asked = {} if own is None else {"resources": own.asked(hardware.devices)}
        # Where the others have gone when the call is made, Dask gives it to any worker, whatever the call asks for: so
        # hosts are not chosen where that may be one of another class.
        if apart and len(self._classes) < 2 and (others := self._on_others({*apart, *self._avoided})):
            where = {"workers": others, "allow_other_workers": self._chosen is None}
            return self._submit({**asked, **where}, fn, *args, **kwargs)
        return self._submit({**asked, "workers": self._chosen}, fn, *args, **kwargs)

    def _submit(self, where: dict[str, Any], fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        ours: Future[Any] = Future()
        # Not pure: a run that is tried again is a new call.
        with _reached():
            remote = self._client.submit(fn, *args, **where, pure=False, retries=0, **kwargs)
        ours.add_done_callback(lambda done: remote.cancel() if done.cancelled() else remote.release())
        remote.add_done_callback(lambda done: _settle(ours, done))
        return ours

    def avoid(self, host: str) -> bool:
        """Give the workers of a host no more calls; return whether there are others, in each class that has workers."""
        served = [hardware for hardware in self._classes if self.room(hardware)]
        self._avoided.add(host)
        self._chosen = self._on_others(self._avoided)
        return bool(self._chosen) and all(map(self.room, served))

    def _on_others(self, hosts: Collection[str]) -> list[str]:
        """Return the addresses of the workers on other hosts than these."""
        with _reached():
            names: Any = self._client.run(socket.gethostname, on_error="ignore")  # one may be on its way out
        return [address for address, name in names.items() if name not in hosts]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster; one that was started here ends."""
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()

    def _threads(self) -> dict[str, int]:
        """Return the number of threads of every worker, by its address."""
        threads: Any = self._client.nthreads()
        return threads

    def _check(self, on: str) -> None:
        addresses = self._threads()
        if open_to_all := [address for address in addresses if not _is_safe(address)]:
            raise SweepError(
                f"--on {on}: its worker {open_to_all[0]} is on another machine and takes calls of anyone: {TLS}"
            )
        if self._classes and not any(map(self.room, self._classes)):
            raise SweepError(f"--on {on}: none of its workers executes the sweep: {self._why_none()}")

    def _why_none(self) -> str:
        answers: Any = self._client.run(_reasons, tuple(self._classes.values()))
        address, reasons = next(iter(answers.items()))
        if None in reasons:
            return f"start them with `dask worker --resources {GPU}=1`, one for each GPU"
        return f"{address}: {'; '.join(reasons)}"


def _settle(ours: Future[Any], remote: Remote) -> None:
    """Give our future the end of Dask's."""
    try:
        value, error = remote.result(), None
    except KilledWorker as killed:
        value, error = None, WorkerLost(f"its worker {killed.last_worker.address} ended")
    except CancelledError:  # not by us: then `ours` would be cancelled too
        value, error = None, ExecutorLost(GONE)
    except BaseException as raised:
        value, error = None, raised
    if ours.set_running_or_notify_cancel():
        ours.set_exception(error) if error else ours.set_result(value)


GONE = "the connection to the Dask scheduler was lost; once a scheduler is there, the same command continues"


@contextmanager
def _reached() -> Iterator[None]:
    """Raise `ExecutorLost` where the block does not reach the scheduler; a timeout of its own passes."""
    try:
        yield
    except TimeoutError:
        raise
    except (OSError, CancelledError, ClosedClientError) as error:
        raise ExecutorLost(GONE) from error


TLS = (
    "expected tls://HOST:PORT, with the keys and certificates of dask's configuration `distributed.comm.tls`;"
    " without TLS only this machine's own address, such as tcp://127.0.0.1:8786"
)


def _connected(on: str) -> Client:
    if not re.match(r"(tcp|tls)://[^/]+:\d+$", on):
        raise SweepError(
            f"--on: found {on!r:.100}: expected {LOCAL}:N, where N is a number of workers, or an address: {TLS}"
        )
    if not _is_safe(on):
        raise SweepError(f"--on {on}: another machine without TLS, where anyone can send it code: {TLS}")
    secure = on.startswith("tls:")
    if secure and not all(
        config.get(f"distributed.comm.tls.{key}", None) for key in ("ca-file", "client.cert", "client.key")
    ):
        raise SweepError(
            f"--on {on}: found no keys: set ca-file, client.cert and client.key of dask's configuration"
            " `distributed.comm.tls`"
        )
    try:
        return Client(on, timeout=PATIENCE, security=Security(require_encryption=True) if secure else None)
    except (OSError, ValueError) as error:
        raise SweepError(f"--on {on}: no scheduler answers there ({error})") from error


def _is_safe(address: str) -> bool:
    """
    >>> [_is_safe(on) for on in ("tls://a:1", "tcp://127.0.0.1:1", "tcp://[::1]:1", "tcp://localhost:1")]
    [True, True, True, True]
    >>> [_is_safe(on) for on in ("tcp://10.0.0.1:1", "tcp://127.0.0.1.example.com:1")]
    [False, False]
    """
    parts = urlsplit(address)
    try:
        return (
            parts.scheme == "tls"
            or parts.hostname == "localhost"
            or ipaddress.ip_address(parts.hostname or "").is_loopback
        )
    except ValueError:  # a name
        return False
