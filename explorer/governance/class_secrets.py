"""The secrets of a run's classes, and what a journal does with them: commit to numbers, and seal confidential ones.

The salts of all commitments and the keys of sealed blobs follow from the secrets (provenance/commitments.py,
provenance/reading_keys.py). `private/secrets` of the run holds them in the order of the genesis; the last one is for
numbers over several classes. Destroying a secret erases what was committed to under it. After that no commitment and
no blob can be made with it; only a replay meets this case, and leaves the placeholder out of its comparison.
"""

import hashlib
import os
from pathlib import Path

from explorer import rundir
from explorer.entries.kinds import Genesis
from explorer.errors import ProvenanceError
from explorer.governance.spool import ALL
from explorer.ledger.storage import CHECKPOINT, LedgerDirectory
from explorer.provenance.commitments import DESTROYED, Salts, commit, new_salts, read_salts, write_salts
from explorer.provenance.encryption import OVERHEAD, salt_of, seal
from explorer.runlog.run_keys import JOINT, OwnKeys
from explorer.runlog.run_ledger import class_of


def open_secrets(run: Path, genesis: Genesis) -> Salts:
    """Return the secrets of the run, made when it begins: in place whole or not at all.

    Raises `ProvenanceError` where a ledger was written with secrets that are not there.
    """
    path, ledger = run / rundir.SECRETS, run / rundir.LEDGER
    if not path.exists():
        if (ledger / CHECKPOINT).exists() and LedgerDirectory(ledger).checkpoint().size:
            raise ProvenanceError(f"{path}: missing, and the ledger beside it was written with it")
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        write_salts(temporary, new_salts(len(genesis.classes) + 1))
        temporary.rename(path)
        rundir.flush_directory(path.parent)
    return read_salts(path)


def read_secrets(run: Path, genesis: Genesis) -> Salts:
    """Return the secrets that are there; where the file is absent, none is."""
    path = run / rundir.SECRETS
    return read_salts(path) if path.exists() else Salts(content=DESTROYED * (len(genesis.classes) + 1))


def erased(secrets: Salts, genesis: Genesis) -> frozenset[str]:
    """Return the classes whose secret is gone; * is for numbers over several."""
    return frozenset(name for slot, name in enumerate([*genesis.classes, ALL]) if secrets.of(slot) is None)


# --- commitments and seals ---

NOTHING = hashlib.sha256(b"").hexdigest()  # in place of what cannot be made without a secret


class Sealer:
    """For one run. With a confidential class, numbers over several classes are sealed too."""

    def __init__(self, keys: OwnKeys, *, confidential: frozenset[str]) -> None:
        self._keys = keys
        self._sealed = confidential | {JOINT} if confidential else confidential

    def commit(self, path: str, content: bytes, *, kind: str, first: int, step: int) -> str:
        """Return the commitment of this step's entry to content of a class, or of several for *."""
        key = self._keys.of(path, kind, first)
        return NOTHING if key is None else commit(salt_of(key, step), content).hex()

    def sealed(self, name: str, content: bytes, *, kind: str, first: int) -> bytes:
        """Return a blob as it is stored. Without a secret, zeros of its size."""
        path = class_of(name)
        if path not in self._sealed:
            return content
        key = self._keys.of(path, kind, first)
        return bytes(len(content) + OVERHEAD) if key is None else seal(key, content, kind=kind, name=name, first=first)
