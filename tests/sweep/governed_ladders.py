"""Governed ladders of budgets on digits, whose longer runs begin with the steps of shorter ones."""

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from explorer.governance.journal import Journal
from explorer.provenance.policy import Quarantine, Rule
from explorer.provenance.regions import SealedRegion
from explorer.sweep.execute import Settings, Summary, run_sweep
from explorer.sweep.plan import Plan, make_plan
from explorer.sweep.spec import load_spec
from explorer.training.demonstration import demonstrate
from tests.training.governed_for_tests import DIGITS, TAXONOMY, policy, recipe

EVERY = 2
BUDGETS = [0.25, 0.5, 1.0]  # 4, 7 and 14 steps; shared are 2, 4 and 10 of them, in whole segments
SHARED = 6  # steps that the run of 14 begins with
FIRST, SECOND, THIRD = CLASSES = tuple(f"simulated/class-0{number}" for number in range(3))

LOWER = policy("lower", Quarantine.REFUSE)
CLOSED = replace(
    LOWER,
    name="closed",
    confidential=(SECOND,),
    sealed=(SealedRegion(name="own", branch=THIRD, layers=("stages.2.*",), rank=2),),
    rules=(Rule(classes=("simulated",), weight=0.5),),
)
LODGED = replace(  # the third class trains a region of its own, and nothing else
    LOWER,
    name="lodged",
    sealed=CLOSED.sealed,
    rules=(Rule(classes=(THIRD,), weight=0.0), *LOWER.rules),
)
PHASES = replace(LOWER, name="phases", rules=(Rule(classes=("simulated",), progress=(0.0, 1.0), weight=1.0),))
SWITCHED = replace(
    LOWER, name="switched", conditions=("on",), rules=(Rule(classes=("simulated",), condition="on", weight=1.0),)
)


def methods(policy: str = "lower", *more: Any, exact: bool = False, every: int = EVERY) -> list[Any]:
    contributions = {"contributions": {"exact": ["*"]}} if exact else "contributions"
    return [{"routing": {"policy": policy}}, contributions, {"recorder": {"every": every}}, *more]


def documents(root: Path) -> Path:
    policies = (LOWER, CLOSED, LODGED, PHASES, SWITCHED)
    return demonstrate(root, DIGITS, data=None, taxonomy=TAXONOMY, policies=policies, now=int(time.time()))


def content(governance: Path, budgets: list[float] = BUDGETS, **recipes: Any) -> dict[str, Any]:
    usual = recipe()
    schedule = {"wsd": {"warmup": 0.05}}
    return {
        "name": "governed",
        "task": usual["task"],
        "train": {**usual["train"], "epochs": 1, "evaluations": 4, "schedule": schedule},
        "baseline": next(iter(recipes), "routed"),
        "recipes": recipes or {"routed": methods()},
        "budgets": budgets,
        "seeds": [0],
        "governance": str(governance),
    }


def plan(directory: Path, written: dict[str, Any]) -> Plan:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "spec.yaml"
    path.write_text(yaml.safe_dump(written))
    return make_plan(load_spec(path), runs=directory / "runs", rehearsed=True)


def execute(directory: Path, written: dict[str, Any], **settings: Any) -> Summary:
    chosen: dict[str, Any] = {"engine": "inline", "workers": 1, "profile": False, **settings}
    return run_sweep(plan(directory, written), Settings(**chosen))


# --- a process that kills itself while it takes steps over, or after that ---

KILL_AT = 2  # segments that it records before
KILLS = ("segment", "trunk", "step")  # after these segments; after the entry about the trunk; after one own step


def killed(directory: Path, written: dict[str, Any], after: str) -> None:
    """Execute, and kill this process as soon as the longest run has recorded so much."""
    record = getattr(Journal, after)

    def counted(journal: Journal, step: int, *args: Any, **named: Any) -> None:
        record(journal, step, *args, **named)
        own = after == "trunk" or step == (KILL_AT * EVERY if after == "segment" else SHARED)
        if own and journal.genesis.run.startswith("resnet8-digits-routed-ssr1-"):
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(Journal, after, counted)
    execute(directory, written)


if __name__ == "__main__":
    killed(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3])
