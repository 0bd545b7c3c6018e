"""Readers' keys: X25519 keys (RFC 7748), to which a secret is wrapped so that only their holder can open it.

Wrapping is HPKE (RFC 9180) in base mode with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-256-GCM; what is wrapped
is 32 bytes of encapsulated key and the ciphertext with its tag. `info` says what the secret is for: opened with any
other, it is refused. Nobody signs by wrapping: whoever knows a public key can wrap anything to it. The files are those
of `explorer.provenance.keys`.
"""

import base64
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from explorer.errors import ProvenanceError
from explorer.provenance.keys import parse_public, read_private

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
OVERHEAD = 32 + 16  # bytes that wrapping adds: the encapsulated key and the tag


def new_reader_key() -> X25519PrivateKey:
    """A new key from the system's randomness."""
    return X25519PrivateKey.generate()


def read_reader_key(path: Path, passphrase: str | None) -> X25519PrivateKey:
    """Read the file of a reader's key; see `explorer.provenance.keys.read_private`."""
    return read_private(path, passphrase, X25519PrivateKey)


def reader_public_text(key: X25519PrivateKey) -> str:
    """Its public key as base64, as it stands in a grant."""
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def is_weak_reader(public_key: str) -> bool:
    """Whether everybody could open what is wrapped to this key, a point of small order, or it is not canonical."""
    raw = parse_public(public_key)
    if int.from_bytes(raw, "little") >= 2**255 - 19:  # the same point has a smaller name (RFC 7748, 5)
        return True
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(raw))
    except ValueError:  # the shared secret is zero, for every private key
        return True
    return False


def wrap(secret: bytes, public_key: str, *, info: bytes) -> bytes:
    """Wrap a secret to a reader's public key. Two wrappings of one secret differ.

    Raises `ProvenanceError` for a weak key.
    """
    if is_weak_reader(public_key):
        raise ProvenanceError(f"the reader's key {public_key} is weak: everybody could open what is wrapped to it")
    return _SUITE.encrypt(secret, X25519PublicKey.from_public_bytes(parse_public(public_key)), info)


def unwrap(wrapped: bytes, key: X25519PrivateKey, *, info: bytes, where: str) -> bytes:
    """The secret. Raises `ProvenanceError` for what was changed, cut short, or wrapped to another key or with another
    `info`; which of these it was cannot be told."""
    try:
        return _SUITE.decrypt(wrapped, key, info)
    except (InvalidTag, ValueError) as error:
        raise ProvenanceError(
            f"{where}: cannot be opened: wrapped to another reader's key or for another purpose, or changed"
        ) from error
