"""A run's own copies of its documents are those that its genesis names, or they are refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from explorer import rundir
from explorer.entries.kinds import Entry
from explorer.entries.run import Genesis
from explorer.errors import ExplorerError, LedgerError, ProvenanceError
from explorer.provenance.envelope import parse_envelope
from explorer.runlog.papers import quarantine_of, read_policy, read_tag_rows
from explorer.runlog.run_ledger import RunLedger
from tests.audit.governed_run import CLASSES, ROW_CLASSES, USUAL, policy, sign_again, with_blob, write_governed_run
from tests.provenance.people import GOVERNANCE


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_governed_run(tmp_path / "run")


def place(run: Path) -> Path:
    return run / rundir.GOVERNANCE


def test_they_are_read_without_a_trust_file(run: Path) -> None:
    (place(run) / "trust.json").unlink()
    ledger = RunLedger(run)
    assert read_policy(ledger) == USUAL
    rows = read_tag_rows(ledger)
    named = [*CLASSES, "quarantine"]
    assert [named[at] for at in rows.classes.tolist()] == list(ROW_CLASSES)
    assert rows.vouched_by(GOVERNANCE).tolist() == list(range(len(ROW_CLASSES)))
    assert rows.vouched_by("nobody.example").tolist() == []


def test_what_the_run_set_aside_is_of_no_class(run: Path) -> None:
    def aside(_: int, entry: Entry) -> Entry:
        content = json.dumps({"erased": [0, 3], "no-tag": [42, 43]}, separators=(",", ":")).encode()
        return with_blob(run, entry, "quarantine", content) if isinstance(entry, Genesis) else entry

    sign_again(run, aside)
    ledger = RunLedger(run)
    assert quarantine_of(ledger) == {0, 3, 42, 43}
    assert np.flatnonzero(read_tag_rows(ledger).classes == len(CLASSES)).tolist() == [0, 3, 19, 39]


def test_a_run_that_routes_nothing_has_no_policy(run: Path) -> None:
    sign_again(run, lambda _, e: replace(e, policy=None) if isinstance(e, Genesis) else e)
    assert read_policy(RunLedger(run)) is None


def another_policy(run: Path) -> None:
    other = write_governed_run(run.parent.parent.parent / "other", policy=replace(policy(), name="other"))
    (place(run) / "policy.json").write_bytes((place(other) / "policy.json").read_bytes())


def another_table(run: Path) -> None:
    path = place(run) / "tags.parquet"
    pq.write_table(pq.read_table(path).slice(1), path)


def no_envelope(run: Path) -> None:
    (place(run) / "policy.json").write_bytes(b"[" * 100_000)


def other_taxonomy(run: Path) -> None:
    (place(run) / "taxonomy.json").write_bytes((place(run) / "policy.json").read_bytes())


@pytest.mark.parametrize(
    ("damage", "read", "error", "message"),
    [
        (another_policy, read_policy, LedgerError, r"policy\.json has digest \w+; the genesis names"),
        (no_envelope, read_policy, ProvenanceError, "not JSON"),
        (lambda run: (place(run) / "policy.json").unlink(), read_policy, ProvenanceError, "cannot read"),
        (another_table, read_tag_rows, ExplorerError, r"the genesis names 1 tag tables|tags\.parquet"),
        (other_taxonomy, read_tag_rows, LedgerError, r"taxonomy\.json has digest"),
    ],
    ids=["another policy", "no envelope", "no policy", "another table", "another taxonomy"],
)
def test_another_document_is_refused(
    run: Path,
    damage: Callable[[Path], object],
    read: Callable[[RunLedger], object],
    error: type[Exception],
    message: str,
) -> None:
    read(RunLedger(run))
    damage(run)
    with pytest.raises(error, match=message):
        read(RunLedger(run))


def test_signatures_are_not_asked_for_here(run: Path) -> None:
    """What binds the copies is the genesis: who signed them `explorer.audit.vouched` asks."""
    path = place(run) / "policy.json"
    found = parse_envelope(path.read_bytes(), where="policy")
    path.write_bytes(replace(found, signatures=tuple(replace(one, sig=bytes(64)) for one in found.signatures)).content)
    assert read_policy(RunLedger(run)) == USUAL
