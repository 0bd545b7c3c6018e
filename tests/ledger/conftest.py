"""What every test of the ledger may rely on."""

import os

import pytest


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written does not depend on it. What is flushed when has a test of its own."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
