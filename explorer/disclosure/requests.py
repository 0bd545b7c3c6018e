"""Reading by request: a reader asks in writing, the owner records that and hands over the keys for just this.

Three files go between two machines, and no private key does. The reader's machine has a copy of the run, or an unpacked
pack, the signed grant and the reader's key:

    request   a DSSE envelope of the type application/vnd.explorer.reading-request.v1+json, signed with the reader's
              Ed25519 key: the grant, the run and its ledger as the reader has it, what is asked for, a nonce, and the
              time for which it holds. Whose key signs follows from the grant (`explorer.provenance.keys`).

The owner's host has the run with its secrets and the trainer's key. It checks the grant, its end, whether it was
revoked or replaced, and that all that is asked for is covered. Then it appends an entry to the project's ledger, which
names grant, query and ledger and has the signed request as its blob; only then it wraps keys:

    answer    {"format": "explorer/reading-answer/v1", "request": the signed request,
               "ledger": {"origin", "size", "root"}, "proof": C2SP tlog-proof of the entry,
               "keys": [{"class", "kind", "wrapped": base64}, ...]}

A bundle holds the reading keys of the stretches that were asked for, and no others (`explorer.disclosure.wrapped`), by
HPKE to the grantee's key with

    info = {"class", "format", "kind", "ledger": origin, "request": SHA-256 of the signed request, "run"}    RFC 8785

so that an answer opens for one reader and one request. A request is answered once: its digest is in the ledger. The
reader's machine checks the proof against its own trust file before it opens a key, and so holds the receipt.

What was opened can be kept. The keys of an answer open those numbers for as long as their blobs are somewhere: the
entry says that they were handed over, and a second look at them is no second entry.
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
from explorer.runlog.attested import goes_on_from
from explorer.runlog.run_keys import JOINT, OwnKeys, own_keys
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import from_json, parse_json, record, to_json

PAYLOAD_TYPE = "application/vnd.explorer.reading-request.v1+json"
ANSWER = "explorer/reading-answer/v1"
BLOB = "request"  # the name under which an entry has the signed request
MAX_REQUEST = 2**20
DAYS = 7  # for which a request holds
MOST_DAYS = 31  # that an owner accepts, so that one that was kept back is not answered years later
SKEW = 300  # seconds that the clocks of two machines may differ


@record
class Asked:
    """What is asked for, as `explorer.disclosure.reading.Query` without the run."""

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
        """Return what is asked for."""
        steps = range(self.query.first, self.query.stop)
        return Query(run=self.run, kind=self.query.kind, classes=self.query.classes, steps=steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class SignedRequest:
    """A request whose signature was checked, and nothing else of it."""

    request: Request
    grant: Envelope
    content: bytes  # the envelope with that signature alone, in its one spelling

    @property
    def digest(self) -> str:
        """Return the SHA-256 by which the project's ledger names it."""
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
    """What an owner hands over."""

    content: bytes  # the answer
    query: Query
    grant: Signed[Grant]
    entry: int  # of the project's ledger
    keys: Mapping[tuple[str, str], int]  # by class path, or *, and kind of entry: of how many stretches


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """What a reader makes of an answer."""

    query: Query
    grant: Grant
    keys: GrantKeys
    access: int  # the entry of the project's ledger that says that this was handed over
    project: LedgerState  # that ledger, as the receipt has it


