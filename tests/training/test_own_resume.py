"""Loops of one's own that broke off: the same call makes the recorded steps again, and their ledger goes on."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import explorer
from explorer.audit.conform import conform
from explorer.entries.kinds import Decision
from explorer.errors import RecipeError, RunError
from explorer.ledger.storage import LedgerDirectory
from explorer.runlog.model_file import MODEL
from explorer.runlog.run_ledger import RunLedger
from tests.governance import desk
from tests.provenance.people import NOW
from tests.training import own_deletions as own
from tests.training.test_own_replay import CHANGED, GPT, scheduled

SEALED = own.sealed("transformer.h.*")
Train = Callable[..., Any]


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    own.at_desk(monkeypatch)


def loop(root: Path, **how: Any) -> tuple[Path, Train]:
    """The directory of a run, and the function that trains it."""
    documents = own.papers(root / "governed", GPT.examples, SEALED)
    run = root / "runs" / "own" / "mine"
    return run, partial(own.train, GPT, documents, run, **how)


def broken(train: Train, at: int, *, other_rows: bool = False) -> None:
    """Train until this step, and stop there as Ctrl-C does; or end, on other rows from there on."""

    def govern(*given: Any, **named: Any) -> Any:
        governed = explorer.govern(*given, **named)
        step = governed.step

        def until(examples: Any, losses: Any) -> Any:
            if governed.state.step == at and not other_rows:
                raise KeyboardInterrupt
            return step(np.roll(examples, 1) if governed.state.step >= at else examples, losses)

        governed.step = until
        return governed

    if other_rows:
        train(govern)
        return
    with pytest.raises(KeyboardInterrupt):
        train(govern)


@pytest.mark.parametrize("at", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_what_broke_off_is_continued(at: int, tmp_path: Path) -> None:
    """Before anything was durable, and with two segments on record; nothing in the ledger tells it from one session."""
    run, train = loop(tmp_path)
    broken(train, at)
    size = LedgerDirectory(run / "ledger").checkpoint().size
    assert (size > 4) is (at == 5)
    train()
    ledger = RunLedger(run)
    assert (ledger.steps, ledger.outline.decisions) == (own.STEPS, ()) and ledger.outline.end is not None
    assert explorer.replay(run, train).equal
    assert conform(ledger, trust=desk.TRUST, now=NOW).conforms
    whole, again = loop(tmp_path / "whole")
    again()
    assert LedgerDirectory(whole / "ledger").checkpoint().size == LedgerDirectory(run / "ledger").checkpoint().size
    assert (whole / "model" / MODEL).read_bytes() == (run / "model" / MODEL).read_bytes()


def test_other_rows_are_put_on_record(tmp_path: Path) -> None:
    """The control: what is made again is compared, and a difference becomes an entry of the ledger."""
    run, train = loop(tmp_path)
    broken(train, 4)
    broken(train, 2, other_rows=True)
    ledger = RunLedger(run)
    (decision,) = [placed.entry for placed in ledger.read(ledger.outline.decisions, Decision)]
    assert (decision.action, decision.step) == ("re-execution", 2)
    assert not explorer.replay(run, train).equal


def test_another_loop_does_not_continue(tmp_path: Path) -> None:
    run, train = loop(tmp_path, optimizer=scheduled)
    broken(train, 3)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for changes, field in CHANGED.values():
        name = field.removeprefix("recipe: ")
        with pytest.raises(RunError, match=f"another loop broke off here: {name}.*on record is"):
            train(**changes)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_other_documents_and_an_ended_run_are_refused(tmp_path: Path) -> None:
    run, train = loop(tmp_path)
    broken(train, 3)
    region = own.sealed("transformer.h.1.*")
    elsewhere = own.papers(tmp_path / "others", GPT.examples, region)
    with pytest.raises(RecipeError, match=r"a run broke off here under another \w+ than the one in .*others"):
        own.train(GPT, elsewhere, run)
    train()
    with pytest.raises(RecipeError, match="there is one already, and it has ended: expected another directory"):
        train()
