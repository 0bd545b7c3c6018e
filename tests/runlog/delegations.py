"""A made-up governed run whose ledger another key signs, and statements about that key, true and false ones."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from explorer import rundir
from explorer.canonical import digest
from explorer.entries.fields import Blob
from explorer.entries.kinds import Genesis, encode
from explorer.ledger.log import Log
from explorer.ledger.storage import write_blob
from explorer.note import Algorithm, Signer
from explorer.provenance.delegation import DELEGATION, Delegation
from explorer.provenance.envelope import add_signatures, parse_envelope
from explorer.provenance.keys import public_text
from explorer.runlog.anchor import DELEGATION as DELEGATION_BLOB
from tests.audit import governed_run
from tests.audit.governed_run import TRAINER, record_of
from tests.entries.examples import EXAMPLES
from tests.provenance.people import ISSUED, private

STEPS = 2
RUN = record_of(STEPS)
RUN_KEY = "the key of the run"
UNTIL = "2026-06-08T00:00:00Z"


def statement(
    *,
    by: str = TRAINER,
    trainer: str = TRAINER,
    run: str = RUN.run_id,
    plan: str | None = None,
    key: str = RUN_KEY,
    issued: str = ISSUED,
    expires: str = UNTIL,
) -> bytes:
    """What `by` signs about a key, allowed or not; by default what the trainer says about the key of the run."""
    value = Delegation(ledger=f"{trainer}/{run}", public_key=public_text(private(key)), issued=issued, expires=expires)
    envelope = DELEGATION.encode(value, (digest(RUN.identity) if plan is None else plan,))
    return add_signatures(envelope, [private(by)]).content


def signer(key: str = RUN_KEY, *, trainer: str = TRAINER, run: str = RUN.run_id) -> Signer:
    return Signer(name=f"{trainer}/{run}", algorithm=Algorithm.ED25519, private_key=private(key))


def begun_ledger(
    root: Path, content: bytes, *, signs: Signer, run: str = RUN.run_id, plan: str | None = None, named: bool = True
) -> Path:
    """A ledger of one entry, which names this statement; without `named` it names none."""
    payload, blob = parse_envelope(content, where="").payload, hashlib.sha256(content).hexdigest()
    genesis = replace(
        next(entry for entry in EXAMPLES if isinstance(entry, Genesis)),
        run=run,
        recipe=digest(RUN.identity) if plan is None else plan,
        delegation=hashlib.sha256(payload).hexdigest() if named else None,
        blobs={DELEGATION_BLOB: Blob(sha256=blob, size=len(content))} if named else {},
    )
    ledger = root / run / rundir.LEDGER
    ledger.mkdir(parents=True)
    with Log.create(ledger, origin=signs.name, signer=signs) as log:
        log.append([encode(genesis)])
    if named:
        write_blob(ledger, content)
    return ledger.parent


def delegated_run(root: Path, content: bytes | None = None, *, key: str = RUN_KEY, **how: Any) -> Path:
    """A run that another machine executed, with this statement in its ledger."""
    content = statement() if content is None else content
    run = governed_run.write_governed_run(root, delegation=content, by=signer(key), steps=STEPS, **how)
    rundir.write_bytes(run / rundir.GOVERNANCE / "delegation.json", content)
    return run
