"""Cost of a run beyond its own training: in a warm kernel, in a cold one, and through plain papermill.

    python benchmarks/warm_overhead.py [ROUNDS]

Every round takes one new run of the same recipe through each of the three, one after another, so that a machine that
drifts drifts for all. Overhead is the wall time of everything (parameters, kernel, notebook, training, pictures,
files) less the run's own measured time: steps, warm-up, evaluation, checkpoints. Writes `warm_overhead.md`.
"""

import dataclasses
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

import papermill
from options import options, verdict, whole
from pages import write_page

from explorer import run_files, rundir
from explorer.run_files import ResultRecord
from explorer.sweep.execute import NOTEBOOK
from explorer.sweep.kernels import KernelEngine
from explorer.sweep.notebooks import NotebookEngine
from explorer.sweep.plan import make_plan
from explorer.sweep.spec import load_spec

GOAL = 0.15  # seconds, for the warm kernel
SPEC = {
    "name": "overhead",
    "task": {"dataset": "digits", "model": "resnet8"},
    "train": {"epochs": 4, "batch_size": 64, "optimizer": {"sgd": {"lr": 0.1}}},
    "baseline": "baseline",
    "recipes": {"baseline": []},
    "budgets": [1.0],
}


def main(rounds: int) -> None:
    warm = KernelEngine(threads=1, runs_per_kernel=10_000)
    cold = KernelEngine(threads=1, runs_per_kernel=1)
    ways: dict[str, Callable[[Path], None]] = {
        "warm kernel": lambda directory: _engine(warm, directory),
        "cold kernel": lambda directory: _engine(cold, directory),
        "plain papermill": _plain,
    }
    with tempfile.TemporaryDirectory() as folder:
        seeds = iter(_directories(Path(folder), count=(rounds + 1) * len(ways)))
        measured = [{name: _overhead(way, next(seeds)) for name, way in ways.items()} for _ in range(rounds + 1)]
    warm.close()
    text = _report({name: [times[name] for times in measured[1:]] for name in ways})  # the first round warms up
    print(text)
    write_page(Path(__file__).with_suffix(".md"), text)


def _directories(runs: Path, *, count: int) -> list[Path]:
    """Directories of that many runs, ready to be executed."""
    plan = make_plan(load_spec({**SPEC, "seeds": list(range(count))}), runs=runs)
    for run in plan.runs:
        run_files.write(run.directory / rundir.RUN, run.record)
    return [run.directory for run in plan.runs]


def _parameters(directory: Path) -> dict[str, object]:
    return {"directory": str(directory), "data": None, "contended": False}


def _engine(engine: NotebookEngine, directory: Path) -> None:
    engine.run(NOTEBOOK, _parameters(directory), directory / rundir.NOTEBOOK)


def _plain(directory: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a kernel over TCP says that it is not encrypted
        papermill.execute_notebook(
            str(NOTEBOOK), str(directory / rundir.NOTEBOOK), parameters=_parameters(directory), progress_bar=False
        )


def _overhead(way: Callable[[Path], None], directory: Path) -> float:
    begun = time.perf_counter()
    way(directory)
    wall = time.perf_counter() - begun
    result = run_files.read(ResultRecord, directory / rundir.RESULT)
    return wall - sum(dataclasses.asdict(result.timings).values())


def _report(times: dict[str, list[float]]) -> str:
    load = os.getloadavg()[0]
    lines = [
        "# Overhead of a run over its own training",
        "",
        f"Seconds; {len(next(iter(times.values())))} interleaved rounds, resnet8 on digits, one thread,"
        f" {os.cpu_count()} cores with a load of {load:.1f}. `python benchmarks/warm_overhead.py`.",
        "",
        "| way | median | lower quartile | upper quartile | least |",
        "|---|---|---|---|---|",
    ]
    for name, values in times.items():
        low, middle, high = statistics.quantiles(values, n=4)
        lines.append(f"| {name} | {middle:.3f} | {low:.3f} | {high:.3f} | {min(values):.3f} |")
    found = statistics.median(times["warm kernel"])
    return "\n".join([*lines, "", f"The warm kernel takes {found:.3f} s ({verdict(found, f'at most {GOAL}')}).", ""])


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("rounds", nargs="?", type=whole(2), default=9)  # quartiles need two
    main(parser.parse_args().rounds)
