"""Readers' keys: one Ed25519 key, which signs what its holder asks for, and the X25519 key that follows from it, to
which a secret is wrapped so that only its holder can open it.

The X25519 key (RFC 7748) has the scalar that Ed25519 itself takes from the same seed, SHA-512(seed)[:32], so that
its public key u follows from the Ed25519 public key y: u = (1 + y) / (1 - y) mod 2^255 - 19. A grant names u alone;
whoever checks a signature computes u from the key that signed. age and libsodium convert keys this way; that
signing and this kind of wrapping may share a key is shown in Thormarker, "On using the same key pair for Ed25519 and an
X25519 based KEM", 2021, IACR ePrint 2021/509. Files of earlier versions hold an X25519 key alone: it opens what was
wrapped to it, and signs nothing.

Wrapping is HPKE (RFC 9180) in base mode with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-256-GCM; what is wrapped
is 32 bytes of encapsulated key and the ciphertext with its tag. `info` says what the secret is for: opened with any
other, it is refused. Nobody signs by wrapping: whoever knows a public key can wrap anything to it. The files are those
of `explorer.provenance.keys`.
"""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from explorer.errors import ProvenanceError
from explorer.provenance.keys import parse_public, read_any

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_PRIME = 2**255 - 19
OVERHEAD = 32 + 16  # bytes that wrapping adds: the encapsulated key and the tag


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ReaderKey:
    """What a reader's key file holds. It is never printed."""

    opens: X25519PrivateKey
    signs: Ed25519PrivateKey | None  # None: a file of an earlier version


def new_reader_key() -> Ed25519PrivateKey:
    """A new key from the system's randomness, as it is written to a file."""
    return Ed25519PrivateKey.generate()


def reader_key(key: Ed25519PrivateKey | X25519PrivateKey) -> ReaderKey:
    """The two keys of a reader, from the one in the file."""
    if isinstance(key, X25519PrivateKey):
        return ReaderKey(opens=key, signs=None)
    scalar = hashlib.sha512(key.private_bytes_raw()).digest()[:32]  # X25519 clamps it, as Ed25519 does
    return ReaderKey(opens=X25519PrivateKey.from_private_bytes(scalar), signs=key)


def read_reader_key(path: Path, passphrase: str | None) -> ReaderKey:
    """Read the file of a reader's key; see `explorer.provenance.keys.read_private`."""
    return reader_key(read_any(path, passphrase))


def reader_of(signing_key: bytes) -> str:
    """The X25519 public key, as it stands in a grant, of the reader who signs with this Ed25519 public key."""
    y = int.from_bytes(signing_key, "little") & (2**255 - 1)
    if not 1 < y < _PRIME:
        raise ProvenanceError("not the public key of a reader: a point that has no counterpart for X25519")
    return base64.b64encode(((1 + y) * pow(1 - y, -1, _PRIME) % _PRIME).to_bytes(32, "little")).decode()


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
