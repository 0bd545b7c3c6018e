"""Commitments hide and bind; salts can be derived again, kept from others, and destroyed."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from explorer.errors import ProvenanceError
from explorer.provenance.commitments import (
    Salts,
    check_commitment,
    commit,
    destroy_salt,
    new_salt,
    new_salts,
    read_salts,
    sound_salt,
    write_salts,
)

SALT, SECRET = bytes([1]) * 32, bytes([2]) * 32
RECORDS = [f"record {number}".encode() for number in range(2_000)]


def test_known_answers() -> None:
    assert commit(SALT, b"hello") == hashlib.sha256(b"\x01" * 32 + b"hello").digest()
    assert commit(SECRET, b"").hex() == "75877bb41d393b5fb8455ce60ecd8dda001d06316496b14dfa7f895656eeca4a"


def test_a_commitment_binds_content_and_salt() -> None:
    made = commit(SALT, b"content")
    check_commitment(made, salt=SALT, content=b"content", where="slot 3")
    for salt, content in ((SALT, b"Content"), (SALT, b"content "), (SECRET, b"content")):
        with pytest.raises(ProvenanceError, match="slot 3: the content does not belong to its commitment"):
            check_commitment(made, salt=salt, content=content, where="slot 3")


@pytest.mark.parametrize(("salt", "message"), [(b"", "found 0"), (b"x" * 31, "found 31"), (bytes(32), "was destroyed")])
def test_what_is_no_salt(salt: bytes, message: str) -> None:
    with pytest.raises(ProvenanceError, match=message):
        commit(salt, b"content")
    with pytest.raises(ProvenanceError, match=message):
        sound_salt(salt)


def committed(salts: Salts) -> np.ndarray:
    """The commitments of a table of the records, rows x 256 bits."""
    rows = [commit(salts.of(slot) or b"", record) for slot, record in enumerate(RECORDS)]
    return np.unpackbits(np.frombuffer(b"".join(rows), np.uint8).reshape(-1, 32), axis=1)


def linked(one: np.ndarray, other: np.ndarray) -> int:
    """How many records of one table somebody finds in the other by their commitments."""
    return len({row.tobytes() for row in one} & {row.tobytes() for row in other})


def test_the_same_record_in_two_tables_is_not_linkable() -> None:
    one, other = committed(new_salts(len(RECORDS))), committed(new_salts(len(RECORDS)))
    assert linked(one, other) == 0
    same, different = (one == other).mean(axis=1), (one == np.roll(other, 1, axis=0)).mean(axis=1)
    spread = 0.5 / np.sqrt(256 * len(RECORDS))
    assert abs(same.mean() - 0.5) < 6 * spread and abs(different.mean() - 0.5) < 6 * spread
    assert abs(one.mean(axis=0) - 0.5).max() < 6 * 0.5 / np.sqrt(len(RECORDS)), "a bit that the content leaks into"


def test_with_one_salt_for_all_it_is() -> None:
    """The control: the same measurement finds every record when the salts are not secret or not fresh."""
    constant = Salts(content=SALT * len(RECORDS))
    one, other = committed(constant), committed(constant)
    assert linked(one, other) == len(RECORDS)
    assert (one == other).mean() == 1


def test_salts_are_fresh() -> None:
    assert len({new_salt() for _ in range(1000)}) == 1000
    assert len(set(np.frombuffer(new_salts(1000).content, "V32").tolist())) == 1000


def test_a_salt_file_is_its_owners_alone(tmp_path: Path) -> None:
    path, salts = tmp_path / "t.salts", new_salts(5)
    write_salts(path, salts)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_salts(path) == salts and len(salts) == 5
    assert salts.content.hex() not in repr(salts)
    with pytest.raises(ProvenanceError, match="there is a file already"):
        write_salts(path, new_salts(5))
    assert read_salts(path) == salts
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(ProvenanceError, match="a link; name the file itself"):
        read_salts(link)
    path.chmod(0o640)
    for use in (read_salts, lambda path: destroy_salt(path, 0)):
        with pytest.raises(ProvenanceError, match=r"others can read or write it \(mode 0640\); first: chmod 600"):
            use(path)


def test_a_destroyed_salt_is_gone_and_the_others_are_not(tmp_path: Path) -> None:
    path, salts = tmp_path / "t.salts", new_salts(4)
    write_salts(path, salts)
    gone = salts.of(2)
    assert gone is not None and gone in path.read_bytes()
    destroy_salt(path, 2)
    destroy_salt(path, 2)
    left = read_salts(path)
    assert gone not in path.read_bytes()
    assert left.of(2) is None
    assert [left.of(slot) for slot in (0, 1, 3)] == [salts.of(slot) for slot in (0, 1, 3)]
    for slot in (-1, 4):
        with pytest.raises(ProvenanceError, match=rf"no slot {slot}; it holds 4 salts"):
            destroy_salt(path, slot)
    assert read_salts(path) == left


def test_a_disk_that_refuses_destroys_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> int:
        raise OSError(5, "Input/output error")

    path = tmp_path / "salts"
    write_salts(path, new_salts(2))
    before = path.read_bytes()
    for pwrite, message in ((refuse, "Input/output error"), (lambda *given: 7, "7 of 32 bytes")):
        with monkeypatch.context() as broken:
            broken.setattr(os, "pwrite", pwrite)
            with pytest.raises(ProvenanceError, match=f"salts: {message}; destroy it again"):
                destroy_salt(path, 1)
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", [lambda c: b"", lambda c: c[:-1], lambda c: c + b"x", lambda c: b"X" + c[1:]])
def test_a_file_that_is_no_salt_file(tmp_path: Path, damage: object) -> None:
    path = tmp_path / "t.salts"
    write_salts(path, new_salts(3))
    path.write_bytes(damage(path.read_bytes()))  # pyright: ignore
    with pytest.raises(ProvenanceError, match="not a salt file, or one that was cut short"):
        read_salts(path)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ProvenanceError, match=r"cannot open .*: No such file"):
        read_salts(tmp_path / "absent")
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(ProvenanceError, match="not a regular file"):
        read_salts(tmp_path / "pipe")
    with pytest.raises(ProvenanceError, match=r"cannot write .*: No such file"):
        write_salts(tmp_path / "absent" / "t.salts", new_salts(1))
