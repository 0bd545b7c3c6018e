"""Drafts: what people write as YAML (JSON is YAML too), which means nothing until an authority signs it.

The same record, signed, is canonical JSON in an envelope. Both go through the same checks, and a fault in a draft is
named with file, line and key.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field

from explorer.document import Document, read_document
from explorer.errors import ProvenanceError, SpecError
from explorer.provenance.envelope import MAX_BYTES, Envelope, parse_envelope
from explorer.provenance.signed import Dated, Kind, cosign_document, open_document, sign_document
from explorer.provenance.times import parse_time
from explorer.provenance.trust import Authority, Trust
from explorer.rundir import read_bytes
from explorer.schema import from_json

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
