"""The counterfactual trained from its first step, against runs that deletions made; and their certificates."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from explorer import rundir
from explorer.deletion.evidence import RECORDS_FILE
from explorer.deletion.finish import certify
from explorer.deletion.verify_deletion import Verified, verify
from explorer.engine.state import State
from explorer.errors import LedgerError
from explorer.governance.routing import Routing
from explorer.ledger.storage import blob_path
from explorer.provenance.deletion_certificate import Certificate
from explorer.provenance.policy import Rule
from explorer.provenance.regions import SealedRegion
from explorer.provenance.trust import Role
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target
from explorer.runlog.tensors import read_ended
from explorer.training.deletion import Compared, delete, train_counterfactual
from tests.governance import desk
from tests.provenance.people import EXPIRES, NOW, private
from tests.training.deletions import NEWS, author, recipe_of, route, trained

TARGET = Target(classes=(NEWS,))
TRUST = replace(desk.TRUST, quorum=replace(desk.TRUST.quorum, checkpoints={Role.TRAINER: 1}))
SEALED = desk.policy(
    name="sealed",
    rules=(Rule(classes=("open",), weight=1.0),),
    sealed=(SealedRegion(name="news", branch=NEWS, layers=("stages.2.*",), rank=2),),
)
LATE = desk.policy(
    name="late",
    rules=(Rule(classes=(NEWS,), progress=(0.0, 0.5), weight=0.0), Rule(classes=("*",), weight=1.0)),
)
METHODS: list[Any] = [{"ema": {"half_life": 0.2}}, {"mixup": {"alpha": 1.0}}]


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return author(tmp_path_factory.mktemp("author"), SEALED, LATE)


@pytest.fixture(scope="module")
def sealed(papers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("sealed"), papers, recipe_of("sealed", METHODS))


@pytest.fixture(scope="module")
def late(papers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("late"), papers, recipe_of("late", ["contributions", *METHODS]))


def deleted(old: Path, target: Target, to: Path) -> Path:
    return delete(old, target, route=route(old, target), to=to)


def certified(old: Path, new: Path) -> Verified:
    """Its certificate, and what a stranger finds."""
    made = certify(old, new, keys=[private(desk.TRAINER)], trust=TRUST, now=NOW, expires=EXPIRES)
    listed = new / RECORDS_FILE
    records = listed if listed.exists() else None
    return verify(made.content, old=old, new=new, trust=TRUST, now=NOW, records=records)


def compared(certificate: Certificate, new: Path) -> Compared:
    return train_counterfactual(new, dropped=certificate.structure.dropped if certificate.structure else ())


def test_by_structure(sealed: Path, tmp_path: Path) -> None:
    new = deleted(sealed, TARGET, tmp_path)
    found = certified(sealed, new)
    assert found.deleted and found.certificate.structure is not None
    assert any(name.endswith("@news.up.weight/momentum_buffer") for name in found.certificate.structure.dropped)
    itself = compared(found.certificate, new)
    assert itself.equal and itself.tensors > 50
    assert not train_counterfactual(
        new
    ).equal  # the control: nothing is left out of the comparison but what was dropped


@pytest.mark.slow
def test_by_replay(late: Path, tmp_path: Path) -> None:
    new = deleted(late, TARGET, tmp_path)
    found = certified(late, new)
    replay = found.certificate.replay
    assert found.deleted and replay is not None
    assert (replay.begins, replay.influence, replay.steps) == (2, 2, 2)
    assert compared(found.certificate, new).equal


@pytest.mark.slow
def test_what_a_freeze_had_seen_of_the_class_is_no_obstacle(papers: Path, tmp_path: Path) -> None:
    """By then it had looked at the class's probes. The start is the recorded state, memory and all, and forgets."""
    watching: list[Any] = ["contributions", {"governed_freezing": {"probes": 4, "profiles": 4}}]
    old = trained(tmp_path, papers, recipe_of("late", watching))
    new = deleted(old, TARGET, tmp_path / "new")
    found = certified(old, new)
    assert found.deleted and found.certificate.replay is not None and found.certificate.replay.begins == 2
    assert compared(found.certificate, new).equal
    was, now = (read_ended(RunLedger(run)).tensors.optimizer for run in (old, new))
    assert was["governed_freezing/history"] != now["governed_freezing/history"]


def test_single_records(late: Path, tmp_path: Path) -> None:
    new = deleted(late, Target(records=(2, 5, 8)), tmp_path)
    found = certified(late, new)
    assert found.deleted and found.certificate.target.records is not None
    assert compared(found.certificate, new).equal


@pytest.mark.slow
def test_one_deletion_after_another(late: Path, tmp_path: Path) -> None:
    first = deleted(late, TARGET, tmp_path / "first")
    second = deleted(first, Target(classes=("open",)), tmp_path / "second")
    found = certified(first, second)
    assert found.deleted and found.certificate.old.run == first.name
    assert compared(found.certificate, second).equal


def test_what_no_ledger_shows_the_counterfactual_finds(
    late: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replay moves a weight by hand and records the result: every claim over the ledgers holds."""
    real = Routing.change_plan

    def by_hand(self: Routing, state: State) -> None:
        real(self, state)
        if state.step == 2:
            with torch.no_grad():
                next(iter(state.model.parameters())).mul_(1 + 2**-20)

    with monkeypatch.context() as patched:
        patched.setattr(Routing, "change_plan", by_hand)
        new = deleted(late, TARGET, tmp_path)
    found = certified(late, new)
    assert found.deleted
    itself = compared(found.certificate, new)
    assert not itself.equal and all("expected" in each for each in itself.differing)


def test_a_run_that_never_ended_is_compared_with_nothing(late: Path, tmp_path: Path) -> None:
    run = tmp_path / late.name
    shutil.copytree(late, run)
    (run / rundir.LEDGER / blob_path(read_ended(RunLedger(run)).end.entry.blobs["tensors"].sha256)).unlink()
    with pytest.raises(LedgerError, match="the list of tensors at its end is missing"):
        train_counterfactual(run)
