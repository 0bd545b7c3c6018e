"""Erasing: what a run recorded about a class, and what links a record to its tag, is gone; every proof still holds."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from explorer import rundir
from explorer.audit.conditions import Outcome
from explorer.audit.conform import conform
from explorer.audit.history import badge
from explorer.audit.trace import trace
from explorer.deletion import erase as erasing
from explorer.deletion.erase import erase, of_classes, of_records
from explorer.entries.kinds import Entry, Erasure, Profile, State
from explorer.errors import LedgerError, ProvenanceError, RunError
from explorer.ledger.storage import blob_path
from explorer.project import Project, read_project, runs_of
from explorer.provenance.commitments import new_salts, read_salts, write_salts
from explorer.runlog.run_keys import JOINT, own_keys
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.segments import open_commitments, read_numbers
from explorer.store.spool_reader import segment_sums
from tests.audit.governed_run import CLASSES, MIT, NEWS, OPEN, ROWS, TRAINER, sign_again, trust, write_governed_run
from tests.provenance.people import NOW, private


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_governed_run(tmp_path, exact=True)


def project_of(run: Path) -> Project:
    return Project.open(runs_of(run), key=private(TRAINER), name=TRAINER)


def erased(run: Path, *paths: str) -> int:
    ledger = RunLedger(run)
    with project_of(run) as project:
        return erase(ledger, of_classes(ledger, paths or (MIT,)), project=project)


def blobs_of(run: Path) -> dict[str, bool]:
    """The names of all blobs, with whether all of them are here."""
    ledger, found = RunLedger(run), dict[str, bool]()
    states = ledger.read((index for _, index in ledger.outline.states), State)
    for each in (*states, *ledger.read(ledger.outline.profiles, Profile)):
        for name, blob in each.entry.blobs.items():
            found[name] = found.get(name, True) and (ledger.ledger.path / blob_path(blob.sha256)).exists()
    return found


def test_numbers_of_a_class_are_gone_and_all_others_here(run: Path) -> None:
    assert all(blobs_of(run).values())
    erased(run)
    gone = {name for name, here in blobs_of(run).items() if not here}
    assert gone == {f"numbers/{MIT}", f"sketches/{MIT}", "joint"}
    keys = own_keys(run, RunLedger(run).genesis)
    assert keys.of(MIT, "step", 0) is None and keys.of(JOINT, "step", 0) is None
    assert keys.of(NEWS, "step", 0) is not None


def test_the_ledger_still_verifies_and_whether_the_run_conforms_cannot_be_told(run: Path) -> None:
    before = conform(RunLedger(run), trust=trust(), now=NOW)
    erased(run)
    assert badge(RunLedger(run), trust=trust(), now=NOW).verified
    after = conform(RunLedger(run), trust=trust(), now=NOW)
    assert before.conforms and after.outcome is Outcome.UNTOLD
    assert any(each.classes == (MIT,) for condition in after.conditions for each in condition.untold)


def test_a_trace_says_what_is_not_here_any_more(run: Path) -> None:
    erased(run)
    found = trace(RunLedger(run), class_=MIT, check=True)
    assert all(row.share is None for row in found.rows)
    assert all(row.admitted and row.steps and row.examples for row in found.rows)  # erased is not denied
    assert found.check.agrees and any(f"numbers/{MIT}" in each for each in found.check.unread)
    assert found.first_admitted == {MIT: 0}  # that it was admitted is on record for good


def test_the_numbers_that_are_left_reveal_no_erased_class(run: Path) -> None:
    """Shares add up to 1, so those of all the others are that of the class that is missing."""
    erased(run)
    rows = segment_sums(run)
    assert {row[3] for row in rows} == {NEWS, OPEN}
    assert all(value is None for row in rows for value in row[6:])
    with duckdb.connect() as database:
        files = str(run / rundir.ENTROPY / "*.parquet")
        found = database.execute("SELECT DISTINCT class FROM read_parquet(?) ORDER BY 1", [files]).fetchall()
    assert found == [(NEWS,), (OPEN,)]


def test_numbers_of_the_others_still_open_their_commitments(run: Path) -> None:
    erased(run, NEWS)
    ledger = RunLedger(run)
    keys = own_keys(run, ledger.genesis)
    opened = [
        (path, expected == found)
        for segment in ledger.segments()
        for _, path, expected, found in open_commitments(read_numbers(ledger, segment), keys)
    ]
    assert {path for path, _ in opened} == {OPEN, MIT} and all(same for _, same in opened)


def test_a_copy_of_the_blobs_opens_no_commitment_any_more(run: Path) -> None:
    """The control: with the secret the numbers that somebody kept are shown to be those of the class."""
    ledger = RunLedger(run)
    (first, *_) = ledger.segments()
    copy, keys = read_numbers(ledger, first), own_keys(run, ledger.genesis)
    assert MIT in {path for _, path, *_ in open_commitments(copy, keys)}
    erased(run)
    assert MIT not in {path for _, path, *_ in open_commitments(copy, own_keys(run, ledger.genesis))}


def test_to_do_it_again_changes_nothing(run: Path) -> None:
    erased(run)
    before = {path: path.read_bytes() for path in sorted(runs_of(run).rglob("*")) if path.is_file()}
    erased(run)
    assert {path: path.read_bytes() for path in sorted(runs_of(run).rglob("*")) if path.is_file()} == before


def test_it_is_ended_where_it_broke_off(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: Path) -> None:
        raise RunError(f"cannot remove {path}: no more")

    ledger = RunLedger(run)
    with monkeypatch.context() as patch:
        patch.setattr(erasing, "_remove", fails)
        with pytest.raises(RunError, match="cannot remove"):
            erased(run)
    (recorded,) = read_project(runs_of(run))  # it is on record before anything is destroyed
    assert isinstance(recorded.entry, Erasure) and recorded.entry.classes == (MIT,)
    assert own_keys(run, ledger.genesis).of(MIT, "step", 0) is None  # first what cannot be guessed again
    erased(run)
    assert not blobs_of(run)[f"numbers/{MIT}"]


def test_a_blob_that_stays_for_another_reason_stays(run: Path) -> None:
    def same(_: int, entry: Entry) -> Entry:
        if isinstance(entry, State) and f"numbers/{MIT}" in entry.blobs:
            return replace(entry, blobs={**entry.blobs, f"numbers/{OPEN}": entry.blobs[f"numbers/{MIT}"]})
        return entry

    sign_again(run, same)
    erased(run)
    assert blobs_of(run)[f"numbers/{OPEN}"]


def test_possible_copies_are_listed(run: Path) -> None:
    (run.parent.parent / "explorer.duckdb").touch()
    (run / rundir.NOTEBOOK).touch()
    (run / rundir.GRANTS).mkdir()
    (run / rundir.GRANTS / "one.json").touch()
    (run / rundir.KEPT).mkdir(parents=True)
    for suffix in (".json", ".safetensors"):
        (run / rundir.KEPT / f"step-00000004{suffix}").touch()
    said = of_classes(RunLedger(run), (MIT,)).elsewhere
    for word in (
        "store rebuild",
        "notebook.ipynb",
        "backups",
        "explorer delete run",
        "1 wrapped keys",
        "1 states",
        "metrics.jsonl",
    ):
        assert any(word in each for each in said), word


def test_an_unfinished_run_is_not_erased(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="unfinished: it cannot continue without its secrets"):
        of_classes(RunLedger(write_governed_run(tmp_path, finished=False)), (MIT,))


def test_a_run_in_use_is_not_erased(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with rundir.locked(run, what="a test"), pytest.raises(RunError, match="is in use by"):
        erased(run)
    assert all(blobs_of(run).values()) and not list(read_project(runs_of(run)))


def test_a_damaged_spool_is_refused(run: Path) -> None:
    (run / rundir.CONTRIBUTIONS / "segment-00000000.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunError, match="not a file of the spool"):
        erased(run)


def test_the_salt_of_one_record(run: Path, tmp_path: Path) -> None:
    salts = tmp_path / "salts"
    write_salts(salts, new_salts(ROWS))
    ledger, before = RunLedger(run), read_salts(salts)
    with project_of(run) as project:
        assert erase(ledger, of_records(ledger, (3,), salts=salts), project=project) == 0
        (recorded,) = project.entries()
    assert isinstance(recorded.entry, Erasure) and (recorded.entry.classes, recorded.entry.records) == ((), 1)
    after = read_salts(salts)
    assert [row for row in range(ROWS) if after.of(row) is None] == [3]
    assert all(after.of(row) == before.of(row) for row in range(ROWS) if row != 3)
    assert all(blobs_of(run).values())


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda run, salts: of_records(run, (ROWS,), salts=salts), "record 42: the tag table has 42 rows"),
        (lambda run, salts: of_records(run, (0,), salts=salts.with_name("few")), "3 salts for 42 tags"),
        (lambda run, salts: of_classes(run, ("open/mid",)), "did you mean 'open/mit'"),
    ],
)
def test_what_there_is_not(
    run: Path, tmp_path: Path, attempt: Callable[[RunLedger, Path], object], message: str
) -> None:
    write_salts(tmp_path / "salts", new_salts(ROWS))
    write_salts(tmp_path / "few", new_salts(3))
    with pytest.raises((LedgerError, ProvenanceError), match=message):
        attempt(RunLedger(run), tmp_path / "salts")


def test_all_classes_at_once(run: Path) -> None:
    erased(run, *CLASSES)
    assert not list((run / rundir.CONTRIBUTIONS).iterdir()) and not list((run / rundir.ENTROPY).iterdir())
    assert badge(RunLedger(run), trust=trust(), now=NOW).verified
