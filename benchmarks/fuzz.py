"""Hostile input to every parser, a million in all: variations of good files, and what a coverage-guided fuzzer finds.

    python benchmarks/fuzz.py [--inputs 1000000] [--guided SECONDS]        writes benchmarks/fuzz.md

`--guided` adds so many seconds of atheris (`pip install -e '.[bench]'`) for each parser, in a process of its own. A run
fails at the first exception that is not the project's own and prints the input.
"""

import argparse
import importlib.util
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from options import whole  # noqa: E402
from pages import write_page  # noqa: E402

from explorer.errors import ExplorerError  # noqa: E402 (the tests are found from the root)
from tests.fuzz.mutate import MAX_INPUT, inputs  # noqa: E402
from tests.fuzz.parsers import Parser, parsers  # noqa: E402

SEED = 1
MEGABYTE = 1024  # ru_maxrss is in kilobytes


def varied(parser: Parser, count: int) -> tuple[int, float, float]:
    """Feed variations; return how many were read without complaint, the seconds of all, and of the slowest."""
    read, slowest = 0, 0.0
    began = time.perf_counter()
    for content in inputs(parser.seeds, count=count, seed=SEED):
        start = time.perf_counter()
        try:
            parser.read(content)
            read += 1
        except ExplorerError:
            pass  # the answer that is expected
        except BaseException:
            print(f"input: {content!r}", file=sys.stderr)
            raise
        slowest = max(slowest, time.perf_counter() - start)
    return read, time.perf_counter() - began, slowest


def run_guided(name: str, seconds: int) -> str:
    """The number of inputs that atheris tried without finding a fault."""
    command = [sys.executable, str(Path(__file__).with_name("fuzz_guided.py")), name, str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tempfile.gettempdir())
    if done.returncode:
        raise SystemExit(f"atheris found a fault in {name!r}:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}")
    last = [line for line in done.stderr.splitlines() if line.startswith("Done ")]
    return f"{int(last[-1].split()[1]):,}" if last else "0"


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--inputs", type=whole(), default=1_000_000)
    options.add_argument("--guided", type=whole(0), default=0, metavar="SECONDS")
    asked = options.parse_args()
    if asked.guided and importlib.util.find_spec("atheris") is None:
        raise SystemExit("atheris is not installed: pip install -e '.[bench]'")
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        found = parsers(Path(scratch) / "file")
        count = -(-asked.inputs // len(found))
        for name, parser in found.items():
            read, seconds, slowest = varied(parser, count)
            tried = run_guided(name, asked.guided) if asked.guided else "-"
            row = f"| {name} | {count:,} | {read:,} | {count / seconds:,.0f} | {slowest * 1000:.1f} | {tried} |"
            rows.append(row)
            print(row, flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MEGABYTE
    text = [
        "# Hostile input",
        "",
        f"{count * len(rows):,} variations of good files of at most {MAX_INPUT:,} bytes, the same ones every time, and "
        + (f"{asked.guided} s of a coverage-guided fuzzer for each parser." if asked.guided else "no guided ones."),
        "No other exception than the project's own came out. "
        f"Peak memory of the process: {peak:.0f} MB, interpreter and libraries included. Made by `benchmarks/fuzz.py`.",
        "",
        "| parser | inputs | read without complaint | inputs/s | slowest, ms | guided inputs |",
        "|---|--:|--:|--:|--:|--:|",
        *rows,
    ]
    write_page(Path(__file__).with_suffix(".md"), "\n".join(text))


if __name__ == "__main__":
    main()
