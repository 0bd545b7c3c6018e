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
                ssr: _close(draws.normal(0.985 + gain - 0.03 * math.exp(-2.2 * ssr), 0.0015, seeds)) for ssr in BUDGETS
            }
            for recipe, gain in GAIN.items()
        },
        step_seconds=STEP_SECONDS,
        sweep=sweep,
        quartiles=(0.99, 1.01),
    )
    return ingest(runs).database


def _close(drawn_S: np.ndarray) -> tuple[float, ...]:
    """The same mean, and seeds that agree better: enough to tell "fast" from the baseline among two recipes."""
    return tuple(round(float(each), 5) for each in drawn_S.mean() + 0.25 * (drawn_S - drawn_S.mean()))
