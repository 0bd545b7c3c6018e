"""Key files: who can read them, what is refused, and that nothing is half-written."""

import base64
import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from hypothesis import example, given, settings
from hypothesis import strategies as st

from explorer.errors import ProvenanceError
from explorer.note import is_weak
from explorer.provenance import keys
from explorer.provenance.keys import (
    MAX_FILE,
    MAX_ROUNDS,
    ROUNDS,
    encrypt_again,
    is_encrypted,
    new_key,
    parse_public,
    public_bytes,
    public_text,
    read_key,
    rounds,
    write_key,
)
from tests.provenance.people import private

KEY = private("a key")
SMALL_ORDER = (
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
)


def pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed448.Ed448PrivateKey | Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def private_file(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def test_the_public_key_of_rfc_8032() -> None:
    """RFC 8032, section 7.1, test 1."""
    key = Ed25519PrivateKey.from_private_bytes(
        bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    )
    assert public_bytes(key).hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert parse_public(public_text(key)) == public_bytes(key)


@pytest.mark.parametrize("passphrase", [None, "correct horse", "ключ \U0001f511", "x" * 1000])
def test_a_key_there_and_back(tmp_path: Path, passphrase: str | None) -> None:
    made = new_key()
    write_key(tmp_path / "k.pem", made, passphrase)
    assert is_encrypted(tmp_path / "k.pem") == (passphrase is not None)
    assert public_bytes(read_key(tmp_path / "k.pem", passphrase)) == public_bytes(made)
    assert [path.name for path in tmp_path.iterdir()] == ["k.pem"]


def test_two_new_keys_differ() -> None:
    assert public_bytes(new_key()) != public_bytes(new_key())


def test_its_owner_alone_reads_it_whatever_the_mask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_key(tmp_path / "k.pem", KEY, None)
    finally:
        os.umask(before)
    assert (tmp_path / "k.pem").stat().st_mode & 0o777 == 0o600


def test_it_is_private_before_it_holds_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []

    def look(descriptor: int) -> None:
        status = os.fstat(descriptor)
        seen.append((status.st_mode & 0o777, status.st_size))

    fdopen = os.fdopen
    monkeypatch.setattr(os, "fdopen", lambda descriptor, *rest: look(descriptor) or fdopen(descriptor, *rest))
    write_key(tmp_path / "k.pem", KEY, None)
    assert seen == [(0o600, 0)]


def test_a_key_is_never_written_over_anything(tmp_path: Path) -> None:
    (tmp_path / "k.pem").write_bytes(b"mine")
    (tmp_path / "link.pem").symlink_to(tmp_path / "elsewhere.pem")
    for name in ("k.pem", "link.pem"):
        with pytest.raises(ProvenanceError, match="there is a file already"):
            write_key(tmp_path / name, KEY, None)
    assert (tmp_path / "k.pem").read_bytes() == b"mine"
    assert not (tmp_path / "elsewhere.pem").exists()


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ProvenanceError, match=r"cannot write .*k\.pem: No space left on device"):
        write_key(tmp_path / "k.pem", KEY, None)
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_key(tmp_path / "k.pem", private("a"), None)
    assert list(tmp_path.iterdir()) == []


def test_no_directory_no_key(tmp_path: Path) -> None:
    with pytest.raises(ProvenanceError, match=r"cannot write .*k\.pem: No such file or directory"):
        write_key(tmp_path / "nowhere" / "k.pem", KEY, None)


@pytest.mark.parametrize("passphrase", ["", "x" * 1001, "\ud800"])
def test_what_is_no_passphrase(tmp_path: Path, passphrase: str) -> None:
    with pytest.raises(ProvenanceError, match="a passphrase"):
        write_key(tmp_path / "k.pem", KEY, passphrase)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bit", [0o040, 0o020, 0o010, 0o004, 0o002, 0o001])
