"""What every test may rely on: one torch thread, and no settings of the user's."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import psutil
import pytest
import torch

from explorer.recipes import watch
from explorer.sweep import presence


@pytest.fixture(autouse=True)
def _quiet_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EXPLORER_DATA", "EXPLORER_RUNS"):
        monkeypatch.delenv(name, raising=False)
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _locks_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps of tests that run at the same time do not wait for each other."""
    locks = tmp_path_factory.getbasetemp() / "locks"
    locks.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setattr(presence, "_place", lambda: locks)


class _SilentMachine:
    """A system that says neither processor times nor load: what else runs beside the tests changes no result."""

    Error = psutil.Error

    @staticmethod
    def cpu_times() -> None:
        raise OSError

    getloadavg = cpu_times


@pytest.fixture(autouse=True)
def _silent_machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether this machine is busy is asked by the tests marked `real_machine` alone."""
    if request.node.get_closest_marker("real_machine") is None:
        monkeypatch.setattr(watch, "psutil", _SilentMachine)
