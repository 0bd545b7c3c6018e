"""The tables of weights in force, from a ledger; damaged tables are refused."""

from pathlib import Path

import numpy as np
import pytest

from explorer.entries.kinds import Step
from explorer.errors import LedgerError
from explorer.provenance.regions import depths_of
from explorer.provenance.routing_weights import admit
from explorer.runlog.admission_tables import first_admitted, tables_in_force
from explorer.runlog.run_ledger import RunLedger
from tests.audit.governed_run import CLASSES, LAYERS, MIT, NEWS, routing, sign_again, with_blob, write_governed_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_governed_run(tmp_path)


def test_tables_are_those_of_the_policy(run: Path) -> None:
    found = tables_in_force(RunLedger(run))
    assert [(each.first, each.stop, each.phase) for each in found] == [
        (0, 5, "progress [0, 0.3334)"),
        (5, 12, "progress [0.3334, 1]"),
    ]
    for each in found:
        wanted = admit(routing(), classes=CLASSES, layers=depths_of(LAYERS), progress=each.first / 12)
        np.testing.assert_array_equal(each.weights, wanted.weights)
    assert first_admitted(RunLedger(run)) == {NEWS: 5, "open": 0, MIT: 0}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{}", "not a table of weights"),
        (b'{"format":1,"classes":[],"layers":[],"weights":1}', "not a table of weights"),
        (b'{"format":1,"classes":[],"layers":[],"weights":[["1.5"]]}', "not a number of an entry"),
        (b'{"format":"explorer/admission/v1","classes":[],"layers":[],"weights":[]}', "other classes or layers"),
        (b"[" * 100_000, "not a table of weights"),
        (b"", "not a table of weights"),
    ],
)
def test_blobs_that_are_no_table(run: Path, content: bytes, message: str) -> None:
    def lie(index: int, entry: object) -> object:
        return with_blob(run, entry, "weights", content) if isinstance(entry, Step) and entry.step == 5 else entry

    sign_again(run, lie)  # pyright: ignore[reportArgumentType]
    with pytest.raises(LedgerError, match=message):
        tables_in_force(RunLedger(run))


def test_a_table_that_is_gone(run: Path) -> None:
    ledger = RunLedger(run)
    (placed,) = ledger.read([ledger.outline.tables[0][1]], Step)
    digest = placed.entry.blobs["weights"].sha256
    (ledger.ledger.path / "blobs" / "sha256" / digest[:2] / digest).unlink()
    with pytest.raises(LedgerError, match="entry 1: the table of weights in force is missing"):
        first_admitted(ledger)
