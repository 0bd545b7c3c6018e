"""Deletion by structure: what is kept is, bit for bit, what the run that never had the class ends with.

Both are real run directories. The second is trained without the class from its first step, the payload of the class
physically absent, and compared through the tensors that the two ledgers end with.
"""

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from explorer import run_files, rundir
from explorer.engine import loop as loops
from explorer.engine.fit import MODEL, model_digest
from explorer.engine.state import State
from explorer.entries.kinds import End, Genesis
from explorer.errors import RunError
from explorer.governance.region_modules import Switch
from explorer.governance.routing import Routing
from explorer.provenance.policy import Rule
from explorer.provenance.regions import SealedRegion
from explorer.runlog.model_file import CARD, ModelFile, read_card
from explorer.runlog.model_file import MODEL as WEIGHTS
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target, read_origin
from explorer.runlog.tensors import read_ended
from explorer.training.deletion import delete
from tests.governance import desk
from tests.governance.test_promises import AllBuffers, MeanOverAdmitted, with_one_norm
from tests.training.deletions import (
    ADAMW,
    BATCHNORM,
    GPT,
    NEWS,
    RESNET,
    SGD,
    TEXT,
    TEXT_SOURCE,
    author,
    differing,
    kept_tensors,
    never,
    payload_absent,
    recipe_of,
    route,
    text,
    trained,
)

TARGET = Target(classes=(NEWS,))
SEALED = desk.policy(
    name="sealed",
    rules=(Rule(classes=("open/mit",), depth=(0.0, 0.3), weight=0.0), Rule(classes=("open",), weight=1.0)),
    sealed=(SealedRegion(name="news", branch=NEWS, layers=("stages.*",), rank=2),),
)
SEALED_TEXT = replace(SEALED, sealed=(SealedRegion(name="news", branch=NEWS, layers=("blocks.*",), rank=2),))
WATCHED: list[Any] = ["contributions", {"ema": {"half_life": 0.2}}, {"sam": {"rho": 0.3}}]
METHODS = [*WATCHED, {"mixup": {"alpha": 1.0}}, {"gradient_clipping": {"threshold": 0.05}}]

SETTINGS = {
    "GroupNorm, AdamW": {"model": RESNET, "optimizer": ADAMW},
    "BatchNorm, SGD": {"model": BATCHNORM, "optimizer": SGD},
    "GroupNorm, SGD": {"model": RESNET, "optimizer": SGD},
    "BatchNorm, AdamW": {"model": BATCHNORM, "optimizer": ADAMW},
    "bf16": {"model": BATCHNORM, "optimizer": ADAMW, "precision": "bf16"},
    "microbatches": {"model": RESNET, "optimizer": SGD, "microbatch_size": 3},
}
QUICK = ("BatchNorm, SGD",)  # a transformer is tried with AdamW
settings = pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SETTINGS]
)


@pytest.fixture(scope="module")
def desk_of(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return author(tmp_path_factory.mktemp("author"), SEALED)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory, desk_of: Path) -> Path:
    """A finished run, for what changes nothing about it."""
    return trained(tmp_path_factory.mktemp("old"), desk_of, recipe_of("sealed", METHODS))


def deleted(old: Path, to: Path) -> Path:
    return delete(old, TARGET, route=route(old, TARGET), to=to)


def compared(root: Path, desk_of: Path, recipe: Any, *, data: Path | None = None) -> set[str]:
    """The kept tensors in which a deletion and the run without the class differ."""
    old = trained(root, desk_of, recipe, data=data)
    new = deleted(old, root / "runs" / "deletions")
    with payload_absent(lambda number: desk.classes_of(number + 1)[number] == NEWS):
        reference = never(old, TARGET, root / "never", data=data)
    assert new.name == reference.name
    return differing(kept_tensors(new), kept_tensors(reference, dropped=["news"]))


