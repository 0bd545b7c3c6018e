"""Sweeps that a Dask cluster executes at a place, whose workers share no files with the sweep: `--on` with `--at`."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from explorer.objects import Objects, open_objects
from explorer.place.leases import claims_of
from explorer.place.published_sweep import Published
from explorer.sweep import execute as executing
from explorer.sweep.execute import Settings, run_sweep
from explorer.sweep.profiles import read_profiles
from explorer.sweep.run_at import Worker
from tests.builders import CPU
from tests.cli.command import explorer
from tests.place.faulty_server import FaultyServer
from tests.sweep.sweeps import SPEC, execute, outcomes, plan, spec

distributed = pytest.importorskip("distributed", reason="needs the extra `cluster`")
dask_engine = pytest.importorskip("explorer.sweep.dask_engine")
DaskWorkers = dask_engine.DaskWorkers

pytestmark = [pytest.mark.slow, pytest.mark.notebook]

SMALL = spec(recipes={"baseline": []})  # two runs of one recipe
LONG = spec(train={**SPEC["train"], "epochs": 20}, recipes={"baseline": []}, budgets=[1.0])  # one run of 280 steps


@pytest.fixture
def place(request, tmp_path, monkeypatch) -> str:
    if request.param == "directory":
        return str(tmp_path / "place")
    bucket = request.getfixturevalue("bucket")
    server = FaultyServer(request.getfixturevalue("s3_server"), share=0.0)
    request.addfinalizer(server.close)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    return bucket


def wait_until(holds, *, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


@pytest.mark.parametrize("place", ["bucket"], indirect=True)
def test_a_cluster_at_a_place_measures_first_and_has_the_bits_of_this_machine(tmp_path, place):
    written, runs = tmp_path / "tiny.yaml", tmp_path / "runs"
    written.write_text(json.dumps(SMALL))
    done = explorer("sweep", "run", written, "--runs", runs, "--on", "local-dask:2", "--at", place)
    assert done.returncode == 0, done.stderr
    assert "2 runs done, 2 of them now" in done.stdout
    assert execute(tmp_path / "calm", SMALL).complete
    assert outcomes(runs) == outcomes(tmp_path / "calm")
    objects, planned = open_objects(place), plan(runs, SMALL)
    (own,) = Published(objects).plan().classes
    (measured,) = claims_of(objects, own.measuring)
    begun = [claims_of(objects, run.record.run_id)[0].begun for run in planned.runs]
    assert measured.ended == "done" and measured.until <= min(begun), "one task, and nothing else meanwhile"
    assert set(read_profiles(runs / "tiny")) == {run.record.recipe_digest for run in planned.runs}
    assert not list(objects.list("permits/"))


def test_a_cluster_that_shares_files_measures_first(tmp_path):
    calls = []

    class Recording(DaskWorkers):
        def submit_to(self, hardware, apart, fn, /, *args, **kwargs):
            others = sum(not future.done() for _, _, future in calls)
            future = super().submit_to(hardware, apart, fn, *args, **kwargs)
            calls.append((getattr(fn, "func", fn).__name__, others, future))
            return future

    assert run_sweep(plan(tmp_path, SMALL), executor=lambda: Recording("local-dask:2", threads=1)).complete
    names = [name for name, _, _ in calls]
    assert names[:3] == ["measure_apart", "perform", "perform"]
    assert calls[0][1] == calls[1][1] == 0, "the first run waits until the times are measured"
    assert len(read_profiles(tmp_path / "tiny")) == 1


def begun(objects: Objects, run_id: str) -> None:
    """Wait until a worker has claimed the run."""
    wait_until(lambda: claims_of(objects, run_id))


def test_the_run_of_a_killed_worker_continues(tmp_path, monkeypatch):
    monkeypatch.setattr(executing, "Worker", partial(Worker, lease=4.0))
    planned, objects = plan(tmp_path / "there", LONG), open_objects(str(tmp_path / "place"))
    (run,) = planned.runs
    with DaskWorkers("local-dask:2", threads=1) as workers:
        killed = []

        def kill() -> None:
            begun(objects, run.record.run_id)
            processes = workers._client.run(os.getpid)
            (busy,) = [address for address, calls in workers._client.processing().items() if calls]
            os.kill(processes[busy], signal.SIGKILL)
            killed.append(busy)

        thread = threading.Thread(target=kill)
        thread.start()
        settings = Settings(profile=False, place=str(tmp_path / "place"))
        summary = run_sweep(planned, settings, executor=workers)
        thread.join()
    assert summary.complete and killed
    endings = [claim.ending(time.time()) for claim in claims_of(objects, run.record.run_id)]
    assert endings[0] == "lost worker" and endings[-1] == "done"
    assert execute(tmp_path / "calm", LONG).complete
    assert outcomes(tmp_path / "there") == outcomes(tmp_path / "calm")


@pytest.mark.parametrize("place", ["directory"], indirect=True)
def test_ctrl_c_stops_runs_at_a_place_after_their_step(tmp_path, place):
    endless = spec(train={**SPEC["train"], "epochs": 400}, recipes={"baseline": []}, budgets=[1.0])  # minutes
    objects, planned = open_objects(place), plan(tmp_path / "there", endless)
    (run,) = planned.runs
    with DaskWorkers("local-dask:1", threads=1) as workers:

        def stop() -> None:
            begun(objects, run.record.run_id)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=stop)
        thread.start()
        summary = run_sweep(planned, Settings(profile=False, place=place), executor=workers)
        thread.join()
    assert summary.interrupted and not summary.failures
    (claim,) = claims_of(objects, run.record.run_id)
    assert claim.ended == "preempted", "the worker left the run at once"


@pytest.fixture
def two_hosts(tmp_path):
    """A scheduler with two workers that call their hosts `a` and `b`."""
    started = []
    with distributed.LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster:
        for name in "ab":
            preload = tmp_path / f"host_{name}.py"
            # Pickle knows the function by the module that defines it.
            preload.write_text(f"import _socket, socket\n_socket.gethostname = socket.gethostname = lambda: {name!r}\n")
            options = ("--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1", "--preload", str(preload))
            command = [sys.executable, "-m", "dask", "worker", cluster.scheduler_address, *options]
            environment = {**os.environ, "DASK_DISTRIBUTED__WORKER__DAEMON": "False"}
            started.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))
        yield cluster.scheduler_address
    for process in started:
        process.terminate()
        process.wait()


def test_a_run_that_was_lost_on_a_host_is_tried_on_another(tmp_path, two_hosts):
    planned, marks = plan(tmp_path / "there", LONG), []
    (run,) = planned.runs

    def seen(mark: Path) -> str:
        try:
            return mark.read_text()
        except FileNotFoundError:
            return ""

    def watch() -> None:
        while not marks or (thread.name != "end" and len(marks) < 2):
            new = [seen(mark) for mark in run.directory.glob(".begun-*")]
            for mark in filter(None, new):
                if mark not in marks:
                    marks.append(mark)
                    if len(marks) == 1:
                        os.kill(int(mark.rpartition(" ")[2]), signal.SIGKILL)
            time.sleep(0.01)

    with DaskWorkers(two_hosts, threads=1) as workers:
        wait_until(lambda: workers.workers == 2)
        for apart, on in (({"a"}, "b"), ({"b"}, "a")):
            made = {workers.submit_to(CPU, apart, socket.gethostname).result(timeout=300) for _ in range(5)}
            assert made == {on}
        assert workers.submit_to(CPU, {"a", "b"}, abs, -1).result(timeout=300) == 1, "there is no other"
        thread = threading.Thread(target=watch)
        thread.start()
        summary = run_sweep(planned, Settings(profile=False), executor=workers)
        thread.name = "end"
        thread.join()
    assert summary.complete
    hosts = [mark.partition(",")[0] for mark in marks]
    assert sorted(hosts) == ["a", "b"], "the second attempt is made elsewhere"
    assert execute(tmp_path / "calm", LONG).complete
    assert outcomes(tmp_path / "there") == outcomes(tmp_path / "calm")
