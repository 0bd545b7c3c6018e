"""Delegating a run: what it needs to be executed away from the trainer's key, made at home and received there.

At home, `delegate` makes a fresh key for the run and signs with the trainer's that it may sign the run's ledger
(provenance/delegation.py). It returns files for the run's own documents (runlog/documents.py). The trainer's key stays.
Where the run is executed, `receive` writes these files, private ones for their owner only.
"""

from collections.abc import Mapping
from pathlib import Path

from explorer import rundir
from explorer.canonical import digest
from explorer.errors import ProvenanceError, unknown
from explorer.provenance.delegation import Delegation, sign_delegation
from explorer.provenance.keys import key_content, new_key, open_private, public_text, write_private
from explorer.provenance.spellings import format_time
from explorer.provenance.trust import parse_trust
from explorer.run_files import Plan
from explorer.runlog.documents import DELEGATION_FILE, RUN_KEY_FILE, TRUST_FILE, Documents, open_trainer

PRIVATE = (RUN_KEY_FILE,)  # written for their owner only
MAX_FILE = 2**16


def delegate(documents: Documents, record: Plan, until: int, *, now: int) -> dict[str, bytes]:
    """Make a key for a run and delegate the run's ledger to it; return the files that travel, by name.

    Each call makes another key. A ledger that was begun under one cannot be continued under another, so `until` has to
    leave time for interruptions.

    Args:
        documents: of the run, where the trainer's key is.
        record: the plan of the run.
        until: the end of the delegation, in seconds since 1970.
        now: seconds since 1970.

    Raises `ProvenanceError` for a key that is not a trainer's now, and for an end that is in the past or too far away.
    """
    trust = parse_trust(documents.trust, where=str(documents.where / TRUST_FILE))
    trainer, key = open_trainer(documents.trainer, trust=trust, now=now)
    own = new_key()
    value = Delegation(
        ledger=f"{trainer}/{record.run_id}",
        public_key=public_text(own),
        issued=format_time(now),
        expires=format_time(until),
    )
    plan, where = digest(record.identity), f"the delegation of run {record.run_id}"
    envelope = sign_delegation(value, plan=plan, key=key, trust=trust, now=now, where=where)
    return {DELEGATION_FILE: envelope.content, RUN_KEY_FILE: key_content(own, None)}


def receive(files: Mapping[str, bytes], directory: Path) -> None:
    """Write the files of `delegate` into the documents of a run; those that are there already have to be the same.

    Raises `ProvenanceError` for another file of that name, and for names that do not travel.
    """
    for name, content in files.items():
        if name not in (DELEGATION_FILE, *PRIVATE):
            raise ProvenanceError(f"{directory}: {unknown('file', name[:80], (DELEGATION_FILE, *PRIVATE))}")
        path = directory / name
        if not path.exists():
            (write_private if name in PRIVATE else rundir.write_bytes)(path, content)
        elif content != _present(path):
            raise ProvenanceError(f"{path}: there is another one already: expected the same, or a directory of its own")


def _present(path: Path) -> bytes:
    if path.name not in PRIVATE:
        return rundir.read_bytes(path, max_bytes=MAX_FILE, error=ProvenanceError)
    with open_private(path, max_bytes=MAX_FILE) as file:
        return file.read()
