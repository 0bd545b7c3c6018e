"""The signed documents of a governed run: in their author's directory, in the run's copies, and as values.

`governance: DIR` in a recipe file or a specification names a directory with

    trust.json             the keys to believe
    taxonomy.json          the classes, signed
    tags.parquet           the class of every training example
    tags.json              the attestation of that table
    policies/<name>.json   signed; `routing` names one of them
    salts, trainer.pem     private: the salts of the tags, the key that signs ledgers

Where a run is executed away from the trainer's key (runlog/delegating.py), it has in place of `trainer.pem`

    governance/delegation.json    the trainer's statement about the key of this run (provenance/delegation.py)
    private/run.pem               that key, which signs the ledger of this run and nothing else
    private/salts                 of the classes that the policy admits somewhere

A run keeps the public ones in `governance/`, its policy as `policy.json`, together with `source.json`: the place of the
private ones, and the moment for which all of them are judged. So a run that is resumed next year is still the same run,
whatever expires in between. Neither place nor moment is part of a run's identity; the digests of the documents are. A
run that leaves out examples of another run also has `quarantine.json`, the examples that the other run had set aside:
the content of examples that are left out is not checked again.

Documents are read at three levels of trust, in this order below:

- as bytes (`read_documents`, `read_copies`): not checked yet; `governance.credentials` checks them;
- bound (`read_policy`, `read_tag_rows`): those that governed the run, because the genesis of its ledger names their
  digests; signatures are not checked;
- believed (`read_basis`, `read_rules`, `read_verified_tags`): also signed by keys of a trust file.
"""

import hashlib
import os
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from explorer import rundir
from explorer.entries.kinds import Genesis
from explorer.errors import ExplorerError, LedgerError, ProvenanceError, RunError, unknown
from explorer.provenance.envelope import MAX_BYTES, parse_envelope
from explorer.provenance.keys import PASSPHRASE, is_encrypted, public_bytes, read_key
from explorer.provenance.policy import RoutingPolicy
from explorer.provenance.routing_weights import Routing, bind, policy_for
from explorer.provenance.signing import check_signer, open_document
from explorer.provenance.spellings import format_time
from explorer.provenance.tag_attestation import VerifiedTags, read_attestation, weigh_tags
from explorer.provenance.tags import Tags, read_authorities, read_tags
from explorer.provenance.tags_file import MAX_ROWS, TagFile
from explorer.provenance.taxonomy import QUARANTINE, TAXONOMY, Taxonomy
from explorer.provenance.trust import MAX_BYTES as MAX_TRUST
from explorer.provenance.trust import Authority, Role, Trust, read_trust
from explorer.rundir import read_bytes
from explorer.runlog.run_ledger import Placed, RunLedger
from explorer.schema import from_json, parse_json, record, to_json

TRUST_FILE = "trust.json"
TAXONOMY_FILE = "taxonomy.json"
TABLE_FILE = "tags.parquet"
ATTESTATION_FILE = "tags.json"
POLICIES = "policies"
POLICY_FILE = "policy.json"
QUARANTINE_FILE = "quarantine.json"
SALTS_FILE = "salts"
TRAINER_FILE = "trainer.pem"
DELEGATION_FILE = "delegation.json"
RUN_KEY_FILE = "run.pem"
SOURCE_FILE = "source.json"
PUBLIC_FILES = (TRUST_FILE, TAXONOMY_FILE, ATTESTATION_FILE, POLICY_FILE, QUARANTINE_FILE, DELEGATION_FILE)
MAX_QUARANTINE = 2**28

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")  # of a policy: never a path

Document = TypeVar("Document")


# --- private files: salts and the trainer's key ---


@record
class Source:
    """`source.json`. No signature covers it, so nothing is believed on its word: a key signs only if the trust file
    lists it as a trainer's."""

    private: str  # the directory of the salts and the trainer's key
    judged: int  # moment for which the run's documents are judged, in seconds since 1970


def source_of(run: Path) -> Source:
    """Read `source.json`. Raises `RunError` for a run that is not governed and for a damaged file."""
    where = run / rundir.GOVERNANCE / SOURCE_FILE
    return from_json(Source, rundir.read_json(where), where=str(where), error=RunError)


