"""Executors that keep the contract: ours, a Dask cluster over TCP, and those of other packages."""

import pytest

from explorer.sweep.workers import InProcess, LocalProcesses
from explorer.testing import ExecutorContract

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


class TestDask(ExecutorContract):
    def executor(self):
        engine = pytest.importorskip(
            "explorer.sweep.dask_engine", reason="needs the extra `cluster`", exc_type=ImportError
        )
        return engine.DaskWorkers("local-dask:2", threads=1)


class TestLoky(ExecutorContract):
    engine = "inline"
    breaks = True

    def executor(self):
        loky = pytest.importorskip("loky")
        return loky.ProcessPoolExecutor(2, timeout=60)


class TestExecutorlib(ExecutorContract):
    engine = "inline"

    def executor(self):
        executorlib = pytest.importorskip("executorlib")
        return executorlib.SingleNodeExecutor(max_workers=2, block_allocation=False)
