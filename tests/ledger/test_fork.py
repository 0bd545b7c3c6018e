"""Two histories under one key: what is said, and what is kept so that anybody can see it."""

import base64
from pathlib import Path

import pytest

from explorer import merkle
from explorer.errors import LedgerError
from explorer.ledger.log import Log
from explorer.ledger.signed_checkpoint import Checkpoint, parse_checkpoint
from explorer.merkle import leaf_hash, root_of
from explorer.note import Note, parse, sign, verify
from tests.ledger.ledgers import DG, LOG, check, cosigned, grow, make, messages, note_of
from tests.ledger.signers import ORIGIN, entry, signer


def other(number: int) -> bytes:
    """The entries of the other history: from number 3 on they differ."""
    return entry(number) if number < 3 else b"forged %d" % number


def forked(directory: Path, size: int) -> Path:
    with Log.create(directory, origin=ORIGIN, signer=LOG) as log:
        log.append(other(number) for number in range(size))
    return directory


def base64_root(note: Note) -> str:
    return base64.b64encode(parse_checkpoint(note.text).root).decode()


def test_a_rewritten_ledger_is_told_with_both_checkpoints(tmp_path: Path) -> None:
    held = note_of(make(tmp_path / "honest", 5))
    found = check(forked(tmp_path / "ledger", 6), held=held)
    disk = note_of(tmp_path / "ledger")
    assert not found.ok
    assert messages(found) == [
        "checkpoint: rewritten: the first 5 entries do not have the root in the checkpoint you hold"
    ]
    then = base64.b64encode(root_of(leaf_hash(other(number)) for number in range(5))).decode()
    assert found.evidence is not None
    assert found.evidence.statement == (
        "the ledger of example.com/run was rewritten\n"
        f"  checkpoint you hold:   size 5  root {base64_root(held)}  signed by example.com/run\n"
        f"  checkpoint on disk:    size 6  root {base64_root(disk)}  signed by example.com/run\n"
        f"  the second does not extend the first: its first 5 entries have root {then}\n"
        "  keep both notes: together they are the evidence"
    )


@pytest.mark.parametrize(("held_size", "size"), [(4, 6), (5, 600), (257, 300), (256, 513), (300, 600)])
def test_the_evidence_convinces_somebody_who_has_nothing_else(tmp_path: Path, held_size: int, size: int) -> None:
    held = note_of(make(tmp_path / "honest", held_size))
    found = check(forked(tmp_path / "ledger", size), held=held)
    assert found.evidence is not None
    assert found.evidence.name.startswith("ledger-evidence-") and len(found.evidence.name) == 24
    found.evidence.keep(tmp_path / "kept")
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {
        "held.note",
        "found.note",
        "consistency.txt",
        "statement.txt",
    }
    one, two = (parse((tmp_path / "kept" / name).read_bytes()) for name in ("held.note", "found.note"))
    for note in (one, two):
        verify(note, [LOG.verifier])
    old, new = parse_checkpoint(one.text), parse_checkpoint(two.text)
    head, _, checkpoint = (tmp_path / "kept/consistency.txt").read_bytes().partition(b"\n\n")
    first, *lines = head.decode().split("\n")
    proof = [base64.b64decode(line) for line in lines]
    assert first == f"old {held_size}"
    assert checkpoint == two.content
    with pytest.raises(LedgerError, match=f"the consistency proof from {held_size} to {size} fails"):
        merkle.check_consistency(proof, old_size=old.size, old_root=old.root, new_size=new.size, new_root=new.root)
    then = root_of(leaf_hash(other(number)) for number in range(held_size))
    merkle.check_consistency(proof, old_size=old.size, old_root=then, new_size=new.size, new_root=new.root)


def test_two_trees_of_one_size(tmp_path: Path) -> None:
    held = note_of(make(tmp_path / "honest", 6))
    found = check(forked(tmp_path / "ledger", 6), held=held)
    assert messages(found) == ["checkpoint: a second tree of size 6: the checkpoint you hold has another root"]
    assert found.evidence and "one log has signed two trees of the same size" in found.evidence.statement
    found.evidence.keep(tmp_path / "kept")
    assert (tmp_path / "kept/held.note").read_bytes() == held.content