@settings
def test_what_is_kept_is_what_the_run_without_the_class_ends_with(tmp_path: Path, desk_of: Path, name: str) -> None:
    """With sam, ema, mixup and gradient clipping in the recipe."""
    assert compared(tmp_path, desk_of, recipe_of("sealed", METHODS, **SETTINGS[name])) == set()


@pytest.mark.parametrize("optimizer", [ADAMW, pytest.param(SGD, marks=pytest.mark.slow)], ids=["adamw", "sgd"])
def test_what_is_kept_of_a_transformer(tmp_path: Path, optimizer: Any) -> None:
    data = text(tmp_path / "data")
    desk_of = author(tmp_path, SEALED_TEXT, source=TEXT_SOURCE, data=data)
    methods = [*WATCHED, {"gradient_clipping": {"threshold": 0.05}}]
    recipe = recipe_of("sealed", methods, model=GPT, dataset=TEXT, optimizer=optimizer, batch_size=12, epochs=1.0)
    assert compared(tmp_path, desk_of, recipe, data=data) == set()


def test_a_module_with_a_path_around_it(tmp_path: Path) -> None:
    """The card says that it is gone on purpose."""
    data, region = text(tmp_path / "data"), SealedRegion(name="news", branch=NEWS, module="blocks.1.mlp")
    desk_of = author(tmp_path, replace(SEALED, sealed=(region,)), source=TEXT_SOURCE, data=data)
    recipe = recipe_of("sealed", WATCHED, model=GPT, dataset=TEXT, optimizer=ADAMW, batch_size=12, epochs=1.0)
    assert compared(tmp_path, desk_of, recipe, data=data) == set()
    (new,) = (tmp_path / "runs" / "deletions").iterdir()
    card = read_card(new / rundir.MODEL / CARD)
    assert (card.sealed, card.absent) == ((), (region,))
    assert not [name for name in ModelFile(new / rundir.MODEL / WEIGHTS).entries if name.startswith("blocks.1.mlp")]


# Each known leak makes exactly this comparison fail.


def mean_over_admitted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Routing, "after_loss", MeanOverAdmitted.after_loss)


def one_random_stream(patch: pytest.MonkeyPatch) -> None:
    """Draws of the model come from one generator, which whoever takes part moves on."""
    patch.setattr(loops, "torch_stream", lambda *_: nullcontext())


def buffers_for_all(patch: pytest.MonkeyPatch) -> None:
    change_plan = Routing.change_plan

    def leaking(self: Routing, state: State) -> None:
        change_plan(self, state)
        AllBuffers.change_plan(self, state)  # pyright: ignore[reportArgumentType]

    patch.setattr(Routing, "change_plan", leaking)


def region_for_all(patch: pytest.MonkeyPatch) -> None:
    def all_on(self: Routing, state: State) -> None:
        switch = state.resource(Switch)
        switch.on = frozenset(switch.regions)

    patch.setattr(Routing, "before_forward", all_on)


LEAKS = {
    "one clip norm for all regions": (with_one_norm, "head.weight"),
    "the mean over who takes part": (mean_over_admitted, "head.weight"),
    "a region that others see": (region_for_all, "head.weight"),
    "running statistics that all write": (buffers_for_all, "norm.running_mean"),
}


