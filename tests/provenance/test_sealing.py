"""Sealed blobs open with their key under their name and nowhere else, and no key seals two plaintexts."""

import hmac
import itertools

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from explorer.errors import ProvenanceError
from explorer.provenance.encryption import MAGIC, OVERHEAD, is_sealed, open_sealed, reading_key, seal

SECRET = bytes([2]) * 32
NAME, FIRST = "numbers/personal", 40
KEY = reading_key(SECRET, kind="step", class_path="personal", first=FIRST)
PLAIN = b"numbers of a class"


def sealed(plaintext: bytes = PLAIN) -> bytes:
    return seal(KEY, plaintext, kind="step", name=NAME, first=FIRST)


def opened(content: bytes, *, key: bytes = KEY, kind: str = "step", name: str = NAME, first: int = FIRST) -> bytes:
    return open_sealed(key, content, kind=kind, name=name, first=first)


def test_known_answer() -> None:
    def expanded(key: bytes, info: bytes) -> bytes:
        return hmac.digest(key, info + b"\x01", "sha256")

    iv = hmac.digest(expanded(KEY, b"explorer/iv/v1"), b"numbers/personal\x00" + PLAIN, "sha256")
    key = expanded(expanded(KEY, b"explorer/data-key/v1"), b"explorer/blob/v1\x00" + iv)
    aad = b"explorer/sealed/v1\nstep\x00numbers/personal\x00" + (40).to_bytes(8, "big")
    assert sealed() == b"explorer/sealed/v1\n" + iv + AESGCM(key).encrypt(bytes(12), PLAIN, aad)


@pytest.mark.parametrize("plaintext", [b"", PLAIN, bytes(range(256)) * 64, MAGIC])
def test_what_was_sealed_opens(plaintext: bytes) -> None:
    content = sealed(plaintext)
    assert is_sealed(content) and not is_sealed(PLAIN)
    assert len(content) == len(plaintext) + OVERHEAD
    assert opened(content) == plaintext
    assert sealed(plaintext) == content, "a replay writes other bytes"


def test_every_changed_byte_is_refused() -> None:
    content = sealed()
    for place in range(len(content)):
        changed = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        with pytest.raises(ProvenanceError, match=f"{NAME}: (not sealed|the seal is broken)"):
            opened(changed)
    for changed in (content[:-1], content + b"x"):
        with pytest.raises(ProvenanceError, match="the seal is broken"):
            opened(changed)
    with pytest.raises(ProvenanceError, match="cut short: 66 bytes, expected at least 67"):
        opened(content[: OVERHEAD - 1])


@pytest.mark.parametrize("other", [{"kind": "profile"}, {"name": "sketches/personal"}, {"first": 41}])
def test_in_another_place_it_does_not_open(other: dict) -> None:
    with pytest.raises(ProvenanceError, match=r"the seal is broken: .*sealed with another key or as another blob"):
        opened(sealed(), **other)


@pytest.mark.parametrize(
    "other", [{"class_path": "open"}, {"class_path": "*"}, {"kind": "profile"}, {"first": 0}, {"secret": b"x" * 32}]
)
def test_with_another_key_it_does_not_open(other: dict) -> None:
    given = {"secret": SECRET, "kind": "step", "class_path": "personal", "first": FIRST} | other
    with pytest.raises(ProvenanceError, match="the seal is broken"):
        opened(sealed(), key=reading_key(given.pop("secret"), **given))


def test_an_iv_that_does_not_follow_is_refused() -> None:
    """Who has the key could seal two plaintexts under one iv; what opens is what the derivation made."""
    iv = b"i" * 32
    key = hmac.digest(
        hmac.digest(KEY, b"explorer/data-key/v1\x01", "sha256"), b"explorer/blob/v1\x00" + iv + b"\x01", "sha256"
    )
    aad = MAGIC + b"step\x00" + NAME.encode() + b"\x00" + FIRST.to_bytes(8, "big")
    with pytest.raises(ProvenanceError, match="its iv does not follow"):
        opened(MAGIC + iv + AESGCM(key).encrypt(bytes(12), PLAIN, aad))


def test_no_key_meets_a_nonce_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executed again with other bits, the same blob of the same segment has another key."""
    used: list[bytes] = []

    def recorded(key: bytes) -> AESGCM:
        used.append(key)
        return AESGCM(key)

    monkeypatch.setattr("explorer.provenance.encryption.AESGCM", recorded)
    for plaintext, name in itertools.product((PLAIN, PLAIN + b"x", b""), (NAME, "sketches/personal")):
        seal(KEY, plaintext, kind="step", name=name, first=FIRST)
    assert len(set(used)) == len(used) == 6
