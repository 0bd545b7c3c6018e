"""Cosigning: verified first, remembered before it is handed out, and never two histories under one key."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from explorer.errors import LedgerError, RunError
from explorer.ledger import cosign as cosigning
from explorer.ledger import storage
from explorer.ledger.cosign import Cosigning, Memory, begin_memory, cosign
from explorer.ledger.log import Log
from explorer.ledger.trust_anchor import anchor_of
from explorer.note import Algorithm, Note, Signer, parse, sign, verify
from tests.ledger.ledgers import DG, LOG, MR, NOW, both, check, grow, make, messages, note_of, policy
from tests.ledger.signers import ORIGIN, entry, signer


def attempt(directory: Path, state: Path, *, key: Signer = DG, now: int = NOW) -> Cosigning:
    return cosign(directory, signer=key, state=state, anchor=both(), now=now)


def remembered(state: Path) -> dict[str, Note]:
    return {path.name: parse(path.read_bytes()) for path in state.glob("dg.example+*/*.note")}


def test_a_cosignature_is_put_beside_the_ledger(tmp_path: Path) -> None:
    directory = make(tmp_path / "ledger", 5)
    done = attempt(directory, tmp_path / "state")
    assert done.path is not None
    assert done.path == directory / f"witness/dg.example+{DG.verifier.key_id.hex()}.note"
    assert done.time == NOW
    made = parse(done.path.read_bytes())
    assert made.text == note_of(directory).text
    assert [(each.verifier, each.time) for each in verify(made, [LOG.verifier, DG.verifier])] == [
        (LOG.verifier, None),
        (DG.verifier, NOW),
    ]
    attempt(directory, tmp_path / "state", key=MR)
    assert check(directory, anchor=both()).ok


def test_it_follows_a_ledger_that_grows(tmp_path: Path) -> None:
    directory = make(tmp_path / "ledger", 5)
    for size in (6, 300, 301):
        attempt(directory, tmp_path / "state", now=NOW + size)
        grow(directory, [entry(number) for number in range(check(directory).checkpoint.size, size)])
    done = attempt(directory, tmp_path / "state", now=NOW + 1000)
    assert done.time == NOW + 1000
    assert done.verification.held and done.verification.held.size == 300


def test_the_same_checkpoint_keeps_its_time(tmp_path: Path) -> None:
    directory = make(tmp_path / "ledger", 5)
    first = attempt(directory, tmp_path / "state")
    assert first.path is not None
    content = first.path.read_bytes()
    first.path.unlink()
    again = attempt(directory, tmp_path / "state", now=NOW + 60)
    assert again.time == NOW
    assert again.path and again.path.read_bytes() == content


def test_a_log_that_has_another_key_now_is_still_held_to_what_was_cosigned(tmp_path: Path) -> None:
    """The memory is believed by the cosigner's own signature, whoever signed the log then."""
    directory, new = make(tmp_path / "ledger", 5), signer(6)
    attempt(directory, tmp_path / "state")
    (directory / "checkpoint").write_bytes(sign(note_of(directory).text, new).content)
    rotated = anchor_of([new.verifier.vkey])
    shutil.rmtree(directory / "witness")
    again = cosign(directory, signer=DG, state=tmp_path / "state", anchor=rotated, now=NOW + 1)
    assert again.time == NOW
    assert check(directory, anchor=anchor_of([new.verifier.vkey, DG.verifier.vkey])).ok
    other = make(tmp_path / "other", 4, key=new)
    assert cosign(other, signer=DG, state=tmp_path / "state", anchor=rotated, now=NOW + 1).path is None


def test_a_ledger_that_does_not_verify_is_not_cosigned(tmp_path: Path) -> None:
    directory = make(tmp_path / "ledger", 5)
    (directory / "tile/0/000.p/5").write_bytes(bytes(160))
    done = attempt(directory, tmp_path / "state")
    assert (done.path, done.time) == (None, None)
    assert "tile/0/000.p/5: hash 0 (and 4 more in this file) was altered" in messages(done.verification)[0]
    assert not (directory / "witness").exists()
    assert remembered(tmp_path / "state") == {}


