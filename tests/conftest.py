"""What every test may rely on: one torch thread, and no settings of the user's."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch


@pytest.fixture(autouse=True)
def _quiet_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EXPLORER_DATA", "EXPLORER_RUNS"):
        monkeypatch.delenv(name, raising=False)
    torch.set_num_threads(1)
