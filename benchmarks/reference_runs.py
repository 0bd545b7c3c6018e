"""Pack finished runs into what a reader needs: `runs/reference/`, which a fresh clone shows before anything is trained.

    python benchmarks/reference_runs.py RUNS/SWEEP ... [--points 20] [--statement DIR ...]

An argument is the directory of a sweep, or of single runs. Kept of a run are its records, its measurements, thinned to
so many steps of each metric, and where it is governed its public documents, its ledger without the partial tiles of
earlier sizes, and the numbers that views draw. Left out are checkpoints, models, notebooks, reports, secrets and keys,
and governed runs but those of a sweep's first seed, because ledgers are large. Thinning changes the digest of the
measurements, which the result of the run then names. Of a signed statement of use, which `explorer usage --out` wrote,
all is kept.

What was packed is checked before it takes the place of the old one: no contradiction in any run, every ledger verified
by the trust file that lies in its run, no private key, no path of this machine, and at most ten million bytes.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from options import whole

from explorer import rundir
from explorer.canonical import digest
from explorer.ledger.static_files import export
from explorer.ledger.storage import WITNESS
from explorer.ledger.verify import verify
from explorer.provenance.trust import read_trust
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.documents import SOURCE_FILE, TRUST_FILE
from explorer.store.examine import State, examine
from explorer.store.run_sources import candidates, sweeps

TARGET = Path(__file__).parents[1] / "runs" / "reference"
MOST = 10_000_000  # bytes of all files
RECORDS = (rundir.RUN, rundir.RESULT, rundir.ENVIRONMENT, rundir.METRICS)
PUBLIC = (rundir.CONTRIBUTIONS, rundir.ENTROPY, rundir.GOVERNANCE)
README = "README.md"
PATH = re.compile(rb'"(?:/|[A-Za-z]:\\\\)\w[^"]*')  # a value that is an absolute path, of any machine
STATEMENTS = "_statements"  # no sweep, by its name


def packed_metrics(content: bytes, points: int) -> bytes:
    """Return the measurements with at most about `points` of each metric: evenly spread, first and last included."""
    lines: dict[str, list[bytes]] = {}
    for line in content.splitlines():
        lines.setdefault(json.loads(line)["metric"], []).append(line)
    kept: set[bytes] = set()
    for of_metric in lines.values():
        stride = max(1, len(of_metric) // points)
        kept |= {*of_metric[::stride], of_metric[-1]}
    return b"".join(line + b"\n" for line in content.splitlines() if line in kept)


def pack_run(run: Path, out: Path, points: int) -> None:
    """Copy what a reader needs of one run."""
    out.mkdir(parents=True)
    for name in RECORDS:
        shutil.copyfile(run / name, out / name)
    metrics = packed_metrics((run / rundir.METRICS).read_bytes(), points)
    (out / rundir.METRICS).write_bytes(metrics)
    result = json.loads((run / rundir.RESULT).read_text())
    if rundir.METRICS in result["files"]:
        result["files"][rundir.METRICS] = hashlib.sha256(metrics).hexdigest()
    rundir.write_json(out / rundir.RESULT, result)
    if (run / rundir.LEDGER).is_dir():
        pack_governed(run, out)


def pack_governed(run: Path, out: Path) -> None:
    """Copy the public part of a governed run."""
    for name in PUBLIC:
        if (run / name).is_dir():
            shutil.copytree(run / name, out / name)
    source = json.loads((run / rundir.GOVERNANCE / SOURCE_FILE).read_text())
    rundir.write_json(out / rundir.GOVERNANCE / SOURCE_FILE, source | {"private": "not published"})
    export(run / rundir.LEDGER, out / rundir.LEDGER)
    for folder in ("blobs", WITNESS):
        if (run / rundir.LEDGER / folder).is_dir():
            shutil.copytree(run / rundir.LEDGER / folder, out / rundir.LEDGER / folder, dirs_exist_ok=True)


def pack_sweep(sweep: Path, out: Path, points: int) -> int:
    """Copy a sweep with its finished runs; return how many."""
    runs = [run for run in candidates(sweep) if (run / rundir.RESULT).exists()]
    seeds = {run: json.loads((run / rundir.RUN).read_text())["seed"] for run in runs}
    runs = [run for run in runs if seeds[run] == min(seeds.values()) or not (run / rundir.LEDGER).is_dir()]
    for run in runs:
        pack_run(run, out / run.name, points)
    if (sweep / rundir.PROFILES).is_dir():
        shutil.copytree(sweep / rundir.PROFILES, out / rundir.PROFILES)
    if (sweep / rundir.SWEEP).exists():
        rundir.write_json(out / rundir.SWEEP, packed_plan(json.loads((sweep / rundir.SWEEP).read_text())))
    return len(runs)


def packed_plan(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the plan of a sweep without the directories of the machine that ran it."""
    spec = plan["spec"]
    if spec.get("governance"):
        spec = spec | {"governance": Path(spec["governance"]).name}
    return plan | {"source": f"{plan['name']}.yaml", "spec": spec, "spec_digest": digest(spec)}


