"""Signed records: signing them, and reading them under a trust file.

A record is signed in a DSSE envelope, in one of two forms:

    a document   the record as canonical JSON (RFC 8785), of the payload type `application/vnd.explorer.<kind>.v1+json`
    a claim      an in-toto statement about files that it names by digest; the record is its predicate

so that one kind never passes for another. A `Kind` defines the record, the role that signs it, and the subjects of a
claim. Every record has `issued` and `expires`. Any form but the canonical one is refused: a record has one digest,
which is the SHA-256 of the signed payload.

A signed record is believed after three steps, in this order: who signed the bytes (`check_signed`), what the bytes say
(`Kind.decode`), and whether these signers may say it (`require`). A payload is parsed only if a key of the trust file
has signed it, so that strangers cannot feed the parser.

Drafts are written as YAML (JSON is YAML too) and have no effect until an authority signs them. Drafts and signed
records go through the same checks; a fault in a draft is named with file, line and key.
"""

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Generic, Protocol, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field

from explorer.canonical import canonical
from explorer.errors import ProvenanceError, SpecError
from explorer.provenance.envelope import MAX_BYTES, Envelope, add_signatures, key_id, parse_envelope, signers
from explorer.provenance.keys import public_bytes
from explorer.provenance.spellings import format_time, parse_time
from explorer.provenance.statement import PAYLOAD_TYPE, Subject, make_statement, parse_statement, type_of
from explorer.provenance.trust import Authority, AuthorityKey, Role, Trust
from explorer.rundir import read_bytes
from explorer.schema import from_json, parse_json, to_json
from explorer.yaml_document import Document, read_document

# ------------------------------------------------------------------------------- who signed, and whether that is enough

SHOWN = 16  # digits of a key id in messages


def check_signed(envelope: Envelope, *, trust: Trust, where: str) -> frozenset[bytes]:
    """Return the public keys of a trust file that have signed these bytes. Raises `ProvenanceError` if there is
    none."""
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
    """Return the authorities that vouch for a document, by name: enough of the role, each entitled to all `branches`.

    Args:
        envelope: the signed document.
        trust: the trust file.
        role: the role that has to sign.
        issued, expires: the span that the document claims for itself.
        now: seconds since 1970.
        branches: the branches of the taxonomy that each signer has to be entitled to.
        where: the document's name in messages.

    Raises `ProvenanceError` with a message of its own for each fault: a trust file that is empty or names no quorum for
    the role, a forged document, unknown keys, a document that is expired or not yet valid, the wrong role, a branch
    that is not the signer's, a key outside its span or revoked, too few signers.
    """
    # From the whole document to the single signer, so that the message names the fault to mend first.
    signed = check_signed(envelope, trust=trust, where=where)
    needed = _threshold(trust, role, where)
    _check_span(issued, expires, now, where)
    # By name, since an authority counts once, however many of its keys have signed.
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
    """Return the owner of a key that may sign such a document now; for use before signing.

    Arguments are those of `require`. Raises `ProvenanceError` like `require`, and for a clock outside the key's span.
    """
    _threshold(trust, role, where)
    owner = trust.owner(public_key)
    if owner is None:
        raise ProvenanceError(f"{where}: {_key(public_key)} is not in the trust file {trust.name!r}")
    # At the claimed time and at the clock's: otherwise a revoked key could sign with an older date.
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
    """Return the reason why no signature counts."""
    # A key id is only a hint, but good enough to name the authority whose signature it claims to be.
    known = {key_id(key.raw): one.name for one in trust.authorities for key in one.keys}
    for signature in envelope.signatures:
        if signature.keyid in known:
            name = known[signature.keyid]
            return f"forged or changed: the signature that claims to be of {name} does not match the content"
    named = ", ".join(signature.keyid[:SHOWN] or "no id" for signature in envelope.signatures[:4])
    trusted = ", ".join(sorted({one.name for one in trust.authorities}))
    return f"signed by no key of the trust file {trust.name!r}: found key {named!r}; trusted are {trusted}"


def _fault(authority: Authority, key: AuthorityKey, *, role: Role, at: int, branches: Collection[str]) -> str | None:
    """Return the reason why a signature by this key does not count for a document issued `at`; None if it does."""
    who, when = f"{_key(key.raw)} of {authority.name}", format_time(at)
    # From the widest fault to the narrowest, so that the message names what has to change first.
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


