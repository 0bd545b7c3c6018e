"""Measure what a run takes longer on a Dask cluster of this machine than on the local pool.

    python benchmarks/executors.py [ROUNDS]        writes benchmarks/executors.md

Both have two workers, which are started and have trained before anything is timed. A round is one sweep of the same
short runs on each of them, in an order that alternates. The control is the local pool again: what two sweeps on one
executor differ by.
"""

import itertools
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np
from options import meets, options, verdict, whole
from pages import write_page

from explorer import run_files, rundir
from explorer.run_files import ResultRecord
from explorer.sweep.dask_engine import DaskWorkers
from explorer.sweep.execute import Settings, run_sweep
from explorer.sweep.plan import make_plan
from explorer.sweep.spec import load_spec
from explorer.sweep.workers import LocalProcesses

TARGET = "at most 0.3"
POOL, DASK, AGAIN = "local pool", "Dask", "local pool again"
SPEC: dict[str, Any] = {
    "name": "short",
    "task": {"dataset": "digits", "model": {"resnet8": {"width": 0.5}}},
    "train": {"epochs": 0.5, "batch_size": 64, "optimizer": {"sgd": {"lr": 0.1}}},
    "baseline": "baseline",
    "recipes": {"baseline": []},
    "budgets": [1.0],
    "seeds": list(range(12)),
}


def seconds_a_run(executor: Executor) -> tuple[float, dict[str, str]]:
    """Execute the sweep in a directory of its own; return seconds of the clock a run, and the digests by run.

    Raises `RuntimeError` if a run fails.
    """
    with tempfile.TemporaryDirectory() as runs:
        plan = make_plan(load_spec(SPEC), runs=Path(runs))
        begun = time.perf_counter()
        summary = run_sweep(plan, Settings(profile=False), executor=executor)
        took = time.perf_counter() - begun
        if not summary.complete:
            raise RuntimeError(f"the sweep is not complete: {summary.failures}")
        results = {run.directory.name: run_files.read(ResultRecord, run.directory / rundir.RESULT) for run in plan.runs}
    return took / len(plan.runs), {run: result.state_digest for run, result in results.items()}


def measured(executors: Mapping[str, Executor], rounds: int) -> tuple[dict[str, list[float]], bool]:
    """Return the seconds a run of every round, and whether all runs of the same name ended with the same bits."""
    first = {name: seconds_a_run(executor)[1] for name, executor in executors.items()}  # starts kernels
    reference, same = first[POOL], all(digests == first[POOL] for digests in first.values())
    taken: dict[str, list[float]] = {name: [] for name in executors}
    orders = itertools.cycle((list(executors), list(executors)[::-1]))
    for order in itertools.islice(orders, rounds):
        for name in order:
            seconds, digests = seconds_a_run(executors[name])
            taken[name].append(seconds)
            same = same and digests == reference
        print({name: round(values[-1], 3) for name, values in taken.items()}, flush=True)
    return taken, same


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("rounds", nargs="?", type=whole(2, 100), default=8)
    given = parser.parse_args()
    with LocalProcesses(2, threads=1) as pool, DaskWorkers("local-dask:2", threads=1) as cluster:
        taken, same = measured({POOL: pool, DASK: cluster, AGAIN: pool}, given.rounds)

    def more(name: str) -> tuple[float, float, float]:
        """Return the median of the differences from the local pool, round by round, and their quartiles."""
        low, middle, high = np.quantile(np.subtract(taken[name], taken[POOL]), (0.25, 0.5, 0.75))
        return float(middle), float(low), float(high)

    overhead = more(DASK)[0]
    lines = [
        "# A run on a Dask cluster of this machine, and on the local pool",
        "",
        f"Sweeps of {len(SPEC['seeds'])} runs of 7 steps (digits, resnet8 of half the width) on two workers with warm"
        f" kernels, {given.rounds} rounds of one sweep on each, in alternating order. Made by"
        " `benchmarks/executors.py`.",
        "",
        "| executor | seconds a run (median) | more than the local pool, round by round (median, quartiles) |",
        "|---|---|---|",
        f"| {POOL} | {np.median(taken[POOL]):.3f} | |",
        *(
            "| {} | {:.3f} | {:+.3f} ({:+.3f} to {:+.3f}) |".format(name, np.median(taken[name]), *more(name))
            for name in (DASK, AGAIN)
        ),
        "",
        f"Seconds that a run takes longer on Dask: {overhead:.3f} ({verdict(overhead, TARGET)}). All runs of the same"
        f" name {'ended with the same bits' if same else 'did NOT end with the same bits'}.",
    ]
    write_page(Path(__file__).with_suffix(".md"), "\n".join(lines))
    print("\n".join(lines))
    sys.exit(0 if same and meets(overhead, TARGET) else 1)


if __name__ == "__main__":
    main()
