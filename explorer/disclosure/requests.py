"""Reading by request: a reader signs a query, and the owner records it and hands over the keys for that query only.

Two files travel between two machines, and no private key does. The reader's machine has a copy of the run or an
unpacked pack, the signed grant, and the reader's key:

    request   a DSSE envelope of the type application/vnd.explorer.reading-request.v1+json, signed with the reader's
              Ed25519 key: the grant, the run and its ledger as the reader has it, the query, a nonce, and the time for
              which it is valid. The grant determines the key that must sign (`explorer.provenance.keys`).

The owner's host has the run with its secrets, and the trainer's key. It checks that the grant is in force and covers
the query. Then it appends an entry to the project's ledger, which names grant, query and ledger and has the signed
request as its blob. Only then does it wrap keys:

    answer    {"format": "explorer/reading-answer/v1", "request": the signed request,
               "ledger": {"origin", "size", "root"}, "proof": C2SP tlog-proof of the entry,
               "keys": [{"class", "kind", "wrapped": base64}, ...]}

A bundle holds the reading keys of the stretches in the query, and no others (`explorer.disclosure.wrapped`), wrapped by
HPKE to the grantee's key with

    info = {"class", "format", "kind", "ledger": origin, "request": SHA-256 of the signed request, "run"}    RFC 8785

so that an answer opens for one reader and one request. A request is answered once: its digest is in the ledger. The
reader's machine checks the proof against its own trust file before it opens a key, and so holds a receipt.

A reader can keep what was opened: the keys of an answer open those numbers for as long as their blobs exist. The entry
records the hand-over, not each later look.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import Field

from explorer.canonical import canonical
from explorer.disclosure.grants_in_force import check_standing, grant_uses, stretches
from explorer.disclosure.reading import Query, check_query
from explorer.disclosure.wrapped import (
    MAX_BYTES,
    GrantKeys,
    WrappedBundle,
    bundles_of,
    decode_bundle,
    encode_bundle,
    ledger_state,
    naming,
    wrapped_bundles,
)
from explorer.entries.fields import LedgerState, Whole
from explorer.entries.kinds import Access, GrantUse, Step, decode
from explorer.errors import ProvenanceError
from explorer.ledger.proof import check_proof, make_proof, parse_proof
from explorer.ledger.storage import LedgerDirectory
from explorer.ledger.trust_anchor import NONE
from explorer.project import AUDIT, Project, Recorded, runs_of
from explorer.provenance.envelope import Envelope, parse_envelope, sign_envelope
from explorer.provenance.grants import EntryKind, Grant, Run, claimed_grant, grant_digest, open_grant
from explorer.provenance.keys import (
    PublicKey,
    ReaderKey,
    parse_public,
    public_bytes,
    public_text,
    reader_of,
    reader_public_text,
    unwrap,
    wrap,
)
from explorer.provenance.signing import Signed
from explorer.provenance.spellings import ClassPath, Time, format_time, parse_time
from explorer.provenance.trust import Trust
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.attested import continues_ledger
from explorer.runlog.run_keys import JOINT, OwnKeys, own_keys
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import from_json, parse_json, record, to_json

PAYLOAD_TYPE = "application/vnd.explorer.reading-request.v1+json"
ANSWER = "explorer/reading-answer/v1"
BLOB = "request"  # the name under which an entry has the signed request
MAX_REQUEST = 2**20
DAYS = 7  # for which a request is valid
MOST_DAYS = 31  # that an owner accepts, so that no request is answered years later
SKEW = 300  # seconds by which the clocks of two machines may differ


@record
class Asked:
    """The query: `explorer.disclosure.reading.Query` without the run."""

    kind: EntryKind
    classes: Annotated[tuple[ClassPath | Literal["*"], ...], Field(min_length=1, max_length=10_000)]
    first: Whole
    stop: Whole


@record
class Request:
    """The payload of a request."""

    format: Literal["explorer/reading-request/v1"] = "explorer/reading-request/v1"
    grant: dict[str, Any]  # a DSSE envelope
    reader: PublicKey  # Ed25519, which signs the request
    run: Run
    ledger: LedgerState  # of the run, as the reader has it
    query: Asked
    nonce: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", max_length=32)]
    issued: Time
    expires: Time

    @property
    def asked(self) -> Query:
        """Return the query."""
        steps = range(self.query.first, self.query.stop)
        return Query(run=self.run, kind=self.query.kind, classes=self.query.classes, steps=steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class SignedRequest:
    """A request whose signature was checked, and nothing else."""

    request: Request
    grant: Envelope
    content: bytes  # the envelope with only the reader's signature, in its canonical spelling

    @property
    def digest(self) -> str:
        """Return the SHA-256 that names the request in the project's ledger."""
        return hashlib.sha256(self.content).hexdigest()


