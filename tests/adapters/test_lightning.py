"""A module and a Trainer of Lightning: reported to a sweep by a callback, and governed by a mix-in."""

import json
import logging
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import explorer
from explorer import track
from explorer.adapters import lightning as adapter
from explorer.adapters.lightning import GovernedSteps, tracked
from explorer.audit.conform import conform
from explorer.deletion.finish import certify
from explorer.errors import RecipeError, RunError
from explorer.governance.entropy import Entropy
from explorer.ledger.storage import LedgerDirectory
from explorer.methods.ema import EMA
from explorer.methods.gradient_clipping import GradientClipping
from explorer.provenance.policy import RoutingPolicy
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target
from explorer.training.deletion import delete, train_counterfactual
from tests.adapters import whole_way as way
from tests.governance import desk
from tests.provenance.people import EXPIRES, NOW, private
from tests.training import own_deletions as own
from tests.training.deletions import route

library: Any = pytest.importorskip("lightning.pytorch", reason="needs Lightning: pip install -e '.[lightning]'")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

Train = Callable[..., Any]


class Classifier(library.LightningModule):
    """As its documentation writes one: dropout, a scheduler a step, validation."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 12))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.float() / 255)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return F.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_acc", (self(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.05)
        return [optimizer], [
            {"scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20), "interval": "step"}
        ]


class Governed(GovernedSteps, Classifier):
    def losses(self, inputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self(inputs), labels, reduction="none")


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    own.at_desk(monkeypatch)


def trainer(place: Path, **changes: Any) -> Any:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return library.Trainer(accelerator="cpu", **{"max_epochs": 4, "default_root_dir": place, **quiet, **changes})


def held_out() -> Any:
    return DataLoader(TensorDataset(desk.SPLIT.inputs, desk.SPLIT.labels), batch_size=6)


def governed(
    root: Path,
    *policies: RoutingPolicy,
    after: Callable[[Any], object] = lambda fitted: None,
    callbacks: Sequence[Any] = (),
    **given: Any,
) -> Train:
    """A function that trains a governed run by the `govern` that it gets."""
    documents = own.papers(root / "governed", desk.SPLIT, way.OPEN, own.sealed("net.4"), *policies)
    how = {"policy": "everything", "every": 4, **given}

    def train(govern: Any = explorer.govern) -> Any:
        library.seed_everything(0, verbose=False)
        module = Governed()
        run = root / "runs" / "own" / "mine"
        module.govern_by(examples=desk.SPLIT, documents=documents, ledger=run, govern=govern, **how)
        fitting = trainer(root, callbacks=list(callbacks))
        fitting.fit(module, DataLoader(range(12), batch_size=4, shuffle=True), held_out())  # pyright: ignore
        after(fitting)
        return module

    return train


def test_a_module_is_governed_replayed_and_deleted_from(tmp_path: Path) -> None:
    """With averages, clipping and profiles; the counterfactual is the same function's."""
    ends: list[tuple[int, float]] = []
    methods = [EMA(), GradientClipping(threshold=1.0), Entropy(probes=4, profiles=2, permutations=9)]
    train = governed(
        tmp_path,
        methods=methods,
        after=lambda fitting: ends.append((fitting.global_step, fitting.optimizers[0].param_groups[0]["lr"])),
    )
    module, run = train(), tmp_path / "runs" / "own" / "mine"
    assert ends == [(12, pytest.approx(0.025 * (1 + math.cos(math.pi * 12 / 20))))], (
        "the Trainer counts the steps, and the schedule moves"
    )
    assert conform(RunLedger(run), trust=desk.TRUST, now=NOW).conforms
    assert explorer.replay(run, train).equal
    kept = explorer.load_model(run / "model", into=Governed())
    assert all(torch.equal(tensor, module.state_dict()[name]) for name, tensor in kept.state_dict().items())
    target = Target(classes=(own.NEWS,))
    new = delete(run, target, route=route(run, target), to=tmp_path / "deletions", loop=train)
    made = certify(run, new, keys=[private(desk.TRAINER)], trust=desk.TRUST, now=NOW, expires=EXPIRES)
    assert made.content and train_counterfactual(new, dropped=(), loop=train).equal


def test_a_sealed_class_is_dropped_without_training(tmp_path: Path) -> None:
    governed(tmp_path, policy="sealed")()
    run, target = tmp_path / "runs" / "own" / "mine", Target(classes=(own.NEWS,))
    new = delete(run, target, route=route(run, target), to=tmp_path / "deletions")
    back = explorer.load_model(new / "model", into=Governed())
    assert not any("@" in name for name, _ in back.named_parameters())


def test_profiles_and_a_gate_by_entropy(tmp_path: Path) -> None:
    """On record, and the same when the run is replayed; the class trains from the decision on."""
    policy, methods = way.gated("net.*")
    train = governed(tmp_path, policy, policy=policy.name, methods=methods)
    train()
    way.profiled_and_opened(tmp_path / "runs" / "own" / "mine")
    assert explorer.replay(tmp_path / "runs" / "own" / "mine", train).equal


