"""A grant: who may read which entries of which runs, for which classes, until when.

    {"format": "explorer/grant/v1", "id": "2026-0007", "owner": "example.com/data-governance",
     "grantee": {"name": "example.com/auditor", "public_key": "B6N8vBQgk8i3VdwbEOhstCY3StFqqFPtC9/AsrhtHHw="},
     "runs": ["resnet8-digits-fast-ssr0.5-s1-3f9c2a7d"], "classes": ["licensed/news"], "entries": ["step", "profile"],
     "issued": "2026-01-01T00:00:00Z", "expires": "2026-07-01T00:00:00Z"}

It opens only what it names: no list may be empty, and none has a wildcard. It is valid if data governance has signed
it: as many authorities as the trust file requires, the owner among them, each entitled to every granted class. An owner
gives every grant an id of its own; of two grants with the same id the later one counts. The grantee's key is an X25519
key (RFC 7748), to which the reading keys are wrapped; it signs nothing.
"""

import hashlib
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field

from explorer.errors import ProvenanceError
from explorer.provenance.envelope import Envelope, signers
from explorer.provenance.keys import PublicKey, is_weak_reader
from explorer.provenance.signing import (
    MAX_PAYLOAD,
    Kind,
    Signed,
    check_span,
    open_document,
    sign_file,
)
from explorer.provenance.spellings import ClassPath, Time
from explorer.provenance.trust import Name, Role, Trust, find
from explorer.schema import from_json, parse_json, record

_MOST = 10_000  # entries of a list
Run = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=200)]
EntryKind = Annotated[str, Field(pattern=r"^[a-z][a-z-]*$", max_length=40)]
GrantId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]


@record
class Grantee:
    """Who may read."""

    name: Name
    public_key: PublicKey  # X25519


@record
class Grant:
    """What a grantee may read, and from when until when."""

    format: Literal["explorer/grant/v1"]
    id: GrantId
    owner: Name  # the authority that grants
    grantee: Grantee
    runs: Annotated[tuple[Run, ...], Field(min_length=1, max_length=_MOST)]  # run ids
    classes: Annotated[tuple[ClassPath, ...], Field(min_length=1, max_length=_MOST)]  # branches of the taxonomy
    entries: Annotated[tuple[EntryKind, ...], Field(min_length=1, max_length=100)]  # kinds of ledger entries
    issued: Time
    expires: Time

    @property
    def words(self) -> str:
        """Return the coverage in words."""
        covered = f"classes {', '.join(self.classes)}; entries {', '.join(self.entries)}; runs {', '.join(self.runs)}"
        return f"grant {self.id} of {self.owner} covers {covered}; until {self.expires}"


def check_grant(grant: Grant, where: str) -> None:
    """Check the span of time and the grantee's key. Raises `ProvenanceError` that begins with `where`."""
    check_span(grant, where)
    # A point of small order gives the same shared secret with every key, so anyone could unwrap (RFC 7748, section
    # 6.1).
    if is_weak_reader(grant.grantee.public_key):
        raise ProvenanceError(f"{where}: grantee.public_key: weak: everybody could open what is wrapped to it")


def _classes(grant: Grant) -> tuple[str, ...]:
    return grant.classes


GRANT = Kind(name="grant", record=Grant, role=Role.DATA_GOVERNANCE, check=check_grant, branches=_classes)


def sign_grant(path: Path, keys: Collection[Ed25519PrivateKey], *, trust: Trust, now: int) -> Envelope:
    """Sign a draft, the owner first, or add a signature to a signed grant.

    Raises `ProvenanceError` or `SpecError` for a faulty grant and for keys that may not sign it.
    """
    # The owner first: a grant with other signatures only would look as if it were on its way to being valid.
    envelope, where = sign_file(path, GRANT, keys, trust=trust, now=now), str(path)
    grant = claimed_grant(envelope, where=where)
    if not signers(envelope, [key.raw for key in find(trust, grant.owner).keys]):
        raise ProvenanceError(f"{where}: its owner {grant.owner} signs first; the key given is another authority's")
    return envelope


def open_grant(content: bytes, *, trust: Trust, now: int, where: str) -> Signed[Grant]:
    """Return a signed grant that is valid now. Raises `ProvenanceError` with the reason if it is not."""
    signed = open_document(content, GRANT, trust=trust, now=now, where=where)
    names = [authority.name for authority in signed.authorities]
    if signed.value.owner not in names:
        raise ProvenanceError(f"{where}: not signed by its owner {signed.value.owner}; signed by {', '.join(names)}")
    return signed


def claimed_grant(envelope: Envelope, *, where: str) -> Grant:
    """Return the grant in an envelope without checking signatures. Raises `ProvenanceError` for anything else."""
    if envelope.payload_type != GRANT.payload_type:
        raise ProvenanceError(f"{where}: holds {envelope.payload_type!r}, expected {GRANT.payload_type!r}")
    value = parse_json(envelope.payload, where=where, error=ProvenanceError, max_bytes=MAX_PAYLOAD)
    return from_json(Grant, value, where=where, error=ProvenanceError)


def grant_digest(envelope: Envelope) -> str:
    """Return the digest by which a ledger names a grant: that of its payload."""
    return hashlib.sha256(envelope.payload).hexdigest()
