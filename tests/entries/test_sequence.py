"""The order of entries: what may follow what."""

import tracemalloc
from collections.abc import Iterator

import pytest

from explorer.entries.heads import Head, Order, check_sequence, read_head
from explorer.entries.kinds import encode
from explorer.errors import LedgerError
from tests.entries.examples import EXAMPLES


def head(kind: str, step: object = None, *, version: int = 1, action: str = "freeze") -> Head:
    clock = "begins" if kind == "genesis" else "step"
    fields: dict[str, object] = {} if step is None else {clock: step}
    if kind == "decision":
        fields["action"] = action
    return Head(kind=kind, version=version, blobs={}, fields=fields)


GENESIS, END_2 = head("genesis", 0), head("end", 2)
STEP_0, STEP_1, STEP_2 = (head("step", n) for n in range(3))
AGAIN_0 = head("decision", 0, action="re-execution")


def test_a_run_in_order() -> None:
    heads = [GENESIS, head("state", 0), STEP_0, head("profile", 1), STEP_1, head("state", 2), END_2]
    assert check_sequence(heads) == Order(entries=7, steps=2, finished=True, unknown=0)
    assert check_sequence(heads[:4]) == Order(entries=4, steps=1, finished=False, unknown=0)


def test_a_run_that_continues_another_one() -> None:
    assert check_sequence([head("genesis", 2), head("step", 2), head("end", 3)]).steps == 3
    assert check_sequence([head("genesis", 2), END_2]) == Order(entries=2, steps=2, finished=True, unknown=0)
    for wrong in (STEP_0, STEP_1):
        with pytest.raises(LedgerError, match="and 2 were done"):
            check_sequence([head("genesis", 2), wrong])
    for begins in (None, -1, "2", True):
        with pytest.raises(LedgerError, match="genesis: begins: expected a whole number"):
            check_sequence([head("genesis", begins)])


def test_the_examples_in_order() -> None:
    heads = [read_head(encode(entry)) for entry in EXAMPLES]
    assert check_sequence(heads[:7]).finished
    assert check_sequence(heads[7:]) == Order(entries=5, steps=None, finished=False, unknown=0)
    with pytest.raises(LedgerError, match="entry 7: access after the end"):
        check_sequence(heads)


def test_steps_go_back_only_by_a_decision() -> None:
    assert check_sequence([GENESIS, STEP_0, STEP_1, AGAIN_0, STEP_0, STEP_1, END_2]).steps == 2
    with pytest.raises(LedgerError, match="entry 3: step at 0 steps, and 2 were done; with no decision to re-execute"):
        check_sequence([GENESIS, STEP_0, STEP_1, STEP_0])
    with pytest.raises(LedgerError, match="entry 3: decision at 0 steps, and 2 were done"):
        check_sequence([GENESIS, STEP_0, STEP_1, head("decision", 0)])


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ([STEP_0], "entry 0: step, and the ledger does not begin with a genesis"),
        ([head("weather"), GENESIS], "entry 1: genesis, and the ledger does not begin with a genesis"),
        ([GENESIS, GENESIS], "entry 1: a second genesis"),
        ([GENESIS, head("access")], "entry 1: access belongs to a project's ledger, and this one is a run's"),
        ([head("access"), STEP_0], "entry 1: step, and the ledger does not begin"),
        ([GENESIS, head("end", 0), head("weather")], "entry 2: weather after the end"),
        ([GENESIS, STEP_0, STEP_0], "entry 2: step at 0 steps, and 1 were done"),
        ([GENESIS, STEP_0, STEP_2], "entry 2: step at 2 steps, and 1 were done; steps are missing"),
        ([GENESIS, STEP_0, END_2], "entry 2: end at 2 steps, and 1 were done; steps are missing"),
        ([GENESIS, head("decision", 3, action="re-execution")], "re-execution from step 3, and only 0 were done"),
        ([GENESIS, head("step")], "entry 1: step: step: expected a whole number from 0, found None"),
        ([GENESIS, head("step", "0")], "found '0'"),
        ([GENESIS, head("step", True)], "found True"),
        ([GENESIS, head("step", -1)], "found -1"),
    ],
)
def test_entries_out_of_order_are_refused(heads: list[Head], message: str) -> None:
    with pytest.raises(LedgerError, match=message):
        check_sequence(heads)


def test_what_is_not_known_is_counted_and_passed() -> None:
    heads = [GENESIS, STEP_0, head("weather"), head("step", version=2), head("step", 2), head("end", 3)]
    assert check_sequence(heads) == Order(entries=6, steps=3, finished=True, unknown=2)
    assert check_sequence([head("weather")]) == Order(entries=1, steps=None, finished=False, unknown=1)
    assert check_sequence([]) == Order(entries=0, steps=None, finished=False, unknown=0)


def test_memory_does_not_grow() -> None:
    def heads() -> Iterator[Head]:
        yield GENESIS
        for step in range(50_000):
            yield head("step", step)

    tracemalloc.start()
    check_sequence(heads())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
