"""The loop of Accelerate's documentation: reported by a tracker, and governed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

import explorer
from explorer import rundir, track
from explorer.adapters.accelerate import tracker
from explorer.data.dataset import Split
from explorer.errors import RecipeError
from explorer.runlog.model_file import MODEL, ModelFile
from tests.training import own_deletions as own
from tests.training.test_own_deletion import certified, deleted, lost

accelerate: Any = pytest.importorskip("accelerate", reason="needs accelerate: pip install -e '.[hub]'")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

DRAWS = np.random.default_rng(0)
EXAMPLES = Split(
    inputs=torch.from_numpy(DRAWS.integers(0, 255, (24, 6), dtype=np.uint8)),
    labels=torch.from_numpy(DRAWS.integers(0, 3, 24)),
)


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    own.at_desk(monkeypatch)


def losses(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs.float() / 255), labels, reduction="none")


class Coupled(torch.optim.SGD):
    """One length for all gradients."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        gradients = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        for gradient in gradients:
            gradient.div_(torch.nn.utils.get_total_norm(gradients))
        super().step()


def trained(
    documents: Path,
    run: Path,
    govern: Any = explorer.govern,
    *,
    optimizer: Any = torch.optim.AdamW,
    prepared: bool = True,
    accumulated: int = 1,
) -> nn.Module:
    """Train the loop of the documentation, governed: with all that `prepare` returns, or with what it was given."""
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulated)
    torch.manual_seed(0)
    model = own_model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = own_optimizer = optimizer(model.parameters(), lr=1e-2)
    loader = DataLoader(range(len(EXAMPLES)), batch_size=8, shuffle=True)  # pyright: ignore[reportArgumentType]
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=6)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    with govern(
        model if prepared else own_model,
        optimizer if prepared else own_optimizer,
        examples=EXAMPLES,
        documents=documents,
        policy="sealed",
        ledger=run,
        steps=6,
        every=2,
    ) as governed:
        for _ in range(2):
            for rows in loader:
                governed.step(rows, losses)
                scheduler.step()
    return own_model


def test_a_loop_is_governed_replayed_and_deleted_from(tmp_path: Path) -> None:
    """What `prepare` returns gives the same bits as what it was given, in sealed regions too."""
    documents = own.papers(tmp_path / "governed", EXAMPLES, own.sealed("0", "2"), classes=own.desk.classes_of(24))
    runs = tmp_path / "runs/own"
    one = trained(documents, runs / "mine").state_dict()
    other = trained(documents, runs / "other", prepared=False).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in other) and one.keys() == other.keys()
    assert any("@news.up" in name and one[name].any() for name in one)  # the region's copy of the optimiser steps

    def again(govern: Any) -> None:
        trained(documents, runs / "mine", govern)

    assert explorer.replay(runs / "mine", again).equal
    new = deleted(runs / "mine")
    assert certified(runs / "mine", new).deleted
    left = ModelFile(new / rundir.MODEL / MODEL).leaves()
    assert left and all("@news" in name for name in lost(runs / "mine", new))


def test_a_prepared_optimiser_that_couples_tensors_is_refused(tmp_path: Path) -> None:
    documents = own.papers(tmp_path / "governed", EXAMPLES, own.sealed("0"), classes=own.desk.classes_of(24))
    with pytest.raises(RecipeError, match="moves a parameter by the gradients of others"):
        trained(documents, tmp_path / "runs/own/mine", optimizer=Coupled)


def test_a_prepared_optimiser_that_skips_steps_is_refused(tmp_path: Path) -> None:
    """Accumulation: the ledger would have steps that were never made."""
    state = accelerate.state
    documents = own.papers(tmp_path / "governed", EXAMPLES, own.sealed("0"), classes=own.desk.classes_of(24))
    try:
        with pytest.raises(RecipeError, match="gradient accumulation over 2 steps, most of which it would skip"):
            trained(documents, tmp_path / "runs/own/mine", accumulated=2)
    finally:  # its state is one for the whole process
        state.GradientState._reset_state()
        state.AcceleratorState._reset_state(reset_partial_state=True)
    assert not (tmp_path / "runs/own/mine/ledger").exists()


def test_a_loop_reports_by_its_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(track.PLACE, str(tmp_path))
    monkeypatch.setattr(track, "_descriptor", None)
    accelerator = accelerate.Accelerator(cpu=True, log_with=tracker())
    accelerator.init_trackers("mine", config={"lr": 0.1})
    for step in range(1, 4):
        accelerator.log({"train_loss": torch.tensor(1 / step)}, step=step)
    accelerator.log({"accuracy": 0.75}, step=3)
    with pytest.raises(RecipeError, match=r"expected accelerator.log\({...}, step=N\)"):
        accelerator.log({"accuracy": 0.75})
    accelerator.end_training()
    records = [json.loads(line) for line in (tmp_path / track.FILE).read_text().splitlines()]
    assert [record["step"] for record in records[:-1]] == [1, 2, 3, 3]
    assert records[-1][track.KIND] == "done" and records[-1]["accuracy"] == 0.75
    assert records[-1]["train_loss"] == pytest.approx(1 / 3)