@record
class _AnswerFile:
    format: Literal["explorer/reading-answer/v1"]
    request: dict[str, Any]
    ledger: LedgerState
    proof: Annotated[str, Field(max_length=2**21)]
    keys: Annotated[tuple[WrappedBundle, ...], Field(max_length=10_000)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """An answer made by the owner."""

    content: bytes  # of the file
    query: Query
    grant: Signed[Grant]
    entry: int  # of the project's ledger
    keys: Mapping[tuple[str, str], int]  # by class path (or *) and kind of entry: the number of stretches


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """An answer opened by the reader."""

    query: Query
    grant: Grant
    keys: GrantKeys
    access: int  # the entry of the project's ledger that records the hand-over
    project: LedgerState  # that ledger, as in the receipt


def make_request(run: RunLedger, signed: Signed[Grant], query: Query, key: ReaderKey, *, now: int) -> bytes:
    """Return a signed request. Raises `ProvenanceError` for a key that is not the grantee's, or cannot sign.

    Args:
        run: the reader's copy of the run.
        signed: the grant.
        query: the numbers to read.
        key: the reader's key.
        now: the time of issue, in seconds since 1970.
    """
    if key.signs is None:
        raise ProvenanceError(
            "this reader's key is of an earlier version and cannot sign: make one with `explorer grant key`, and ask "
            "the owner for a grant to it"
        )
    _refuse_other_reader(reader_public_text(key.opens), signed.value)
    steps = query.steps
    request = Request(
        grant=json.loads(signed.envelope.content),
        reader=public_text(key.signs),
        run=query.run,
        ledger=ledger_state(run),
        query=Asked(kind=query.kind, classes=query.classes, first=steps.start, stop=steps.stop),
        nonce=secrets.token_hex(16),
        issued=format_time(now),
        expires=format_time(now + DAYS * 86_400),
    )
    return sign_envelope(canonical(to_json(request)), PAYLOAD_TYPE, [key.signs]).content


def parse_request(content: bytes, *, where: str) -> SignedRequest:
    """Read a request and check that it is signed by the key that it names. Raises `ProvenanceError`."""
    if len(content) > MAX_REQUEST:
        raise ProvenanceError(f"{where}: too large for a request: expected at most {MAX_REQUEST} bytes")
    envelope = parse_envelope(content, where=where)
    if envelope.payload_type != PAYLOAD_TYPE:
        raise ProvenanceError(f"{where}: holds {envelope.payload_type!r}, expected {PAYLOAD_TYPE!r}")
    value = parse_json(envelope.payload, where=where, error=ProvenanceError, max_bytes=MAX_REQUEST)
    request = from_json(Request, value, where=where, error=ProvenanceError)
    if canonical(to_json(request)) != envelope.payload:
        raise ProvenanceError(f"{where}: not in canonical form (RFC 8785)")
    key = Ed25519PublicKey.from_public_bytes(parse_public(request.reader))
    signature = next((entry for entry in envelope.signatures if _matches(key, entry.sig, envelope.signed)), None)
    if signature is None:
        raise ProvenanceError(f"{where}: not signed by the reader that it names, whose key is {request.reader}")
    # No signature covers key ids or further signatures. They are dropped, or anyone could give a request a new digest
    # and have it answered again.
    bare = replace(envelope, signatures=(replace(signature, keyid=""),))
    grant = parse_envelope(canonical(request.grant), where=f"{where}: grant")
    return SignedRequest(request=request, grant=grant, content=bare.content)


def answer(run: RunLedger, signed: SignedRequest, *, trust: Trust, now: int, project: Project, where: str) -> Answered:
    """Check a request, record it, and wrap the keys for its query, in this order.

    Raises `ProvenanceError` for a request or a grant that is not valid, for a query beyond the grant or of another run
    or ledger, and for a request that was answered before; nothing is recorded or wrapped then. Raises `LedgerError`
    where it cannot be recorded.

    Args:
        run: the run, with its secrets.
        signed: the request.
        trust: the authorities that count.
        now: the time of the answer, in seconds since 1970.
        project: the project's ledger, open for writing.
        where: the request's name in messages.
    """
    # The request, its grant and its query.
    request, query = signed.request, signed.request.asked
    _check_time(request, now, where)
    grant = open_grant(signed.grant.content, trust=trust, now=now, where=f"{where}: grant")
    _refuse_other_reader(reader_of(parse_public(request.reader)), grant.value)
    _check_run(request, run, where)
    check_query(run, grant.value, query)
    keys = own_keys(run.run, run.genesis)
    if not isinstance(keys, OwnKeys):
        raise ProvenanceError(f"{run.run}: its secrets are not here; answer requests on the host that has them")
    # The keys: a stretch whose secret was destroyed has none.
    firsts_of = _stretches(run, query)
    bundles = {of: {first: key for first in firsts if (key := keys.of(*of, first))} for of, firsts in firsts_of.items()}
    # The record. It is written before any key is wrapped: a crash in between leaves an entry without an answer, never
    # an answer without an entry.
    name, ledger = naming(grant), ledger_state(run)
    recorded = project.entries()
    check_standing(recorded, name)
    _refuse_replay(recorded, signed.digest, where)
    if (name.digest, ledger.origin) not in _wrapped(recorded):
        project.append(
            GrantUse(action="wrapped", owner=name.owner, id=name.id, grant=name.digest, ledger=ledger, blobs={})
        )
    blobs = {BLOB: project.write_blob(signed.content)}
    entry = project.append(Access(ledger=ledger, grant=name.digest, query=query.digest, blobs=blobs))
    # The answer.
    wrapped = {
        of: wrap(encode_bundle(bundle), grant.value.grantee.public_key, info=_info(signed, *of))
        for of, bundle in bundles.items()
        if bundle
    }
    proof = make_proof(LedgerDirectory(runs_of(run.run) / AUDIT), entry)
    value = {
        "format": ANSWER,
        "request": json.loads(signed.content),
        "ledger": to_json(ledger),
        "proof": proof.content.decode(),
        "keys": wrapped_bundles(wrapped),
    }
    counts = {of: len(bundle) for of, bundle in bundles.items() if bundle}
    return Answered(content=canonical(value) + b"\n", query=query, grant=grant, entry=entry, keys=counts)


def is_answer(content: bytes) -> bool:
    """Return whether a file claims to be an answer, and not a file of keys that were wrapped in advance."""
    return content[: MAX_BYTES + 1].lstrip().startswith(b"{") and f'"{ANSWER}"'.encode() in content


def open_answer(content: bytes, run: RunLedger, key: ReaderKey, *, trust: Trust, now: int, where: str) -> Opened:
    """Check the receipt of an answer and read its keys.

    The receipt is a proof that the project's ledger, signed by a trainer in the trust file, has the entry about this
    request. Raises `ProvenanceError` for an answer to another reader, about another run or ledger, or with the receipt
    of another request, and `LedgerError` for a wrong proof.

    Args:
        content: the answer.
        run: the reader's copy of the run.
        key: the reader's key.
        trust: the authorities that count.
        now: the time of the check, in seconds since 1970.
        where: the answer's name in messages.
    """
    value = parse_json(content, where=where, error=ProvenanceError, max_bytes=MAX_BYTES)
    file = from_json(_AnswerFile, value, where=where, error=ProvenanceError)
    signed = parse_request(canonical(file.request), where=f"{where}: request")
    request, query = signed.request, signed.request.asked
    if key.signs is None or public_bytes(key.signs) != parse_public(request.reader):
        raise ProvenanceError(f"{where}: the answer to another reader's request, whose key is {request.reader}")
    _check_run(request, run, where)
    grant = claimed_grant(signed.grant, where=f"{where}: grant")
    _refuse_other_reader(reader_public_text(key.opens), grant)
    access, project = _receipt(file, signed, trust=trust, now=now, where=where)
    # Keys beyond the query are refused: the entry does not record them.
    bundles = {}
    for of, wrapped in bundles_of(file.keys, where=where).items():
        if of[0] not in _classes(run, query) or of[1] != query.kind:
            raise ProvenanceError(f"{where}: {of[1]} keys of {of[0]}: not in the query")
        bundles[of] = decode_bundle(unwrap(wrapped, key.opens, info=_info(signed, *of), where=where), where=where)
    return Opened(query=query, grant=grant, keys=GrantKeys(bundles=bundles), access=access, project=project)


def _receipt(
    file: _AnswerFile, signed: SignedRequest, *, trust: Trust, now: int, where: str
) -> tuple[int, LedgerState]:
    """Check the receipt of an answer; return the number of its entry, and the ledger that has it.

    No quorum is required: the entry is moments old, and witnesses cosign later.
    """
    proof = parse_proof(file.proof.encode(), where=f"{where}: proof")
    origin = proof.checkpoint.text.partition("\n")[0]
    if not origin.endswith(f"/{AUDIT}"):
        raise ProvenanceError(f"{where}: the proof is of {origin!r:.200}; expected a project's ledger, .../{AUDIT}")
    anchor = replace(anchor_of_trust(trust, origin=origin), quorum=NONE)
    checkpoint = check_proof(proof, anchor=anchor, now=now).checkpoint
    entry = decode(proof.extra or b"")
    blob = entry.blobs.get(BLOB) if isinstance(entry, Access) else None
    recorded = (entry.grant, entry.query, entry.ledger) if isinstance(entry, Access) else None
    asked = (grant_digest(signed.grant), signed.request.asked.digest, file.ledger)
    if recorded != asked or blob is None or blob.sha256 != signed.digest:
        raise ProvenanceError(f"{where}: entry {proof.index} of the project's ledger is not about this request")
    return proof.index, LedgerState(origin=origin, size=checkpoint.size, root=checkpoint.root.hex())


def _matches(key: Ed25519PublicKey, signature: bytes, signed: bytes) -> bool:
    try:
        key.verify(signature, signed)
    except InvalidSignature:
        return False
    return True


def _check_time(request: Request, now: int, where: str) -> None:
    issued, expires = parse_time(request.issued), parse_time(request.expires)
    if issued > now + SKEW:
        raise ProvenanceError(f"{where}: issued {request.issued}, in the future: now it is {format_time(now)}")
    if now >= expires:
        raise ProvenanceError(f"{where}: the request expired {request.expires}: make a new one")
    if not issued < expires <= issued + MOST_DAYS * 86_400:
        raise ProvenanceError(
            f"{where}: valid from {request.issued} until {request.expires}; expected at most {MOST_DAYS} days"
        )


def _check_run(request: Request, run: RunLedger, where: str) -> None:
    if request.run != run.genesis.run:
        raise ProvenanceError(f"{where}: found the run {request.run}, expected {run.genesis.run}")
    if not continues_ledger(run.ledger, request.ledger):
        here = run.ledger.checkpoint()
        raise ProvenanceError(
            f"{where}: about a ledger {request.ledger.origin} of {request.ledger.size} entries with the root "
            f"{request.ledger.root}, which this one, {here.origin} of {here.size}, does not extend"
        )


def _refuse_other_reader(public_key: str, grant: Grant) -> None:
    if public_key != grant.grantee.public_key:
        raise ProvenanceError(
            f"grant {grant.id}: not the key of {grant.grantee.name}: found {public_key}, expected "
            f"{grant.grantee.public_key}"
        )


def _refuse_replay(recorded: Iterable[Recorded], digest: str, where: str) -> None:
    for item in recorded:
        blob = item.entry.blobs.get(BLOB) if isinstance(item.entry, Access) else None
        if blob is not None and blob.sha256 == digest:
            raise ProvenanceError(
                f"{where}: this request was answered before: entry {item.index} of the project's ledger; make a new "
                "one with `explorer read --request`"
            )


def _wrapped(recorded: Iterable[Recorded]) -> set[tuple[str, str]]:
    """Return pairs of a grant's digest and the origin of a ledger whose keys were wrapped for it before."""
    return {(use.grant, use.ledger.origin) for _, use in grant_uses(recorded) if use.action == "wrapped" and use.ledger}


def _stretches(run: RunLedger, query: Query) -> dict[tuple[str, str], set[int]]:
    """Return the first steps of the stretches with numbers in a query, by class path (or *) and kind."""
    if query.kind == Step.KIND:
        wanted = {span.start for span in run.spans(query.steps)}
    else:  # entries after the run's last step belong to it
        wanted = {*query.steps, *([run.steps] if query.steps.stop == run.steps else [])}
    every, classes = stretches(run, [query.kind]), _classes(run, query)
    return {of: firsts & wanted for of, firsts in every.items() if of[0] in classes}


def _classes(run: RunLedger, query: Query) -> frozenset[str]:
    """Return the classes whose keys a query needs: numbers over several classes are decoded with those of each."""
    return frozenset(query.classes if JOINT not in query.classes else (*run.genesis.classes, JOINT))


def _info(signed: SignedRequest, path: str, kind: str) -> bytes:
    """Return the bytes that HPKE binds a bundle to."""
    request = signed.request
    bound = {"class": path, "format": ANSWER, "kind": kind, "ledger": request.ledger.origin}
    return canonical({**bound, "request": signed.digest, "run": request.run})
