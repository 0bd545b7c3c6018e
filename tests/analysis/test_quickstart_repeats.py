"""The benchmark of the quickstart's repetitions, on made results in place of trained ones."""

import math
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.analysis.tables import rows, table

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def repeats() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import quickstart_repeats  # pyright: ignore[reportMissingImports]
    finally:
        sys.path.remove(str(BENCHMARKS))
    return quickstart_repeats


@pytest.mark.slow
def test_winners_and_false_ones_before_and_after_from_the_same_runs(repeats: ModuleType) -> None:
    random, repetitions = np.random.default_rng(0), 5
    seeds = range(repeats.FIRST, repeats.FIRST + repetitions * repeats.SEEDS)
    parts = []
    for name, step in {"baseline": 1.0, "small": 1 / 1.3, "large": 0.5, "none": 1.0}.items():

        def quality(ssr: float, seed: int) -> float:
            return 0.8 + 0.05 * math.log(ssr) + float(random.normal(0, 0.004))

        parts.append(rows(name, quality, step=step, seeds=seeds))
    page = repeats.page(table(*parts), "", repetitions=repetitions)
    cells = {line.split("|")[1].strip(): line.split("|")[2:4] for line in page.splitlines() if line.startswith("|")}

    def numbers(start: str) -> list[float]:
        (found,) = [cells[name] for name in cells if name.startswith(start)]
        return [float(re.findall(r"[\d.]+", cell)[0]) for cell in found]

    assert numbers("repetitions with a winner")[1] == repetitions
    by_seeds, moderated = numbers("recipes that win")
    assert moderated >= by_seeds and moderated >= repetitions
    assert numbers("the baseline in place")[1] <= 1
    before, after = numbers("median width")
    assert 1 < after < before
