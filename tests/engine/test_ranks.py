"""The same bits on any number of ranks, in processes of their own; and other bits where one part of it is left out."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from explorer.guardian import child_environment
from tests.engine.ranked_loops import SCENARIOS

SIZES = (1, 2, 3, 4, 8)
ROOT = Path(__file__).parents[2]


def digests(root: Path, size: int, *names: str, control: str = "") -> dict[str, str]:
    """The digests that so many ranks come to; all of them to the same."""
    out = root / f"{control}{size}"
    out.mkdir()
    command = [sys.executable, "-m", "tests.engine.ranked_loops", str(size), str(out), control, *names]
    subprocess.run(command, env={**os.environ, **child_environment(threads=1)}, cwd=ROOT, check=True)
    said = [json.loads((out / f"{rank}.json").read_text()) for rank in range(size)]
    assert all(other == said[0] for other in said)
    return said[0]


@pytest.mark.slow
def test_any_number_of_ranks_comes_to_the_same_bits(tmp_path: Path) -> None:
    made = {size: digests(tmp_path, size, *SCENARIOS) for size in SIZES}
    assert made[1].keys() == SCENARIOS.keys()
    assert {size: digest for size, digest in made.items() if digest != made[1]} == {}
    assert len(set(made[1].values())) == len(SCENARIOS)  # of different training


@pytest.mark.slow
@pytest.mark.parametrize("control", ["all-reduce", "lanes by rank", "statistics of a rank"])
def test_without_a_part_of_it_ranks_come_to_other_bits(tmp_path: Path, control: str) -> None:
    one, three = (digests(tmp_path, size, "resnet20", control=control)["resnet20"] for size in (1, 3))
    assert one != three
