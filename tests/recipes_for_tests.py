"""Small real runs on digits, a second or less each."""

import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from explorer import run_files, rundir
from explorer.recipes.recipe import Recipe, build_recipe
from explorer.run_files import RunRecord
from explorer.training.run_plan import plan_run
from explorer.training.watch import Reading

TASK = {"dataset": "digits", "model": {"resnet8": {"width": 0.5}}}
TRAIN = {"epochs": 0.5, "batch_size": 64, "optimizer": {"sgd": {"lr": 0.1, "weight_decay": 5e-3}}}  # 7 steps


def tiny_recipe(methods: Sequence[Any] = (), *, model: Any = None, **train: Any) -> Recipe:
    task = {**TASK, "model": model} if model else TASK
    return build_recipe("tiny", task=task, train={**TRAIN, **train}, methods=methods, where="test")


def tiny_run(recipe: Recipe, *, seed: int = 0, ssr: float = 1.0, threads: int = 1) -> RunRecord:
    return plan_run(recipe, sweep="test", baseline="tiny", tuning=None, ssr=ssr, seed=seed, threads=threads, data=None)


def write_run(root: Path, run: RunRecord) -> Path:
    directory = root / run.run_id
    run_files.write(directory / rundir.RUN, run)
    return directory


def machine_with(*, others: float = 0.0) -> Callable[[], Reading]:
    """The clocks of a machine of which other processes take this share: each reading is a second later."""
    moments = itertools.count()

    def read() -> Reading:
        moment = float(next(moments))
        taken = others * (os.cpu_count() or 1) * moment
        return Reading(wall=moment, own=moment, machine=moment + taken, stolen=0.0, load=0.1)

    return read