def test_a_roll_back_has_words_of_its_own(tmp_path: Path) -> None:
    held = note_of(make(tmp_path / "longer", 9))
    found = check(make(tmp_path / "ledger", 6), held=held)
    assert messages(found) == ["checkpoint: rolled back: the checkpoint you hold is of size 9, this one of 6"]
    assert found.evidence is not None
    assert found.evidence.statement.startswith("the ledger of example.com/run was rolled back\n")
    assert "3 entries are gone, from 6 on" in found.evidence.statement
    found.evidence.keep(tmp_path / "kept")
    assert not (tmp_path / "kept/consistency.txt").exists()


def test_a_cosigned_checkpoint_in_the_directory_shows_a_fork_too(tmp_path: Path) -> None:
    honest = cosigned(make(tmp_path / "honest", 5), tmp_path / "state", DG)
    ledger = forked(tmp_path / "ledger", 6)
    (honest / "witness").rename(ledger / "witness")
    found = check(ledger)
    (path,) = [path.relative_to(ledger).as_posix() for path in (ledger / "witness").iterdir()]
    assert messages(found) == [
        f"{path}: rewritten: the first 5 entries do not have the root in the checkpoint in {path}"
    ]
    assert found.evidence and f"checkpoint in {path}:" in found.evidence.statement


def test_what_the_log_did_not_sign_is_no_evidence_against_it(tmp_path: Path) -> None:
    """A forger's checkpoint contradicts the one held, and shows nothing about the log."""
    held = note_of(make(tmp_path / "honest", 5))
    ledger = forked(tmp_path / "ledger", 6)
    (ledger / "checkpoint").write_bytes(sign(note_of(ledger).text, signer(8)).content)
    found = check(ledger, held=held)
    assert len(messages(found)) == 2
    assert found.evidence is None


def test_an_honest_ledger_leaves_no_evidence(tmp_path: Path) -> None:
    ledger = make(tmp_path / "ledger", 5)
    held = note_of(ledger)
    grow(ledger, [b"more"])
    found = check(ledger, held=held)
    assert found.ok
    assert found.evidence is None


def test_a_fork_is_shown_even_where_the_tiles_are_damaged(tmp_path: Path) -> None:
    held = note_of(make(tmp_path / "honest", 5))
    ledger = forked(tmp_path / "ledger", 6)
    (ledger / "tile/0/000.p/6").write_bytes(bytes(192))
    found = check(ledger, held=held)
    assert found.evidence is not None
    assert found.evidence.proof == ()
    assert "its first 5 entries have root" in found.evidence.statement


def test_the_same_evidence_has_the_same_name(tmp_path: Path) -> None:
    held = note_of(make(tmp_path / "honest", 5))
    ledger = forked(tmp_path / "ledger", 6)
    names = {found.evidence.name for found in (check(ledger, held=held), check(ledger, held=held)) if found.evidence}
    assert len(names) == 1
    later = Checkpoint(origin=ORIGIN, size=4, root=bytes(32))
    found = check(ledger, held=sign(later.text, LOG))
    assert found.evidence and found.evidence.name not in names


def test_evidence_that_cannot_be_kept_is_an_error(tmp_path: Path) -> None:
    found = check(forked(tmp_path / "ledger", 6), held=note_of(make(tmp_path / "honest", 5)))
    (tmp_path / "file").touch()
    assert found.evidence is not None
    with pytest.raises(LedgerError, match="cannot write "):
        found.evidence.keep(tmp_path / "file")


@pytest.mark.parametrize("held_size", [5, 600])
def test_a_damaged_entry_is_no_second_history(tmp_path: Path, held_size: int) -> None:
    """The tiles still show that the two checkpoints are of one history; only the entry is another."""
    held = note_of(make(tmp_path / "then", held_size))
    ledger = make(tmp_path / "ledger", 600)
    damage(ledger / "tile/entries/000", at=4)  # in entry 1; entry 0 is empty
    found = check(ledger, held=held)
    assert found.evidence is None
    assert [message.partition(":")[0] for message in messages(found)] == ["tile/entries/000", "checkpoint"]


def test_a_damaged_fork_is_not_believed_to_extend(tmp_path: Path) -> None:
    """The control: with another history under the damage, nothing shows that the ledger extends what is held."""
    held = note_of(make(tmp_path / "honest", 5))
    ledger = forked(tmp_path / "ledger", 600)
    damage(ledger / "tile/entries/000", at=4)  # in entry 1; entry 0 is empty
    found = check(ledger, held=held)
    assert not found.ok and found.evidence is None
    assert messages(found)[-1] == (
        "checkpoint: cannot be shown to extend the checkpoint you hold: entries or tiles are damaged"
    )


def damage(path: Path, *, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
