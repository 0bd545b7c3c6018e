"""The secrets of a run's classes, from which the salts of all its commitments follow (provenance/commitments.py).

They stand in `private/secrets` of the run, in the order of the genesis; the last one is for numbers over several
classes. Destroying one erases what was committed to under it.
"""

import os
from pathlib import Path

from explorer import rundir
from explorer.entries.run import Genesis
from explorer.errors import ProvenanceError
from explorer.governance.spool import ALL
from explorer.ledger.storage import CHECKPOINT, LedgerDirectory
from explorer.provenance.commitments import DESTROYED, Salts, new_salts, read_salts, write_salts


def open_secrets(run: Path, genesis: Genesis) -> Salts:
    """The secrets of the run, made when it begins: in place whole or not at all.

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
    """The secrets that are there; where the file is absent, none is."""
    path = run / rundir.SECRETS
    return read_salts(path) if path.exists() else Salts(content=DESTROYED * (len(genesis.classes) + 1))


def erased(secrets: Salts, genesis: Genesis) -> frozenset[str]:
    """The classes whose secret is gone; * is for numbers over several."""
    return frozenset(name for slot, name in enumerate([*genesis.classes, ALL]) if secrets.of(slot) is None)
