"""Runs on digits with and without a class, a second each: admitted late, or sealed."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from explorer import run_files, rundir
from explorer.provenance.policy import Quarantine, RoutingPolicy, Rule
from explorer.provenance.regions import SealedRegion
from explorer.recipes.recipe import build_recipe
from explorer.runlog.documents import keep, read_documents
from explorer.training.demonstration import demonstrate
from explorer.training.run import execute
from explorer.training.run_plan import plan_run
from tests.recipes_for_tests import TASK, TRAIN
from tests.training.governed_for_tests import DIGITS, TAXONOMY, policy

TARGET = "simulated/class-00"
ADMITTED = Rule(classes=("simulated",), weight=1.0)


def _policy(name: str, *rules: Rule, sealed: tuple[SealedRegion, ...] = ()) -> RoutingPolicy:
    return replace(policy(name, Quarantine.REFUSE), rules=(*rules, ADMITTED), sealed=sealed)


POLICIES = (
    _policy("open"),
    _policy("late", Rule(classes=(TARGET,), progress=(0.0, 0.5), weight=0.0)),
    _policy(
        "sealed",
        Rule(classes=(TARGET,), weight=0.0),
        sealed=(SealedRegion(name="own", branch=TARGET, layers=("*",), rank=2),),
    ),
)


class Desk:
    """The documents, and the runs that were made under them."""

    def __init__(self, root: Path) -> None:
        now = int(time.time())
        self.root = root
        self.documents = demonstrate(root, DIGITS, data=None, taxonomy=TAXONOMY, policies=POLICIES, now=now)
        self.now = now

    def run(self, policy: str, *, seed: int = 0, without: Sequence[str] = (), epochs: float = 0.285) -> Path:
        """A finished run of a few steps."""
        methods = [{"routing": {"policy": policy, "without": list(without)}}, {"recorder": {"every": 50}}]
        task = {
            **TASK,
            "dataset": {"digits": {"simulated_classes": 3}},
            "model": {"resnet8": {"width": 0.5, "norm": "group"}},
        }
        recipe = build_recipe("tiny", task=task, train={**TRAIN, "epochs": epochs}, methods=methods, where="test")
        documents = read_documents(self.documents, policy=policy, now=self.now)
        record = plan_run(
            recipe,
            sweep="test",
            baseline="tiny",
            tuning=None,
            ssr=1.0,
            seed=seed,
            threads=1,
            data=None,
            documents=documents,
        )
        run = self.root / "runs" / record.run_id
        keep(documents, run)
        run_files.write(run / rundir.RUN, record)
        execute(run)
        return run