def test_a_ledger_of_an_unknown_key_is_not_cosigned(tmp_path: Path) -> None:
    done = attempt(make(tmp_path / "ledger", 5, key=signer(7)), tmp_path / "state")
    assert done.path is None
    assert "no trusted key has signed" in messages(done.verification)[0]


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (3, "rolled back: the checkpoint you hold is of size 5, this one of 3"),
        (5, "a second tree of size 5"),
        (600, "rewritten: the first 5 entries do not have the root in the checkpoint you hold"),
    ],
)
def test_another_history_is_never_cosigned(tmp_path: Path, size: int, said: str) -> None:
    attempt(make(tmp_path / "ledger", 5), tmp_path / "state")
    before = remembered(tmp_path / "state")
    other = tmp_path / "other"
    with Log.create(other, origin=ORIGIN, signer=LOG) as log:
        log.append(b"other %d" % number for number in range(size))
    done = attempt(other, tmp_path / "state", now=NOW + 1)
    assert done.path is None
    assert said in messages(done.verification)[0]
    assert done.verification.evidence is not None
    assert not (other / "witness").exists()
    assert remembered(tmp_path / "state") == before
    assert attempt(other, tmp_path / "another state", now=NOW + 1).path, "only the memory tells"


def test_a_key_whose_memory_is_lost_cosigns_nothing(tmp_path: Path) -> None:
    """Neither the ledger it knew nor a fork of it; the control shows that the loss alone would let the fork pass."""
    directory, fork, state = make(tmp_path / "ledger", 5), tmp_path / "fork", tmp_path / "state"

    def asked(where: Path) -> Cosigning:
        return cosign(where, signer=DG, state=state, anchor=both(), now=NOW, first=False)

    begin_memory(state)
    assert asked(directory).path
    with Log.create(fork, origin=ORIGIN, signer=LOG) as log:
        log.append(b"other %d" % number for number in range(9))
    assert asked(fork).path is None
    (state / "begun").unlink()
    assert asked(directory).path, "what is remembered shows that the memory was begun"
    shutil.rmtree(state)
    for lost in (False, True):  # gone, and an empty directory where it was, such as a mount point
        if lost:
            state.mkdir()
        for where in (directory, fork):
            with pytest.raises(LedgerError, match=r"no memory of what 'dg\.example' has cosigned.*--first"):
                asked(where)
    assert not (fork / "witness").exists()
    assert cosign(fork, signer=DG, state=state, anchor=both(), now=NOW, first=True).path, "the control"


def test_a_crash_between_the_two_notes_of_the_memory_forgets_nothing(tmp_path: Path) -> None:
    """latest.note is written first: it alone is enough to refuse another history."""
    directory, state = make(tmp_path / "ledger", 5), tmp_path / "state"
    attempt(directory, state)
    for note in state.glob("*/*.note"):
        if note.name != "latest.note":
            note.unlink()
    with Log.create(tmp_path / "fork", origin=ORIGIN, signer=LOG) as log:
        log.append(b"other %d" % number for number in range(9))
    assert attempt(tmp_path / "fork", state, now=NOW + 1).path is None
    grow(directory, [b"more"])
    assert attempt(directory, state, now=NOW + 1).path


def test_a_smaller_tree_of_the_same_history_is_not_cosigned_either(tmp_path: Path) -> None:
    directory = make(tmp_path / "ledger", 5)
    shutil.copytree(directory, tmp_path / "earlier")
    grow(directory, [b"more"])
    attempt(directory, tmp_path / "state")
    done = attempt(tmp_path / "earlier", tmp_path / "state", now=NOW + 1)
    assert done.path is None


def test_logs_are_remembered_apart(tmp_path: Path) -> None:
    attempt(make(tmp_path / "ledger", 5), tmp_path / "state")
    other = signer(1, name="example.com/other")
    with Log.create(tmp_path / "other", origin=other.name, signer=other) as log:
        log.append([b"first"])
    done = cosign(
        tmp_path / "other", signer=DG, state=tmp_path / "state", anchor=anchor_of([other.verifier.vkey]), now=NOW + 1
    )
    assert done.path is not None
    assert len(remembered(tmp_path / "state")) == 3, "one of each log, and the latest"


def test_a_clock_that_was_set_back_is_an_error(tmp_path: Path) -> None:
    directory = make(tmp_path / "ledger", 5)
    attempt(directory, tmp_path / "state")
    before = remembered(tmp_path / "state")
    with pytest.raises(LedgerError, match="the clock was set back: it is 2023-11-14T22:13:19Z, but 'dg"):
        attempt(directory, tmp_path / "state", now=NOW - 1)
    fresh = make(tmp_path / "fresh", 2)
    with pytest.raises(LedgerError, match="the clock was set back"):
        attempt(fresh, tmp_path / "state", now=NOW - 1)
    assert remembered(tmp_path / "state") == before
    assert attempt(directory, tmp_path / "state", key=MR, now=NOW - 1).path, "each key has its own clock"


def test_a_plain_key_cannot_cosign(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="is for plain signatures"):
        attempt(make(tmp_path / "ledger", 5), tmp_path / "state", key=signer(2, name="dg.example"))


