"""Deletions by replay and by structure: what the plan forecast, and what they then took.

    python benchmarks/deletion_cost.py RUNS [TO]        writes benchmarks/deletion_cost.md

RUNS is what benchmarks/deletability.py leaves: trained runs under three policies, with profiles of their steps. Of
every policy and budget one run is taken (seed 0); its class is deleted, as a user would from the command line, with the
old and the new ledger cosigned, certified, and the certificate verified. TO (default: a temporary directory) gets the
new runs. Wall time of the whole commands; nothing else should run. The first deletion is done twice and counted once,
so that no figure has the reading of cold files in it.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from options import options
from pages import write_page

from explorer import run_files, rundir
from explorer.run_files import RunRecord

HERE = Path(__file__).resolve().parent
TARGET = "open/permissive/bsd"
COLUMNS = ("policy", "budget", "level", "steps planned", "replayed", "forecast", "interval", "took", "inside", "verify")
COSIGNERS = ("data-governance.pem", "model-risk.pem")


@dataclass(frozen=True, kw_only=True, slots=True)
class Deletion:
    """One run, its forecast, and what came of it."""

    recipe: str
    ssr: float
    level: str
    planned_steps: int
    replayed_steps: int
    seconds: float
    low: float
    high: float
    took: float  # `explorer delete run`
    verified: float  # `explorer delete verify`, without torch

    @property
    def inside(self) -> bool:
        return self.low <= self.took <= self.high


def explorer(*words: object) -> tuple[float, str]:
    """Seconds that a command took, and what it printed."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "explorer", *map(str, words)],
        env=os.environ | {"PYTHONPATH": str(HERE.parent)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"explorer {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return time.perf_counter() - start, done.stdout


def cosign(run: Path, documents: Path) -> None:
    for key in COSIGNERS:
        explorer("ledger", "cosign", run / rundir.LEDGER, "--key", documents / key, "--trust", documents / "trust.json")


def delete(run: Path, documents: Path, to: Path) -> Deletion:
    """Plan, delete, certify, verify."""
    trust = ("--trust", documents / "trust.json")
    record = run_files.read(RunRecord, run / rundir.RUN)
    cosign(run, documents)
    plan: dict[str, Any] = json.loads(explorer("delete", "plan", run, TARGET, "--json")[1])
    took, _ = explorer("delete", "run", run, TARGET, "--out", to, *trust)
    (new,) = (path.parent for path in to.glob(f"*/{rundir.ORIGIN}"))
    cosign(new, documents)
    explorer("delete", "certify", new, "--old", run, *trust)
    verified, _ = explorer("delete", "verify", new / "certificate.json", "--old", run, "--new", new, *trust)
    origin = rundir.read_json(new / rundir.ORIGIN)
    return Deletion(
        recipe=record.recipe,
        ssr=record.ssr,
        level=plan["level"],
        planned_steps=plan["route"]["steps"],
        replayed_steps=0 if origin["level"] == "G2" else record.steps - origin["begins"],
        seconds=plan["time"]["seconds"],
        low=plan["time"]["low"],
        high=plan["time"]["high"],
        took=took,
        verified=verified,
    )


def table(found: list[Deletion]) -> str:
    lines = [
        "# What deletions took, and what their plans said",
        "",
        f"`gpt-tiny` on `source`, seed 0; the target is `{TARGET}`. Seconds of wall time of the whole command",
        "`explorer delete run`, start of the process, evaluation and ledger included, on two cores with one thread a",
        "run; `verify` is `explorer delete verify`, which needs no torch. Forecast and interval are what",
        "`explorer delete plan` said before. Made by `benchmarks/deletion_cost.py` from the runs of",
        "`benchmarks/deletability.py`.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---" * len(COLUMNS) + "|",
    ]
    for each in found:
        lines.append(
            f"| {each.recipe} | {each.ssr:g} | {each.level} | {each.planned_steps} | {each.replayed_steps} "
            f"| {each.seconds:.1f} | {each.low:.1f} to {each.high:.1f} | {each.took:.1f} "
            f"| {'yes' if each.inside else 'NO'} | {each.verified:.1f} |"
        )
    return "\n".join(lines) + "\n"


def main(runs: Path, to: Path) -> None:
    documents = (runs / "_governance" / "deletability").resolve()
    chosen = sorted(path.parent for path in (runs / "deletability").glob(f"*-s0-*/{rundir.RESULT}"))
    delete(chosen[0], documents, to / "first")
    found = []
    for run in chosen:
        found.append(delete(run, documents, to / run.name))
        print(found[-1], flush=True)
    write_page(HERE / "deletion_cost.md", table(sorted(found, key=lambda each: (each.recipe, each.ssr))))


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("runs", type=Path, help="a directory of governed runs of `source`")
    parser.add_argument("place", nargs="?", type=Path, help="where the runs without the target go")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        main(given.runs, given.place or Path(place))
