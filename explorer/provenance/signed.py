"""Signed documents: a record as canonical JSON (RFC 8785) in a DSSE envelope, believed only through a trust file.

A kind of document says which record it holds and which role signs it. Its payload type is
`application/vnd.explorer.<kind>.v1+json`, so that one kind never passes for another. Every record of such a kind has
`issued` and `expires`. A payload in any other form than the canonical one is refused: a document has one digest, and
that is the SHA-256 of what was signed.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer.canonical import canonical
from explorer.errors import ProvenanceError
from explorer.provenance.envelope import Envelope, add_signatures, parse_envelope
from explorer.provenance.keys import public_bytes
from explorer.provenance.require import check_signed, check_signer, require
from explorer.provenance.roles import Role
from explorer.provenance.times import format_time, parse_time
from explorer.provenance.trust import Authority, Trust
from explorer.schema import from_json, parse_json, to_json

MAX_PAYLOAD = 8 * 2**20


class Dated(Protocol):
    """What every signed record has."""

    @property
    def issued(self) -> str: ...

    @property
    def expires(self) -> str: ...


Document = TypeVar("Document", bound=Dated)


def _sound(value: Any, where: str) -> None:
    """The check of a kind whose records need none beyond their types."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind(Generic[Document]):
    """A kind of signed document."""

    name: str  # "taxonomy", "policy"
    record: type[Document]
    role: Role  # whose signature it takes
    check: Callable[[Document, str], None] = _sound  # raises `ProvenanceError` that begins with the place given

    @property
    def payload_type(self) -> str:
        """What the envelope calls it."""
        return f"application/vnd.explorer.{self.name}.v1+json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Signed(Generic[Document]):
    """A document that was checked, and who vouches for it."""

    value: Document
    authorities: tuple[Authority, ...]
    envelope: Envelope


def sign_document(
    value: Document,
    kind: Kind[Document],
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


def open_document(content: bytes, kind: Kind[Document], *, trust: Trust, now: int, where: str) -> Signed[Document]:
    """Read a signed document of this kind. Raises `ProvenanceError` unless the trust file says that it is believed."""
    envelope = parse_envelope(content, where=where)
    check_signed(envelope, trust=trust, where=where)
    value = _payload(envelope, kind, where)
    authorities = require(
        envelope, trust=trust, role=kind.role, issued=value.issued, expires=value.expires, now=now, where=where
    )
    return Signed(value=value, authorities=authorities, envelope=envelope)


def _payload(envelope: Envelope, kind: Kind[Document], where: str) -> Document:
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
