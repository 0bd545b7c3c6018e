"""Delegating a run: what it needs to be executed away from the trainer's key, made at home and received there.

At home, `delegate` makes a fresh key for the run and signs with the trainer's that it may sign the run's ledger
(provenance/delegation.py). What travels are files of the run's directory:

    governance/...           copies of the signed documents, as every governed run has them, and `delegation.json`
    private/run.pem          the key of the run
    private/salts.sealed     the salts of the tags, for this key only

`receive` writes them where the run is executed, private ones for their owner only, and opens the salts.

**Salts.** They are encrypted to the key of the run by HPKE (RFC 9180), for this one delegation: the salts of another
run do not open with it. Only the salts of classes that the policy admits somewhere travel. In the place of another
class's salt is a mark that it was withheld: no forward pass reads its examples, so these are not compared with their
tags.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer import rundir
from explorer.canonical import canonical, digest
from explorer.errors import ProvenanceError, unknown
from explorer.provenance.commitments import DESTROYED, SALT_BYTES, WITHHELD, Salts, read_salts, write_salts
from explorer.provenance.delegation import DELEGATION as STATEMENT
from explorer.provenance.delegation import MAX_BYTES, Delegation, sign_delegation
from explorer.provenance.envelope import Envelope, parse_envelope
from explorer.provenance.keys import (
    key_content,
    new_key,
    open_private,
    parse_public,
    public_text,
    read_private,
    reader_key,
    reader_of,
    unwrap,
    wrap,
    write_private,
)
from explorer.provenance.routing_weights import admits, bind, policy_for
from explorer.provenance.signing import open_document
from explorer.provenance.spellings import format_time
from explorer.provenance.tags import read_authorities, read_tags
from explorer.provenance.tags_file import TagFile
from explorer.provenance.taxonomy import TAXONOMY
from explorer.provenance.trust import Trust, parse_trust
from explorer.run_files import Plan
from explorer.runlog.documents import (
    DELEGATION_FILE,
    PUBLIC_FILES,
    RUN_KEY_FILE,
    SALTS_FILE,
    SOURCE_FILE,
    TABLE_FILE,
    TAXONOMY_FILE,
    TRUST_FILE,
    Documents,
    Source,
    open_trainer,
)
from explorer.schema import from_json, parse_json, to_json

SEALED = f"{rundir.PRIVATE}/salts.sealed"
RUN_KEY = f"{rundir.PRIVATE}/{RUN_KEY_FILE}"
DELEGATION = f"{rundir.GOVERNANCE}/{DELEGATION_FILE}"
NAMES = (
    *(f"{rundir.GOVERNANCE}/{name}" for name in (*PUBLIC_FILES, TABLE_FILE, SOURCE_FILE)),
    RUN_KEY,
    SEALED,
)


# --- at home ---


def delegate(documents: Documents, record: Plan, until: int, *, now: int) -> dict[str, bytes]:
    """Make a key for a run and delegate the run's ledger to it; return the files that travel, by path in the run's
    directory.

    Each call makes another key. A ledger that was begun under one cannot be continued under another, so `until` has to
    leave time for interruptions.

    Args:
        documents: of the run, where the trainer's key and the salts are.
        record: the plan of the run.
        until: the end of the delegation, in seconds since 1970.
        now: seconds since 1970.

    Raises `ProvenanceError` for a key that is not a trainer's now, for documents that are not believed, and for an end
    that is in the past or too far away.
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
    public = {**documents.public, DELEGATION_FILE: envelope.content, TABLE_FILE: documents.table.read_bytes()}
    # Where the private files will be is known only where they arrive.
    public[SOURCE_FILE] = canonical(to_json(Source(private=rundir.PRIVATE, judged=documents.judged)))
    return {
        **{f"{rundir.GOVERNANCE}/{name}": content for name, content in public.items()},
        RUN_KEY: key_content(own, None),
        SEALED: seal(needed_salts(documents, trust).content, envelope.content, what=SALTS_FILE),
    }