def trainer_key(run: Path, *, trust: Trust, now: int, private: Path | None = None) -> tuple[str, Ed25519PrivateKey]:
    """Return the trainer's name and key; the passphrase is in the environment. `private` is the key's directory, if it
    has moved since the run.

    Raises `ProvenanceError` for a key that is missing, cannot be opened, or is not a trainer's now.
    """
    return open_trainer(
        (Path(source_of(run).private) if private is None else private) / TRAINER_FILE, trust=trust, now=now
    )


def open_trainer(path: Path, *, trust: Trust, now: int) -> tuple[str, Ed25519PrivateKey]:
    """Return the trainer's name and the key at this path; see `trainer_key`."""
    key = read_key(path, os.environ.get(PASSPHRASE) if is_encrypted(path) else None)
    moment = format_time(now)
    trainer = check_signer(public_bytes(key), trust=trust, role=Role.TRAINER, issued=moment, now=now, where=str(path))
    return trainer.name, key


# --- as bytes ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Documents:
    """Documents as read, none of them believed yet. The same bytes at the same place are equal."""

    where: Path  # the directory, for messages
    trust: bytes
    taxonomy: bytes
    attestation: bytes
    policy: bytes | None  # None: the recipe routes nothing
    quarantine: bytes | None = None  # examples that another run had set aside; believed only if they are left out
    delegation: bytes | None = None  # to the key that signs the ledger; None: the trainer's own key signs it
    table: Path
    private: Path
    judged: int  # seconds since 1970

    @property
    def salts(self) -> Path:
        return self.private / SALTS_FILE

    @property
    def trainer(self) -> Path:
        return self.private / TRAINER_FILE

    @property
    def run_key(self) -> Path:
        return self.private / RUN_KEY_FILE

    @property
    def public(self) -> dict[str, bytes]:
        """Return what everybody may see, but for the table, by the names of a run's copies."""
        contents = (self.trust, self.taxonomy, self.attestation, self.policy, self.quarantine, self.delegation)
        return {name: content for name, content in zip(PUBLIC_FILES, contents, strict=True) if content is not None}


def read_documents(directory: Path, *, policy: str | None, now: int) -> Documents:
    """Read the documents in their author's directory, to be judged now. Raises `ProvenanceError` for missing files."""
    if not directory.is_dir():
        raise ProvenanceError(
            f"governance: {directory}: no such directory; it holds {TRUST_FILE}, {TAXONOMY_FILE}, {TABLE_FILE}, ..."
        )
    return _read(directory, _policy_file(directory, policy), private=directory.resolve(), judged=now)


def read_copies(run: Path) -> Documents:
    """Read the copies in a run's directory. Raises `ProvenanceError` for missing files, `RunError` for a damaged
    `source.json`."""
    directory = run / rundir.GOVERNANCE
    source = source_of(run)
    policy, quarantine = directory / POLICY_FILE, directory / QUARANTINE_FILE
    copies = _read(directory, policy if policy.exists() else None, private=Path(source.private), judged=source.judged)
    if not quarantine.exists():
        return copies
    return replace(copies, quarantine=read_bytes(quarantine, max_bytes=MAX_QUARANTINE, error=ProvenanceError))


def keep(documents: Documents, run: Path) -> None:
    """Copy the public documents into a run's directory, once.

    Existing copies stay as they are, and so does the moment for which they are judged; only the place of the private
    documents is updated. Raises `ProvenanceError` or `RunError` if the disk refuses.
    """
    # `source.json` is written last: its presence means that the copies are complete, also after a crash.
    directory = run / rundir.GOVERNANCE
    judged = documents.judged
    if (directory / SOURCE_FILE).exists():
        judged = source_of(run).judged
    else:
        for name, content in documents.public.items():
            rundir.write_bytes(directory / name, content)
        _copy(documents.table, directory / TABLE_FILE)
    source = Source(private=str(documents.private), judged=judged)
    rundir.write_json(directory / SOURCE_FILE, to_json(source))


def _read(directory: Path, policy: Path | None, *, private: Path, judged: int) -> Documents:
    delegation = directory / DELEGATION_FILE
    return Documents(
        where=directory,
        trust=read_bytes(directory / TRUST_FILE, max_bytes=MAX_TRUST, error=ProvenanceError),
        taxonomy=_signed(directory / TAXONOMY_FILE),
        attestation=_signed(directory / ATTESTATION_FILE),
        policy=None if policy is None else _signed(policy),
        delegation=_signed(delegation) if delegation.exists() else None,
        table=directory / TABLE_FILE,
        private=private,
        judged=judged,
    )


