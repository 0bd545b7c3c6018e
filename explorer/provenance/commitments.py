"""Salted commitments: they take the place of content that must not be shown.

    commitment = SHA-256(salt || content), 32 bytes          the salt is 32 bytes and is kept elsewhere

A holder of salt and content can show that they belong to the commitment. Without the salt a commitment says nothing:
guesses of the content cannot be tried, and nothing links two commitments to the same content under two salts. To
erase content is to destroy it together with its salt; whatever the commitment is part of stays as it was.

A record has a salt of its own, from the system's randomness. The numbers of a class in a training step have one that
follows from a secret of that class (`explorer.provenance.encryption`), so that a replay arrives at the same
commitment and destroying one secret erases the class.

Salts are kept in a file that its owner alone can read and in which each one can be destroyed for good.

    24 bytes "explorer/salts/v1" and zeros || number of salts as u64, big-endian || 32 bytes for each slot

The salts of a tag table stand by slot; the secrets of a run's classes stand in the order of the run's genesis. To
destroy one is to write zeros over it in place. A disk that never writes over its blocks (some file systems, most
flash), a backup and a copy keep what they have: see to them too.
"""

import hashlib
import hmac
import os
import secrets
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from explorer.errors import ProvenanceError
from explorer.provenance.keys import open_private, write_private

SALT_BYTES = 32
COMMITMENT_BYTES = 32
DESTROYED = bytes(SALT_BYTES)  # what takes the place of a salt or a secret; no generator returns it


def new_salt() -> bytes:
    """Return a salt for one record, or the secret of one class."""
    return secrets.token_bytes(SALT_BYTES)


def commit(salt: bytes, content: bytes) -> bytes:
    """Return the commitment to `content`, 32 bytes. Raises `ProvenanceError` for what is no salt."""
    return hashlib.sha256(sound_salt(salt) + content).digest()


def check_commitment(commitment: bytes, *, salt: bytes, content: bytes, where: str) -> None:
    """Raise `ProvenanceError` unless the commitment is to `content` under `salt`."""
    actual = commit(salt, content)
    if not hmac.compare_digest(actual, commitment):
        raise ProvenanceError(
            f"{where}: the content does not belong to its commitment: they give {actual.hex()}, expected "
            f"{commitment.hex()}; the content was changed, or the salt is another record's"
        )


def sound_salt(salt: bytes) -> bytes:
    """Return the salt or secret itself. Raises `ProvenanceError` for what is none, or none any more."""
    if len(salt) != SALT_BYTES:
        raise ProvenanceError(f"a salt has {SALT_BYTES} bytes, found {len(salt)}")
    if salt == DESTROYED:
        raise ProvenanceError("the salt was destroyed: what it belonged to was erased and can no longer be shown")
    return salt


# -------------------------------------------------------------------------------------------------------- salts on disk

MAX_SALTS = 2**24
_MAGIC = b"explorer/salts/v1".ljust(24, b"\x00")
_HEADER = struct.Struct(">24sQ")
_MAX_BYTES = _HEADER.size + MAX_SALTS * SALT_BYTES


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Salts:
    """Salts by slot. They are never printed."""

    content: bytes  # 32 bytes a slot

    def __len__(self) -> int:
        return len(self.content) // SALT_BYTES

    def of(self, slot: int) -> bytes | None:
        """Return the salt of a slot, or None if it was destroyed."""
        salt = self.content[slot * SALT_BYTES : (slot + 1) * SALT_BYTES]
        return None if salt == DESTROYED else salt


def new_salts(number: int) -> Salts:
    """Return so many salts, from the system's randomness."""
    return Salts(content=secrets.token_bytes(number * SALT_BYTES))


def write_salts(path: Path, salts: Salts) -> None:
    """Write a new salt file. Raises `ProvenanceError` if there is a file already or the disk refuses."""
    write_private(path, _HEADER.pack(_MAGIC, len(salts)), salts.content)


def read_salts(path: Path) -> Salts:
    """Read a salt file. Raises `ProvenanceError` if others can read it or it is not one."""
    with open_private(path, max_bytes=_MAX_BYTES) as file:
        number = _number(file, path)
        return Salts(content=file.read(number * SALT_BYTES))


def destroy_salt(path: Path, slot: int) -> None:
    """Destroy the salt of a slot; that is on the disk when this returns. To do it again changes nothing."""
    with open_private(path, max_bytes=_MAX_BYTES, write=True) as file:
        number = _number(file, path)
        if not 0 <= slot < number:
            raise ProvenanceError(f"{path}: no slot {slot}; it holds {number} salts, counted from 0")
        try:
            # Past Python's buffer, which would be written once more when the file is closed.
            written = os.pwrite(file.fileno(), DESTROYED, _HEADER.size + slot * SALT_BYTES)
            os.fsync(file.fileno())
        except OSError as error:
            raise ProvenanceError(f"cannot write {path}: {error.strerror or error}; destroy it again") from error
        if written != SALT_BYTES:
            raise ProvenanceError(f"cannot write {path}: {written} of {SALT_BYTES} bytes; destroy it again")


def _number(file: BinaryIO, path: Path) -> int:
    """Return how many salts the file holds, by its header and by its size."""
    header = file.read(_HEADER.size)
    size = os.fstat(file.fileno()).st_size
    if len(header) == _HEADER.size:
        magic, number = _HEADER.unpack(header)
        if magic == _MAGIC and size == _HEADER.size + number * SALT_BYTES:
            return number
    raise ProvenanceError(f"{path}: not a salt file, or one that was cut short ({size} bytes)")
