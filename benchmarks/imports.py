"""Imports of many runs: from a CSV file of 10,000 runs, with learning curves, to the points of their Pareto curve.

    python benchmarks/imports.py [--runs 10000] [--points 20]

Seconds of processor time, in one process after the other. The results are in `imports.md`.
"""

import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from options import options, whole

RECIPES, BUDGETS = 20, 10


def write_runs(path: Path, *, runs: int, points: int) -> None:
    """Write a CSV file with a row for each measurement: `points` of each of `runs` runs."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["recipe", "epochs", "seed", "step", "loss", "val_acc", "runtime"])
        for run in range(runs):
            recipe, budget, seed = run % RECIPES, 1 + run // RECIPES % BUDGETS, run // (RECIPES * BUDGETS)
            best = 0.8 + 0.015 * budget + 0.001 * (recipe % 7) + 0.0001 * (seed % 13)
            for point in range(1, points + 1):
                share = point / points
                row = (2.3 * (1 - 0.9 * share), best * share, round(budget * (2 + 0.1 * recipe) * share, 4))
                writer.writerow([f"recipe-{recipe}", budget, seed, point * 10, *row])


def spent(*words: str | Path, code: str = "") -> tuple[float, float]:
    """Return seconds of wall-clock and processor time of a command of ours, or of a program."""
    command = [sys.executable, "-c", code] if code else [sys.executable, "-m", "explorer", *map(str, words)]
    before, start = os.times(), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    user, system = after.children_user - before.children_user, after.children_system - before.children_system
    return time.perf_counter() - start, user + system


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--runs", type=whole(), default=10_000)
    parser.add_argument("--points", type=whole(2), default=20)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        source, runs = Path(place) / "theirs.csv", Path(place) / "runs"
        runs.mkdir()
        write_runs(source, runs=asked.runs, points=asked.points)
        words = ("--step", "step", "--map", "quality=val_acc", "--baseline", "recipe-0", "--yes", "--runs", runs)
        steps = {
            "import, with the database": spent("import", "csv", source, *words),
            "the Pareto curve, as a chart": spent(
                code=f"import explorer; explorer.load({str(runs)!r}).chart().to_dict(validate=False)"
            ),
            "comparison of all recipes": spent("results", "theirs", "--runs", runs),
        }
        size = (runs / "theirs" / "imported.jsonl").stat().st_size
    print(
        f"{asked.runs:,} runs with {asked.points} points of two curves and of the time; a file of {size / 1e6:.1f} MB\n"
    )
    print("| step | wall-clock | processor |\n|---|---|---|")
    for name, (wall, processor) in steps.items():
        print(f"| {name} | {wall:.1f} s | {processor:.1f} s |")
    total = [sum(part) for part in zip(*list(steps.values())[:2], strict=True)]
    print(f"| **from file to curve** | **{total[0]:.1f} s** | **{total[1]:.1f} s** |")


if __name__ == "__main__":
    main()
