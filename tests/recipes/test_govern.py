"""`explorer.govern` from signed documents to a ledger that verifies."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import explorer
from explorer.audit.contents import examine_contents
from explorer.entries.kinds import decode
from explorer.entries.run import Genesis
from explorer.errors import ProvenanceError, RecipeError, TrainingError
from explorer.ledger.blobs import read_blob
from explorer.ledger.read import LedgerDirectory
from explorer.provenance.salts import destroy_salt
from tests.governance import desk

STEPS = 6


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 12))


def losses(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs.float() / 255), labels, reduction="none")


@pytest.fixture
def papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("explorer.recipes.govern.time.time", lambda: desk.NOW)
    return desk.make(tmp_path / "papers")


def governed(papers: Path, run: Path, model: nn.Module | None = None, **changes: object) -> explorer.Governed:
    model = model or net()
    chosen = {"policy": "usual", "steps": STEPS, "every": 4, **changes}
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return explorer.govern(model, optimizer, examples=desk.SPLIT, documents=papers, ledger=run, **chosen)  # pyright: ignore


def test_a_loop_of_ones_own_leaves_a_ledger(papers: Path, tmp_path: Path) -> None:
    run = tmp_path / "mine"
    with governed(papers, run) as loop:
        for step in range(STEPS):
            loop.step(np.arange(step, step + 6), losses)
        loop.metrics["nll"] = 1.5
    found = examine_contents(LedgerDirectory(run / "ledger"))
    assert found.fault is None and found.missing == 0
    assert found.order is not None and found.order.steps == STEPS and found.order.finished
    assert LedgerDirectory(run / "ledger").checkpoint().origin == "example.com/trainer/mine"
    assert sorted(path.name for path in (run / "contributions").iterdir()) == [
        "segment-00000000.parquet",
        "segment-00000004.parquet",
    ]


def test_a_loop_that_breaks_off_has_no_end(papers: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError), governed(papers, tmp_path / "mine") as loop:
        loop.step(np.arange(6), losses)
        loop.step(np.array([99]), losses)
    order = examine_contents(LedgerDirectory(tmp_path / "mine" / "ledger")).order
    assert order is not None and not order.finished


def test_one_that_stops_early_says_so(papers: Path, tmp_path: Path) -> None:
    with governed(papers, tmp_path / "mine") as loop:
        loop.step(np.arange(6), losses)
    order = examine_contents(LedgerDirectory(tmp_path / "mine" / "ledger")).order
    assert order is not None and order.finished and order.steps == 1
    leaf = list(LedgerDirectory(tmp_path / "mine" / "ledger").entries())[-1]
    assert b'"outcome":"stopped"' in leaf


def test_what_is_not_admitted_learns_nothing(papers: Path, tmp_path: Path) -> None:
    """`licensed/news` is denied everywhere: its rows could be anything."""
    found = []
    for blank in (False, True):
        model = net()

        def with_rows(model: nn.Module, inputs: Tensor, labels: Tensor, blank: bool = blank) -> Tensor:
            assert not blank or not (labels % 3 == 2).any(), "denied rows are not even handed over"
            return losses(model, inputs, labels)

        with governed(papers, tmp_path / f"mine-{blank}", model) as loop:
            for _ in range(3):
                loop.step(np.arange(12), with_rows)
        found.append(model.state_dict())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_what_is_refused(papers: Path, tmp_path: Path) -> None:
    with pytest.raises(ProvenanceError, match="unknown policy 'usal'; did you mean 'usual'"):
        governed(papers, tmp_path / "mine", policy="usal")
    with pytest.raises(RecipeError, match="expected a directory named in letters"):
        governed(papers, tmp_path / "my run")
    with governed(papers, tmp_path / "mine") as loop:
        loop.step(np.arange(6), losses)
    with pytest.raises(RecipeError, match="there is one already"):
        governed(papers, tmp_path / "mine")
    desk.tag(papers, ["open"] * 12)
    with pytest.raises(ProvenanceError, match="not the file that was signed"):
        governed(papers, tmp_path / "other")


def test_the_ledger_says_which_examples_are_in_quarantine(papers: Path, tmp_path: Path) -> None:
    destroy_salt(papers / "salts", 3)
    with pytest.raises(ProvenanceError, match=r"slot 3 .*its salt was destroyed"):
        governed(papers, tmp_path / "refused")
    with governed(papers, tmp_path / "mine", policy="lenient") as loop:
        loop.step(np.arange(6), losses)
    ledger = LedgerDirectory(tmp_path / "mine" / "ledger")
    genesis = decode(next(ledger.entries(0, 1)))
    assert isinstance(genesis, Genesis)
    content = read_blob(tmp_path / "mine" / "ledger", genesis.blobs["quarantine"].sha256)
    assert json.loads(content) == {"erased": [3]}
    assert examine_contents(ledger).missing == 0
