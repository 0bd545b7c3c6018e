"""A run's signed documents: their author's files, the run's copies, the private files, and what the genesis binds."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from explorer import rundir
from explorer.entries.kinds import Entry, Genesis
from explorer.errors import ExplorerError, LedgerError, ProvenanceError, RunError
from explorer.governance.credentials import check
from explorer.provenance.envelope import parse_envelope
from explorer.provenance.keys import PASSPHRASE, public_bytes, write_key
from explorer.provenance.trust import Role
from explorer.runlog.documents import (
    SOURCE_FILE,
    Source,
    keep,
    quarantine_of,
    read_copies,
    read_documents,
    read_policy,
    read_tag_rows,
    source_of,
    trainer_key,
)
from explorer.runlog.run_ledger import RunLedger
from tests.audit.governed_run import CLASSES, ROW_CLASSES, USUAL, policy, sign_again, with_blob, write_governed_run
from tests.governance import desk
from tests.provenance import people
from tests.provenance.people import GOVERNANCE, NOW, private, public


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    return desk.make(tmp_path / "desk")


def test_a_run_keeps_copies_that_say_the_same(documents: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    keep(desk.read(documents), run)
    assert sorted(path.name for path in (run / "governance").iterdir()) == [
        "policy.json",
        "source.json",
        "tags.json",
        "tags.parquet",
        "taxonomy.json",
        "trust.json",
    ]
    copies = read_copies(run)
    assert copies == replace(desk.read(documents), where=run / "governance", table=run / "governance" / "tags.parquet")
    assert check(copies, desk.SPLIT).identity == check(desk.read(documents), desk.SPLIT).identity


def test_private_documents_stay_where_they_are(documents: Path, tmp_path: Path) -> None:
    keep(desk.read(documents), tmp_path / "run")
    secret = (documents / "salts").read_bytes()[32:64]
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or (secret not in path.read_bytes() and b"PRIVATE KEY" not in path.read_bytes())


def test_a_run_without_a_policy_keeps_none(documents: Path, tmp_path: Path) -> None:
    keep(desk.read(documents, None), tmp_path / "run")
    assert not (tmp_path / "run" / "governance" / "policy.json").exists()
    assert read_copies(tmp_path / "run").policy is None


def test_what_a_run_was_begun_with_stays(documents: Path, tmp_path: Path) -> None:
    """Kept again later, from a place where the documents have changed: judged as before, by the documents of then."""
    run = tmp_path / "run"
    keep(desk.read(documents), run)
    moved = documents.rename(tmp_path / "moved")
    (moved / "trust.json").write_text("{}")
    keep(desk.read(moved, now=NOW + 100), run)
    copies = read_copies(run)
    assert (copies.judged, copies.private) == (NOW, moved.resolve())
    assert copies.trust != b"{}"
    assert check(copies, desk.SPLIT).classes


def test_a_copy_that_was_cut_short_is_made_again(documents: Path, tmp_path: Path) -> None:
    """`source.json` comes last: without it nothing was kept."""
    run = tmp_path / "run"
    keep(desk.read(documents), run)
    (run / "governance" / "source.json").unlink()
    (run / "governance" / "tags.parquet").write_bytes(b"half")
    keep(desk.read(documents), run)
    assert check(read_copies(run), desk.SPLIT).classes


@pytest.mark.parametrize("name", ["../usual", "/etc/passwd", "usual/../usual", "", "Usual", "a" * 65])
def test_the_name_of_a_policy_is_no_path(documents: Path, name: str) -> None:
    with pytest.raises(ProvenanceError, match=r"policies: unknown policy .* known: lenient, usual"):
        read_documents(documents, policy=name, now=NOW)


def test_an_unknown_policy_is_refused_with_the_nearest_name(documents: Path) -> None:
    with pytest.raises(ProvenanceError, match=r"unknown policy 'usuall'; did you mean 'usual'\?"):
        read_documents(documents, policy="usuall", now=NOW)


def test_what_is_not_there(documents: Path, tmp_path: Path) -> None:
    with pytest.raises(ProvenanceError, match=r"governance: .*nowhere: no such directory; it holds trust.json"):
        read_documents(tmp_path / "nowhere", policy=None, now=NOW)
    (documents / "taxonomy.json").unlink()
    with pytest.raises(ProvenanceError, match=r"cannot read .*taxonomy.json"):
        desk.read(documents)


@pytest.mark.parametrize("content", ["[]", "{}", '{"private": 1, "judged": 2}', '{"private": "x", "judged": 1.5}'])
def test_a_damaged_source(documents: Path, tmp_path: Path, content: str) -> None:
    keep(desk.read(documents), tmp_path / "run")
    (tmp_path / "run" / "governance" / "source.json").write_text(content)
    with pytest.raises(RunError, match=r"source.json"):
        read_copies(tmp_path / "run")
    with pytest.raises(RunError, match=r"source.json"):
        keep(desk.read(documents), tmp_path / "run")


def test_the_source_says_where_and_when(documents: Path, tmp_path: Path) -> None:
    keep(desk.read(documents), tmp_path / "run")
    found = json.loads((tmp_path / "run" / "governance" / "source.json").read_text())
    assert found == {"private": str(documents.resolve()), "judged": NOW}


# --- private files ---

TRAINER = "example.com/trainer"
TRUST = people.trust(people.authority(TRAINER, Role.TRAINER), people.risk())


def run_with(directory: Path, seed: str, passphrase: str | None = None) -> Path:
    run = directory / "run"
    rundir.write_json(run / rundir.GOVERNANCE / SOURCE_FILE, {"private": str(directory), "judged": 7})
    write_key(directory / "trainer.pem", private(seed), passphrase)
    return run


def test_the_trainer_and_its_key(tmp_path: Path) -> None:
    run = run_with(tmp_path, TRAINER)
    assert source_of(run) == Source(private=str(tmp_path), judged=7)
    name, key = trainer_key(run, trust=TRUST, now=NOW)
    assert (name, public_bytes(key)) == (TRAINER, public_bytes(private(TRAINER)))


def test_its_passphrase_is_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_with(tmp_path, TRAINER, "correct horse")
    with pytest.raises(ProvenanceError, match="its passphrase is needed"):
        trainer_key(run, trust=TRUST, now=NOW)
    monkeypatch.setenv(PASSPHRASE, "correct horse")
    assert trainer_key(run, trust=TRUST, now=NOW)[0] == TRAINER


@pytest.mark.parametrize(("seed", "message"), [(people.RISK, "wrong role"), ("nobody", "is not in the trust file")])
def test_another_key_in_its_place_signs_nothing(tmp_path: Path, seed: str, message: str) -> None:
    with pytest.raises(ProvenanceError, match=message):
        trainer_key(run_with(tmp_path, seed), trust=TRUST, now=NOW)


def test_a_key_that_has_expired_signs_nothing(tmp_path: Path) -> None:
    short = people.trust(people.authority(TRAINER, Role.TRAINER, public(TRAINER, not_after=people.ISSUED)))
    with pytest.raises(ProvenanceError, match="key expired"):
        trainer_key(run_with(tmp_path, TRAINER), trust=short, now=NOW)


@pytest.mark.parametrize("content", ["", "[]", '{"private": 1, "judged": 7}', '{"private": "/", "judged": 7, "x": 1}'])
def test_a_damaged_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "run" / rundir.GOVERNANCE / SOURCE_FILE
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(RunError, match=r"source\.json"):
        source_of(tmp_path / "run")


def test_a_run_that_is_not_governed(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot read"):
        source_of(tmp_path)


# --- bound by the genesis ---


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
    """What binds the copies is the genesis: who signed them `explorer.runlog.documents` asks."""
    path = place(run) / "policy.json"
    found = parse_envelope(path.read_bytes(), where="policy")
    path.write_bytes(replace(found, signatures=tuple(replace(one, sig=bytes(64)) for one in found.signatures)).content)
    assert read_policy(RunLedger(run)) == USUAL
