"""Runs away from the trainer's key: with what travels, and nothing else, a run is trained and its ledger believed."""

import stat
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from explorer import run_files, rundir
from explorer.entries.kinds import Genesis, decode
from explorer.errors import ProvenanceError
from explorer.ledger.storage import LedgerDirectory
from explorer.ledger.verify import verify
from explorer.provenance.commitments import Salts, read_salts, write_salts
from explorer.provenance.keys import PASSPHRASE, key_content, new_key, write_private
from explorer.provenance.policy import Quarantine, Rule
from explorer.provenance.trust import Quorum, Role, Trust, read_trust
from explorer.run_files import RunRecord
from explorer.runlog.anchor import anchor_of_ledger
from explorer.runlog.delegating import SEALED, delegate, open_sealed, receive, seal
from explorer.runlog.documents import Documents, keep, read_copies, read_documents
from explorer.training.demonstration import demonstrate
from explorer.training.ledgered import credentials_of, signer_of
from explorer.training.run import build_loop, execute
from explorer.training.run_plan import recipe_of
from tests.training.governed_for_tests import DIGITS, METHODS, TAXONOMY, planned, policy, recipe

DAY = 86_400
DENIED = "simulated/class-02"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A governance directory whose policy `apart` admits one class nowhere."""
    usual = policy("lower", Quarantine.REFUSE)
    rules = (Rule(classes=(DENIED,), weight=0.0), *usual.rules)
    return demonstrate(
        tmp_path_factory.mktemp("home"),
        DIGITS,
        data=None,
        taxonomy=TAXONOMY,
        policies=(usual, replace(usual, name="apart", rules=rules)),
        now=int(time.time()),
    )


def content(home: Path, name: str = "apart", **changes: object) -> dict[str, object]:
    return recipe(home, methods=[{"routing": {"policy": name}}, *METHODS[1:]], **changes)


def papers(home: Path, name: str = "apart") -> Documents:
    return read_documents(home, policy=name, now=int(time.time()))


def given(home: Path, record: RunRecord, *, until: int | None = None, now: int | None = None) -> dict[str, bytes]:
    now = int(time.time()) if now is None else now
    return delegate(papers(home), record, now + DAY if until is None else until, now=now)


def away(root: Path, record: RunRecord, files: dict[str, bytes]) -> Path:
    """The run's directory on another machine: every key but that of the run stayed at home."""
    run = root / record.run_id
    run.mkdir(parents=True)
    receive(files, run)
    run_files.write(run / rundir.RUN, record)
    return run


