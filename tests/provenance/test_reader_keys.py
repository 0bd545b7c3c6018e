"""Readers' keys: their files, and that what is wrapped opens for one key and one purpose."""

import base64
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from explorer.errors import ProvenanceError
from explorer.provenance.keys import (
    OVERHEAD,
    is_weak_reader,
    new_reader_key,
    public_bytes,
    read_key,
    read_reader_key,
    reader_key,
    reader_of,
    reader_public_text,
    unwrap,
    wrap,
    write_key,
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
    found = read_reader_key(path, passphrase)
    assert reader_public_text(found.opens) == PUBLIC and found.signs is None
    with pytest.raises(ProvenanceError, match="there is a file already"):
        write_key(path, new_reader_key(), passphrase)


def test_an_old_readers_key_signs_nothing(tmp_path: Path) -> None:
    write_key(tmp_path / "reads.pem", KEY, None)
    with pytest.raises(ProvenanceError, match="holds a key of kind X25519; expected Ed25519"):
        read_key(tmp_path / "reads.pem", None)


def test_who_signs_is_who_can_open(tmp_path: Path) -> None:
    """The conversion of public keys, against the library's own derivation of the private one."""
    for _ in range(20):
        made = new_reader_key()
        write_key(path := tmp_path / f"{public_bytes(made).hex()}.pem", made, None)
        found = read_reader_key(path, None)
        assert found.signs is not None and public_bytes(found.signs) == public_bytes(made)
        public = reader_public_text(found.opens)
        assert reader_of(public_bytes(found.signs)) == public
        assert unwrap(wrap(SECRET, public, info=b"i"), found.opens, info=b"i", where="w") == SECRET


def test_the_conversion_is_libsodiums() -> None:
    """From libsodium's own tests, test/default/ed25519_convert.c."""
    seed = bytes.fromhex("421151a459faeade3d247115f94aedae42318124095afabe4d1451a559faedee")
    key = Ed25519PrivateKey.from_private_bytes(seed)
    expected = "f1814f0e8ff1043d8a44d25babff3cedcae6c22c3edaa48f857ae70de2baae50"
    assert base64.b64decode(reader_of(public_bytes(key))).hex() == expected
    secret = "8052030376d47112be7f73ed7a019293dd12ad910b654455798b4667d73de166"
    scalar = bytearray(reader_key(key).opens.private_bytes_raw())
    scalar[0] &= 248
    scalar[31] = scalar[31] & 127 | 64
    assert scalar.hex() == secret


@pytest.mark.parametrize("y", [0, 1, PRIME, PRIME + 1])
def test_points_without_a_counterpart_are_no_reader(y: int) -> None:
    with pytest.raises(ProvenanceError, match="no counterpart"):
        reader_of(y.to_bytes(32, "little"))


def test_what_is_wrapped_opens_for_its_key_and_purpose() -> None:
    wrapped = wrap(SECRET, PUBLIC, info=b"for this")
    assert len(wrapped) == len(SECRET) + OVERHEAD and SECRET not in wrapped
    assert wrap(SECRET, PUBLIC, info=b"for this") != wrapped
    assert unwrap(wrapped, KEY, info=b"for this", where="w") == SECRET
    for key, info in ((KEY, b"for that"), (KEY, b""), (X25519PrivateKey.generate(), b"for this")):
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


@pytest.mark.parametrize("point", SMALL_ORDER)
def test_nothing_is_wrapped_to_a_point_of_small_order(point: int) -> None:
    with pytest.raises(ProvenanceError, match="is weak: everybody could open"):
        wrap(SECRET, base64.b64encode(point.to_bytes(32, "little")).decode(), info=b"")


@pytest.mark.parametrize("number", [2**255 - 19 + 9, 2**255 - 1, 2**255 + 9])
def test_a_second_name_of_a_point_is_no_reader(number: int) -> None:
    """RFC 7748 decodes these too: 9 + p, and a set top bit. One key then had several names."""
    assert is_weak_reader(base64.b64encode(number.to_bytes(32, "little")).decode())


def test_other_points_are() -> None:
    assert not is_weak_reader(PUBLIC)
