"""A project with one run, three classes of which two are confidential, and readers with grants."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from explorer.canonical import canonical
from explorer.disclosure.reading import Answer, ask, read
from explorer.disclosure.requests import Answered, answer, make_request, open_answer, parse_request
from explorer.disclosure.wrapped import GrantKeys, Wrapping, believe, open_keys, read_wrapped, wrap_keys
from explorer.project import Project, runs_of
from explorer.provenance.envelope import Envelope, sign_envelope
from explorer.provenance.grants import GRANT, Grant, Grantee, open_grant
from explorer.provenance.keys import ReaderKey, reader_key, reader_public_text, write_key
from explorer.provenance.signing import Signed
from explorer.runlog.run_keys import NoKeys
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import to_json
from tests.audit.governed_run import MIT, NEWS, OPEN, TRAINER, USUAL, trust, write_governed_run
from tests.provenance.people import EXPIRES, GOVERNANCE, ISSUED, NOW, private

TRUST = trust()
CONFIDENTIAL = (NEWS, MIT)
EVERYTHING = (NEWS, OPEN)  # `open/mit` lies below `open`
KINDS = ("step", "profile", "decision")
READER_SEED, OTHER_SEED = (
    Ed25519PrivateKey.from_private_bytes(hashlib.sha256(seed).digest()) for seed in (b"reader", b"other")
)
READING, OTHERS = reader_key(READER_SEED), reader_key(OTHER_SEED)
READER, OTHER = READING.opens, OTHERS.opens


def write_project(directory: Path, *, confidential: tuple[str, ...] = CONFIDENTIAL) -> Path:
    """The run's directory; the trainer's key stands where the run says."""
    run = write_governed_run(directory / "runs", policy=replace(USUAL, confidential=confidential))
    write_key(run.parent / "trainer.pem", private(TRAINER), None)
    return run


def grant_of(run: Path, *classes: str, key: X25519PrivateKey = READER, entries: tuple[str, ...] = KINDS) -> Grant:
    """A grant of these classes, `licensed/news` unless told otherwise."""
    return Grant(
        format="explorer/grant/v1",
        id="2026-0007",
        owner=GOVERNANCE,
        grantee=Grantee(name="example.com/auditor", public_key=reader_public_text(key)),
        runs=(run.name,),
        classes=classes or (NEWS,),
        entries=entries,
        issued=ISSUED,
        expires=EXPIRES,
    )


def envelope_of(grant: Grant, *seeds: str) -> Envelope:
    """Signed by whoever has these keys, allowed or not."""
    keys = [private(seed) for seed in seeds or (GOVERNANCE,)]
    return sign_envelope(canonical(to_json(grant)), GRANT.payload_type, keys)


def signed(grant: Grant, *, now: int = NOW) -> Signed[Grant]:
    return open_grant(envelope_of(grant).content, trust=TRUST, now=now, where="grant.json")


def project_of(run: Path) -> Project:
    return Project.open(runs_of(run), key=private(TRAINER), name=TRAINER)


def wrapped(run: Path, grant: Grant) -> Wrapping:
    """Wrap the keys of a grant."""
    with project_of(run) as project:
        return wrap_keys(RunLedger(run), signed(grant), project=project)


def opened(run: Path, path: Path, key: X25519PrivateKey = READER, *, now: int = NOW) -> tuple[Signed[Grant], GrantKeys]:
    """What a reader makes of a file of wrapped keys."""
    file = read_wrapped(path)
    believed = believe(file, RunLedger(run, keys=NoKeys()), trust=TRUST, now=now, where="keys.json")
    return believed, open_keys(file, believed.value, key, where="keys.json")


def requested(
    run: Path,
    envelope: Envelope,
    *,
    key: ReaderKey = READING,
    kind: str | None = "step",
    class_: str | None = None,
    steps: range | None = None,
    now: int = NOW,
) -> bytes:
    """What a reader sends, who has a copy of the run."""
    ledger = RunLedger(run, keys=NoKeys())
    believed = open_grant(envelope.content, trust=TRUST, now=now, where="grant.json")
    query = ask(ledger, believed.value, kind=kind, class_=class_, steps=steps)
    return make_request(ledger, believed, query, key, now=now)


def answer_to(run: Path, request: bytes, *, now: int = NOW) -> Answered:
    """What the owner makes of it, on the host with the secrets."""
    signed_request = parse_request(request, where="request.json")
    with project_of(run) as project:
        return answer(RunLedger(run), signed_request, trust=TRUST, now=now, project=project, where="request.json")


def shown(run: Path, content: bytes, *, key: ReaderKey = READING, now: int = NOW) -> Answer:
    """What the reader sees."""
    ledger = RunLedger(run, keys=NoKeys())
    opened_answer = open_answer(content, ledger, key, trust=TRUST, now=now, where="answer.json")
    return read(ledger, opened_answer.query, opened_answer.keys)


def answered(run: Path, path: Path, **asked: Any) -> Answer:
    """Ask, be answered and read, by the grant in a file of wrapped keys."""
    now = asked.get("now", NOW)
    return shown(run, answer_to(run, requested(run, read_wrapped(path).grant, **asked), now=now).content, now=now)