# ---------------------------------------------------------------------------------------------- kinds of signed records

MAX_PAYLOAD = 8 * 2**20


class Dated(Protocol):
    """The span that every signed record has."""

    @property
    def issued(self) -> str: ...

    @property
    def expires(self) -> str: ...


Value = TypeVar("Value", bound=Dated)


def _sound(value: Any, where: str) -> None:
    """Accept a record that needs no check beyond its types."""


def _no_branch(value: Any) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind(Generic[Value]):
    """A kind of signed record: a document, or a claim about files."""

    name: str  # "taxonomy", "policy"; of a claim with its version, as in its predicate type: "model/v1"
    record: type[Value]
    role: Role | Callable[[Value], Role]  # whose signature it takes
    check: Callable[[Value, str], None] = _sound  # raises `ProvenanceError` that begins with the place given
    branches: Callable[[Value], Collection[str]] = _no_branch  # that each signer has to be entitled to
    about: tuple[str, ...] = ()  # the names of a claim's subjects, in order; none for a document
    joint: bool = False  # authorities of other roles may sign too, next to one of the role

    @property
    def payload_type(self) -> str:
        """The type of the payload, as the envelope names it."""
        return PAYLOAD_TYPE if self.about else f"application/vnd.explorer.{self.name}.v1+json"

    @property
    def predicate_type(self) -> str:
        """The type of a claim, as its statement names it."""
        return type_of(self.name)

    def role_of(self, value: Value) -> Role:
        """Return the role that has to sign this record."""
        return self.role if isinstance(self.role, Role) else self.role(value)

    def encode(self, value: Value, about: Sequence[str]) -> Envelope:
        """Return the record in an envelope without signatures; `about` has the SHA-256 of each subject."""
        payload = canonical(to_json(value))
        if self.about:
            subjects = [Subject(name=name, sha256=sha256) for name, sha256 in zip(self.about, about, strict=True)]
            payload = make_statement(subjects, predicate_type=self.predicate_type, predicate=to_json(value)).payload
        return Envelope(payload=payload, payload_type=self.payload_type, signatures=())

    def decode(self, envelope: Envelope, where: str) -> tuple[Value, tuple[str, ...]]:
        """Return the record and the digests of its subjects, without checking signatures.

        Raises `ProvenanceError` for another kind, for any form but the canonical one, and for a faulty record.
        """
        # The type first: it is signed with the payload, so a document signed as one kind cannot be read as another.
        if envelope.payload_type != self.payload_type:
            raise ProvenanceError(f"{where}: holds {envelope.payload_type!r}, expected {self.payload_type!r}")
        if self.about:
            statement = parse_statement(envelope.payload, predicate_type=self.predicate_type, where=where)
            names = tuple(subject.name for subject in statement.subjects)
            if names != self.about:
                wanted = f"one, {self.about[0]}" if len(self.about) == 1 else f"{' and '.join(self.about)}, in order"
                raise ProvenanceError(f"{where}: subjects: {', '.join(names):.200}; expected {wanted}")
            value = from_json(self.record, statement.predicate, where=f"{where}: predicate", error=ProvenanceError)
            form = replace(statement, predicate=to_json(value)).payload
            about = tuple(subject.sha256 for subject in statement.subjects)
        else:
            content = parse_json(envelope.payload, where=where, error=ProvenanceError, max_bytes=MAX_PAYLOAD)
            value = from_json(self.record, content, where=where, error=ProvenanceError)
            form, about = canonical(to_json(value)), ()
        # One form only: otherwise one record would have several digests.
        if form != envelope.payload:
            raise ProvenanceError(
                f"{where}: not in canonical form (RFC 8785, every key written out), which its digest names"
            )
        self.check(value, where)
        return value, about


@dataclass(frozen=True, kw_only=True, slots=True)
class Signed(Generic[Value]):
    """A checked signed record, with the authorities that vouch for it."""

    value: Value
    about: tuple[str, ...] = ()  # SHA-256 of each subject of a claim
    authorities: tuple[Authority, ...]
    envelope: Envelope
    digest: str  # SHA-256 of the payload, in hexadecimal: the name of the record elsewhere

    @property
    def model(self) -> str:
        """SHA-256 of the safetensors file, the first subject of every claim about a model."""
        return self.about[0]

    @property
    def card(self) -> str:
        """SHA-256 of model.json, the second subject of a model's attestation."""
        return self.about[1]