@pytest.mark.parametrize("name", LEAKS)
@pytest.mark.slow
def test_a_leak_is_noticed(tmp_path: Path, desk_of: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    leak, reached = LEAKS[name]
    leak(monkeypatch)
    found = compared(tmp_path, desk_of, recipe_of("sealed", METHODS, model=BATCHNORM))
    assert reached in found


def test_one_random_stream_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout, which the transformer has."""
    data = text(tmp_path / "data")
    desk_of = author(tmp_path, SEALED_TEXT, source=TEXT_SOURCE, data=data)
    recipe = recipe_of("sealed", model=GPT, dataset=TEXT, batch_size=12, epochs=1.0)
    one_random_stream(monkeypatch)
    with torch.random.fork_rng():
        assert "norm.weight" in compared(tmp_path, desk_of, recipe, data=data)


# What comes out.


def test_the_new_ledger_begins_where_the_old_one_ended(old: Path, tmp_path: Path) -> None:
    new = deleted(old, tmp_path)
    ledger, before = RunLedger(new), RunLedger(old)
    origin = read_origin(new)
    assert origin is not None and (origin.level, origin.target, origin.begins) == ("G2", TARGET, before.steps)
    head = before.ledger.checkpoint()
    assert (origin.ledger.origin, origin.ledger.size, origin.ledger.root) == (head.origin, head.size, head.root.hex())
    assert ledger.ledger.checkpoint().size == 2
    (genesis,), ended = ledger.read([0], Genesis), read_ended(ledger)
    assert (genesis.entry.begins, genesis.entry.start) == (before.steps, origin.state)
    assert (ended.end.entry.step, ended.end.entry.state) == (before.steps, origin.state)
    (parent,) = genesis.entry.parents
    assert (parent.kind, parent.ledger) == ("deletion", origin.ledger)
    assert genesis.entry.initial == before.genesis.initial
    (end,) = before.read([before.outline.end or 0], End)
    assert ended.end.entry.metrics == end.entry.metrics


def test_the_new_model_is_the_old_one_without_the_region(old: Path, tmp_path: Path) -> None:
    new = deleted(old, tmp_path)
    mine, theirs = (ModelFile(run / rundir.MODEL / WEIGHTS).leaves() for run in (new, old))
    gone = theirs.keys() - mine.keys()
    assert gone and all("@news" in name for name in gone) and mine.items() < theirs.items()
    assert not any("@news" in name for name in mine)
    assert read_card(new / rundir.MODEL / CARD).sealed == () != read_card(old / rundir.MODEL / CARD).sealed


def test_the_result_is_that_of_the_run_without_the_class(old: Path, tmp_path: Path) -> None:
    """Its quality too: in evaluation no region is on. It is no measure of cost."""
    new = deleted(old, tmp_path)
    reference = never(old, TARGET, tmp_path / "never")
    mine, theirs = (run_files.read(run_files.ResultRecord, run / rundir.RESULT) for run in (new, reference))
    assert mine.metrics["accuracy"] == theirs.metrics["accuracy"]
    assert (mine.timed_steps, mine.contended) == (0, True)
    kept = load_file(new / rundir.MODEL / WEIGHTS)
    assert mine.state_digest == model_digest({MODEL + name: tensor for name, tensor in kept.items()})
    lines = [json.loads(line) for line in (new / rundir.METRICS).read_text().splitlines()]
    expected = [json.loads(line) for line in (reference / rundir.METRICS).read_text().splitlines()]
    assert lines == [each for each in expected if each["metric"] != "train_loss"] and lines


def test_again_is_the_same_and_half_of_it_is_made_whole(old: Path, tmp_path: Path) -> None:
    new = deleted(old, tmp_path)
    before = {path: path.read_bytes() for path in new.rglob("*") if path.is_file()}
    assert deleted(old, tmp_path) == new
    assert {path: path.read_bytes() for path in new.rglob("*") if path.is_file()} == before
    (new / rundir.RESULT).unlink()  # as if it had been killed just before
    deleted(old, tmp_path)
    names = {path for path in before if path.name not in (rundir.RESULT, rundir.LOCK)}
    assert all(path.read_bytes() == before[path] for path in names) and (new / rundir.RESULT).exists()


def test_another_model_than_the_ledger_ends_with_is_refused(old: Path, tmp_path: Path) -> None:
    copy = tmp_path / "runs" / old.name
    shutil.copytree(old, copy)
    path = copy / rundir.MODEL / WEIGHTS
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"not the model that the ledger ends with: "):
        deleted(copy, tmp_path / "deletions")
    assert not list((tmp_path / "deletions").glob(f"*/{rundir.RUN}"))
