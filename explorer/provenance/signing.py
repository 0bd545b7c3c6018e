"""Whether a signed document is to be believed: the signatures that a trust file asks for, and a fault in words if not.

Three steps, in this order: who signed the bytes (`check_signed`), what the bytes say (the caller reads the payload),
and whether these signers may say it (`require`). No payload is read that nobody in the trust file has signed.

Signed documents: a record as canonical JSON (RFC 8785) in a DSSE envelope, believed only through a trust file.

A kind of document says which record it holds and which role signs it. Its payload type is
`application/vnd.explorer.<kind>.v1+json`, so that one kind never passes for another. Every record of such a kind has
`issued` and `expires`. A payload in any other form than the canonical one is refused: a document has one digest, and
that is the SHA-256 of what was signed.

A signed claim: an in-toto statement in a DSSE envelope, whose predicate is one record in its canonical form.

What certificates of deletion, attestations of models and observations have in common when they are signed and read.

Drafts: what people write as YAML (JSON is YAML too), which means nothing until an authority signs it.

The same record, signed, is canonical JSON in an envelope. Both go through the same checks, and a fault in a draft is
named with file, line and key.
"""

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Protocol, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field

from explorer.canonical import canonical
from explorer.document import Document, read_document
from explorer.errors import ProvenanceError, SpecError
from explorer.provenance.envelope import MAX_BYTES, Envelope, add_signatures, key_id, parse_envelope, signers
from explorer.provenance.keys import public_bytes
from explorer.provenance.spellings import format_time, parse_time
from explorer.provenance.statement import PAYLOAD_TYPE, Statement, parse_statement
from explorer.provenance.trust import Authority, AuthorityKey, Role, Trust
from explorer.rundir import read_bytes
from explorer.schema import from_json, parse_json, to_json

# ------------------------------------------------------------------------------- who signed, and whether that is enough

SHOWN = 16  # digits of a key id in messages


def check_signed(envelope: Envelope, *, trust: Trust, where: str) -> frozenset[bytes]:
    """The public keys of a trust file that have signed these bytes. Raises `ProvenanceError` if there is none."""
    if not trust.authorities:
        raise ProvenanceError(f"{where}: the trust file {trust.name!r} lists no authority and so refuses everything")
    signed = signers(envelope, (key.raw for one in trust.authorities for key in one.keys))
    if not signed:
        raise ProvenanceError(f"{where}: {_nobody(envelope, trust)}")
    return signed


def require(
    envelope: Envelope,
    *,
    trust: Trust,
    role: Role,
    issued: str,
    expires: str,
    now: int,
    branches: Collection[str] = (),
    where: str,
) -> tuple[Authority, ...]:
    """The authorities that vouch for a document, by name: enough of this role, each entitled to all of `branches`.

    `issued` and `expires` are what the document says of itself, `now` is in seconds since 1970, and `where` names the
    document in messages. Raises `ProvenanceError` with a message of its own for each fault: a trust file that is empty
    or names no quorum for the role, a forged document, unknown keys, a document that is expired or not yet valid, the
    wrong role, a branch that is not the signer's, a key outside its span or revoked, too few signers.
    """
    signed = check_signed(envelope, trust=trust, where=where)
    needed = _threshold(trust, role, where)
    _check_span(issued, expires, now, where)
    good: dict[str, Authority] = {}
    faults: list[str] = []
    for authority, key in filter(None, map(trust.owner, sorted(signed))):
        fault = _fault(authority, key, role=role, at=parse_time(issued), branches=branches)
        if fault:
            faults.append(fault)
        else:
            good[authority.name] = authority
    if not good:
        raise ProvenanceError(f"{where}: {'; '.join(faults)}")
    if len(good) < needed:
        reasons = "".join(f"; {fault}" for fault in faults)
        raise ProvenanceError(
            f"{where}: threshold not met: {len(good)} of {needed} authorities with the role {role} have signed: "
            f"{', '.join(sorted(good))}{reasons}"
        )
    return tuple(good[name] for name in sorted(good))


