"""The entry about the run that made the first steps: what becomes of it when the steps are executed again."""

from pathlib import Path

import pytest

from explorer import rundir
from explorer.entries.kinds import Decision, Trunk, decode
from explorer.errors import LedgerError
from explorer.governance.writer import History
from explorer.ledger.storage import LedgerDirectory
from explorer.runlog.run_ledger import RunLedger
from tests.governance.journals import finish, open_journal, record, state

AT, CRASH, END = 6, 8, 9  # the steps that were taken over, those that a crash leaves, all


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was killed after it had begun with the steps of another one."""
    with open_journal(tmp_path) as journal:
        journal.begin(0, None)
        record(journal, 0, AT)
        journal.trunk(AT, run="shorter", ledger=journal.head, state=state(AT))
        record(journal, AT, CRASH)
    return tmp_path


def kinds(run: Path) -> list[type]:
    return [type(decode(leaf)) for leaf in LedgerDirectory(run / rundir.LEDGER).entries()]


def again_from(run: Path) -> list[int]:
    """The steps from which something was executed again with another result."""
    ledger = RunLedger(run)
    decisions = (placed.entry for placed in ledger.read(ledger.outline.decisions, Decision))
    return [entry.step for entry in decisions if entry.action == "re-execution"]


@pytest.mark.parametrize("first", [0, 3, AT])
def test_steps_that_are_executed_again_with_the_same_result_keep_it(run: Path, first: int) -> None:
    before = list(LedgerDirectory(run / rundir.LEDGER).entries())
    with open_journal(run) as journal:
        journal.begin(first, state(first))
        record(journal, first, END)
        finish(journal, END)
    assert list(LedgerDirectory(run / rundir.LEDGER).entries())[: len(before)] == before
    assert kinds(run).count(Trunk) == 1
    decisions = [
        decode(entry.leaf) for entry in History(run / rundir.LEDGER).entries() if entry.head.kind == "decision"
    ]
    assert all(isinstance(entry, Decision) and entry.action == "freeze" for entry in decisions)
    assert len(RunLedger(run).outline.trunks) == 1


@pytest.mark.parametrize(("changed", "left"), [(2, 0), (AT - 1, 0), (AT, 1), (AT + 1, 1)])
def test_other_steps_before_it_take_it_back_and_others_do_not(run: Path, changed: int, left: int) -> None:
    with open_journal(run) as journal:  # closes the segment with the steps after it
        journal.begin(AT, state(AT))
        record(journal, AT, END)
    with open_journal(run) as journal:
        journal.begin(0, state(0))
        record(journal, 0, changed)
        record(journal, changed, changed + 1, examples=(5, 2))
        record(journal, changed + 1, END)
        finish(journal, END)
    ledger = RunLedger(run)
    (again,) = (
        entry for entry in ledger.read(ledger.outline.decisions, Decision) if entry.entry.action == "re-execution"
    )
    assert again.entry.step == changed and len(ledger.outline.trunks) == left
    current = [entry.head.kind for entry in History(run / rundir.LEDGER).entries()]
    assert current.count("trunk") == left


def test_another_trunk_is_named_as_well(run: Path) -> None:
    """A crash left the entry, and the next attempt found the steps of another run."""
    with open_journal(run) as journal:
        journal.begin(0, state(0))
        record(journal, 0, END)
        journal.trunk(END, run="longer", ledger=journal.head, state=state(END))
    ledger = RunLedger(run)
    named = [placed.entry for placed in ledger.read(ledger.outline.trunks, Trunk)]
    assert [(entry.step, entry.run) for entry in named] == [(AT, "shorter"), (END, "longer")]


def test_steps_without_a_state_are_not_taken_over(run: Path) -> None:
    with open_journal(run) as journal:
        journal.begin(AT, state(AT))
        record(journal, AT, CRASH)
        with pytest.raises(LedgerError, match="the trunk of 8 steps: 2 of them have no state entry yet"):
            journal.trunk(CRASH, run="shorter", ledger=journal.head, state=state(CRASH))
