"""What `chaos.py` disturbs: the processes of a sweep at a place, the bucket, the network and the disk.

Two engines execute the same sweep. Each is a set of processes, which are started again by the same command when they
end:

    place   a driver that takes part (`sweep run --at`), and a worker that claims (`run-at --claim`)
    dask    a driver (`sweep run --on --at`), a scheduler, and two nannies with a worker each

The place is a directory, or a bucket of moto's S3 server behind a server that fails 5% of the requests: half of them
are refused, and of the others the answer is lost.
"""

import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import boto3
import psutil
from moto.server import ThreadedMotoServer

from explorer.objects import open_objects

ROOT = Path(__file__).parent.parent
LEASE = 1.0  # seconds
SHARE = 0.05  # of the requests to a bucket that fail
DISK = 24 * 2**20  # bytes of the worker's scratch
AGAIN = 3.0  # seconds between two starts of a process
# `sweep run` has no option for the lease, which is much longer than a round.
EXPLORER = (
    sys.executable,
    "-c",
    f"from explorer.place import leases; leases.LEASE = {LEASE}; from explorer.cli.app import main; main()",
)
KERNEL, DASK_WORKER = "explorer.sweep.kernel", "multiprocessing.spawn"


@dataclass
class Scene:
    """The processes of an engine, by role."""

    commands: Mapping[str, Sequence[str]]
    environments: Mapping[str, Mapping[str, str]]
    logs: Path
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _begun: dict[str, float] = field(default_factory=dict)

    def keep(self) -> None:
        """Start what is not there, or has ended."""
        for role, command in self.commands.items():
            process = self._processes.get(role)
            ended = process is None or process.poll() is not None
            if ended and time.monotonic() - self._begun.get(role, -AGAIN) >= AGAIN:
                with (self.logs / f"{role}.log").open("ab") as log:
                    self._processes[role] = subprocess.Popen(
                        command, env=self.environments[role], stdout=log, stderr=log, cwd=self.logs
                    )
                self._begun[role] = time.monotonic()

    def complete(self) -> bool:
        """Return whether the driver found nothing left to do."""
        driver = self._processes.get("driver")
        return driver is not None and driver.poll() == 0

    def wait(self, seconds: float) -> None:
        """Let so much time pass, in which processes that end are started again."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.complete():
            self.keep()
            time.sleep(min(0.1, max(0.0, until - time.monotonic())))

    def roles(self, kind: str) -> list[psutil.Process]:
        """Return the living processes of roles that begin with this word."""
        found = [process for role, process in self._processes.items() if role.startswith(kind)]
        return [psutil.Process(process.pid) for process in found if process.poll() is None]

    def workers(self) -> list[psutil.Process]:
        """Return the processes that claim runs, but for a driver that takes part."""
        return self.roles("worker") or [child for nanny in self.roles("nanny") for child in _kin(nanny, DASK_WORKER)]

    def kernels(self) -> list[psutil.Process]:
        """Return the processes in which runs train."""
        return [kernel for role in self.commands for process in self.roles(role) for kernel in _kin(process, KERNEL)]

    def close(self) -> None:
        """End all processes at once."""
        for process in self._processes.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                kill(psutil.Process(process.pid))
            process.wait()

    def tracebacks(self) -> int:
        """Return how often a command of ours ended with a traceback, in place of one clear error, and print its log."""
        logs = [self.logs / f"{role}.log" for role in ("driver", "worker", "ingester")]
        texts = [path.read_text(errors="replace") for path in logs if path.exists()]
        counts = {text: text.count("Traceback (most recent call last)") for text in texts}
        for text in (text for text, count in counts.items() if count):
            print(text[-20_000:], file=sys.stderr, flush=True)  # the log is gone with the directory
        return sum(counts.values())


def _kin(process: psutil.Process, word: str) -> list[psutil.Process]:
    found = []
    for child in family(process)[1:]:
        with contextlib.suppress(psutil.Error):
            if any(word in part for part in child.cmdline()):
                found.append(child)
    return found


def family(process: psutil.Process) -> list[psutil.Process]:
    """Return a process and its descendants."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [process, *process.children(recursive=True)]
    return [process]