@pytest.mark.slow
def test_a_run_is_trained_with_its_own_key(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = planned(content(home)).record
    run = away(tmp_path, record, given(home, record))
    monkeypatch.delenv(PASSPHRASE, raising=False)  # of the trainer's key
    execute(run)
    ledger = LedgerDirectory(run / rundir.LEDGER)
    genesis = decode(next(ledger.entries(0, 1)))
    assert isinstance(genesis, Genesis) and genesis.delegation is not None
    trust = without_cosigners(home)
    found = verify(ledger.path, anchor=anchor_of_ledger(ledger, trust), now=int(time.time()))
    assert found.ok and found.judgement is not None
    assert "delegated for this run until" in found.judgement.signers[0]
    # With the salts of every class, at home, it ends with the same bits.
    own = tmp_path / "own" / record.run_id
    own.mkdir(parents=True)
    keep(papers(home), own)
    run_files.write(own / rundir.RUN, record)
    execute(own)
    ends = [run_files.read(run_files.ResultRecord, each / rundir.RESULT).state_digest for each in (run, own)]
    assert ends[0] == ends[1]


def without_cosigners(home: Path) -> Trust:
    trust = read_trust(home / "trust.json")
    return replace(trust, quorum=Quorum(documents=trust.quorum.documents, checkpoints={Role.TRAINER: 1}))


def test_only_the_runs_own_key_and_salts_travel(home: Path, tmp_path: Path) -> None:
    record = planned(content(home)).record
    files = given(home, record)
    run = away(tmp_path, record, files)
    assert [*sorted(path.name for path in (run / "private").iterdir())] == ["run.pem", "salts"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (run / "private").iterdir())
    assert stat.S_IMODE((run / "private").stat().st_mode) == 0o700
    for name in ("trainer.pem", "salts"):
        secret = (home / name).read_bytes()
        assert not any(secret in content for content in files.values())
    # Of the class that the policy admits nowhere, no salt is there; of the others, every one.
    documents = read_copies(run)
    here, there = read_salts(documents.salts), read_salts(home / "salts")
    session = credentials_of(recipe_of(record), documents, None)
    denied = session.tags.tags.classes == session.tags.codes[DENIED]
    assert denied.any() and not denied.all()
    assert np.array_equal(here.withheld, denied)
    assert all(here[slot] == there[slot] for slot in np.flatnonzero(~denied).tolist())
    assert session.quarantine == {}


def test_salts_open_for_their_own_run_only(home: Path, tmp_path: Path) -> None:
    record = planned(content(home)).record
    files, others = given(home, record), given(home, record)
    for name, changed in (
        ("of another delegation", {SEALED: others[SEALED]}),
        ("with another key", {"private/run.pem": key_content(new_key(), None)}),
        ("changed", {SEALED: bytes([files[SEALED][0] ^ 1]) + files[SEALED][1:]}),
    ):
        with pytest.raises(ProvenanceError, match="salts: cannot be opened"):
            away(tmp_path / name, record, {**files, **changed})
        assert not (tmp_path / name / record.run_id / "governance" / "source.json").exists()
    run = away(tmp_path, record, files)
    secret = seal(b"a secret", files["governance/delegation.json"], what="secrets")
    assert open_sealed(secret, run, what="secrets") == b"a secret"
    with pytest.raises(ProvenanceError, match="salts: cannot be opened"):
        open_sealed(secret, run, what="salts")


def test_a_class_that_trains_needs_its_salts(home: Path, tmp_path: Path) -> None:
    record = planned(content(home)).record
    run = away(tmp_path, record, given(home, record))
    salts = read_copies(run).salts
    gone = np.full((len(read_salts(salts)), 32), 255, np.uint8)
    salts.unlink()
    write_salts(salts, Salts(content=gone.tobytes()))
    with pytest.raises(ProvenanceError, match="its salt did not travel with the run, and the policy admits its class"):
        build_loop(record, data=None, documents=read_copies(run))


def test_what_was_not_delegated_is_not_begun(home: Path, tmp_path: Path) -> None:
    record, now = planned(content(home)).record, int(time.time())
    other = planned(content(home, seed=7)).record
    trust = read_trust(home / "trust.json")
    cases = {
        "expired": (given(home, record, until=now - 9, now=now - 10), "the delegation expired .*and now it is"),
        "other run": (given(home, other), f"for another run: of the ledger .*/{other.run_id}; this is"),
        "other plan": (
            given(home, replace(record, identity=dict(other.identity))),
            f"for another plan of {record.run_id}",
        ),
        "early": (given(home, record, now=now + 3_600, until=now + DAY), "not yet valid"),
    }
    for name, (files, why) in cases.items():
        run = away(tmp_path / name, record, files)
        with pytest.raises(ProvenanceError, match=why):
            signer_of(record, read_copies(run), trust, now=now)
    run = away(tmp_path, record, given(home, record))
    (run / "private/run.pem").unlink()
    with pytest.raises(ProvenanceError, match=r"cannot open .*run\.pem"):
        signer_of(record, read_copies(run), trust, now=now)
    write_private(run / "private/run.pem", key_content(new_key(), None))
    with pytest.raises(ProvenanceError, match=r"run\.pem: not the key that .*delegation\.json is about"):
        signer_of(record, read_copies(run), trust, now=now)


def test_what_arrives_replaces_nothing(home: Path, tmp_path: Path) -> None:
    record = planned(content(home)).record
    files = given(home, record)
    run = away(tmp_path, record, files)
    receive(files, run)  # again: a worker that was interrupted
    with pytest.raises(ProvenanceError, match=r"run\.pem: there is another one already"):
        receive(given(home, record), run)
    with pytest.raises(ProvenanceError, match=r"unknown file '\.\./trainer\.pem'"):
        receive({**files, "../trainer.pem": b""}, run)
    with pytest.raises(ProvenanceError, match=r"private/salts\.sealed: missing"):
        receive({name: content for name, content in files.items() if name != SEALED}, tmp_path / "new")


def test_no_delegation_without_the_trainers_own_key(home: Path, tmp_path: Path) -> None:
    """A key that was delegated delegates nothing further."""
    record = planned(content(home)).record
    run = away(tmp_path, record, given(home, record))
    (run / "private/run.pem").rename(run / "private/trainer.pem")
    now = int(time.time())
    with pytest.raises(ProvenanceError, match="is not in the trust file"):
        delegate(read_copies(run), record, now + DAY, now=now)
    with pytest.raises(ProvenanceError, match=r"expires: .* is not after issued"):
        given(home, record, until=now - DAY)
    with pytest.raises(ProvenanceError, match="more than 366 days after"):
        given(home, record, until=now + 400 * DAY)