def make_request(run: RunLedger, signed: Signed[Grant], query: Query, key: ReaderKey, *, now: int) -> bytes:
    """Return a signed request. Raises `ProvenanceError` for a key that is not the grantee's, or cannot sign."""
    if key.signs is None:
        raise ProvenanceError(
            "this reader's key is of an earlier version and signs nothing: make one with `explorer grant key`, and ask "
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
    """Read a request and check that the key which it names has signed it. Raises `ProvenanceError`."""
    if len(content) > MAX_REQUEST:
        raise ProvenanceError(f"{where}: too large for a request: at most {MAX_REQUEST} bytes are read")
    envelope = parse_envelope(content, where=where)
    if envelope.payload_type != PAYLOAD_TYPE:
        raise ProvenanceError(f"{where}: holds {envelope.payload_type!r}, expected {PAYLOAD_TYPE!r}")
    value = parse_json(envelope.payload, where=where, error=ProvenanceError, max_bytes=MAX_REQUEST)
    request = from_json(Request, value, where=where, error=ProvenanceError)
    if canonical(to_json(request)) != envelope.payload:
        raise ProvenanceError(f"{where}: not in canonical form (RFC 8785), which its digest names")
    key = Ed25519PublicKey.from_public_bytes(parse_public(request.reader))
    signature = next((each for each in envelope.signatures if _matches(key, each.sig, envelope.signed)), None)
    if signature is None:
        raise ProvenanceError(f"{where}: not signed by the reader that it names, whose key is {request.reader}")
    # No signature covers the hint or further signatures: with others it is the same request.
    bare = replace(envelope, signatures=(replace(signature, keyid=""),))
    grant = parse_envelope(canonical(request.grant), where=f"{where}: grant")
    return SignedRequest(request=request, grant=grant, content=bare.content)


def answer(run: RunLedger, signed: SignedRequest, *, trust: Trust, now: int, project: Project, where: str) -> Answered:
    """Check a request, put it on record, and wrap the keys that it asks for, in this order.

    Raises `ProvenanceError` for a request or a grant that does not hold, asks for more than is granted, is of another
    run or ledger, or was answered before; then nothing is recorded and nothing is wrapped. Raises `LedgerError` where
    it cannot be recorded.
    """
    request, query = signed.request, signed.request.asked
    _check_time(request, now, where)
    grant = open_grant(signed.grant.content, trust=trust, now=now, where=f"{where}: grant")
    _refuse_other_reader(reader_of(parse_public(request.reader)), grant.value)
    _check_run(request, run, where)
    check_query(run, grant.value, query)
    keys = own_keys(run.run, run.genesis)
    if not isinstance(keys, OwnKeys):
        raise ProvenanceError(f"{run.run}: its secrets are not here; requests are answered where they are")
    found = _stretches(run, query)
    bundles = {of: {first: key for first in firsts if (key := keys.of(*of, first))} for of, firsts in found.items()}
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
    """Return whether a file says that it is an answer; files of keys that were wrapped ahead are another kind."""
    return content[: MAX_BYTES + 1].lstrip().startswith(b"{") and f'"{ANSWER}"'.encode() in content


def open_answer(content: bytes, run: RunLedger, key: ReaderKey, *, trust: Trust, now: int, where: str) -> Opened:
    """Read the keys of an answer, once its receipt was checked: the project's ledger, signed by a trainer whom `trust`
    names, has the entry that says so.

    Raises `ProvenanceError` for the answer to another reader, of another run or ledger, or one whose entry is another,
    `LedgerError` for a proof that does not hold.
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
    bundles = {}
    for of, wrapped in bundles_of(file.keys, where=where).items():
        if of[0] not in _classes(run, query) or of[1] != query.kind:
            raise ProvenanceError(f"{where}: {of[1]} keys of {of[0]}: not asked for")
        bundles[of] = decode_bundle(unwrap(wrapped, key.opens, info=_info(signed, *of), where=where), where=where)
    return Opened(query=query, grant=grant, keys=GrantKeys(bundles=bundles), access=access, project=project)


def _receipt(
    file: _AnswerFile, signed: SignedRequest, *, trust: Trust, now: int, where: str
) -> tuple[int, LedgerState]:
    """Return the entry that the answer shows, and the ledger that has it.

    A trainer's signature is enough: the entry is moments old, and witnesses come later.
    """
    proof = parse_proof(file.proof.encode(), where=f"{where}: proof")
    origin = proof.checkpoint.text.partition("\n")[0]
    if not origin.endswith(f"/{AUDIT}"):
        raise ProvenanceError(f"{where}: the proof is of {origin!r:.200}, and a project's ledger ends in /{AUDIT}")
    anchor = replace(anchor_of_trust(trust, origin=origin), quorum=NONE)
    checkpoint = check_proof(proof, anchor=anchor, now=now).checkpoint
    entry = decode(proof.extra or b"")
    blob = entry.blobs.get(BLOB) if isinstance(entry, Access) else None
    says = (entry.grant, entry.query, entry.ledger) if isinstance(entry, Access) else None
    asked = (grant_digest(signed.grant), signed.request.asked.digest, file.ledger)
    if says != asked or blob is None or blob.sha256 != signed.digest:
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
        raise ProvenanceError(f"{where}: issued {request.issued}, and now it is {format_time(now)}")
    if now >= expires:
        raise ProvenanceError(f"{where}: the request expired {request.expires}: ask again")
    if not issued < expires <= issued + MOST_DAYS * 86_400:
        raise ProvenanceError(
            f"{where}: from {request.issued} until {request.expires}: a request holds for {MOST_DAYS} days at most"
        )


def _check_run(request: Request, run: RunLedger, where: str) -> None:
    if request.run != run.genesis.run:
        raise ProvenanceError(f"{where}: about the run {request.run}; this is {run.genesis.run}")
    if not goes_on_from(run.ledger, request.ledger):
        here = run.ledger.checkpoint()
        raise ProvenanceError(
            f"{where}: about a ledger {request.ledger.origin} of {request.ledger.size} entries with the root "
            f"{request.ledger.root}, which this one, {here.origin} of {here.size}, does not go on from"
        )


def _refuse_other_reader(public_key: str, grant: Grant) -> None:
    if public_key != grant.grantee.public_key:
        raise ProvenanceError(
            f"grant {grant.id}: this is not the key of {grant.grantee.name}, which is {grant.grantee.public_key}; "
            f"found {public_key}"
        )


def _refuse_replay(recorded: Iterable[Recorded], digest: str, where: str) -> None:
    for each in recorded:
        blob = each.entry.blobs.get(BLOB) if isinstance(each.entry, Access) else None
        if blob is not None and blob.sha256 == digest:
            raise ProvenanceError(
                f"{where}: this request was answered before: entry {each.index} of the project's ledger; a new one is "
                "made with `explorer read --request`"
            )


def _wrapped(recorded: Iterable[Recorded]) -> set[tuple[str, str]]:
    """Grants, by digest, and the ledgers of which keys were wrapped for them before."""
    return {(use.grant, use.ledger.origin) for _, use in grant_uses(recorded) if use.action == "wrapped" and use.ledger}


def _stretches(run: RunLedger, query: Query) -> dict[tuple[str, str], set[int]]:
    """Return the first steps of the stretches that have numbers which were asked for, by class path, or *, and kind."""
    if query.kind == Step.KIND:
        wanted = {span.start for span in run.spans(query.steps)}
    else:  # what was recorded after the last step belongs to it
        wanted = {*query.steps, *([run.steps] if query.steps.stop == run.steps else [])}
    every, classes = stretches(run, [query.kind]), _classes(run, query)
    return {of: firsts & wanted for of, firsts in every.items() if of[0] in classes}


def _classes(run: RunLedger, query: Query) -> frozenset[str]:
    """Return the classes whose keys a query takes: numbers over several are put together with those of each."""
    return frozenset(query.classes if JOINT not in query.classes else (*run.genesis.classes, JOINT))


def _info(signed: SignedRequest, path: str, kind: str) -> bytes:
    """Return what a bundle is bound to."""
    request = signed.request
    bound = {"class": path, "format": ANSWER, "kind": kind, "ledger": request.ledger.origin}
    return canonical({**bound, "request": signed.digest, "run": request.run})