@pytest.mark.parametrize(("level", "policy"), [("G2", "sealed"), ("G3", "everything")])
def test_from_the_trainer_to_the_gate(level: str, policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forecast, deletion, certificate, attestation, gate and what is next; G3 by the function that trains."""
    train = governed(tmp_path, policy=policy)
    train()
    way.to_the_gate(tmp_path, level, train, monkeypatch)


def test_a_run_that_broke_off_is_continued(tmp_path: Path) -> None:
    """With the same call: what is on record is made again and compared, and the ledger gets its end."""
    breaks = [True]

    class Crash(library.Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == 5 and breaks:
                raise ValueError("mine")

    train = governed(tmp_path, callbacks=[Crash()])
    with pytest.raises(ValueError, match="mine"):
        train()
    assert RunLedger(tmp_path / "runs" / "own" / "mine").outline.end is None
    breaks.clear()
    train()
    assert RunLedger(tmp_path / "runs" / "own" / "mine").outline.end is not None
    assert explorer.replay(tmp_path / "runs" / "own" / "mine", train).equal


def test_a_module_without_losses_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    class Bare(GovernedSteps, Classifier):
        pass

    with pytest.raises(RecipeError, match=r"Bare: losses: missing: expected a method losses\(inputs, labels\)"):
        Bare().govern_by(examples=desk.SPLIT, documents=tmp_path, policy="everything", ledger=tmp_path / "mine")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_governed_is_refused(tmp_path: Path) -> None:
    loader: Any = DataLoader(range(12), batch_size=4)  # pyright: ignore
    with pytest.raises(RecipeError, match=r"Governed: not governed yet: expected govern_by\(\.\.\.\) before"):
        trainer(tmp_path).fit(Governed(), loader)
    documents = own.papers(tmp_path / "governed", desk.SPLIT, way.OPEN)

    def fit(kind: type[Governed] = Governed, **changes: Any) -> None:
        module = kind()
        run = tmp_path / "runs" / f"mine-{len(list(tmp_path.glob('runs/*')))}"
        module.govern_by(examples=desk.SPLIT, documents=documents, policy="everything", ledger=run)
        trainer(tmp_path, **changes).fit(module, loader)

    class Plateau(Governed):
        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            return [optimizer], [{"scheduler": plateau, "monitor": "val_acc"}]

    class Two(Governed):
        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(self.net[at].parameters(), lr=0.1) for at in (1, 4)]  # pyright: ignore

    with pytest.raises(RecipeError, match="found a scheduler that reads a metric"):
        fit(Plateau)
    with pytest.raises(RecipeError, match="found 2 optimisers, expected one"):
        fit(Two)
    with pytest.raises(RecipeError, match="found no end of training"):
        fit(max_epochs=-1)


def test_an_error_leaves_a_ledger_without_an_end(tmp_path: Path) -> None:
    class Broken(Governed):
        def on_train_epoch_end(self) -> None:
            raise ValueError("mine")

    documents = own.papers(tmp_path / "governed", desk.SPLIT, way.OPEN)
    module = Broken()
    module.govern_by(examples=desk.SPLIT, documents=documents, policy="everything", ledger=tmp_path / "mine", every=1)
    with pytest.raises(ValueError, match="mine"):
        trainer(tmp_path).fit(module, DataLoader(range(12), batch_size=4))  # pyright: ignore
    outline = RunLedger(tmp_path / "mine").outline
    assert outline.end is None and LedgerDirectory(tmp_path / "mine" / "ledger").checkpoint().size > 3


def records(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / "tracked.jsonl").read_text().splitlines()]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that a sweep would give the run."""
    (tmp_path / "run").mkdir()
    monkeypatch.setenv(track.PLACE, str(tmp_path / "run"))
    monkeypatch.setattr(track, "_descriptor", None)
    return tmp_path / "run"


def fit(place: Path, **given: Any) -> Any:
    library.seed_everything(0, verbose=False)
    changes = {"callbacks": [tracked(metrics={"accuracy": "val_acc"}, every=2)], **given}
    checkpoint = changes.pop("ckpt_path", None)
    fitting, data = trainer(place.parent, **changes), TensorDataset(desk.SPLIT.inputs, desk.SPLIT.labels)
    fitting.fit(Classifier(), DataLoader(data, batch_size=4), held_out(), ckpt_path=checkpoint)
    return fitting


def test_a_run_is_reported_and_resumed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitting = fit(place, max_epochs=2)
    reported = records(place)
    done = reported[-1]
    assert (done["explorer"], done["steps"], done["examples"]) == ("done", 6, 24)
    assert done["accuracy"] == pytest.approx(float(fitting.callback_metrics["val_acc"]))
    assert [entry["step"] for entry in reported if "train_loss" in entry] == [2, 4, 6]
    assert [entry["step"] for entry in reported if entry["explorer"] == "log" and "accuracy" in entry] == [3, 6]
    seconds = [entry["seconds"] for entry in reported if "seconds" in entry]
    assert seconds == sorted(seconds) and seconds[0] > 0
    (kept,) = (place / "private" / "checkpoint").iterdir()
    monkeypatch.setattr(track, "_descriptor", None)
    fit(place, max_epochs=4, ckpt_path=os.fspath(kept))
    done = records(place)[-1]
    assert (done["steps"], done["examples"]) == (12, 48), "counted on from the checkpoint"


def test_a_metric_that_is_not_logged_is_an_error_with_those_that_are(place: Path) -> None:
    with pytest.raises(RunError, match=r"metric 'accuracy': found no 'acc' .*known: val_acc"):
        fit(place, callbacks=[tracked(metrics={"accuracy": "acc"})])


def test_without_the_library_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "LIBRARIES", ("nowhere_at_all.pytorch",))
    with pytest.raises(RunError, match=r"needs Lightning: pip install 'explorer\[lightning\]'"):
        tracked(metrics={})