def _signed(path: Path) -> bytes:
    return read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)


def _policy_file(directory: Path, name: str | None) -> Path | None:
    if name is None:
        return None
    path = directory / POLICIES / f"{name}.json"
    if not _NAME.fullmatch(name) or not path.exists():
        known = (policy.stem for policy in (directory / POLICIES).glob("*.json"))
        raise ProvenanceError(f"{directory / POLICIES}: {unknown('policy', name[:80], known)}")
    return path


def _copy(table: Path, to: Path) -> None:
    """Copy a file to the disk, whole or not at all, and in pieces: tag tables can be large."""
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


# --- bound: what the genesis names ---


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TagRows:
    """The tag table of a run, row by row."""

    tags: Tags
    classes: NDArray[np.int64]  # index into the genesis' classes; their number for rows that never trained
    authorities: tuple[str, ...]  # by the numbers in `tags`

    def vouched_by(self, authority: str) -> NDArray[np.int64]:
        """Return the rows that an authority vouches for, ascending; none for one that the table does not name."""
        if authority not in self.authorities:
            return np.array([], np.int64)
        return np.flatnonzero(self.tags.authorities == self.authorities.index(authority))


def read_policy(run: RunLedger) -> RoutingPolicy | None:
    """Read the policy of a run; None: it routes nothing. Raises `ProvenanceError` for a damaged policy, `LedgerError`
    for another policy than the genesis names."""
    return None if run.genesis.policy is None else _bound(run, POLICY_FILE, RoutingPolicy, run.genesis.policy)


def read_tag_rows(run: RunLedger) -> TagRows:
    """Read the tags of a run's examples. Raises the errors of `read_policy`."""
    if run.genesis.taxonomy is None:
        raise LedgerError("entry 0: the run has no taxonomy, and so no tagged examples")
    taxonomy = _bound(run, TAXONOMY_FILE, Taxonomy, run.genesis.taxonomy)
    path = run.run / rundir.GOVERNANCE / TABLE_FILE
    with TagFile(path) as file:
        authorities = read_authorities(file)
        tags = read_tags(file, codes=taxonomy.codes, authorities=authorities)
    if tags.root.hex() not in {sources.root for sources in run.genesis.tags.values()}:
        count = len(run.genesis.tags)
        raise LedgerError(f"entry 0: tags: {path} is not one of the {count} tag tables that the genesis names")
    # Codes of the taxonomy become positions among the run's classes. A class without a position never trained.
    nowhere = len(run.genesis.classes)
    positions = np.full(max(taxonomy.codes.values()) + 1, nowhere, np.int64)
    for index, class_ in enumerate(run.genesis.classes):
        positions[taxonomy.codes[class_]] = index
    classes = positions[tags.classes]
    classes[[row for row in quarantine_of(run) if row < len(classes)]] = nowhere
    return TagRows(tags=tags, classes=classes, authorities=authorities)


def quarantine_of(run: RunLedger) -> frozenset[int]:
    """Read the rows that the run set aside when it began, as its genesis lists them. Raises `LedgerError` for a damaged
    list."""
    content = quarantine_content(run)
    if content is None:
        return frozenset()
    value = parse_json(content, where="entry 0: quarantine", error=LedgerError, max_bytes=MAX_QUARANTINE)
    return frozenset(rows_set_aside(value, where="entry 0: quarantine", error=LedgerError))


def quarantine_content(run: RunLedger) -> bytes | None:
    """Read the quarantine's blob; None where nothing was set aside. Raises `LedgerError` where it is missing."""
    content = run.blob(Placed(index=0, entry=run.genesis), QUARANTINE, max_bytes=MAX_QUARANTINE)
    if content is None and QUARANTINE in run.genesis.blobs:
        raise LedgerError("entry 0: quarantine: the list of the rows that were set aside is missing")
    return content


