"""Reading keys are what their derivation says, and no one of them leads to another."""

import hmac
import itertools

import pytest

from explorer.errors import ProvenanceError
from explorer.provenance.encryption import KINDS, reading_key, salt_of

SECRET, OTHER = bytes([2]) * 32, bytes([3]) * 32


def expanded(key: bytes, info: bytes) -> bytes:
    """RFC 5869, 2.3, for one block."""
    return hmac.digest(key, info + b"\x01", "sha256")


def test_known_answers() -> None:
    info = b"explorer/reading-key/v1\x00step\x00open/mit\x00" + (1300).to_bytes(8, "big")
    key = reading_key(SECRET, kind="step", class_path="open/mit", first=1300)
    assert key == expanded(SECRET, info)
    assert salt_of(key, 1303) == expanded(key, b"explorer/salt/v1\x00" + (1303).to_bytes(8, "big"))
    assert key.hex() == "9ca58ba05ee9cc1aed5767b8fe98988c6100637e516b063396c4605e98bad1d0"


def test_every_part_counts() -> None:
    parts = itertools.product((SECRET, OTHER), KINDS, ("open", "open/mit", "*"), (0, 1, 256))
    keys = {reading_key(secret, kind=kind, class_path=path, first=first) for secret, kind, path, first in parts}
    assert len(keys) == 2 * 3 * 3 * 3
    salts = {salt_of(key, step) for key in keys for step in range(3)}
    assert len(salts) == 3 * len(keys)
    assert reading_key(SECRET, kind="step", class_path="open", first=0) in keys


@pytest.mark.parametrize("secret", [b"", b"x" * 31, bytes(32)])
def test_what_is_no_secret(secret: bytes) -> None:
    with pytest.raises(ProvenanceError, match=r"32 bytes, found|was destroyed"):
        reading_key(secret, kind="step", class_path="open", first=0)


def test_what_is_no_place() -> None:
    with pytest.raises(ProvenanceError, match=r"unknown kind 'steps'.*step"):
        reading_key(SECRET, kind="steps", class_path="open", first=0)
    for step in (-1, 2**63):
        with pytest.raises(ProvenanceError, match="no key for step"):
            reading_key(SECRET, kind="step", class_path="open", first=step)
        with pytest.raises(ProvenanceError, match="no key for step"):
            salt_of(SECRET, step)
