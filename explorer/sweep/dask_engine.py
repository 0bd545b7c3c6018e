"""Runs on a Dask cluster: `--on local-dask:4`, or the address of a scheduler whose workers see the same files.

Dask decides where a call is made, and makes it again when its worker is gone. What a run is, when it is done and how
often it may take a worker with it is decided by `explorer.sweep.work`, which every worker imports from its own
installation. Results travel through the run directory; Dask carries only the status.

A worker that has to end (at the SIGTERM that `dask worker` handles, or where the scheduler scales down) leaves
checkpoints first: `Farewell` asks its runs to.
"""

import ipaddress
import logging
import re
import signal
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from dask import config  # pyright: ignore[reportMissingImports]
from distributed import Client, KilledWorker, LocalCluster, WorkerPlugin  # pyright: ignore[reportMissingImports]
from distributed import Future as Remote  # pyright: ignore[reportMissingImports]
from distributed.client import ClosedClientError  # pyright: ignore[reportMissingImports]
from distributed.security import Security  # pyright: ignore[reportMissingImports]

from explorer.errors import SweepError
from explorer.sweep.guardian import child_environment
from explorer.sweep.work import preempt
from explorer.sweep.workers import ExecutorLost, WorkerLost

LOCAL = "local-dask"
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


class DaskWorkers(Executor):
    """Executor whose calls are made by the workers of a Dask cluster."""

    def __init__(self, on: str, *, threads: int, resources: Mapping[str, float] | None = None) -> None:
        """Start a cluster of this machine, or reach the scheduler of one.

        on         `local-dask:N`, `tls://HOST:PORT`, or `tcp://` and an address of this machine
        threads    of a run
        resources  what a call takes of those that the workers declare

        Raises `SweepError` for an address that is not one of these, and if nothing answers there.
        """
        self._resources = dict(resources or {})
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
                    resources=self._resources,
                )
            self._client = Client(self._cluster)
        else:
            self._client = _connected(on)
        try:
            with _reached():
                self._client.register_plugin(Farewell(ours=self._cluster is not None))
                self._client.wait_for_workers(1, timeout=PATIENCE)
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

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._submit({"workers": self._chosen}, fn, *args, **kwargs)

    def submit_apart(self, hosts: Collection[str], fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a call that workers of these hosts make only if there are no others."""
        if not (others := self._on_others({*hosts, *self._avoided})):
            return self.submit(fn, *args, **kwargs)
        # Where those have gone when the call is made, any worker may make it, unless its disk is full.
        return self._submit({"workers": others, "allow_other_workers": self._chosen is None}, fn, *args, **kwargs)

    def _submit(self, where: dict[str, Any], fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        ours: Future[Any] = Future()
        # Not pure: a run that is tried again is a new call.
        with _reached():
            remote = self._client.submit(
                fn, *args, **where, resources=self._resources or None, pure=False, retries=0, **kwargs
            )
        ours.add_done_callback(lambda done: remote.cancel() if done.cancelled() else remote.release())
        remote.add_done_callback(lambda done: _settle(ours, done))
        return ours

    def avoid(self, host: str) -> bool:
        """Give the workers of a host no more calls; return whether there are others."""
        self._avoided.add(host)
        self._chosen = self._on_others(self._avoided)
        return bool(self._chosen)

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
        known = self._client.scheduler_info(n_workers=-1)["workers"].values()
        for name, amount in self._resources.items():
            if not any(worker["resources"].get(name, 0) >= amount for worker in known):
                raise SweepError(
                    f"--on {on}: no worker declares the resource {name}: start them with"
                    f" `dask worker --resources {name}={amount:g}`"
                )


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
