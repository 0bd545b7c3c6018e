"""Sweeps on a Dask cluster: who may be connected to, and what becomes of workers that die, leave or have no disk."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from explorer import rundir
from explorer.errors import SweepError
from explorer.recipes.machine import this_machine
from explorer.sweep.execute import Settings, run_sweep
from tests.cli.command import explorer, refused
from tests.pretended_machines import H200, pretend
from tests.sweep.sweeps import ROOT, SPEC, execute, outcomes, plan, results, spec

distributed = pytest.importorskip("distributed", reason="needs the extra `cluster`")
dask_engine = pytest.importorskip("explorer.sweep.dask_engine")
DaskWorkers = dask_engine.DaskWorkers

pytestmark = [pytest.mark.slow, pytest.mark.notebook]


def refusal(on, **more):
    with pytest.raises(SweepError) as caught:
        DaskWorkers(on, threads=1, **more).shutdown()
    return str(caught.value)


def test_only_this_machine_is_reached_without_tls(monkeypatch):
    monkeypatch.setattr(dask_engine, "PATIENCE", 0.5)
    monkeypatch.setattr(dask_engine, "Client", lambda *_, **__: pytest.fail("it connected"))
    for on in ("tcp://10.0.0.1:8786", "tcp://scheduler:8786", "tcp://127.0.0.1.example.org:8786"):
        assert "another machine without TLS" in refusal(on) and "expected tls://HOST:PORT" in refusal(on)
    assert "set ca-file, client.cert and client.key" in refusal("tls://scheduler:8786")
    for on in ("local-dask:0", "local-dask", "ucx://a:1", "tls://a", "http://127.0.0.1:80"):
        assert "expected local-dask:N" in refusal(on)
    monkeypatch.undo()
    monkeypatch.setattr(dask_engine, "PATIENCE", 0.5)
    assert "no scheduler answers there" in refusal("tcp://127.0.0.1:9")


def test_a_scheduler_with_tls_is_reached_with_its_keys_only(tmp_path):
    secure = distributed.security.Security.temporary()
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, security=secure, host="tls://127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as cluster:
        on = cluster.scheduler_address
        assert on.startswith("tls://")
        names = {"ca-file": "tls_ca_file", "client.cert": "tls_client_cert", "client.key": "tls_client_key"}
        keys = {f"distributed.comm.tls.{key}": getattr(secure, name) for key, name in names.items()}
        with dask_engine.config.set(keys):
            with DaskWorkers(on, threads=1) as workers:
                assert workers.submit(abs, -3).result() == 3
            with pytest.MonkeyPatch.context() as patch:
                pretend(patch, **H200)
                planned = plan(tmp_path)
            refused_for = refusal(on, classes=[(planned.runs[0].record, planned.target.machine)])
            assert "none of its workers executes the sweep: tls://" in refused_for
            assert "planned for NVIDIA H200 (cuda), and this machine is" in refused_for
        assert "found no keys" in refusal(on)


def test_a_sweep_by_the_command_has_the_bits_of_this_machine(tmp_path):
    assert execute(tmp_path / "here").complete
    written = tmp_path / "tiny.yaml"
    written.write_text(json.dumps(spec()))
    command = ("sweep", "run", written, "--runs", tmp_path / "there", "--no-profile", "--on")
    assert "another machine without TLS" in refused(*command, "tcp://10.0.0.1:8786")
    assert "the engine 'inline' cannot train" in refused(*command, "local-dask:2", "--engine", "inline")
    done = explorer(*command, "local-dask:2")
    assert done.returncode == 0, done.stderr
    assert "4 runs done, 4 of them now" in done.stdout
    assert outcomes(tmp_path / "there") == outcomes(tmp_path / "here")


def test_a_worker_that_leaves_lets_its_runs_write_checkpoints(tmp_path):
    """As one does that `dask worker` was told to end, or that a cluster sends away: that is no fault of the run."""
    long = spec(train={**SPEC["train"], "epochs": 14}, recipes={"baseline": []}, budgets=[1.0])
    (run,) = plan(tmp_path / "there", long).runs
    with DaskWorkers("local-dask:2", threads=1) as workers:

        def leave():
            metrics = run.directory / rundir.METRICS
            deadline = time.monotonic() + 300
            while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < deadline:
                time.sleep(0.01)
            busy = [address for address, calls in workers._client.processing().items() if calls]
            workers._client.retire_workers(busy, close_workers=True)

        thread = threading.Thread(target=leave)
        thread.start()
        summary = run_sweep(plan(tmp_path / "there", long), Settings(profile=False), executor=workers)
        thread.join()
    assert summary.complete
    assert results(tmp_path / "there")[run.record.run_id].resumed == 1
    assert not list(tmp_path.rglob(f"{rundir.BEGUN}*"))
    assert execute(tmp_path / "here", long).complete
    assert outcomes(tmp_path / "there") == outcomes(tmp_path / "here")


def test_ctrl_c_in_the_terminal_stops_runs_after_their_step(tmp_path):
    long = spec(train={**SPEC["train"], "epochs": 14}, recipes={"baseline": []}, budgets=[1.0], seeds=[0, 1])
    written = tmp_path / "tiny.yaml"
    written.write_text(json.dumps(long))
    runs = [run.directory for run in plan(tmp_path, long).runs]
    command = ("sweep", "run", written, "--runs", tmp_path, "--no-profile", "--on", "local-dask:2")
    process = subprocess.Popen(
        [sys.executable, "-m", "explorer", *command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 300
    while not any((run / rundir.METRICS).exists() for run in runs) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it: to all processes at once
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert any(list((run / rundir.CHECKPOINT).glob("*")) for run in runs)
    assert not list(tmp_path.rglob(f"{rundir.BEGUN}*"))
    assert execute(tmp_path, long).complete
    assert execute(tmp_path / "calm", long).complete
    assert outcomes(tmp_path) == outcomes(tmp_path / "calm")


def test_a_scheduler_that_is_killed_is_named_and_no_run_is_blamed(tmp_path):
    long = spec(train={**SPEC["train"], "epochs": 14}, recipes={"baseline": []}, budgets=[1.0])
    written = tmp_path / "tiny.yaml"
    written.write_text(json.dumps(long))
    (run,) = plan(tmp_path, long).runs
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    on, local = f"tcp://127.0.0.1:{port}", ("--host", "127.0.0.1", "--no-dashboard")

    def start(*command, **more):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
        return subprocess.Popen([sys.executable, "-m", *command], env=environment, stderr=subprocess.PIPE, **more)

    scheduler = start("dask", "scheduler", *local, "--port", port)
    worker = start("dask", "worker", on, *local, "--nthreads", "1")
    command = ("sweep", "run", str(written), "--runs", str(tmp_path), "--no-profile", "--on", on)
    sweep = start("explorer", *command, text=True)
    try:
        deadline = time.monotonic() + 600
        while not (run.directory / rundir.METRICS).exists() and time.monotonic() < deadline:
            assert sweep.poll() is None
            time.sleep(0.01)
        scheduler.kill()
        _, errors = sweep.communicate(timeout=600)
    finally:
        for process in (sweep, worker, scheduler):
            process.kill()
            process.communicate()
    assert sweep.returncode == 1, errors
    assert "the connection to the Dask scheduler was lost" in errors and "Traceback" not in errors
    assert not (run.directory / rundir.FAILURE).exists()
    assert execute(tmp_path, long).complete
    assert execute(tmp_path / "calm", long).complete
    assert outcomes(tmp_path) == outcomes(tmp_path / "calm")


def test_two_clusters_of_one_machine_share_no_port():
    with DaskWorkers("local-dask:1", threads=1) as one, DaskWorkers("local-dask:1", threads=1) as other:
        assert one.submit(abs, -1).result() + other.submit(abs, -1).result() == 2


def test_a_host_is_avoided_while_there_is_another():
    with DaskWorkers("local-dask:2", threads=1) as workers:
        assert workers.submit(abs, -1).result() == 1
        assert not workers.avoid(socket.gethostname())
        assert workers.workers == 2


def test_a_call_that_outlives_all_workers_goes_to_the_next_one(tmp_path):
    run = plan(tmp_path).runs[0].record
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        on, classes = cluster.scheduler_address, [(run, this_machine())]
        with DaskWorkers(on, threads=1, classes=classes) as workers:
            cluster.scale(0)
            until = time.monotonic() + 120
            while workers.room(run.hardware) and time.monotonic() < until:
                time.sleep(0.05)
            assert not workers.room(run.hardware)
            waiting = workers.submit_to(run.hardware, (), os.getpid)
            time.sleep(1)
            assert not waiting.done()
            cluster.scale(1)
            assert waiting.result(timeout=600) != os.getpid()