@pytest.mark.parametrize("flip", [0, -3])
def test_a_damaged_memory_is_an_error_and_nothing_is_signed(tmp_path: Path, flip: int) -> None:
    directory = make(tmp_path / "ledger", 5)
    attempt(directory, tmp_path / "state")
    shutil.rmtree(directory / "witness")
    for file in (tmp_path / "state").glob("*/*.note"):
        content = bytearray(file.read_bytes())
        content[flip] ^= 4
        file.write_bytes(content)
        with pytest.raises(LedgerError, match=r"the memory of 'dg\.example' was damaged"):
            attempt(directory, tmp_path / "state", now=NOW + 1)
        content[flip] ^= 4
        file.write_bytes(content)
    assert not (directory / "witness").exists()


def test_what_is_handed_out_was_remembered_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash before the hand-out: the next call hands out what was remembered, with its time."""
    directory = make(tmp_path / "ledger", 5)
    write = storage.write_bytes

    def crash(path: Path, content: bytes) -> None:
        if "witness" in path.parts:
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(storage, "write_bytes", crash)
    with pytest.raises(KeyboardInterrupt):
        attempt(directory, tmp_path / "state")
    assert not (directory / "witness").exists()
    assert len(remembered(tmp_path / "state")) == 2
    monkeypatch.undo()
    assert attempt(directory, tmp_path / "state", now=NOW + 5).time == NOW


def test_where_nothing_can_be_written_nothing_is_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = make(tmp_path / "ledger", 5)
    (tmp_path / "file").touch()
    with pytest.raises(LedgerError, match="cannot lock"):
        attempt(directory, tmp_path / "file")

    def refuse(path: Path, content: bytes) -> None:
        raise RunError(f"cannot write {path}: No space left on device")

    monkeypatch.setattr(storage, "write_bytes", refuse)
    with pytest.raises(LedgerError, match="No space left on device"):
        attempt(directory, tmp_path / "state")
    assert not (directory / "witness").exists()


def test_names_become_file_names(tmp_path: Path) -> None:
    directory = make(tmp_path / "ledger", 5)
    for seed, name in ((11, "../../escape"), (12, "witness.example/a"), (13, "witness.example/b"), (14, "\u4f8b/x")):
        key = signer(seed, name=name, algorithm=Algorithm.COSIGNATURE)
        done = cosign(directory, signer=key, state=tmp_path / "state", anchor=policy(), now=NOW)
        assert done.path and done.path.parent == directory / "witness"
    assert len(list((directory / "witness").iterdir())) == 4
    assert len(list((tmp_path / "state").iterdir())) == 4


@pytest.mark.parametrize("locked", [True, False])
def test_nothing_is_signed_between_looking_and_remembering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: bool
) -> None:
    """In the middle of cosigning one history the key is asked for another; without the lock it would sign both."""
    directory, other = make(tmp_path / "ledger", 5), tmp_path / "other"
    with Log.create(other, origin=ORIGIN, signer=LOG) as log:
        log.append([b"another history"])
    check_it, asked = cosigning.verify, []

    def interrupted(path: Path, **rest: Any) -> Any:
        found = check_it(path, **rest)
        if not asked:
            asked.append(path)
            asked.append(attempt(other, tmp_path / "state").path)
        return found

    monkeypatch.setattr(cosigning, "verify", interrupted)
    monkeypatch.setattr(cosigning, "PATIENCE", 0.05)
    if locked:
        with pytest.raises(LedgerError, match=r"the memory of cosigner 'dg\.example' is in use by process"):
            attempt(directory, tmp_path / "state")
        assert not (other / "witness").exists()
    else:
        monkeypatch.setattr(Memory, "exclusive", lambda memory: nullcontext())
        assert attempt(directory, tmp_path / "state").path
        assert asked[1]


def test_two_histories_at_the_same_moment_get_one_cosignature(tmp_path: Path) -> None:
    """Looking into the memory and writing it is one step: of contradicting ledgers only one is ever signed."""
    ledgers = [tmp_path / f"ledger{number}" for number in range(4)]
    for number, ledger in enumerate(ledgers):
        with Log.create(ledger, origin=ORIGIN, signer=LOG) as log:
            log.append(b"%d of %d" % (each, number) for each in range(300))
    for trial in range(5):
        state, together = tmp_path / f"state{trial}", Barrier(len(ledgers))

        def race(ledger: Path, state: Path = state, together: Barrier = together) -> bool:
            together.wait()
            return attempt(ledger, state).path is not None

        with ThreadPoolExecutor(len(ledgers)) as pool:
            assert sum(pool.map(race, ledgers)) == 1
        for ledger in ledgers:
            shutil.rmtree(ledger / "witness", ignore_errors=True)
