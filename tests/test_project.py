"""The project's ledger: one for all runs, of one key, durable, in turns."""

import multiprocessing
from pathlib import Path

import pytest

from explorer import project
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Access, GrantUse, Unknown
from explorer.errors import LedgerError
from explorer.ledger.log import Log
from explorer.ledger.storage import LedgerDirectory
from explorer.ledger.trust_anchor import NONE, Anchor, TrustedKey
from explorer.ledger.verify import verify
from explorer.note import Algorithm, Signer, Verifier
from explorer.project import AUDIT, Project, read_project, runs_of
from explorer.provenance.keys import public_bytes
from tests.entries.examples import EXAMPLES
from tests.provenance.people import NOW, private

NAME = "example.com/trainer"
KEY = private(NAME)
STATE = LedgerState(origin="example.com/runs/1", size=42, root="a" * 64)


def access(number: int) -> Access:
    return Access(ledger=STATE, grant="b" * 64, query=f"{number:064x}", blobs={})


def opened(runs: Path) -> Project:
    return Project.open(runs, key=KEY, name=NAME)


def test_it_is_begun_with_its_first_entry_and_goes_on(tmp_path: Path) -> None:
    assert list(read_project(tmp_path)) == []
    assert not (tmp_path / AUDIT).exists()
    with opened(tmp_path) as ledger:
        assert ledger.append(access(0)) == 0
    with opened(tmp_path) as ledger:
        assert ledger.append(access(1)) == 1
        assert [each.index for each in ledger.entries()] == [0, 1]
    assert [each.entry for each in read_project(tmp_path)] == [access(0), access(1)]


def test_an_entry_is_on_record_before_append_returns(tmp_path: Path) -> None:
    """Whoever reads the directory meanwhile sees it, and an exception afterwards takes nothing back."""
    with pytest.raises(KeyboardInterrupt), opened(tmp_path) as ledger:
        ledger.append(access(0))
        assert LedgerDirectory(tmp_path / AUDIT).checkpoint().size == 1
        raise KeyboardInterrupt
    assert len(list(read_project(tmp_path))) == 1


def test_the_key_that_signs_the_runs_anchors_it(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.append(access(0))
    signer = Verifier(name=f"{NAME}/{AUDIT}", algorithm=Algorithm.ED25519, public_key=public_bytes(KEY))
    found = verify(tmp_path / AUDIT, anchor=Anchor().with_log(TrustedKey(verifier=signer)).with_quorum(NONE), now=NOW)
    assert found.ok, found.findings


@pytest.mark.parametrize(("seed", "name"), [("somebody else", NAME), (NAME, "example.com/other")])
def test_the_ledger_of_another_key_or_name_is_refused(tmp_path: Path, seed: str, name: str) -> None:
    with opened(tmp_path) as ledger:
        ledger.append(access(0))
    with pytest.raises(LedgerError, match="checkpoint"):
        Project.open(tmp_path, key=private(seed), name=name)
    assert len(list(read_project(tmp_path))) == 1


def test_an_entry_that_was_changed_or_taken_out_is_noticed(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        for number in range(300):
            ledger._log.append([project.encode(access(number))])  # together: 300 commits take long
        ledger._log.commit()
    bundle = tmp_path / AUDIT / "tile/entries/000"
    bundle.write_bytes(bundle.read_bytes().replace(b"%064x" % 7, b"%064x" % 8))
    with pytest.raises(LedgerError, match="its 300 entries were changed"):
        list(read_project(tmp_path))
    with opened(tmp_path) as ledger, pytest.raises(LedgerError, match="its 300 entries were changed"):
        ledger.entries()


def test_what_belongs_to_a_run_is_refused_and_what_is_unknown_is_kept(tmp_path: Path) -> None:
    signer = Signer(name=f"{NAME}/{AUDIT}", algorithm=Algorithm.ED25519, private_key=KEY)
    unknown = b'{"blobs":{},"kind":"weather","version":1}'
    with Log.create(tmp_path / AUDIT, origin=signer.name, signer=signer) as log:
        log.append([unknown])
    (found,) = read_project(tmp_path)
    assert isinstance(found.entry, Unknown) and found.entry.leaf == unknown
    with Log.open(tmp_path / AUDIT, signer=signer) as log:
        log.append([project.encode(EXAMPLES[3])])
    with pytest.raises(LedgerError, match="entry 1: found state, an entry of a run's ledger"):
        list(read_project(tmp_path))


def _append(runs: Path, number: int) -> None:
    for each in range(4):
        with opened(runs) as ledger:
            ledger.append(access(4 * number + each))


def test_processes_take_turns(tmp_path: Path) -> None:
    """All of them find no ledger and begin it at once."""
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_append, args=(tmp_path, number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(600)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    found = {each.entry.query for each in read_project(tmp_path) if isinstance(each.entry, Access)}
    assert found == {access(number).query for number in range(12)}


def test_whoever_waits_too_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "PATIENCE", 0.05)
    with opened(tmp_path) as ledger:
        with pytest.raises(LedgerError, match=r"the ledger 'example.com/trainer/_audit' is in use by process"):
            opened(tmp_path)
        assert ledger.append(access(0)) == 0


def test_a_disk_that_refuses_is_an_error_and_nothing_is_recorded(tmp_path: Path) -> None:
    (tmp_path / AUDIT).write_text("no directory")
    with pytest.raises(LedgerError):
        opened(tmp_path)


def test_a_blob_for_an_entry_to_name(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        blob = ledger.write_blob(b"a statement")
        ledger.append(
            GrantUse(action="revoked", owner="o", id="1", grant="c" * 64, ledger=None, blobs={"statement": blob})
        )
    assert LedgerDirectory(tmp_path / AUDIT).blob(blob.sha256) == b"a statement"


def test_where_the_project_of_a_run_is(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "sweep" / "some-run"
    run.mkdir(parents=True)
    assert runs_of(run) == (tmp_path / "runs").resolve()