def needed_salts(documents: Documents, trust: Trust) -> Salts:
    """Return the salts of the tags, with those withheld whose class the policy admits nowhere.

    Raises `ProvenanceError` for documents that are not believed, and for the salts of another table.
    """
    salts, now = read_salts(documents.salts), documents.judged
    where = str(documents.where / TAXONOMY_FILE)
    taxonomy = open_document(documents.taxonomy, TAXONOMY, trust=trust, now=now, where=where).value
    with TagFile(documents.table) as file:
        tags = read_tags(file, codes=taxonomy.codes, authorities=read_authorities(file))
    if len(salts) != len(tags):
        raise ProvenanceError(
            f"{documents.salts}: {len(salts)} salts for {len(tags)} tags: they belong to another table"
        )
    if documents.policy is None:
        return salts
    where = f"{documents.where}: policy"
    policy = open_document(documents.policy, policy_for(taxonomy), trust=trust, now=now, where=where).value
    routing = bind(policy, taxonomy, where=where)
    read = [code for path, code in taxonomy.codes.items() if admits(routing, path)]
    rows = np.frombuffer(salts.content, np.uint8).reshape(-1, SALT_BYTES).copy()
    # A destroyed salt stays what it is: that its example was erased is no secret.
    withheld = ~np.isin(tags.classes, read) & (rows != np.frombuffer(DESTROYED, np.uint8)).any(1)
    rows[withheld] = np.frombuffer(WITHHELD, np.uint8)
    return Salts(content=rows.tobytes())


# --- for the key of the run only ---


def seal(content: bytes, delegation: bytes, *, what: str) -> bytes:
    """Encrypt what only the key of a run may open, such as its salts or its `secrets`; `delegation` is the statement.

    No private key is needed. Raises `ProvenanceError` for a damaged statement.
    """
    envelope = parse_envelope(delegation, where=DELEGATION_FILE)
    value, _ = STATEMENT.decode(envelope, DELEGATION_FILE)
    return wrap(content, reader_of(parse_public(value.public_key)), info=_purpose(envelope, what))


def open_sealed(sealed: bytes, run: Path, *, what: str) -> bytes:
    """Decrypt what was encrypted for the key in the run's directory.

    Raises `ProvenanceError` if it was sealed for another key, another delegation or as something else, or changed.
    """
    content = rundir.read_bytes(run / DELEGATION, max_bytes=MAX_BYTES, error=ProvenanceError)
    key = read_private(run / RUN_KEY, None, Ed25519PrivateKey)
    envelope = parse_envelope(content, where=str(run / DELEGATION))
    return unwrap(sealed, reader_key(key).opens, info=_purpose(envelope, what), where=f"{run}: {what}")


def _purpose(envelope: Envelope, what: str) -> bytes:
    statement = hashlib.sha256(envelope.payload).hexdigest()
    return canonical({"delegation": statement, "format": "explorer/sealed-for-run/v1", "what": what})


# --- where the run is executed ---


def receive(files: Mapping[str, bytes], run: Path) -> None:
    """Write the files of `delegate` into the run's directory; again changes nothing.

    Raises `ProvenanceError` for names that do not travel, for a file that is there and differs, and for salts that are
    not for this run's key.
    """
    if strange := sorted(files.keys() - set(NAMES)):
        raise ProvenanceError(f"{run}: {unknown('file', strange[0][:80], NAMES)}")
    if missing := sorted({DELEGATION, RUN_KEY, SEALED, f"{rundir.GOVERNANCE}/{SOURCE_FILE}"} - files.keys()):
        raise ProvenanceError(f"{run}: {missing[0]}: missing: a run that was delegated has it")
    private = run / rundir.PRIVATE
    private.mkdir(parents=True, exist_ok=True, mode=0o700)
    _write(run / RUN_KEY, files[RUN_KEY])
    for name, content in files.items():
        if name.startswith(f"{rundir.GOVERNANCE}/") and not name.endswith(f"/{SOURCE_FILE}"):
            _write(run / name, content)
    if not (private / SALTS_FILE).exists():
        write_salts(private / SALTS_FILE, Salts(content=open_sealed(files[SEALED], run, what=SALTS_FILE)))
    # Last, as `documents.keep` has it: with it the documents are complete.
    where = f"{rundir.GOVERNANCE}/{SOURCE_FILE}"
    value = parse_json(files[where], where=where, error=ProvenanceError, max_bytes=MAX_BYTES)
    source = from_json(Source, value, where=where, error=ProvenanceError)
    rundir.write_json(run / where, to_json(replace(source, private=str(private.resolve()))))


def _write(path: Path, content: bytes) -> None:
    secret = path.parent.name == rundir.PRIVATE
    if not path.exists():
        (write_private if secret else rundir.write_bytes)(path, content)
        return
    with open_private(path, max_bytes=len(content)) if secret else path.open("rb") as file:
        if file.read(len(content) + 1) != content:
            raise ProvenanceError(f"{path}: there is another one already: expected the same, or an empty directory")