def check_signer(
    public_key: bytes,
    *,
    trust: Trust,
    role: Role,
    issued: str,
    now: int,
    branches: Collection[str] = (),
    where: str,
) -> Authority:
    """Whose key this is, if it may sign such a document now; for whoever is about to sign.

    Raises `ProvenanceError` as `require` does, and for a clock that stands outside the key's span: a clock set back
    must not make a document that looks older than its key.
    """
    _threshold(trust, role, where)
    owner = trust.owner(public_key)
    if owner is None:
        raise ProvenanceError(f"{where}: {_key(public_key)} is not in the trust file {trust.name!r}")
    for at in (parse_time(issued), now):
        fault = _fault(*owner, role=role, at=at, branches=branches)
        if fault:
            raise ProvenanceError(f"{where}: cannot sign at {format_time(at)}: {fault}")
    return owner[0]


def _threshold(trust: Trust, role: Role, where: str) -> int:
    if role not in trust.quorum.documents:
        named = ", ".join(sorted(trust.quorum.documents)) or "none"
        raise ProvenanceError(
            f"{where}: the trust file {trust.name!r} names no quorum for documents of the role {role} and so refuses "
            f"them; named: {named}"
        )
    return trust.quorum.documents[role]


def _check_span(issued: str, expires: str, now: int, where: str) -> None:
    if parse_time(issued) >= parse_time(expires):
        raise ProvenanceError(f"{where}: it expires {expires}, which is not after it was issued, {issued}")
    if now < parse_time(issued):
        raise ProvenanceError(f"{where}: not yet valid: issued {issued}, and now it is {format_time(now)}")
    if now >= parse_time(expires):
        raise ProvenanceError(f"{where}: expired {expires}, and now it is {format_time(now)}")


def _nobody(envelope: Envelope, trust: Trust) -> str:
    """Why no signature counts. A key id is a hint, good enough to say whose signature it claims to be."""
    known = {key_id(key.raw): one.name for one in trust.authorities for key in one.keys}
    for signature in envelope.signatures:
        if signature.keyid in known:
            name = known[signature.keyid]
            return f"forged or changed: the signature that claims to be of {name} does not match the content"
    found = ", ".join(signature.keyid[:SHOWN] or "no id" for signature in envelope.signatures[:4])
    trusted = ", ".join(sorted({one.name for one in trust.authorities}))
    return f"signed by no key of the trust file {trust.name!r}: found key {found!r}; trusted are {trusted}"


def _fault(authority: Authority, key: AuthorityKey, *, role: Role, at: int, branches: Collection[str]) -> str | None:
    """Why a signature by this key does not count for a document issued `at`."""
    who, when = f"{_key(key.raw)} of {authority.name}", format_time(at)
    if authority.role is not role:
        return f"wrong role: {authority.name} has the role {authority.role}; needed is {role}"
    foreign = sorted(branch for branch in branches if not authority.vouches_for(branch))
    if foreign:
        own = ", ".join(authority.branches) or "no branch"
        return f"out of branch: {authority.name} may vouch for {own}, and not for {', '.join(foreign[:8])}"
    if key.revoked is not None and parse_time(key.revoked.at) <= at:
        return f"revoked: {who} is revoked as of {key.revoked.at} ({key.revoked.reason}), issued {when}"
    if at < key.valid_from:
        return f"key not yet valid: {who} may sign from {key.not_before}, issued {when}"
    if at >= key.valid_until:
        return f"key expired: {who} may sign until {key.not_after}, issued {when}"
    return None


def _key(public_key: bytes) -> str:
    return f"key {key_id(public_key)[:SHOWN]}"


# ----------------------------------------------------------------------------------------------------- signed documents

MAX_PAYLOAD = 8 * 2**20


class Dated(Protocol):
    """What every signed record has."""

    @property
    def issued(self) -> str: ...

    @property
    def expires(self) -> str: ...


Value = TypeVar("Value", bound=Dated)


