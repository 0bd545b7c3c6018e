"""Salted commitments: what stands for content where the content must not stand.

    commitment = SHA-256(salt || content), 32 bytes          the salt is 32 bytes and is kept elsewhere

Whoever holds salt and content can show that they belong to the commitment. Without the salt a commitment says nothing:
nobody can guess the content and try, and the same content under two salts gives two commitments that nothing links. To
erase content is to destroy it together with its salt; whatever the commitment is part of stays as it was.

A record has a salt of its own, from the system's randomness. The numbers of a class in a training step have one that
follows from a secret of that class (`explorer.provenance.reading_keys`), so that a replay arrives at the same
commitment and destroying one secret erases the class.
"""

import hashlib
import hmac
import secrets

from explorer.errors import ProvenanceError

SALT_BYTES = 32
COMMITMENT_BYTES = 32
DESTROYED = bytes(SALT_BYTES)  # what stands where a salt or a secret was; no generator returns it


def new_salt() -> bytes:
    """A salt for one record, or the secret of one class."""
    return secrets.token_bytes(SALT_BYTES)


def commit(salt: bytes, content: bytes) -> bytes:
    """The commitment to `content`, 32 bytes. Raises `ProvenanceError` for what is no salt."""
    return hashlib.sha256(sound_salt(salt) + content).digest()


def check_commitment(commitment: bytes, *, salt: bytes, content: bytes, where: str) -> None:
    """Raise `ProvenanceError` unless the commitment is to `content` under `salt`."""
    found = commit(salt, content)
    if not hmac.compare_digest(found, commitment):
        raise ProvenanceError(
            f"{where}: the content does not belong to its commitment: they give {found.hex()}, expected "
            f"{commitment.hex()}; the content was changed, or the salt is another record's"
        )


def sound_salt(salt: bytes) -> bytes:
    """The salt or secret itself. Raises `ProvenanceError` for what is none, or none any more."""
    if len(salt) != SALT_BYTES:
        raise ProvenanceError(f"a salt has {SALT_BYTES} bytes, found {len(salt)}")
    if salt == DESTROYED:
        raise ProvenanceError("the salt was destroyed: what it belonged to was erased and can no longer be shown")
    return salt
