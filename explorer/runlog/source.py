"""Where a run's private documents are, and the trainer's key among them, which signs what a project goes on recording.

A run keeps `governance/source.json` beside the copies of its public documents; no signature covers it. Nothing is
believed because that file names it: a key signs only if the trust file says that it is a trainer's.
"""

import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer import rundir, schema
from explorer.errors import RunError
from explorer.provenance.keys import is_encrypted, public_bytes, read_key
from explorer.provenance.private import PASSPHRASE
from explorer.provenance.require import check_signer
from explorer.provenance.roles import Role
from explorer.provenance.times import format_time
from explorer.provenance.trust import Trust
from explorer.schema import record

SOURCE = "source.json"
TRAINER = "trainer.pem"


@record
class Source:
    """`source.json`."""

    private: str  # the directory of the salts and the trainer's key
    judged: int  # the moment at which the run's documents are judged, in seconds since 1970


def source_of(run: Path) -> Source:
    """What a run's directory says. Raises `RunError` for a run that is not governed and for a damaged file."""
    where = run / rundir.GOVERNANCE / SOURCE
    return schema.from_json(Source, rundir.read_json(where), where=str(where), error=RunError)


def trainer_key(run: Path, *, trust: Trust, now: int, private: Path | None = None) -> tuple[str, Ed25519PrivateKey]:
    """The trainer's name and key; its passphrase is in the environment. `private` is where it is now, if not where the
    run had it.

    Raises `ProvenanceError` for a key that is not here, cannot be opened, or is no trainer's now.
    """
    path = (Path(source_of(run).private) if private is None else private) / TRAINER
    key = read_key(path, os.environ.get(PASSPHRASE) if is_encrypted(path) else None)
    moment = format_time(now)
    trainer = check_signer(public_bytes(key), trust=trust, role=Role.TRAINER, issued=moment, now=now, where=str(path))
    return trainer.name, key