def kill(process: psutil.Process) -> None:
    """Kill a process and its descendants, stopped ones too."""
    for member in family(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()


def commands_of(engine: str, *, spec: Path, runs: Path, place: str, scratch: Path | None) -> dict[str, list[str]]:
    """Return the commands of an engine by role."""
    driver = [*EXPLORER, "sweep", "run", str(spec), "--runs", str(runs), "--at", place, "--no-profile"]
    if engine == "place":
        on = [] if scratch is None else ["--scratch", str(scratch)]
        inline = ["--engine", "inline"]  # the signals reach the training itself; the driver has a kernel
        return {"driver": [*driver, "--workers", "1"], "worker": [*EXPLORER, "run-at", place, "--claim", *inline, *on]}
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    dask, here = [sys.executable, "-m", "dask"], f"tcp://127.0.0.1:{port}"
    nanny = [*dask, "worker", here, "--nanny", "--nthreads", "1", "--host", "127.0.0.1", "--memory-limit", "0"]
    return {
        "scheduler": [*dask, "scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard"],
        "nanny-1": [*nanny, "--no-dashboard"],
        "nanny-2": [*nanny, "--no-dashboard"],
        "driver": [*driver, "--on", here],
    }


def environment(directory: Path, **more: str) -> dict[str, str]:
    """Return the environment of the processes: nothing of the user's, and locks that other sweeps do not see."""
    own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TMPDIR": str(directory), "HOME": str(directory)}
    return {"PATH": os.environ["PATH"], **own, **more}


# --- the bucket ---

CREDENTIALS = {"AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
REGION = {"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}


@contextlib.contextmanager
def bucket_server() -> Iterator[str]:
    """Yield the address of an S3 server on loopback that does not fail; this process reaches it by its variables."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # else it prints every request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    try:
        with mock.patch.dict(os.environ, reached_at(url)):
            yield url
    finally:
        server.stop()


def new_bucket(server: str) -> str:
    """Return the URL of a place in a new bucket."""
    name = f"bucket-{os.urandom(6).hex()}"
    boto3.client("s3", endpoint_url=server).create_bucket(Bucket=name)
    return f"s3://{name}/runs/mine"


def reached_at(url: str) -> dict[str, str]:
    """Return the environment variables by which a process reaches buckets at this address."""
    return CREDENTIALS | REGION | {"AWS_ENDPOINT_URL": url}


def copy_place(directory: Path, place: str) -> None:
    """Copy a place that is a directory to another place."""
    objects = open_objects(place)
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        objects.put(path.relative_to(directory).as_posix(), path.read_bytes())


# --- a network and a disk of the worker's own ---


class Refused(Exception):
    """Something that this machine does not let the benchmark do, and why."""


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise Refused(f"there is no `{command[0]}`") from error
    if done.returncode:
        raise Refused(f"`{' '.join(command)}`: {done.stderr.strip().partition(chr(10))[0]}")


class Network:
    """A network namespace with one link to this machine, at `host`, which can be cut. Raises `Refused`."""

    def __init__(self) -> None:
        self._name, self._link = f"chaos-{os.getpid()}", f"chaos{os.getpid()}"
        subnet = f"10.203.{os.getpid() % 250}"
        self.host = f"{subnet}.1"
        self.inside = ["ip", "netns", "exec", self._name]  # before a command
        there = ["ip", "-n", self._name]
        _run("ip", "netns", "add", self._name)
        try:
            _run("ip", "link", "add", self._link, "type", "veth", "peer", "name", "far", "netns", self._name)
            _run("ip", "addr", "add", f"{self.host}/30", "dev", self._link)
            self.mend()
            _run(*there, "addr", "add", f"{subnet}.2/30", "dev", "far")
            for device in ("far", "lo"):
                _run(*there, "link", "set", device, "up")
            _run(*self.inside, "true")
        except Refused:
            self.close()
            raise

    def cut(self) -> None:
        _run("ip", "link", "set", self._link, "down")

    def mend(self) -> None:
        _run("ip", "link", "set", self._link, "up")

    def close(self) -> None:
        _run("ip", "netns", "del", self._name)


class Disk:
    """A small file system at `directory`, which can be filled. Raises `Refused`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        _run("mount", "-t", "tmpfs", "-o", f"size={DISK}", "chaos", str(directory))

    def fill(self) -> None:
        with contextlib.suppress(OSError), (self.directory / "full").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def empty(self) -> None:
        (self.directory / "full").unlink()

    def close(self) -> None:
        _run("umount", "--lazy", str(self.directory))
