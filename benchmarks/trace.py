"""Forensics over ten million contribution rows: how long an answer takes.

    python benchmarks/trace.py [--rows N] [--rounds N] [--directory DIR]        writes benchmarks/trace.md

The run is made up by `tests.audit.governed_run` and everything in it is real: ledger, blobs, spool, signed documents.
Every answer is a process of its own, start-up included. Rounds are interleaved: each takes every figure once.
"""

import argparse
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
from options import verdict, whole
from pages import write_page

from explorer.provenance.trust import write_trust
from explorer.store.spool_reader import CONTRIBUTIONS, select
from tests.audit.governed_run import trust, write_governed_run

ROWS = 10_000_000
CLASSES = 3
PRESENT = 2.5  # classes with numbers, in the mean of all steps
LAYERS = tuple(f"blocks.{block}.{name}" for block in range(32) for name in ("qkv", "out", "up", "down"))
EVERY = 100  # steps to a segment
HERE = Path(__file__)
ASKED = (
    ("one layer, all steps", "below 1", ("--layer", LAYERS[100])),
    ("one class in all layers, all steps", "", ("--class", "open/mit")),
    ("one layer, 200 steps, examples, recomputed from the ledger", "", ("--layer", LAYERS[100], "--steps", "900:1100")),
)


def seconds(*arguments: str) -> float:
    """Wall seconds of a verb that has to succeed."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "explorer", *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--rows", type=whole(1000), default=ROWS)
    options.add_argument("--rounds", type=whole(), default=7)
    options.add_argument("--directory", type=Path, default=None)
    chosen = options.parse_args()
    place = chosen.directory or Path(tempfile.mkdtemp())
    run, trusted = place / "run", place / "trust.json"
    if not run.exists():
        steps = EVERY * math.ceil(chosen.rows / (PRESENT * len(LAYERS)) / EVERY)
        write_governed_run(place, steps=steps, every=EVERY, layers=LAYERS).rename(run)
        write_trust(trusted, trust())
    took = [[seconds("trace", str(run), *arguments) for _, _, arguments in ASKED] for _ in range(chosen.rounds)]
    conform = seconds("conform", str(run), "--trust", str(trusted))
    write(run, took, conform, chosen.rounds)
    if chosen.directory is None:
        shutil.rmtree(place)


def write(run: Path, took: list[list[float]], conform: float, rounds: int) -> None:
    ((rows, steps),) = select(run / "contributions", CONTRIBUTIONS, "SELECT count(*), count(DISTINCT step) FROM spool")
    files = list((run / "contributions").iterdir())
    size = sum(file.stat().st_size for file in files) / 2**20
    lines = [
        "# Trace\n",
        f"{rows:,} contribution rows of {steps:,} steps, {len(LAYERS)} layers and {CLASSES} classes, in {len(files)} "
        f"files of {size:.0f} MiB; {os.cpu_count()} cores of {platform.machine()}, Python {platform.python_version()}, "
        f"DuckDB {duckdb.__version__}. Processes with start-up, {rounds} rounds, interleaved. Made by "
        f"`benchmarks/{HERE.name}`.\n",
        "| `explorer trace` | median, s | slowest, s | target |",
        "|---|---|---|---|",
    ]
    for (name, target, _), each in zip(ASKED, zip(*took, strict=True), strict=True):
        median = statistics.median(each)
        lines.append(f"| {name} | {median:.2f} | {max(each):.2f} | {verdict(median, target)} |")
    lines.append(f"\n`explorer conform` reads every entry, blob and commitment of this run: {conform:.0f} s, once.")
    write_page(HERE.with_suffix(".md"), "\n".join(lines))


if __name__ == "__main__":
    main()
