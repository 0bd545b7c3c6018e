"""A journal seals what is confidential: the same numbers and commitments, other blobs, and no key twice."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from explorer import rundir
from explorer.entries.kinds import Decision, Entry, Profile, State, Step, Unknown, decode
from explorer.ledger.storage import LedgerDirectory
from explorer.provenance import encryption
from explorer.runlog.run_keys import JOINT
from explorer.runlog.run_ledger import RunLedger, class_of
from explorer.runlog.segments import read_numbers
from tests.governance import journals
from tests.governance.journals import CLASSES, finish, open_journal, record, recorded, state
from tests.governance.recorded import with_secrets_of

STEPS = 8
BSD, MIT = CLASSES
SEALED = frozenset({BSD})


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which nothing is confidential."""
    return recorded(tmp_path_factory.mktemp("plain") / "run", STEPS)


@pytest.fixture(scope="module")
def run(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run with the same secrets, in which one class is."""
    made = with_secrets_of(plain, tmp_path_factory.mktemp("sealed") / "run")
    with open_journal(made, confidential=SEALED) as journal:
        journal.begin(0, state(0))
        record(journal, 0, STEPS)
        finish(journal, STEPS)
    return made


def entries(run: Path) -> list[Entry | Unknown]:
    return [decode(leaf) for leaf in LedgerDirectory(run / rundir.LEDGER).entries()]


def contents(run: Path, *, opened: bool) -> Iterator[tuple[int, str, bytes | None]]:
    """Every blob of numbers, as it lies there or as its owner reads it."""
    ledger = RunLedger(run)
    outline = ledger.outline
    found = [*ledger.read(outline.profiles, Profile), *ledger.read(outline.decisions, Decision)]
    for placed in (*found, *ledger.read([index for _, index in outline.states], State)):
        for name, blob in placed.entry.blobs.items():
            content = ledger.blob(placed, name, max_bytes=2**20) if opened else ledger.ledger.blob(blob.sha256)
            yield placed.index, name, content


def test_what_is_confidential_is_sealed_and_opens_to_the_same_numbers(plain: Path, run: Path) -> None:
    raw = list(contents(run, opened=False))
    sealed = {name for _, name, content in raw if content and encryption.is_sealed(content)}
    assert sealed == {f"numbers/{BSD}", f"sketches/{BSD}", f"evidence/{BSD}", "joint"}
    assert all(encryption.is_sealed(content or b"") == (class_of(name) in (BSD, JOINT)) for _, name, content in raw)
    assert list(contents(run, opened=True)) == list(contents(plain, opened=False))


def test_the_leaves_commit_to_the_same_numbers(plain: Path, run: Path) -> None:
    def committed(run: Path) -> list[object]:
        return [
            (entry.numbers, entry.joint) if isinstance(entry, Step) else (entry.classes, entry.joint)
            for entry in entries(run)
            if isinstance(entry, Step | Profile)
        ]

    assert committed(run) == committed(plain) and len(committed(run)) == STEPS + 2


def test_executed_again_alike_nothing_is_written(run: Path, tmp_path: Path) -> None:
    made = with_secrets_of(run, tmp_path / "run")
    with open_journal(made, confidential=SEALED) as journal:
        journal.begin(0, state(0))
        record(journal, 0, 7)
    with open_journal(made, confidential=SEALED) as journal:
        journal.begin(3, state(3))
        record(journal, 3, STEPS)
        finish(journal, STEPS)
    assert entries(made) == entries(run)


def keys_of_two_executions(run: Path, monkeypatch: pytest.MonkeyPatch) -> dict[bytes, set[bytes]]:
    """A run that was killed after a segment was on record and came out otherwise when it was executed again: each key
    that was used, and what it encrypted."""
    seen = defaultdict[bytes, set[bytes]](set)

    class Cipher:
        def __init__(self, key: bytes) -> None:
            self.key = key

        def encrypt(self, nonce: bytes, plaintext: bytes, aad: bytes) -> bytes:
            assert nonce == bytes(12)
            seen[self.key].add(plaintext)
            return AESGCM(self.key).encrypt(nonce, plaintext, aad)

    usual = journals.numbers
    with monkeypatch.context() as watched:
        watched.setattr(encryption, "AESGCM", Cipher)
        with open_journal(run, confidential=SEALED) as journal:
            journal.begin(0, state(0))
            record(journal, 0, 7)
        watched.setattr(journals, "numbers", lambda step: usual(step + 100))
        with open_journal(run, confidential=SEALED) as journal:
            journal.begin(3, state(3))
            record(journal, 3, STEPS)
            finish(journal, STEPS)
    again = [entry for entry in entries(run) if isinstance(entry, Decision) and entry.action == "re-execution"]
    assert [entry.step for entry in again] == [3]
    return seen


def test_executed_again_otherwise_no_key_is_used_for_two_plaintexts(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = keys_of_two_executions(with_secrets_of(run, tmp_path / "run"), monkeypatch)
    assert len(seen) > 12 and {len(plaintexts) for plaintexts in seen.values()} == {1}
    ledger = RunLedger(tmp_path / "run")
    assert all(not read_numbers(ledger, segment).missing for segment in ledger.segments())


def test_with_an_iv_that_ignores_the_plaintext_one_is(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: one key, one nonce, two plaintexts, whose difference anybody has who has both."""
    monkeypatch.setattr(encryption, "_iv", lambda key, name, plaintext: name.encode().ljust(32, b"."))
    seen = keys_of_two_executions(with_secrets_of(run, tmp_path / "run"), monkeypatch)
    assert max(len(plaintexts) for plaintexts in seen.values()) == 2


def rows_of(run: Path, directory: str) -> list[dict]:
    return [row for path in sorted((run / directory).glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def test_the_spool_has_what_one_open_class_made_and_nothing_else(plain: Path, run: Path) -> None:
    found, usual = rows_of(run, rundir.CONTRIBUTIONS), rows_of(plain, rundir.CONTRIBUTIONS)
    own = ("step", "layer", "class", "examples", "weight", "norm")
    assert [{name: row[name] for name in own} for row in usual if row["class"] == MIT] == [
        {name: row[name] for name in own} for row in found
    ]
    assert {value for row in found for name, value in row.items() if name not in own} == {None}
    assert {row["class"] for row in rows_of(run, rundir.ENTROPY)} == {MIT}
    assert {row["class"] for row in rows_of(plain, rundir.ENTROPY)} == {BSD, MIT, JOINT}


def test_where_all_is_confidential_there_is_no_spool(tmp_path: Path) -> None:
    with open_journal(tmp_path / "run", confidential=frozenset(CLASSES)) as journal:
        journal.begin(0, state(0))
        record(journal, 0, 4)
    assert not (tmp_path / "run" / rundir.CONTRIBUTIONS).exists() and not (tmp_path / "run" / rundir.ENTROPY).exists()
