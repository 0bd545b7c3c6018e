"""A made-up sweep that composes three methods: each alone, two of the three pairs, and all together."""

from pathlib import Path

import numpy as np

from explorer.store.ingest import ingest
from tests.builders import run_record, write_profile, write_run

BUDGETS = (0.5, 1.0)
STEP = {"forward": 0.012, "backward": 0.02, "optimizer": 0.004, "other": 0.004}
FACTORS = {
    "resize": {"forward": 0.5, "backward": 0.5},
    "layout": {"forward": 0.8, "backward": 0.7},
    "average": {"optimizer": 1.5},
}
GAINS = {"resize": -0.004, "layout": 0.0, "average": 0.003}
RECIPES = {
    "baseline": (),
    **{name: (name,) for name in FACTORS},
    "resize-layout": ("resize", "layout"),
    "resize-average": ("resize", "average"),
    "fast": ("resize", "layout", "average"),
    "lone": ("resize", "unknown"),
}
TOGETHER = 0.02  # what resize and average gain together beyond both alone
SLOWER = 1.25  # forward of `fast` beyond what is predicted


def write_composed(runs: Path, *, sweep: str = "composed") -> Path:
    """Write the sweep below `runs`, ingest it and return the database. Of `lone` a method was not run on its own."""
    draws = np.random.default_rng(4)
    for name, methods in RECIPES.items():
        gain = sum(GAINS.get(method, 0.0) for method in methods)
        gain += TOGETHER if {"resize", "average"} <= set(methods) else 0.0
        for ssr in BUDGETS:
            for seed in range(3):
                record = run_record(recipe=name, sweep=sweep, ssr=ssr, seed=seed, methods=methods)
                accuracy = round(0.9 + 0.03 * ssr + 0.01 * seed + gain + float(draws.normal(0, 0.0015)), 4)
                write_run(runs, record, metrics={"accuracy": accuracy, "nll": 1 - accuracy})
        parts = step_parts(methods)
        if name == "fast":
            parts["forward"] *= SLOWER
        seconds = sum(parts.values())
        shares = {part: value / seconds for part, value in parts.items()}
        alike = run_record(recipe=name, sweep=sweep, methods=methods)
        write_profile(runs, alike, seconds=seconds, split=shares, quartiles=(0.99, 1.01))
    return ingest(runs).database


def step_parts(methods: tuple[str, ...]) -> dict[str, float]:
    """Seconds of a step by part where the methods act independently."""
    parts = dict(STEP)
    for method in methods:
        for part, factor in FACTORS.get(method, {}).items():
            parts[part] *= factor
    return parts
