"""What every test may rely on: one torch thread, and no settings of the user's."""

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")

import psutil
import pytest
import torch
from hypothesis import settings

from explorer.sweep import presence
from explorer.training import watch
from tests.provenance.agents import Agent

MEMORY, NEEDED = "/dev/shm", 6 << 30  # a file system in memory, and the bytes that it must have free


def in_memory() -> bool:
    """Say if files of tests can be in memory: large enough, and programs may be started from there, as from a disk."""
    try:
        free, flags = shutil.disk_usage(MEMORY).free, os.statvfs(MEMORY).f_flag
    except OSError:
        return False
    return min(free, psutil.virtual_memory().available) > NEEDED and not flags & (os.ST_NOEXEC | os.ST_RDONLY)


# Runs, ledgers and databases flush their files by the thousand, and wait 5 ms each time where those are on a disk: more
# than half of the time of the tests. They flush here, too. Workers and programs that tests start inherit the variable.
if "TMPDIR" not in os.environ and in_memory():
    os.environ["TMPDIR"] = tempfile.tempdir = MEMORY

settings.register_profile("explorer", deadline=None)  # a busy machine is no fault of the code
settings.load_profile("explorer")


LONG = ("tests/test_docs.py", "tests/test_wheel.py", "tests/test_benchmarks.py")  # some of their tests take minutes


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long ones: a process that came to them last would end long after the others."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # at exit, extension modules report what was not collected as leaks


@pytest.fixture(autouse=True, scope="module")
def _little_to_collect() -> None:
    """Keep what was collected and imported before out of garbage collection: each inline run ends with one, which took
    0.1 s without this, a seventh of the time of many tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _quiet_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EXPLORER_DATA", "EXPLORER_RUNS"):
        monkeypatch.delenv(name, raising=False)
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")  # of the session: fixtures of a module train runs too
def _locks_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Sweeps of tests that run at the same time do not wait for each other."""
    locks = tmp_path_factory.getbasetemp() / "locks"
    locks.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(presence, "_place", lambda: locks)
        yield


class _SilentMachine:
    """A system that says neither processor times nor load: what else runs beside the tests changes no result."""

    Error = psutil.Error

    @staticmethod
    def cpu_times() -> None:
        raise OSError

    getloadavg = cpu_times


@pytest.fixture(autouse=True, scope="session")
def _silent_machine() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "psutil", _SilentMachine)
        yield


@pytest.fixture(autouse=True)
def _real_machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether this machine is busy is asked by the tests marked `real_machine` alone."""
    if request.node.get_closest_marker("real_machine"):
        monkeypatch.setattr(watch, "psutil", psutil)


@pytest.fixture
def real_agent(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """The real ssh-agent, empty, as SSH_AUTH_SOCK names it."""
    made = Agent(tmp_path_factory.mktemp("a"))
    monkeypatch.setenv("SSH_AUTH_SOCK", made.socket)
    yield made
    made.process.terminate()
    made.process.wait()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of an S3 server of this test session. A test that asks for it is skipped without `moto`."""
    server_of = pytest.importorskip("moto.server", reason="moto is not installed: pip install 'explorer[peers]'")
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'explorer[cloud]'")
    server = server_of.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty place in a bucket; credentials and address are in the usual variables."""
    boto3 = pytest.importorskip("boto3")
    for name, value in {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{os.urandom(6).hex()}"
    boto3.client("s3", endpoint_url=s3_server).create_bucket(Bucket=name)
    return f"s3://{name}/runs/mine"
