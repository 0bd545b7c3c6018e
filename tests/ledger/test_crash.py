"""kill -9 while appending: what was acknowledged is there, and the tree is one that was signed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from explorer.ledger.storage import LedgerDirectory
from tests.ledger import killing
from tests.ledger.killing import Seen


def kill(directory: Path, *, rounds: int, seed: int) -> tuple[int, int]:
    """How many commits were acknowledged, and how often something was set aside."""
    command = [sys.executable, "-m", killing.__name__, str(directory), str(rounds), str(seed)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert found.returncode == 0, found.stderr
    numbers = re.fullmatch(
        r"\d+ kills, (\d+) commits acknowledged, (\d+) times something was set aside\n", found.stdout
    )
    assert numbers, found.stdout
    return int(numbers[1]), int(numbers[2])


def test_a_killed_writer_loses_nothing(tmp_path: Path) -> None:
    commits, _ = kill(tmp_path, rounds=12, seed=1)
    assert commits > 3


@pytest.mark.slow
def test_a_writer_that_is_killed_200_times_loses_nothing(tmp_path: Path) -> None:
    commits, aside = kill(tmp_path, rounds=200, seed=2)
    assert commits > 200 and aside > 20, "many kills came while something was written"


def test_the_check_sees_what_is_lost(tmp_path: Path) -> None:
    """The control: an acknowledged commit that is gone, and one of another tree."""
    kill(tmp_path, rounds=1, seed=3)
    now = LedgerDirectory(tmp_path / "0").checkpoint()
    seen = Seen(now.size, now.root)
    assert killing.check(tmp_path / "0", [seen], seen) == seen
    for wrong in (Seen(now.size + 1, now.root), Seen(now.size, bytes(32)), Seen(now.size - 1, now.root)):
        with pytest.raises(AssertionError):
            killing.check(tmp_path / "0", [wrong], seen)
