"""Reading keys: what a class's secret gives for one stretch of its numbers, and what a grant hands on.

    R = HKDF-Expand(secret, "explorer/reading-key/v1" 00 kind 00 class 00 first as u64, 32)    RFC 5869, SHA-256

big-endian. `kind` says which entries the numbers are of; `first` is the first step of the segment for "step" (its
numbers and sketches stand in the blobs of the state that closes it), and the entry's own step for "profile" and
"decision". `class` is * for numbers over several classes. From one reading key follow

    the salt of a commitment to the numbers of a step    HKDF-Expand(R, "explorer/salt/v1" 00 step as u64, 32)
    the keys that seal a blob                            `explorer.provenance.sealing`

so that whoever has R can read those numbers and hold them against their commitments, and learns nothing of another
class, kind or stretch: none follows from another, and the secret follows from none. A replay arrives at the same keys.
To destroy the secret of a class is to destroy all of its keys that were never handed on.
"""

import struct

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from explorer.errors import ProvenanceError, unknown
from explorer.provenance.commitments import sound_salt

KEY_BYTES = 32
KINDS = ("step", "profile", "decision")  # of the entries that commit to numbers
_READING, _SALT = b"explorer/reading-key/v1", b"explorer/salt/v1"


def reading_key(secret: bytes, *, kind: str, class_path: str, first: int) -> bytes:
    """The key to a class's numbers of this kind from this step on. Raises `ProvenanceError` for what is no secret."""
    if kind not in KINDS:
        raise ProvenanceError(f"no reading key: {unknown('kind', kind, KINDS)}")
    return expand(sound_salt(secret), _READING, kind.encode(), class_path.encode(), step_bytes(first))


def salt_of(key: bytes, step: int) -> bytes:
    """The salt of the commitment that the entry of this step makes to the numbers."""
    return expand(key, _SALT, step_bytes(step))


def expand(key: bytes, *parts: bytes) -> bytes:
    """HKDF-Expand with SHA-256 to 32 bytes; the parts are set apart by a zero byte each."""
    return HKDFExpand(algorithm=SHA256(), length=KEY_BYTES, info=b"\x00".join(parts)).derive(key)


def step_bytes(step: int) -> bytes:
    """A step as 8 bytes, big-endian. Raises `ProvenanceError` for a number that no step has."""
    if not 0 <= step < 2**63:
        raise ProvenanceError(f"no key for step {step}: steps are counted from 0")
    return struct.pack(">Q", step)
