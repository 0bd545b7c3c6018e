"""Rehearsals: how long a plan takes to try its recipes out, each specification in a process of its own.

    python benchmarks/rehearsal.py        writes benchmarks/rehearsal.md

The first recipe of a process also pays for what torch imports when it makes its first optimiser.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from options import options, verdict
from pages import write_page

from explorer.cli.quickstart import specification
from explorer.sweep.spec import load_spec
from explorer.training.ledgered import documents_of
from explorer.training.run_plan import rehearse

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 7
QUICKSTART = "quickstart"
SPECS = {QUICKSTART: "at most 5", "digits": "", "composition": ""}  # with the target for all recipes together


def measured(name: str) -> dict[str, float]:
    """Return the seconds of each recipe's rehearsal in this process, by name."""
    with tempfile.TemporaryDirectory() as runs:
        spec = specification(Path(runs))[0] if name == QUICKSTART else ROOT / "notebooks" / "sweeps" / f"{name}.yaml"
        loaded, now, seconds = load_spec(spec), int(time.time()), dict[str, float]()
        for recipe in loaded.recipes:
            start = time.perf_counter()
            documents = documents_of(recipe, loaded.governance, now=now)
            rehearse(recipe, data=None, documents=documents, threads=loaded.threads)
            seconds[recipe.name] = time.perf_counter() - start
    return seconds


def row(name: str, of: str, seconds: list[float], target: str = "") -> str:
    middle = statistics.median(seconds)
    shown = verdict(middle, target) if target else ""
    return f"| {name} | {of} | {middle:.2f} | {min(seconds):.2f} to {max(seconds):.2f} | {shown} |"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--once", choices=SPECS, help="measure this one in this process, and print the seconds")
    if once := parser.parse_args().once:
        print(json.dumps(measured(once)))
        return
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in SPECS}
    for _ in range(ROUNDS):
        for name in SPECS:
            command = [sys.executable, __file__, "--once", name]
            printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            rounds[name].append(json.loads(printed.splitlines()[-1]))
    lines = [
        "# Rehearsals",
        "",
        "Wall seconds to try recipes out when a sweep is planned, on one thread of two cores that other work kept busy;"
        f" {ROUNDS} processes a specification, in turn. The first recipe of a process also pays for what torch imports"
        " with its first optimiser. Made by `benchmarks/rehearsal.py`.",
        "",
        "| specification | recipe | median | fastest to slowest | target |",
        "|---|---|---|---|---|",
    ]
    for name, target in SPECS.items():
        recipes = list(rounds[name][0])
        lines.append(row(name, f"all {len(recipes)}", [sum(each.values()) for each in rounds[name]], target))
        if name == QUICKSTART:
            lines += [row(name, f"`{of}`", [each[of] for each in rounds[name]]) for of in recipes]
        else:
            slowest = max(recipes[1:], key=lambda of: statistics.median(each[of] for each in rounds[name]))
            lines.append(row(name, f"`{recipes[0]}`, the first", [each[recipes[0]] for each in rounds[name]]))
            lines.append(row(name, f"`{slowest}`, the slowest after it", [each[slowest] for each in rounds[name]]))
    write_page(Path(__file__).with_suffix(".md"), "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