def sign_document(
    value: Value,
    kind: Kind[Value],
    keys: Collection[Ed25519PrivateKey],
    *,
    about: Sequence[str] = (),
    trust: Trust,
    now: int,
    where: str,
) -> Envelope:
    """Sign a record with keys that may sign it now.

    Args:
        value: the record.
        kind: its kind.
        keys: the signing keys. They need not meet the quorum: others can add signatures later.
        about: the SHA-256 of each subject of a claim.
        trust: the trust file that says which keys may sign.
        now: seconds since 1970.
        where: the record's name in messages.

    Raises `ProvenanceError` if the record is faulty or expired, and if a key may not sign it.
    """
    return cosign_document(kind.encode(value, about), kind, keys, trust=trust, now=now, where=where)


def cosign_document(
    envelope: Envelope,
    kind: Kind[Any],
    keys: Collection[Ed25519PrivateKey],
    *,
    trust: Trust,
    now: int,
    where: str,
) -> Envelope:
    """Add signatures to a record; see `sign_document`."""
    value, _ = kind.decode(envelope, where)
    if now >= parse_time(value.expires):
        raise ProvenanceError(f"{where}: expired {value.expires}, and now it is {format_time(now)}: no longer valid")
    # Each key signs in its own role if the kind is joint, and otherwise in the kind's role.
    needed = kind.role_of(value)
    roles: list[Role] = []
    for key in keys:
        raw = public_bytes(key)
        owner = trust.owner(raw) if kind.joint else None
        roles.append(needed if owner is None else owner[0].role)
        branches = kind.branches(value)
        check_signer(raw, trust=trust, role=roles[-1], issued=value.issued, now=now, branches=branches, where=where)
    if kind.joint and needed not in roles:
        raise ProvenanceError(f"{where}: a {needed} signs it; these keys are of: {', '.join(roles) or 'none'}")
    return add_signatures(envelope, keys)


def open_document(content: bytes, kind: Kind[Value], *, trust: Trust, now: int | None, where: str) -> Signed[Value]:
    """Read a signed record of this kind; `now` is in seconds since 1970, None: the moment at which it was issued.

    Raises `ProvenanceError` unless it is valid then under the trust file.
    """
    # In this order: no byte of the payload is parsed before a trusted key is known to have signed it. Whether enough
    # signers may say it is checked last, because role and branches depend on what the record says.
    envelope = parse_envelope(content, where=where)
    check_signed(envelope, trust=trust, where=where)
    value, about = kind.decode(envelope, where)
    authorities = require(
        envelope,
        trust=trust,
        role=kind.role_of(value),
        issued=value.issued,
        expires=value.expires,
        now=parse_time(value.issued) if now is None else now,
        branches=kind.branches(value),
        where=where,
    )
    digest = hashlib.sha256(envelope.payload).hexdigest()
    return Signed(value=value, about=about, authorities=authorities, envelope=envelope, digest=digest)


# --------------------------------------------------------------------------------------------------------------- drafts

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=64)]
Version = Annotated[int, Field(ge=1, le=2**31 - 1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened(Generic[Value]):
    """A document from a file: signed by these authorities, or an unsigned draft."""

    value: Value
    where: str
    authorities: tuple[Authority, ...] = ()
    draft: Document | None = None  # None: it is signed, with checked signatures


def open_file(path: Path, kind: Kind[Value], *, trust: Trust | None, now: int) -> Opened[Value]:
    """Read a draft, or a signed document that is valid under the trust file.

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
    """Sign a draft, or add signatures to a signed file.

    Raises `ProvenanceError` or `SpecError` for a faulty document and for keys that may not sign it.
    """
    content, where = read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError), str(path)
    if _looks_signed(content):
        envelope = parse_envelope(content, where=where)
        return cosign_document(envelope, kind, keys, trust=trust, now=now, where=where)
    value = read_draft(kind, read_document(path))
    return sign_document(value, kind, keys, trust=trust, now=now, where=where)


def read_draft(kind: Kind[Value], document: Document) -> Value:
    """Return the record in a draft. Raises `SpecError` that names file, line, key and fault."""
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
    """Return whether the content is meant as an envelope."""
    # A wrong guess is harmless: neither reader accepts the other's form.
    return content.lstrip()[:1] == b"{" and b'"payloadType"' in content
