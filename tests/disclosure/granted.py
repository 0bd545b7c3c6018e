"""A run with confidential classes, and grants to read of it, made as their owner makes them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from explorer.disclosure.wrapped import WrappedKeys, read_wrapped, wrap_keys
from explorer.project import Project, runs_of
from explorer.provenance.encryption import KINDS
from explorer.provenance.grants import GRANT, Grant, Grantee, open_grant
from explorer.provenance.keys import reader_public_text
from explorer.provenance.signing import sign_document
from explorer.runlog.run_ledger import RunLedger
from tests.audit import governed_run
from tests.audit.governed_run import MIT, NEWS, OPEN, TRAINER
from tests.disclosure.packs import governed
from tests.provenance.people import EXPIRES, GOVERNANCE, ISSUED, NOW, private

READER = X25519PrivateKey.from_private_bytes(b"\x05" * 32)
OTHER = X25519PrivateKey.from_private_bytes(b"\x06" * 32)
AUDITOR = "example.com/auditor"
ALL = (NEWS, OPEN)  # `open/mit` lies below `open`


def confidential_run(root: Path, *branches: str, **how: Any) -> Path:
    """A run whose policy has the numbers of these branches sealed."""
    return governed(root, policy=replace(governed_run.policy(), confidential=branches or (NEWS, MIT)), **how)


def granted(
    run: Path,
    id_: str = "2026-0007",
    *,
    classes: Sequence[str] = (NEWS,),
    entries: Sequence[str] = KINDS,
    reader: X25519PrivateKey = READER,
    runs: Sequence[str] = (),
    **other: Any,
) -> WrappedKeys:
    """Sign a grant and wrap its keys; the file is in the run's directory too."""
    grant = Grant(
        format="explorer/grant/v1",
        id=id_,
        owner=GOVERNANCE,
        grantee=Grantee(name=AUDITOR, public_key=reader_public_text(reader)),
        runs=tuple(runs) or (run.name,),
        classes=tuple(classes),
        entries=tuple(entries),
        issued=ISSUED,
        expires=EXPIRES,
    )
    trust: Any = {"trust": governed_run.trust(), "now": NOW, "where": "grant"}
    envelope = sign_document(replace(grant, **other), GRANT, [private(GOVERNANCE)], **trust)
    signed = open_grant(envelope.content, **trust)
    with Project.open(runs_of(run), key=private(TRAINER), name=TRAINER) as project:
        return read_wrapped(wrap_keys(RunLedger(run), signed, project=project).path)
