"""Start-up of the verbs that must feel instant, as whole processes, interleaved.

    python benchmarks/startup.py [RUNS]        writes benchmarks/startup.md

RUNS is a directory with a finished sweep `digits` (default: runs, as the quickstart leaves it).
"""

import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from options import options, verdict
from pages import write_page

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 15


def seconds(command: list[str]) -> float:
    """Wall seconds of one process that has to succeed."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("runs", nargs="?", default="runs", help="a directory that has the sweep digits")
    runs = parser.parse_args().runs
    explorer = shutil.which("explorer", path=str(Path(sys.executable).parent)) or "explorer"
    spec = str(ROOT / "notebooks" / "sweeps" / "digits.yaml")
    verbs = {
        "python -c pass (for comparison)": ([sys.executable, "-c", "pass"], ""),
        "explorer --help": ([explorer, "--help"], "at most 0.3"),
        "explorer sweep status": ([explorer, "sweep", "status", spec, "--runs", runs], "at most 0.3"),
        "explorer results": ([explorer, "results", "digits", "--runs", runs], "at most 0.5"),
    }
    times: dict[str, list[float]] = {name: [] for name in verbs}
    for _ in range(ROUNDS):
        for name, (command, _) in verbs.items():
            times[name].append(seconds(command))
    lines = [
        "# Start-up",
        "",
        f"Wall seconds of whole processes, {ROUNDS} interleaved rounds. Made by `benchmarks/startup.py`.",
        "",
        "| command | median | fastest | slowest | target |",
        "|---|---|---|---|---|",
    ]
    for name, (_, target) in verbs.items():
        found = times[name]
        median = statistics.median(found)
        shown = verdict(median, target)
        lines.append(f"| `{name}` | {median:.2f} | {min(found):.2f} | {max(found):.2f} | {shown} |")
    write_page(Path(__file__).with_suffix(".md"), "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