def faults(directory: Path, secret: list[str]) -> list[str]:
    """Return what keeps a packed directory from being published. `secret` are words that must not occur."""
    wrong = []
    files = [path for path in directory.rglob("*") if path.is_file()]
    if (size := sum(path.stat().st_size for path in files)) > MOST:
        wrong.append(f"{size:,} bytes, expected at most {MOST:,}")
    pattern = re.compile("|".join([r"PRIVATE KEY", *map(re.escape, secret)]).encode())
    wrong += [f"{path}: holds {word[0]!r}" for path in files if (word := pattern.search(path.read_bytes()))]
    records = [path for path in files if path.suffix in (".json", ".jsonl")]
    wrong += [f"{path}: holds the path {word[0]!r}" for path in records if (word := PATH.search(path.read_bytes()))]
    for sweep in sweeps(directory):
        for run in candidates(sweep):
            examined = examine(run)
            if examined.state is not State.FINISHED:
                wrong.append(f"{run}: {examined.state}: {examined.problem}")
            if (run / rundir.LEDGER).is_dir():
                trust = read_trust(run / rundir.GOVERNANCE / TRUST_FILE)
                origin = (run / rundir.LEDGER / "checkpoint").read_text().splitlines()[0]
                judged = verify(run / rundir.LEDGER, anchor=anchor_of_trust(trust, origin=origin), now=int(time.time()))
                wrong += [f"{run}: {finding.path}: {finding.message}" for finding in judged.findings]
    for lock in directory.rglob(rundir.LOCK):
        lock.unlink()
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="Pack finished runs into what a reader needs.")
    parser.add_argument("sweeps", type=Path, nargs="+", metavar="RUNS/SWEEP", help="directories of sweeps")
    parser.add_argument("--statement", type=Path, action="append", default=[], help="a signed statement of use")
    parser.add_argument("--points", type=whole(2), default=20, help="measurements of each metric of a run")
    parser.add_argument("--out", type=Path, default=TARGET)
    asked = parser.parse_args()
    part = asked.out.with_name(f".{asked.out.name}.{os.getpid()}.tmp")
    shutil.rmtree(part, ignore_errors=True)
    for sweep in asked.sweeps:
        print(f"{sweep.name}: {pack_sweep(sweep, part / sweep.name, asked.points)} runs")
    for statement in asked.statement:
        shutil.copytree(statement, part / STATEMENTS / statement.name)
    secret = [*{str(path.resolve().parent) for path in asked.sweeps}, str(Path.home()), str(Path(__file__).parents[1])]
    wrong = faults(part, [word for word in secret if len(word) > 1])
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        shutil.rmtree(part)
        return 1
    if (asked.out / README).exists():
        shutil.copyfile(asked.out / README, part / README)
    shutil.rmtree(asked.out, ignore_errors=True)
    part.rename(asked.out)
    files = [path for path in asked.out.rglob("*") if path.is_file()]
    print(f"{asked.out}: {len(files)} files, {sum(path.stat().st_size for path in files):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
