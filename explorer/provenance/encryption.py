"""Encryption of the numbers of confidential classes: reading keys, and the blobs that only a reading key opens.

Reading keys follow from a class's secret, one for each stretch of its numbers; grants hand them on.

    R = HKDF-Expand(secret, "explorer/reading-key/v1" 00 kind 00 class 00 first as u64, 32)    RFC 5869, SHA-256

big-endian. `kind` is the kind of the entries of these numbers; `first` is the first step of the segment for "step" (its
numbers and sketches are in the blobs of the state that closes it), and the entry's own step for "profile" and
"decision". `class` is * for numbers over several classes. From one reading key follow

    the salt of a commitment to the numbers of a step    HKDF-Expand(R, "explorer/salt/v1" 00 step as u64, 32)
    the keys that seal a blob                            below

so that a holder of R can read these numbers and check them against their commitments, but learns nothing about another
class, kind or stretch: no key follows from another, and the secret follows from none. A replay arrives at the same
keys. Destroying the secret of a class destroys all of its keys that were never handed on.

Sealed blobs hold the numbers of a confidential class.

    sealed   = "explorer/sealed/v1\n" || iv, 32 bytes || AES-256-GCM(key, nonce 0, plaintext, aad)
    iv       = HMAC-SHA256(HKDF-Expand(R, "explorer/iv/v1", 32), name 00 plaintext)
    key      = HKDF-Expand(HKDF-Expand(R, "explorer/data-key/v1", 32), "explorer/blob/v1" 00 iv, 32)
    aad      = "explorer/sealed/v1\n" || kind 00 name 00 first as u64, big-endian

where R is a reading key, `name` the blob's name in its entry, and AES-256-GCM's output is the ciphertext followed by
its tag of 16 bytes. Nothing here is random, so a replay writes the same bytes. The key follows from name and plaintext
through the iv (a synthetic iv, as in RFC 5297): another plaintext, as when steps are executed again with another
result, has another key, so no key uses its nonce for two plaintexts. Only equality under one R is visible: that two
blobs of a segment hold the same numbers. So is the length of the plaintext.
"""

import hmac
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from explorer.errors import ProvenanceError, unknown
from explorer.provenance.commitments import sound_salt

# --------------------------------------------------------------------------------------------------------- reading keys

KEY_BYTES = 32
KINDS = ("step", "profile", "decision")  # of the entries that commit to numbers
_READING, _SALT = b"explorer/reading-key/v1", b"explorer/salt/v1"


def reading_key(secret: bytes, *, kind: str, class_path: str, first: int) -> bytes:
    """Return the key to a class's numbers of this kind from this step on.

    Raises `ProvenanceError` for an invalid secret.
    """
    if kind not in KINDS:
        raise ProvenanceError(f"no reading key: {unknown('kind', kind, KINDS)}")
    return expand(sound_salt(secret), _READING, kind.encode(), class_path.encode(), step_bytes(first))


def salt_of(key: bytes, step: int) -> bytes:
    """Return the salt of this step's commitment to its numbers."""
    return expand(key, _SALT, step_bytes(step))


def expand(key: bytes, *parts: bytes) -> bytes:
    """Return 32 bytes of HKDF-Expand with SHA-256 (RFC 5869, section 2.3) over the parts, joined by zero bytes."""
    # Unambiguous: labels and names hold no zero byte, and a part of free bytes is the last and of fixed length.
    return HKDFExpand(algorithm=SHA256(), length=KEY_BYTES, info=b"\x00".join(parts)).derive(key)


def step_bytes(step: int) -> bytes:
    """Return a step as 8 bytes, big-endian. Raises `ProvenanceError` for an invalid step."""
    if not 0 <= step < 2**63:
        raise ProvenanceError(f"no key for step {step}: steps are counted from 0")
    return struct.pack(">Q", step)


# --------------------------------------------------------------------------------------------------------- sealed blobs

MAGIC = b"explorer/sealed/v1\n"
IV_BYTES, TAG_BYTES = 32, 16
OVERHEAD = len(MAGIC) + IV_BYTES + TAG_BYTES  # bytes that sealing adds
_DATA, _IV, _BLOB = b"explorer/data-key/v1", b"explorer/iv/v1", b"explorer/blob/v1"
_NONCE = bytes(12)  # constant: every key seals only one plaintext


def seal(key: bytes, plaintext: bytes, *, kind: str, name: str, first: int) -> bytes:
    """Return the sealed form of a blob. `key` is the reading key of its class, kind and first step."""
    iv = _iv(key, name, plaintext)
    return MAGIC + iv + AESGCM(_blob_key(key, iv)).encrypt(_NONCE, plaintext, _aad(kind, name, first))


def open_sealed(key: bytes, content: bytes, *, kind: str, name: str, first: int) -> bytes:
    """Return the plaintext.

    Raises `ProvenanceError` for content that is not sealed, is truncated, or was not sealed with this key under this
    name.
    """
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
    # A holder of R could seal one plaintext under another's iv. That opens, but no honest replay would write it.
    if not hmac.compare_digest(_iv(key, name, plaintext), iv):
        raise ProvenanceError(f"{name}: the seal is broken: its iv does not follow from what it seals")
    return plaintext


def is_sealed(content: bytes) -> bool:
    """Return whether the content claims to be a sealed blob."""
    return content.startswith(MAGIC)


def _iv(key: bytes, name: str, plaintext: bytes) -> bytes:
    return hmac.digest(expand(key, _IV), name.encode() + b"\x00" + plaintext, "sha256")


def _blob_key(key: bytes, iv: bytes) -> bytes:
    return expand(expand(key, _DATA), _BLOB, iv)


def _aad(kind: str, name: str, first: int) -> bytes:
    return MAGIC + b"\x00".join((kind.encode(), name.encode(), step_bytes(first)))
