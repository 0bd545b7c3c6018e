"""The cost of reporting: a call of `track.log`, in a sweep and after `explorer.begin`; importing it; a command's start.

    python benchmarks/track.py        writes benchmarks/track.md

Medians of several rounds. The start is the time from the sweep's call to the first record of a shell program, less the
time that the same program takes when it is started by itself.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from pathlib import Path

from options import options, verdict
from pages import write_page

import explorer
from explorer import run_files, rundir, track
from explorer.sweep.commands import command_process
from explorer.sweep.plan import make_plan
from explorer.sweep.spec import load_spec

ROUNDS, CALLS = 7, 5000
SCRIPT = 'date +%s.%N; echo \'{"explorer": "done", "accuracy": 1}\''


def call_seconds() -> float:
    """Seconds of one call, which has written its record."""
    with tempfile.TemporaryDirectory() as place:
        os.environ[track.PLACE] = place
        took = timeit.repeat(lambda: track.log(step=1, train_loss=0.41, seconds=1.5), number=CALLS, repeat=ROUNDS)
        del os.environ[track.PLACE]
    return statistics.median(took) / CALLS


def begun_seconds() -> float:
    """Seconds of one call in a run that `explorer.begin` began, which has written its record and its measurement."""
    with tempfile.TemporaryDirectory() as place:
        explorer.begin(explorer.Place(runs=place), metrics=["accuracy"])
        took = timeit.repeat(lambda: track.log(step=1, train_loss=0.41, seconds=1.5), number=CALLS, repeat=ROUNDS)
        track.done(accuracy=1.0)
    return statistics.median(took) / CALLS


def processor_seconds(code: str) -> float:
    """Processor seconds of a Python process that runs this code."""

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    took = []
    for _ in range(ROUNDS):
        before = spent()
        subprocess.run([sys.executable, "-c", code], check=True)
        took.append(spent() - before)
    return statistics.median(took)


def own_seconds(place: Path) -> float:
    """Seconds until the program runs, when it is started by itself."""
    took = []
    for _ in range(ROUNDS):
        begun = time.time()
        done = subprocess.run(["sh", "train.sh"], cwd=place, capture_output=True, text=True, check=True)
        took.append(float(done.stdout.split()[0]) - begun)
    return statistics.median(took)


def swept_seconds(place: Path) -> float:
    """Seconds until the program runs, when a sweep starts it."""
    spec = {
        "name": "start",
        "task": {"command": "sh train.sh {value}", "metrics": ["accuracy"]},
        "set": {"value": 0},
        "baseline": "r0",
        "recipes": {f"r{number}": {"set": {"value": number}} for number in range(ROUNDS)},
        "budgets": [1.0],
        "seeds": [0],
    }
    path = place / "start.yaml"
    path.write_text(json.dumps(spec))
    took = []
    for run in make_plan(load_spec(path), runs=place / "runs").runs:
        assert run.setting is not None
        run_files.write(run.directory / rundir.RUN, run.record)
        begun = time.time()
        command_process.CommandEngine(threads=1).run(run.directory, run.setting, contended=False)
        took.append(float((run.directory / "stdout.txt").read_text()) - begun)
    return statistics.median(took)


def main() -> None:
    parser = options(__doc__)
    parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        (place / "train.sh").write_text(SCRIPT)
        call, begun, start = call_seconds(), begun_seconds(), swept_seconds(place) - own_seconds(place)
    imported = processor_seconds("from explorer import track") - processor_seconds("pass")
    rows = [
        ("a call of `track.log`", call * 1e6, "microseconds", "at most 50"),
        ("the same after `explorer.begin`, its curve included", begun * 1e6, "microseconds", "at most 50"),
        (
            "`from explorer import track`, beyond Python's own start",
            imported * 1e3,
            "ms of processor",
            "at most 20",
        ),
        ("a sweep's share of a command's start", start * 1e3, "ms", "at most 100"),
    ]
    lines = [f"| {what} | {took:.0f} {unit} | {verdict(took, limit, decimals=0)} |" for what, took, unit, limit in rows]
    head = ["# Reporting to a sweep", "", f"Made by `python benchmarks/track.py`: medians of {ROUNDS} rounds.", ""]
    text = "\n".join([*head, "| what | took | target |", "|---|---|---|", *lines, ""])
    write_page(Path(__file__).with_suffix(".md"), text)
    print(text)


if __name__ == "__main__":
    main()