def test_a_key_that_others_can_touch_is_refused(tmp_path: Path, bit: int) -> None:
    write_key(tmp_path / "k.pem", KEY, None)
    (tmp_path / "k.pem").chmod(0o600 | bit)
    with pytest.raises(ProvenanceError, match=rf"others can read or write it \(mode {0o600 | bit:04o}\); first: chmod"):
        read_key(tmp_path / "k.pem", None)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_key_that_only_its_owner_can_touch_is_read(tmp_path: Path, mode: int) -> None:
    write_key(tmp_path / "k.pem", KEY, None)
    (tmp_path / "k.pem").chmod(mode)
    assert public_bytes(read_key(tmp_path / "k.pem", None)) == public_bytes(KEY)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "cannot open .*: No such file or directory"),
        (lambda path: path.mkdir(mode=0o700), "not a regular file"),
        (lambda path: os.mkfifo(path, 0o600), "not a regular file"),
        (lambda path: private_file(path, b""), "not a key file; expected PKCS#8 PEM"),
        (lambda path: private_file(path, b"\xff" * 100), "not a key file; expected PKCS#8 PEM"),
        (
            lambda path: private_file(path, pem(KEY) + b"\n" * MAX_FILE),
            "too large: 10119 bytes, at most 10000 are read",
        ),
        (lambda path: private_file(path, pem(KEY)[:60]), "damaged: no private key can be read from it"),
        (lambda path: private_file(path, pem(rsa.generate_private_key(65537, 1024))), "kind RSA; expected Ed25519"),
        (lambda path: private_file(path, pem(ec.generate_private_key(ec.SECP256R1()))), "kind EC; expected Ed25519"),
        (lambda path: private_file(path, pem(ed448.Ed448PrivateKey.generate())), "kind Ed448; expected Ed25519"),
    ],
    ids=["absent", "directory", "pipe", "empty", "noise", "large", "cut", "rsa", "ec", "ed448"],
)
def test_what_is_no_key_file(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    make(tmp_path / "k.pem")
    with pytest.raises(ProvenanceError, match=message) as caught:
        read_key(tmp_path / "k.pem", None)
    assert str(tmp_path / "k.pem") in str(caught.value)


def test_a_link_is_refused(tmp_path: Path) -> None:
    write_key(tmp_path / "k.pem", KEY, None)
    (tmp_path / "link.pem").symlink_to(tmp_path / "k.pem")
    with pytest.raises(ProvenanceError, match=r"link\.pem: a link; name the file itself"):
        read_key(tmp_path / "link.pem", None)


def test_passphrases_that_do_not_fit(tmp_path: Path) -> None:
    write_key(tmp_path / "encrypted.pem", KEY, "right")
    write_key(tmp_path / "plain.pem", KEY, None)
    for name, passphrase, message in (
        ("encrypted.pem", "wrong", "wrong passphrase, or a damaged file"),
        ("encrypted.pem", None, "the key is encrypted; its passphrase is needed"),
        ("plain.pem", "right", "the key is not encrypted, yet a passphrase was given"),
    ):
        with pytest.raises(ProvenanceError, match=message) as caught:
            read_key(tmp_path / name, passphrase)
        assert "right" not in str(caught.value).replace(str(tmp_path), "")


@pytest.mark.parametrize("text", ["", "AAAA", "!" * 44, "A" * 43, "A" * 44 + "\n", "A" * 42 + "B=", "\u0410" * 44])
def test_what_is_no_public_key(text: str) -> None:
    with pytest.raises(ProvenanceError, match="not a public key"):
        parse_public(text)


def forgeable(public_key: bytes) -> bool:
    """Whether one signature, made without any private key, fits some of a hundred messages."""
    signature = b"\x01" + bytes(63)  # R the neutral point, S = 0
    for number in range(100):
        try:
            Ed25519PublicKey.from_public_bytes(public_key).verify(signature, b"message %d" % number)
        except InvalidSignature:
            continue
        return True
    return False


@pytest.mark.parametrize("point", SMALL_ORDER)
def test_a_weak_key_is_one_that_anybody_can_sign_for(point: str) -> None:
    assert forgeable(bytes.fromhex(point))
    assert is_weak(bytes.fromhex(point))


def test_other_keys_are_not_weak() -> None:
    for number in range(20):
        honest = public_bytes(private(f"honest {number}"))
        assert not is_weak(honest) and not forgeable(honest)


@given(content=st.binary(max_size=300), head=st.sampled_from([b"", b"-----BEGIN PRIVATE KEY-----\n"]))
@example(content=b"AAAA\n-----END PRIVATE KEY-----\n", head=b"-----BEGIN PRIVATE KEY-----\n")
@settings(max_examples=60, deadline=None)
def test_noise_is_refused_and_nothing_else_happens(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, head: bytes
) -> None:
    path = private_file(tmp_path_factory.getbasetemp() / "noise.pem", head + content)
    with pytest.raises(ProvenanceError):
        read_key(path, None)


@given(st.text(max_size=60))
@settings(max_examples=60, deadline=None)
def test_text_is_a_public_key_or_refused(text: str) -> None:
    with contextlib.suppress(ProvenanceError):
        assert len(parse_public(text)) == 32


def test_a_key_that_says_it_is_of_another_curve_is_damaged(tmp_path: Path) -> None:
    """32 bytes under the name of X448, which has 56: OpenSSL gives up with an error of its own. Found by fuzzing."""
    good = private("a").private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    changed = good.replace(bytes.fromhex("06032b6570"), bytes.fromhex("06032b656f"))
    content = b"-----BEGIN PRIVATE KEY-----\n" + base64.b64encode(changed) + b"\n-----END PRIVATE KEY-----\n"
    with pytest.raises(ProvenanceError, match="damaged: no private key can be read from it"):
        read_key(private_file(tmp_path / "k.pem", content), None)


def old_file(path: Path, passphrase: str = "pw") -> Path:
    """A key file as earlier versions wrote it."""
    how = BestAvailableEncryption(passphrase.encode())
    return private_file(path, KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))


