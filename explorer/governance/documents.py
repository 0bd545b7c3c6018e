"""The documents of a governed run: where their author keeps them, and the copies that every run has of its own.

What `governance: DIR` names in a recipe file or a specification:

    trust.json             whom to believe
    taxonomy.json          the classes, signed
    tags.parquet           the class of every training example
    tags.json              the attestation of that table
    policies/<name>.json   signed; `routing` names one of them
    salts, trainer.pem     private: the salts of the tags, the key that signs ledgers

A run keeps the public ones in `governance/`, its policy as `policy.json`, and beside them `source.json`: where the
private ones are, and the moment at which all of them are judged. So a run that goes on next year is the run that was
begun, whatever expires in between. Neither is part of a run's identity; the digests of the documents are. A run that
leaves examples out of another one has `quarantine.json` too, what that run had set aside: nobody looks again at what is
left out.
"""

import os
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from explorer import rundir
from explorer.errors import ProvenanceError, unknown
from explorer.provenance.envelope import MAX_BYTES
from explorer.provenance.trust import MAX_BYTES as MAX_TRUST
from explorer.rundir import read_bytes
from explorer.runlog.papers import MAX_QUARANTINE
from explorer.runlog.source import SOURCE, TRAINER, Source, source_of
from explorer.schema import to_json

TRUST = "trust.json"
TAXONOMY = "taxonomy.json"
TABLE = "tags.parquet"
ATTESTATION = "tags.json"
POLICIES = "policies"
POLICY = "policy.json"
SALTS = "salts"
QUARANTINE = "quarantine.json"

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")  # of a policy: never a path


@dataclass(frozen=True, kw_only=True, slots=True)
class Documents:
    """What was read, none of it believed yet. Documents of the same bytes, at the same place, are equal."""

    where: Path  # the directory, for messages
    trust: bytes
    taxonomy: bytes
    attestation: bytes
    policy: bytes | None  # None: the recipe routes nothing
    quarantine: bytes | None = None  # what another run had set aside; believed of examples that are left out, no others
    table: Path
    private: Path
    judged: int

    @property
    def salts(self) -> Path:
        return self.private / SALTS

    @property
    def trainer(self) -> Path:
        return self.private / TRAINER


def read_documents(directory: Path, *, policy: str | None, now: int) -> Documents:
    """The documents in their author's directory, to be judged now. Raises `ProvenanceError` for what is not there."""
    if not directory.is_dir():
        raise ProvenanceError(f"governance: {directory}: no such directory; it holds {TRUST}, {TAXONOMY}, {TABLE}, ...")
    return _read(directory, _policy_file(directory, policy), private=directory.resolve(), judged=now)


def read_copies(run: Path) -> Documents:
    """The copies in a run's directory. Raises `ProvenanceError` for what is not there, `RunError` for a damaged
    `source.json`."""
    directory = run / rundir.GOVERNANCE
    source = source_of(run)
    policy, quarantine = directory / POLICY, directory / QUARANTINE
    found = _read(directory, policy if policy.exists() else None, private=Path(source.private), judged=source.judged)
    if not quarantine.exists():
        return found
    content = read_bytes(quarantine, max_bytes=MAX_QUARANTINE, error=ProvenanceError)
    return replace(found, quarantine=content)


def keep(documents: Documents, run: Path) -> None:
    """Copy the public documents into a run's directory, once; `source.json` comes last and makes them whole.

    Kept before, they stay as they are, judged when they were; only the place of the private ones is brought up to
    date. Raises `ProvenanceError` or `RunError` if the disk refuses.
    """
    directory = run / rundir.GOVERNANCE
    judged = documents.judged
    if (directory / SOURCE).exists():
        judged = source_of(run).judged
    else:
        for name, content in (
            (TRUST, documents.trust),
            (TAXONOMY, documents.taxonomy),
            (ATTESTATION, documents.attestation),
            (POLICY, documents.policy),
            (QUARANTINE, documents.quarantine),
        ):
            if content is not None:
                rundir.write_bytes(directory / name, content)
        _copy(documents.table, directory / TABLE)
    source = Source(private=str(documents.private), judged=judged)
    rundir.write_json(directory / SOURCE, to_json(source))


def _read(directory: Path, policy: Path | None, *, private: Path, judged: int) -> Documents:
    return Documents(
        where=directory,
        trust=read_bytes(directory / TRUST, max_bytes=MAX_TRUST, error=ProvenanceError),
        taxonomy=read_bytes(directory / TAXONOMY, max_bytes=MAX_BYTES, error=ProvenanceError),
        attestation=read_bytes(directory / ATTESTATION, max_bytes=MAX_BYTES, error=ProvenanceError),
        policy=None if policy is None else read_bytes(policy, max_bytes=MAX_BYTES, error=ProvenanceError),
        table=directory / TABLE,
        private=private,
        judged=judged,
    )


def _policy_file(directory: Path, name: str | None) -> Path | None:
    if name is None:
        return None
    path = directory / POLICIES / f"{name}.json"
    if not _NAME.fullmatch(name) or not path.exists():
        known = (found.stem for found in (directory / POLICIES).glob("*.json"))
        raise ProvenanceError(f"{directory / POLICIES}: {unknown('policy', name[:80], known)}")
    return path


def _copy(table: Path, to: Path) -> None:
    """A copy on the disk, whole or not at all; tag tables can be large."""
    temporary = to.with_name(f".{to.name}.tmp")
    try:
        with table.open("rb") as source, temporary.open("wb") as copy:
            shutil.copyfileobj(source, copy)
            copy.flush()
            os.fsync(copy.fileno())
        temporary.replace(to)
        rundir.flush_directory(to.parent)
    except OSError as error:
        raise ProvenanceError(f"cannot copy {table} to {to}: {error.strerror or error}") from error
