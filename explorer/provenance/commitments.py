"""Salted commitments, which represent content that must not be shown.

    commitment = SHA-256(salt || content), 32 bytes          the salt is 32 bytes and is kept elsewhere

A holder of salt and content can prove that they belong to the commitment. Without the salt a commitment reveals
nothing: guesses of the content cannot be tried, and commitments to equal content under two salts cannot be linked.
Erasing content means destroying it together with its salt; everything that contains the commitment stays unchanged.

A record has a random salt of its own. The salt for the numbers of a class in a training step follows from a secret of
that class (`explorer.provenance.encryption`), so that a replay arrives at the same commitment, and destroying one
secret erases the class.

Salts are kept in a file that only its owner can read, and in which each salt can be destroyed for good.

    24 bytes "explorer/salts/v1" and zeros || number of salts as u64, big-endian || 32 bytes for each slot

The salts of a tag table are in the order of slots, the secrets of a run's classes in the order of the run's genesis. A
salt is destroyed by overwriting it in place with zeros. Disks that never overwrite blocks (some file systems, most
flash), backups and copies keep it; they have to be erased by other means.
"""

import hashlib
import hmac
import os
import secrets
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from explorer.errors import ProvenanceError
from explorer.provenance.keys import open_private, write_private

SALT_BYTES = 32
COMMITMENT_BYTES = 32
DESTROYED = bytes(SALT_BYTES)  # overwrites a salt or a secret; a random salt is zero with probability 2^-256
WITHHELD = b"\xff" * SALT_BYTES  # in the place of a salt that did not travel with a run (runlog/delegating.py)


def new_salt() -> bytes:
    """Return a salt for one record, or the secret of one class."""
    return secrets.token_bytes(SALT_BYTES)


def commit(salt: bytes, content: bytes) -> bytes:
    """Return the commitment to `content`, 32 bytes. Raises `ProvenanceError` for an invalid salt."""
    # The salt has a fixed length, so no other split of salt and content gives the same bytes.
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
    """Return the salt or secret itself. Raises `ProvenanceError` for one of another length or a destroyed one."""
    # A destroyed salt is refused, not used: a commitment under zeros could be guessed.
    if len(salt) != SALT_BYTES:
        raise ProvenanceError(f"a salt has {SALT_BYTES} bytes, found {len(salt)}")
    if salt == WITHHELD:
        raise ProvenanceError("the salt was withheld here: what it belongs to is not read by this run")
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

    def __getitem__(self, slot: int) -> bytes:
        """Return what is in the place of a slot's salt."""
        return self.content[slot * SALT_BYTES : (slot + 1) * SALT_BYTES]

    @property
    def destroyed(self) -> NDArray[np.bool_]:
        """The slots whose salts were destroyed, as a mask."""
        return self._are(DESTROYED)

    @property
    def withheld(self) -> NDArray[np.bool_]:
        """The slots whose salts stayed where the run was delegated, as a mask."""
        return self._are(WITHHELD)

    def of(self, slot: int) -> bytes | None:
        """Return the salt of a slot, or None if it was destroyed."""
        return None if (salt := self[slot]) == DESTROYED else salt

    def _are(self, value: bytes) -> NDArray[np.bool_]:
        return np.frombuffer(self.content, f"V{SALT_BYTES}") == np.void(value)


def new_salts(number: int) -> Salts:
    """Return this many random salts."""
    return Salts(content=secrets.token_bytes(number * SALT_BYTES))


def write_salts(path: Path, salts: Salts) -> None:
    """Write a new salt file. Raises `ProvenanceError` if there is a file already or the disk refuses."""
    write_private(path, _HEADER.pack(_MAGIC, len(salts)), salts.content)


def read_salts(path: Path) -> Salts:
    """Read a salt file. Raises `ProvenanceError` for a file that others can read, and for any other file."""
    with open_private(path, max_bytes=_MAX_BYTES) as file:
        number = _number(file, path)
        return Salts(content=file.read(number * SALT_BYTES))


def destroy_salt(path: Path, slot: int) -> None:
    """Destroy the salt of a slot, on disk when this returns. Repeating it changes nothing."""
    with open_private(path, max_bytes=_MAX_BYTES, write=True) as file:
        number = _number(file, path)
        if not 0 <= slot < number:
            raise ProvenanceError(f"{path}: no slot {slot}; it holds {number} salts, counted from 0")
        try:
            # Bypasses Python's buffer, which would write the old bytes back when the file is closed.
            written = os.pwrite(file.fileno(), DESTROYED, _HEADER.size + slot * SALT_BYTES)
            os.fsync(file.fileno())
        except OSError as error:
            raise ProvenanceError(f"cannot write {path}: {error.strerror or error}; destroy it again") from error
        if written != SALT_BYTES:
            raise ProvenanceError(f"cannot write {path}: {written} of {SALT_BYTES} bytes; destroy it again")


def _number(file: BinaryIO, path: Path) -> int:
    """Return the number of salts in the file, on which header and size have to agree."""
    header = file.read(_HEADER.size)
    size = os.fstat(file.fileno()).st_size
    if len(header) == _HEADER.size:
        magic, number = _HEADER.unpack(header)
        if magic == _MAGIC and size == _HEADER.size + number * SALT_BYTES:
            return number
    raise ProvenanceError(f"{path}: not a salt file, or one that was cut short ({size} bytes)")