def test_a_passphrase_is_stretched(tmp_path: Path) -> None:
    write_key(tmp_path / "new.pem", KEY, "pw")
    assert rounds(tmp_path / "new.pem") == ROUNDS >= 600_000
    assert rounds(old_file(tmp_path / "old.pem")) == 2048
    write_key(tmp_path / "open.pem", KEY, None)
    assert rounds(tmp_path / "open.pem") is None


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")
def test_openssl_reads_our_key_files_and_sees_the_rounds(tmp_path: Path) -> None:
    write_key(path := tmp_path / "k.pem", KEY, "correct horse")
    command = ["openssl", "pkey", "-in", path, "-passin", "pass:correct horse", "-outform", "DER"]
    found = subprocess.run(command, capture_output=True, check=True).stdout
    assert found == KEY.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    parsed = subprocess.run(["openssl", "asn1parse", "-in", path], capture_output=True, check=True, text=True).stdout
    assert f"INTEGER           :{ROUNDS:06X}" in parsed and "hmacWithSHA256" in parsed and "aes-256-cbc" in parsed


def test_two_files_of_one_key_and_passphrase_share_nothing(tmp_path: Path) -> None:
    for name in "ab":
        write_key(tmp_path / name, KEY, "pw")
    lines = [set((tmp_path / name).read_text().splitlines()[2:-1]) for name in "ab"]
    assert not lines[0] & lines[1]


def test_an_old_file_is_read_and_encrypted_again(tmp_path: Path) -> None:
    path = old_file(tmp_path / "k.pem")
    assert public_bytes(read_key(path, "pw")) == public_bytes(KEY)
    with pytest.raises(ProvenanceError, match="wrong passphrase"):
        encrypt_again(path, "other", "new")
    assert rounds(path) == 2048
    encrypt_again(path, "pw", "new")
    assert rounds(path) == ROUNDS and path.stat().st_mode & 0o777 == 0o600
    assert public_bytes(read_key(path, "new")) == public_bytes(KEY)
    with pytest.raises(ProvenanceError, match="wrong passphrase"):
        read_key(path, "pw")
    assert [each.name for each in tmp_path.iterdir()] == ["k.pem"]


def test_encrypting_again_leaves_the_old_file_where_the_disk_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = old_file(tmp_path / "k.pem")
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ProvenanceError, match="No space left"):
        encrypt_again(path, "pw", "new")
    assert path.read_bytes() == before and [each.name for each in tmp_path.iterdir()] == ["k.pem"]


def test_a_key_file_that_asks_for_endless_rounds_is_refused(tmp_path: Path) -> None:
    """Nobody reported this one: a file decides how long it takes to open it."""
    write_key(path := tmp_path / "k.pem", KEY, "pw")
    raw = base64.b64decode("".join(path.read_text().splitlines()[1:-1]))
    costly = raw.replace(b"\x02\x03" + ROUNDS.to_bytes(3, "big"), b"\x02\x03\x7f\xff\xff")  # 8 million: allowed
    assert costly != raw and MAX_ROUNDS >= (2**23 - 1)
    longer = raw.replace(b"\x02\x03" + ROUNDS.to_bytes(3, "big"), b"\x02\x04\x7f\xff\xff\xff")
    text = base64.encodebytes(longer).decode().replace("\n", "")
    private_file(tmp_path / "l.pem", f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{text}\n-----END".encode())
    with pytest.raises(ProvenanceError, match="2147483647 rounds of PBKDF2; at most"):
        read_key(tmp_path / "l.pem", "pw")


def test_a_key_is_unlocked_once_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_key(path := tmp_path / "k.pem", KEY, "once")
    seen = []
    load = keys.load_pem_private_key
    monkeypatch.setattr(keys, "load_pem_private_key", lambda *given: seen.append(given) or load(*given))
    for _ in range(3):
        read_key(path, "once")
    assert len(seen) == 1
    with pytest.raises(ProvenanceError, match="wrong passphrase"):
        read_key(path, "twice")
