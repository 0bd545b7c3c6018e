"""Recorded runs from which something is deleted, and the runs that never had it: their payload is physically absent."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from explorer import run_files, rundir
from explorer.data.dataset import Dataset, DataSource, Split
from explorer.data.digits import Digits
from explorer.data.text import LocalText
from explorer.provenance.envelope import write_envelope
from explorer.provenance.policy import POLICY, RoutingPolicy
from explorer.recipes.recipe import Recipe, build_recipe
from explorer.runlog.documents import keep, quarantine_content, read_copies, read_policy
from explorer.runlog.forecast import Route, route_of
from explorer.runlog.influence import reach
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target, counterfactual
from explorer.runlog.tensors import Tensors, owner_of, read_ended, without_bookkeeping
from explorer.training import ledgered, run, run_plan
from explorer.training.run import execute
from explorer.training.run_plan import plan_run
from tests.governance import desk
from tests.governance.governed import Kept
from tests.provenance.people import RISK
from tests.recipes_for_tests import write_run

NEWS = "licensed/news"
RESNET = {"resnet8": {"width": 0.5, "norm": "group"}}
BATCHNORM = {"resnet8": {"width": 0.5, "norm": "batch"}}
GPT = {"gpt": {"depth": 2, "width": 8, "heads": 2, "dropout": 0.1}}
SGD = {"sgd": {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-3}}
ADAMW = {"adamw": {"lr": 0.01, "weight_decay": 0.01}}
TEXT = {"text": {"path": "text.txt", "context": 8}}
STEPS, BATCH = 6, 24
RECORDER: dict[str, Any] = {"recorder": {"every": 2}}


def author(root: Path, *policies: RoutingPolicy, source: DataSource | None = None, data: Path | None = None) -> Path:
    """Documents with tags for all of a dataset, the classes in turn."""
    split = (source or Digits()).load(data).train
    directory = desk.make(root / "desk", desk.classes_of(len(split)), split=split)
    for each in policies:
        write_envelope(directory / "policies" / f"{each.name}.json", desk.document(each, POLICY, RISK))
    return directory


def text(root: Path) -> Path:
    """A data directory with a file of noise: 540 bytes, 60 blocks of eight to train on."""
    content = np.random.default_rng(0).integers(0, 256, 540, dtype=np.uint8).tobytes()
    rundir.write_bytes(root / "text.txt", content)
    return root


TEXT_SOURCE = LocalText(path="text.txt", context=8)


def recipe_of(
    policy: str, methods: Sequence[Any] = (), *, model: Any = RESNET, dataset: Any = "digits", **train: Any
) -> Recipe:
    return build_recipe(
        "tiny",
        task={"dataset": dataset, "model": model},
        train={"epochs": 0.1, "batch_size": BATCH, "optimizer": SGD, **train},
        methods=[{"routing": {"policy": policy}}, *methods, RECORDER],
        where="test",
    )


def trained(root: Path, desk_of: Path, recipe: Recipe, *, data: Path | None = None) -> Path:
    """The directory of a finished run."""
    documents = desk.read(desk_of, ledgered.policy_of(recipe))
    settings: dict[str, Any] = {"sweep": "test", "baseline": "tiny", "tuning": None, "ssr": 1.0, "seed": 0}
    record = plan_run(recipe, threads=1, data=data, documents=documents, **settings)
    directory = write_run(root / "runs" / "test", record)
    keep(documents, directory)
    execute(directory, data=data)
    return directory


def never(old: Path, target: Target, to: Path, *, data: Path | None = None) -> Path:
    """The directory of the run that never had the target, trained from its first step."""
    record = counterfactual(run_files.read(run_files.RunRecord, old / rundir.RUN), target)
    directory = write_run(to, record)
    keep(replace(read_copies(old), quarantine=quarantine_content(RunLedger(old))), directory)
    execute(directory, data=data)
    return directory


def route(old: Path, target: Target) -> Route:
    ledger = RunLedger(old)
    return route_of(ledger, reach(ledger, target))


@contextmanager
def payload_absent(absent: Callable[[int], bool]) -> Iterator[None]:
    """Within the block whatever loads a dataset gets one in which these training examples are nowhere."""

    def load(source: DataSource, data: Path | None) -> Dataset:
        found = source.load(data)
        gone = torch.tensor([absent(number) for number in range(len(found.train))])
        kept: Any = [Kept(whole, gone) for whole in (found.train.inputs, found.train.labels)]
        return replace(found, train=Split(inputs=kept[0], labels=kept[1]))

    with pytest.MonkeyPatch.context() as patch:
        for module in (ledgered, run_plan, run):
            patch.setattr(module, "load", load)
        ledgered._checked.cache_clear()  # what was checked is not checked again
        try:
            yield
        finally:
            ledgered._checked.cache_clear()


def kept_tensors(run: Path, *, dropped: Collection[str] = ()) -> Tensors:
    """What a run ended with, without regions and without what is remembered about classes."""
    ledger = RunLedger(run)
    sealed = _sealed(run)
    kept = without_bookkeeping(read_ended(ledger).tensors, ledger.genesis)
    return kept.kept(lambda name: owner_of(name, sealed) not in dropped)


def differing(one: Tensors, other: Tensors) -> set[str]:
    """The names of tensors that two runs did not end with alike."""
    mine, theirs = (each.parameters | each.buffers | each.optimizer for each in (one, other))
    assert mine.keys() == theirs.keys()
    return {name for name in mine if mine[name] != theirs[name]}


def _sealed(run: Path) -> Any:
    policy = read_policy(RunLedger(run))
    return () if policy is None else policy.sealed
