"""Executors that keep the contract: ours, a Dask cluster over TCP, and those of other packages."""

import os
import signal
import threading
import time

import pytest

from explorer import rundir
from explorer.sweep.execute import Settings, run_sweep
from explorer.sweep.work import lost_workers
from explorer.sweep.workers import InProcess, LocalProcesses
from explorer.testing import ExecutorContract
from tests.sweep.sweeps import SPEC, execute, outcomes, plan, results, spec

pytestmark = [pytest.mark.notebook, pytest.mark.slow]


class TestInProcess(ExecutorContract):
    engine = "inline"
    elsewhere = False

    def executor(self):
        return InProcess()


class TestLocalProcesses(ExecutorContract):
    engine = "inline"

    def executor(self):
        return LocalProcesses(2, threads=1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_worker_that_is_called_back_leaves_a_checkpoint_and_costs_no_retry(tmp_path, number):
    long = spec(train={**SPEC["train"], "epochs": 14}, recipes={"baseline": []}, budgets=[1.0])
    (run,), events = plan(tmp_path / "there", long).runs, []

    def call_back():
        metrics = run.directory / rundir.METRICS
        deadline = time.monotonic() + 300
        while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(int(lost_workers(run.directory)[0].rpartition(" ")[2]), number)

    thread = threading.Thread(target=call_back)
    thread.start()
    settings = Settings(engine="inline", profile=False, on_event=events.append)
    summary = run_sweep(plan(tmp_path / "there", long), settings, executor=lambda: LocalProcesses(2, threads=1))
    thread.join()
    assert summary.complete
    assert [event.message for event in events if event.kind == "retry"] == [
        "its worker was called back; it continues from its checkpoint"
    ]
    assert results(tmp_path / "there")[run.record.run_id].resumed == 1
    assert execute(tmp_path / "here", long).complete
    assert outcomes(tmp_path / "there") == outcomes(tmp_path / "here")


class TestDask(ExecutorContract):
    def executor(self):
        engine = pytest.importorskip(
            "explorer.sweep.dask_engine", reason="needs the extra `cluster`", exc_type=ImportError
        )
        return engine.DaskWorkers("local-dask:2", threads=1)


@pytest.mark.peers
class TestLoky(ExecutorContract):
    engine = "inline"
    breaks = True

    def executor(self):
        loky = pytest.importorskip("loky")
        return loky.ProcessPoolExecutor(2, timeout=60)


@pytest.mark.peers
class TestExecutorlib(ExecutorContract):
    engine = "inline"

    def executor(self):
        executorlib = pytest.importorskip("executorlib")
        return executorlib.SingleNodeExecutor(max_workers=2, block_allocation=False)
