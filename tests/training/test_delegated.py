"""Runs away from the trainer's key: with what travels, and nothing else, a run is trained and its ledger believed."""

import shutil
import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest

from explorer import rundir
from explorer.entries.kinds import Genesis, decode
from explorer.errors import ProvenanceError
from explorer.ledger.storage import LedgerDirectory
from explorer.ledger.verify import verify
from explorer.provenance.keys import PASSPHRASE
from explorer.provenance.trust import Quorum, Role, Trust, read_trust
from explorer.run_files import RunRecord
from explorer.runlog.anchor import anchor_of_ledger
from explorer.runlog.delegating import delegate, receive
from explorer.runlog.documents import read_documents
from explorer.training.ledgered import signer_of
from explorer.training.run import execute
from tests.training.governed_for_tests import begun, documents, planned, recipe

DAY = 86_400


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return documents(tmp_path_factory.mktemp("home"))


def away(home: Path, root: Path, files: dict[str, bytes]) -> Path:
    """The documents of a run on another machine: every key but that of the run stayed at home."""
    shutil.copytree(home, root, ignore=shutil.ignore_patterns("*.pem"))
    receive(files, root)
    return root


def given(home: Path, record: RunRecord, *, until: int | None = None, now: int | None = None) -> dict[str, bytes]:
    now = int(time.time()) if now is None else now
    papers = read_documents(home, policy="lower", now=now)
    return delegate(papers, record, now + DAY if until is None else until, now=now)


def without_cosigners(home: Path) -> Trust:
    """The trust file without cosigners."""
    trust = read_trust(home / "trust.json")
    return replace(trust, quorum=Quorum(documents=trust.quorum.documents, checkpoints={Role.TRAINER: 1}))


@pytest.mark.slow
def test_a_run_is_trained_with_its_own_key(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = planned(recipe(home)).record
    there = away(home, tmp_path / "there", given(home, record))
    assert stat.S_IMODE((there / "run.pem").stat().st_mode) == 0o600
    monkeypatch.delenv(PASSPHRASE, raising=False)  # of the trainer's key
    plan = planned(recipe(there))
    assert plan.record.run_id == record.run_id  # a key and a place are no part of what a run is
    run = begun(plan, tmp_path / "runs")
    execute(run)
    ledger = LedgerDirectory(run / rundir.LEDGER)
    genesis = decode(next(ledger.entries(0, 1)))
    assert isinstance(genesis, Genesis) and genesis.delegation is not None
    trust = without_cosigners(home)
    found = verify(ledger.path, anchor=anchor_of_ledger(ledger, trust), now=int(time.time()))
    assert found.ok and found.judgement is not None
    assert "delegated for this run until" in found.judgement.signers[0]


def test_what_was_not_delegated_is_not_begun(home: Path, tmp_path: Path) -> None:
    record, now = planned(recipe(home)).record, int(time.time())
    other = planned(recipe(home, seed=7)).record
    trust = read_trust(home / "trust.json")
    cases = {
        "expired": (given(home, record, until=now - 9, now=now - 10), record, "the delegation expired .*and now it is"),
        "other run": (given(home, other), record, f"for another run: of the ledger .*/{other.run_id}; this is"),
        "other plan": (
            given(home, replace(record, identity=dict(other.identity))),
            record,
            f"for another plan of {record.run_id}",
        ),
        "early": (given(home, record, now=now + 3_600, until=now + DAY), record, "not yet valid"),
    }
    for name, (files, asked, why) in cases.items():
        there = away(home, tmp_path / name, files)
        papers = read_documents(there, policy="lower", now=now)
        with pytest.raises(ProvenanceError, match=why):
            signer_of(asked, papers, trust, now=now)
    # The statement of one run with the key of another, and with none.
    there = away(home, tmp_path / "exchanged", {**given(home, record), "run.pem": given(home, record)["run.pem"]})
    papers = read_documents(there, policy="lower", now=now)
    with pytest.raises(ProvenanceError, match=r"run\.pem: not the key that .*delegation\.json is about"):
        signer_of(record, papers, trust, now=now)
    (there / "run.pem").unlink()
    with pytest.raises(ProvenanceError, match=r"cannot open .*run\.pem"):
        signer_of(record, papers, trust, now=now)


def test_what_arrives_replaces_nothing(home: Path, tmp_path: Path) -> None:
    record = planned(recipe(home)).record
    files = given(home, record)
    there = away(home, tmp_path / "there", files)
    receive(files, there)  # again: a worker that was interrupted
    with pytest.raises(ProvenanceError, match=r"run\.pem: there is another one already"):
        receive({"run.pem": given(home, record)["run.pem"]}, there)
    with pytest.raises(ProvenanceError, match=r"unknown file '\.\./trainer\.pem'"):
        receive({"../trainer.pem": b""}, there)


def test_no_delegation_without_the_trainers_own_key(home: Path, tmp_path: Path) -> None:
    """A key that was delegated delegates nothing further."""
    record = planned(recipe(home)).record
    there = away(home, tmp_path / "there", given(home, record))
    (there / "run.pem").rename(there / "trainer.pem")
    with pytest.raises(ProvenanceError, match="is not in the trust file"):
        given(there, record)
    with pytest.raises(ProvenanceError, match=r"expires: .* is not after issued"):
        given(home, record, until=int(time.time()) - DAY)
    with pytest.raises(ProvenanceError, match="more than 366 days after"):
        given(home, record, until=int(time.time()) + 400 * DAY)
