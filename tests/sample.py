"""A made-up sweep for tests of what reads results: three recipes on one machine, written as run directories."""

import math
from pathlib import Path

import numpy as np

from explorer.store.ingest import ingest
from tests.builders import write_sweep

BUDGETS = (0.125, 0.25, 0.5, 1.0, 1.5)
STEP_SECONDS = {"baseline": 0.040, "fast": 0.025, "heavy": 0.075}
GAIN = {"baseline": 0.0, "fast": 0.003, "heavy": 0.002}


def write_sample(runs: Path, *, sweep: str = "digits", seeds: int = 3) -> Path:
    """Write the sweep below `runs`, ingest it and return the database."""
    draws = np.random.default_rng(7)
    write_sweep(
        runs,
        {
            recipe: {
                ssr: tuple(
                    round(0.985 + gain - 0.03 * math.exp(-2.2 * ssr) + float(draws.normal(0, 0.0015)), 4)
                    for _ in range(seeds)
                )
                for ssr in BUDGETS
            }
            for recipe, gain in GAIN.items()
        },
        step_seconds=STEP_SECONDS,
        sweep=sweep,
    )
    return ingest(runs).database
