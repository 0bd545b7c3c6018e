"""What a journal does with the numbers of classes: it commits to all of them, and seals those that are confidential.

The keys follow from the classes' secrets (provenance/reading_keys.py). Where a secret was destroyed neither can be
done; a replay alone meets that, and leaves out of its comparison what stands there instead.
"""

import hashlib

from explorer.provenance.commitments import commit
from explorer.provenance.encryption import OVERHEAD, salt_of, seal
from explorer.runlog.run_keys import JOINT, OwnKeys
from explorer.runlog.run_ledger import class_of

NOTHING = hashlib.sha256(b"").hexdigest()  # stands for what cannot be made without a secret


class Sealer:
    """For one run. With a confidential class, numbers over several classes are sealed too."""

    def __init__(self, keys: OwnKeys, *, confidential: frozenset[str]) -> None:
        self._keys = keys
        self._sealed = confidential | {JOINT} if confidential else confidential

    def commit(self, path: str, content: bytes, *, kind: str, first: int, step: int) -> str:
        """The commitment of this step's entry to content of a class, or of several for *."""
        key = self._keys.of(path, kind, first)
        return NOTHING if key is None else commit(salt_of(key, step), content).hex()

    def sealed(self, name: str, content: bytes, *, kind: str, first: int) -> bytes:
        """A blob as it is stored. Without a secret, zeros of its size."""
        path = class_of(name)
        if path not in self._sealed:
            return content
        key = self._keys.of(path, kind, first)
        return bytes(len(content) + OVERHEAD) if key is None else seal(key, content, kind=kind, name=name, first=first)
