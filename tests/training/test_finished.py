"""A recorded run leaves its model, and the ledger's end names each of its tensors."""

from pathlib import Path

import pytest

from explorer import rundir
from explorer.runlog.model_file import CARD, MODEL, ModelFile, read_card
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.tensors import read_ended, without_bookkeeping
from explorer.training.run import execute
from tests.training.recorded_runs import recorded_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded_run(tmp_path_factory.mktemp("runs"))


@pytest.mark.slow
def test_the_model_is_what_the_ledger_ended_with(run: Path) -> None:
    ledger = RunLedger(run)
    tensors = read_ended(ledger).tensors
    assert ModelFile(run / rundir.MODEL / MODEL).leaves() == {**tensors.parameters, **tensors.buffers}
    assert any(
        name.startswith("ema/average/") for name in tensors.optimizer
    )  # the averages are the model; both are named
    kept = without_bookkeeping(tensors, ledger.genesis)
    assert {name.partition("/")[0] for name in tensors.optimizer.keys() - kept.optimizer.keys()} == {"recorder"}


def test_the_card_says_how_to_build_it(run: Path) -> None:
    card = read_card(run / rundir.MODEL / CARD)
    assert (card.run, card.dataset, card.example_shape, card.classes) == (run.name, "digits", (1, 8, 8), 10)
    assert next(iter(card.model)) == "resnet8" and card.methods == () and card.sealed == ()


@pytest.mark.slow
def test_a_model_that_was_lost_comes_back_the_same(run: Path) -> None:
    """Killed behind the end of the ledger, before the result."""
    path = run / rundir.MODEL / MODEL
    before, ledger = path.read_bytes(), (run / "ledger" / "checkpoint").read_bytes()
    path.unlink()
    (run / rundir.RESULT).unlink()
    execute(run)
    assert path.read_bytes() == before and (run / "ledger" / "checkpoint").read_bytes() == ledger
