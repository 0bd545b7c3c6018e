"""A killed run continues from its checkpoint, and its ledger becomes that of an undisturbed run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from explorer import rundir
from explorer.errors import LedgerError
from explorer.governance.writer import Writer
from tests.governance.recorded import Interrupted, governed, train

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_killed_again_and_again_it_becomes_the_same_ledger(tmp_path: Path) -> None:
    """Eight kills; benchmarks/governed_kill.py has fifty, of a run of the command line."""
    command = [sys.executable, "-m", "tests.governance.killing", str(tmp_path), "8", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Survived(kills=8")


def test_a_checkpoint_that_outlives_its_ledger_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: checkpoints that do not wait until the ledger is durable are of no use after a crash."""
    run = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(Writer, "commit", lambda book: None)
        with pytest.raises(InterruptedError):
            train(run, governed([Interrupted(at=8)]), checkpoint_seconds=0.0)
    assert any((run / rundir.CHECKPOINT).iterdir())
    with pytest.raises(LedgerError, match="records no state after 6 steps"):
        train(run, governed())
