"""Readers' keys: their files, and that what is wrapped opens for one key and one purpose."""

import base64
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from explorer.errors import ProvenanceError
from explorer.provenance.keys import new_key, read_key, write_key
from explorer.provenance.reader_keys import (
    OVERHEAD,
    is_weak_reader,
    new_reader_key,
    read_reader_key,
    reader_public_text,
    unwrap,
    wrap,
)

KEY = X25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = reader_public_text(KEY)
SECRET = b"forty-eight bytes, a number of bytes like others"
PRIME = 2**255 - 19
SMALL_ORDER = (
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    PRIME - 1,
    PRIME,
    PRIME + 1,
)


def test_the_public_key_of_rfc_7748() -> None:
    """RFC 7748, section 5.2, the first iteration: the scalar is 9, little-endian."""
    key = X25519PrivateKey.from_private_bytes((9).to_bytes(32, "little"))
    expected = "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"
    assert base64.b64decode(reader_public_text(key)).hex() == expected


@pytest.mark.parametrize("passphrase", [None, "correct horse"])
def test_a_key_file_goes_there_and_back(tmp_path: Path, passphrase: str | None) -> None:
    path = tmp_path / "reader.pem"
    write_key(path, KEY, passphrase)
    assert path.stat().st_mode & 0o777 == 0o600
    assert reader_public_text(read_reader_key(path, passphrase)) == PUBLIC
    with pytest.raises(ProvenanceError, match="there is a file already"):
        write_key(path, new_reader_key(), passphrase)


def test_a_key_that_signs_does_not_read_and_the_other_way_round(tmp_path: Path) -> None:
    write_key(tmp_path / "signs.pem", new_key(), None)
    write_key(tmp_path / "reads.pem", KEY, None)
    with pytest.raises(ProvenanceError, match="holds a key of kind Ed25519; expected X25519"):
        read_reader_key(tmp_path / "signs.pem", None)
    with pytest.raises(ProvenanceError, match="holds a key of kind X25519; expected Ed25519"):
        read_key(tmp_path / "reads.pem", None)


def test_what_is_wrapped_opens_for_its_key_and_purpose() -> None:
    wrapped = wrap(SECRET, PUBLIC, info=b"for this")
    assert len(wrapped) == len(SECRET) + OVERHEAD and SECRET not in wrapped
    assert wrap(SECRET, PUBLIC, info=b"for this") != wrapped
    assert unwrap(wrapped, KEY, info=b"for this", where="w") == SECRET
    for key, info in ((KEY, b"for that"), (KEY, b""), (new_reader_key(), b"for this")):
        with pytest.raises(ProvenanceError, match=r"^w: cannot be opened: wrapped to another reader's key"):
            unwrap(wrapped, key, info=info, where="w")


def test_no_bit_and_no_byte_less() -> None:
    wrapped = wrap(SECRET, PUBLIC, info=b"")
    broken = [
        wrapped[:at] + bytes([wrapped[at] ^ 1 << bit]) + wrapped[at + 1 :]
        for at in range(len(wrapped))
        for bit in (0, 7)
    ]
    broken += [wrapped[:size] for size in range(len(wrapped))] + [wrapped + b"\0"]
    for each in broken:
        with pytest.raises(ProvenanceError, match="cannot be opened"):
            unwrap(each, KEY, info=b"", where="w")


@pytest.mark.parametrize("point", SMALL_ORDER)
def test_a_point_of_small_order_is_no_reader(point: int) -> None:
    assert is_weak_reader(base64.b64encode(point.to_bytes(32, "little")).decode())


def test_other_points_are() -> None:
    assert not is_weak_reader(PUBLIC)