def _sound(value: Any, where: str) -> None:
    """The check of a kind whose records need none beyond their types."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind(Generic[Value]):
    """A kind of signed document."""

    name: str  # "taxonomy", "policy"
    record: type[Value]
    role: Role  # whose signature it takes
    check: Callable[[Value, str], None] = _sound  # raises `ProvenanceError` that begins with the place given

    @property
    def payload_type(self) -> str:
        """What the envelope calls it."""
        return f"application/vnd.explorer.{self.name}.v1+json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Signed(Generic[Value]):
    """A document that was checked, and who vouches for it."""

    value: Value
    authorities: tuple[Authority, ...]
    envelope: Envelope


def sign_document(
    value: Value,
    kind: Kind[Value],
    keys: Collection[Ed25519PrivateKey],
    *,
    trust: Trust,
    now: int,
    where: str,
) -> Envelope:
    """Sign a document with keys that may sign it now. How many signatures it takes is for whoever reads it: others can
    add theirs. Raises `ProvenanceError` if the document is faulty or has expired, and if a key may not sign it."""
    unsigned = Envelope(payload=canonical(to_json(value)), payload_type=kind.payload_type, signatures=())
    return cosign_document(unsigned, kind, keys, trust=trust, now=now, where=where)


def cosign_document(
    envelope: Envelope,
    kind: Kind[Any],
    keys: Collection[Ed25519PrivateKey],
    *,
    trust: Trust,
    now: int,
    where: str,
) -> Envelope:
    """Add signatures to a document; see `sign_document`."""
    value = _payload(envelope, kind, where)
    if now >= parse_time(value.expires):
        raise ProvenanceError(f"{where}: expired {value.expires}, and now it is {format_time(now)}: nobody believes it")
    for key in keys:
        check_signer(public_bytes(key), trust=trust, role=kind.role, issued=value.issued, now=now, where=where)
    return add_signatures(envelope, keys)


def open_document(content: bytes, kind: Kind[Value], *, trust: Trust, now: int, where: str) -> Signed[Value]:
    """Read a signed document of this kind. Raises `ProvenanceError` unless the trust file says that it is believed."""
    envelope = parse_envelope(content, where=where)
    check_signed(envelope, trust=trust, where=where)
    value = _payload(envelope, kind, where)
    authorities = require(
        envelope, trust=trust, role=kind.role, issued=value.issued, expires=value.expires, now=now, where=where
    )
    return Signed(value=value, authorities=authorities, envelope=envelope)


def _payload(envelope: Envelope, kind: Kind[Value], where: str) -> Value:
    """What the envelope holds, whoever signed it."""
    if envelope.payload_type != kind.payload_type:
        raise ProvenanceError(f"{where}: holds {envelope.payload_type!r}, expected {kind.payload_type!r}")
    value = parse_json(envelope.payload, where=where, error=ProvenanceError, max_bytes=MAX_PAYLOAD)
    document = from_json(kind.record, value, where=where, error=ProvenanceError)
    if canonical(to_json(document)) != envelope.payload:
        raise ProvenanceError(
            f"{where}: not in canonical form (RFC 8785, every key written out), which its digest names"
        )
    kind.check(document, where)
    return document


# -------------------------------------------------------------------------------------------------------- signed claims

Predicate = TypeVar("Predicate")


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim(Generic[Predicate]):
    """A claim that somebody in the trust file has signed; whether they may make it is for `require` to say."""

    value: Predicate
    statement: Statement
    envelope: Envelope

    @property
    def digest(self) -> str:
        """SHA-256 of the payload, in hexadecimal."""
        return hashlib.sha256(self.envelope.payload).hexdigest()


def read_claim(
    content: bytes,
    record: type[Predicate],
    *,
    predicate_type: str,
    subjects: Callable[[Statement], None],
    trust: Trust,
    where: str,
) -> Claim[Predicate]:
    """Read a claim of this type. `subjects` raises `ProvenanceError` for a statement about other things.

    Raises `ProvenanceError` for what nobody in the trust file has signed, and for any form but the canonical one.
    """
    envelope = parse_envelope(content, where=where)
    check_signed(envelope, trust=trust, where=where)
    if envelope.payload_type != PAYLOAD_TYPE:
        raise ProvenanceError(f"{where}: holds {envelope.payload_type!r}, expected {PAYLOAD_TYPE!r}")
    statement = parse_statement(envelope.payload, predicate_type=predicate_type, where=where)
    subjects(statement)
    value = from_json(record, statement.predicate, where=f"{where}: predicate", error=ProvenanceError)
    if statement.payload != envelope.payload or canonical(to_json(value)) != canonical(statement.predicate):
        raise ProvenanceError(f"{where}: not in canonical form (RFC 8785, every key written out)")
    return Claim(value=value, statement=statement, envelope=envelope)


def check_trainers(keys: Collection[Ed25519PrivateKey], *, issued: str, trust: Trust, now: int, where: str) -> None:
    """Check keys that are to sign what a trainer answers for, and others who stand by it.

    Raises `ProvenanceError` for a key that may not sign now in its own role, and where none is a trainer's.
    """
    roles = []
    for key in keys:
        owner = trust.owner(public_bytes(key))
        roles.append(Role.TRAINER if owner is None else owner[0].role)
        check_signer(public_bytes(key), trust=trust, role=roles[-1], issued=issued, now=now, where=where)
    if Role.TRAINER not in roles:
        raise ProvenanceError(f"{where}: a trainer signs it; these keys are of: {', '.join(roles) or 'nobody'}")


# --------------------------------------------------------------------------------------------------------------- drafts

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=64)]
Version = Annotated[int, Field(ge=1, le=2**31 - 1)]

Kept = TypeVar("Kept", bound=Dated)


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened(Generic[Kept]):
    """A document from a file: signed by these authorities, or a draft that nobody has signed."""

    value: Kept
    where: str
    authorities: tuple[Authority, ...] = ()
    draft: Document | None = None  # None: it is signed, and who signed it was checked


def open_file(path: Path, kind: Kind[Kept], *, trust: Trust | None, now: int) -> Opened[Kept]:
    """Read a draft, or a signed document that the trust file says is believed.

    Raises `ProvenanceError` or `SpecError` for a faulty document, and for a signed one that cannot be checked.
    """
    content = read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)
    if not content.strip():
        raise ProvenanceError(f"{path}: empty; expected a {kind.name}, a draft (YAML) or a signed file")
    if not _looks_signed(content):
        draft = read_document(path)
        return Opened(value=read_draft(kind, draft), where=str(path), draft=draft)
    if trust is None:
        raise ProvenanceError(f"{path}: signed; say whose signatures are believed with --trust FILE")
    signed = open_document(content, kind, trust=trust, now=now, where=str(path))
    return Opened(value=signed.value, where=str(path), authorities=signed.authorities)


def sign_file(path: Path, kind: Kind[Any], keys: Collection[Ed25519PrivateKey], *, trust: Trust, now: int) -> Envelope:
    """Sign a draft, or add signatures to a file that others have signed before.

    Raises `ProvenanceError` or `SpecError` for a faulty document and for keys that may not sign it.
    """
    content, where = read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError), str(path)
    if _looks_signed(content):
        envelope = parse_envelope(content, where=where)
        return cosign_document(envelope, kind, keys, trust=trust, now=now, where=where)
    value = read_draft(kind, read_document(path))
    return sign_document(value, kind, keys, trust=trust, now=now, where=where)


def read_draft(kind: Kind[Kept], document: Document) -> Kept:
    """The record that a draft says. Raises `SpecError` that names file, line, key and fault."""
    try:
        value = from_json(kind.record, document.value, where=document.where, error=SpecError)
        kind.check(value, document.where)
    except SpecError as fault:
        raise document.locate(fault) from fault
    except ProvenanceError as fault:
        raise document.locate(SpecError(str(fault))) from fault
    return value


def check_span(document: Dated, where: str) -> None:
    """Check that a document is issued before it expires. Raises `ProvenanceError`."""
    if parse_time(document.issued) >= parse_time(document.expires):
        raise ProvenanceError(f"{where}: expires: {document.expires} is not after issued, {document.issued}")


def _looks_signed(content: bytes) -> bool:
    """Whether this is meant as an envelope. A wrong guess is harmless: neither reader accepts what is for the other."""
    return content.lstrip()[:1] == b"{" and b'"payloadType"' in content
