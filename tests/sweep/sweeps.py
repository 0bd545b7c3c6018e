"""Small real sweeps on digits, and a process of its own that executes one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from explorer import run_files, rundir
from explorer.run_files import ResultRecord
from explorer.sweep.execute import Settings, Summary, run_sweep
from explorer.sweep.plan import Plan, make_plan
from explorer.sweep.spec import load_spec

ROOT = Path(__file__).parent.parent.parent

SPEC: dict[str, Any] = {
    "name": "tiny",
    "task": {"dataset": "digits", "model": {"resnet8": {"width": 0.5}}},
    "train": {"epochs": 0.5, "batch_size": 64, "optimizer": {"sgd": {"lr": 0.1, "momentum": 0.9}}},  # 7 steps
    "baseline": "baseline",
    "recipes": {"baseline": [], "mixed": ["mixup", "ema"]},
    "budgets": [0.5, 1.0],
    "seeds": [0],
}


def spec(**changes: Any) -> dict[str, Any]:
    return {**SPEC, **changes}


def plan(runs: Path, content: Mapping[str, Any] = SPEC) -> Plan:
    return make_plan(load_spec(content), runs=runs)


def execute(runs: Path, content: Mapping[str, Any] = SPEC, **settings: Any) -> Summary:
    """Execute in this process, inline, without profiles, unless told otherwise."""
    chosen: dict[str, Any] = {"engine": "inline", "workers": 1, "profile": False, **settings}
    return run_sweep(plan(runs, content), Settings(**chosen))


def results(runs: Path, name: str = "tiny") -> dict[str, ResultRecord]:
    """The results of a sweep by run."""
    return {
        path.name: run_files.read(ResultRecord, path / rundir.RESULT)
        for path in rundir.run_directories(runs / name)
        if (path / rundir.RESULT).exists()
    }


def outcomes(runs: Path, name: str = "tiny") -> dict[str, tuple[Any, ...]]:
    """What must not depend on how a run was executed: metrics, every measurement, the digest of the state."""
    return {
        run: (result.metrics, result.state_digest, (runs / name / run / rundir.METRICS).read_bytes())
        for run, result in results(runs, name).items()
    }


def start(
    runs: Path, content: Mapping[str, Any] = SPEC, *, module: str = "tests.sweep.sweeps", **settings: Any
) -> subprocess.Popen[str]:
    """Start a process that executes the sweep by that module, and prints a line for every event."""
    return subprocess.Popen(
        [sys.executable, "-m", module, str(runs), json.dumps(content), json.dumps(settings)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def main(execute: Callable[..., Any] = execute) -> None:
    """Execute what `start` asks for."""
    runs, content, settings = Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
    execute(runs, content, on_event=lambda event: print(event.kind, event.message, flush=True), **settings)


if __name__ == "__main__":
    main()
