"""Sealed blobs: the numbers of a confidential class, as only those who have the reading key can read them.

    sealed   = "explorer/sealed/v1\n" || iv, 32 bytes || AES-256-GCM(key, nonce 0, plaintext, aad)
    iv       = HMAC-SHA256(HKDF-Expand(R, "explorer/iv/v1", 32), name 00 plaintext)
    key      = HKDF-Expand(HKDF-Expand(R, "explorer/data-key/v1", 32), "explorer/blob/v1" 00 iv, 32)
    aad      = "explorer/sealed/v1\n" || kind 00 name 00 first as u64, big-endian

where R is a reading key (`explorer.provenance.reading_keys`), `name` the blob's name in its entry, and AES-256-GCM's
output is the ciphertext with its tag of 16 bytes behind it. Nothing here is random, so a replay writes the same bytes.
The key follows from name and plaintext through the iv: another plaintext, as when history is executed again and comes
out differently, has another key, and no key meets the same nonce twice. What is equal is seen to be equal, and only
under one R: two sealings of the same numbers of the same segment. The length of the plaintext is visible.
"""

import hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from explorer.errors import ProvenanceError
from explorer.provenance.reading_keys import expand, step_bytes

MAGIC = b"explorer/sealed/v1\n"
IV_BYTES, TAG_BYTES = 32, 16
OVERHEAD = len(MAGIC) + IV_BYTES + TAG_BYTES  # bytes that sealing adds
_DATA, _IV, _BLOB = b"explorer/data-key/v1", b"explorer/iv/v1", b"explorer/blob/v1"
_NONCE = bytes(12)  # every key seals one plaintext


def seal(key: bytes, plaintext: bytes, *, kind: str, name: str, first: int) -> bytes:
    """The sealed form of a blob. `key` is the reading key of its class, kind and first step."""
    iv = _iv(key, name, plaintext)
    return MAGIC + iv + AESGCM(_blob_key(key, iv)).encrypt(_NONCE, plaintext, _aad(kind, name, first))


def open_sealed(key: bytes, content: bytes, *, kind: str, name: str, first: int) -> bytes:
    """The plaintext. Raises `ProvenanceError` for what is not sealed, was cut short, and for content that is not what
    was sealed with this key under this name."""
    if not is_sealed(content):
        raise ProvenanceError(f"{name}: not sealed: it does not begin with {MAGIC.decode().strip()}")
    if len(content) < OVERHEAD:
        raise ProvenanceError(f"{name}: sealed, and cut short: {len(content)} bytes, expected at least {OVERHEAD}")
    iv, ciphertext = content[len(MAGIC) : len(MAGIC) + IV_BYTES], content[len(MAGIC) + IV_BYTES :]
    try:
        plaintext = AESGCM(_blob_key(key, iv)).decrypt(_NONCE, ciphertext, _aad(kind, name, first))
    except InvalidTag as error:
        raise ProvenanceError(
            f"{name}: the seal is broken: it was changed, or sealed with another key or as another blob than "
            f"{name} of a {kind} from step {first} on"
        ) from error
    if not hmac.compare_digest(_iv(key, name, plaintext), iv):
        raise ProvenanceError(f"{name}: the seal is broken: its iv does not follow from what it seals")
    return plaintext


def is_sealed(content: bytes) -> bool:
    """Whether this claims to be a sealed blob."""
    return content.startswith(MAGIC)


def _iv(key: bytes, name: str, plaintext: bytes) -> bytes:
    return hmac.digest(expand(key, _IV), name.encode() + b"\x00" + plaintext, "sha256")


def _blob_key(key: bytes, iv: bytes) -> bytes:
    return expand(expand(key, _DATA), _BLOB, iv)


def _aad(kind: str, name: str, first: int) -> bytes:
    return MAGIC + b"\x00".join((kind.encode(), name.encode(), step_bytes(first)))