def rows_set_aside(value: object, *, where: str, error: type[ExplorerError]) -> dict[int, str]:
    """Return the reason for each row, from JSON that lists rows by reason. Raises `error` for any other JSON."""
    # A bare list of rows, without reasons, is read too.
    rows: dict[int, str] = {}
    for reason, numbers in (value if isinstance(value, dict) else {"": value}).items():
        for row in numbers if isinstance(numbers, list) else [numbers]:
            if type(row) is not int or not 0 <= row < MAX_ROWS:
                raise error(f"{where}: expected lists of rows by reason")
            rows[row] = reason
    return rows


def _bound(run: RunLedger, name: str, kind: type[Document], expected: str) -> Document:
    """Read a signed document, which must be the one that the genesis names."""
    path = run.run / rundir.GOVERNANCE / name
    envelope = parse_envelope(_signed(path), where=str(path))
    digest = hashlib.sha256(envelope.payload).hexdigest()
    if digest != expected:
        raise LedgerError(f"entry 0: {path} has digest {digest}; the genesis names {expected}")
    value = parse_json(envelope.payload, where=str(path), error=ProvenanceError, max_bytes=MAX_BYTES)
    return from_json(kind, value, where=str(path), error=ProvenanceError)


# --- believed: signed by whom a trust file names ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Basis:
    """The trust file and the taxonomy of a run, on which all its other documents rest."""

    trust: Trust
    anchored: bool  # the caller gave the trust file; the run's own copy shows only that the documents are consistent
    judged: int  # seconds since 1970: when the run began, by its own account
    taxonomy: Taxonomy
    by: tuple[Authority, ...]  # who signed the taxonomy


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """The policy of a run."""

    routing: Routing
    by: tuple[Authority, ...]  # who signed it


def read_basis(run: Path, genesis: Genesis, *, trust: Trust | None = None) -> Basis:
    """Read trust file and taxonomy of a run. `trust`: the caller's trust file, believed in place of the run's own copy.

    Raises `ProvenanceError` for a document that is not believed, `LedgerError` for one that is not the one in the
    genesis.
    """
    # The run's copy must be the trust file that the genesis names even where the caller's is used: otherwise the record
    # was changed. Signatures are judged for the moment of the run, not for now: keys may have expired since.
    directory = run / rundir.GOVERNANCE
    own = read_trust(directory / TRUST_FILE)
    _check_digest("trust file", own.digest, genesis.trust)
    believed, judged = trust or own, genesis.judged or 0
    path = directory / TAXONOMY_FILE
    taxonomy = open_document(_signed(path), TAXONOMY, trust=believed, now=judged, where=str(path))
    _check_digest("taxonomy", taxonomy.value.digest, genesis.taxonomy)
    return Basis(
        trust=believed,
        anchored=trust is not None,
        judged=judged,
        taxonomy=taxonomy.value,
        by=taxonomy.authorities,
    )


def read_rules(run: Path, genesis: Genesis, basis: Basis) -> Rules | None:
    """Read the policy of a run; None: it routes nothing. Raises the errors of `read_basis`."""
    if genesis.policy is None:
        return None
    path = run / rundir.GOVERNANCE / POLICY_FILE
    kind = policy_for(basis.taxonomy)
    policy = open_document(_signed(path), kind, trust=basis.trust, now=basis.judged, where=str(path))
    _check_digest("policy", policy.value.digest, genesis.policy)
    return Rules(routing=bind(policy.value, basis.taxonomy, where=str(path)), by=policy.authorities)


def read_verified_tags(run: Path, genesis: Genesis, basis: Basis) -> VerifiedTags:
    """Read and check the tags of a run. Tags without a believed voucher are listed in `doubts`: the run may have set
    them aside. Raises the errors of `read_basis`."""
    directory = run / rundir.GOVERNANCE
    tags = weigh_tags(
        directory / TABLE_FILE,
        read_attestation(directory / ATTESTATION_FILE),
        taxonomy=basis.taxonomy,
        trust=basis.trust,
        now=basis.judged,
        where=str(directory / ATTESTATION_FILE),
    )
    named = {(sources.root, sources.attestation) for sources in genesis.tags.values()}
    if (tags.root, tags.attestation) not in named:
        raise LedgerError(
            f"entry 0: tags: {directory / TABLE_FILE} is not one of the {len(named)} tag tables that the genesis names"
        )
    return tags


def _check_digest(what: str, digest: str, expected: str | None) -> None:
    if digest != expected:
        raise LedgerError(f"entry 0: the {what} of the run has digest {digest}; the genesis names {expected}")
