"""A grant: who may read which entries of which runs, for which classes, until when. The format alone.

    {"format": "explorer/grant/v1", "id": "2026-0007", "owner": "example.com/data-governance",
     "grantee": {"name": "example.com/auditor", "public_key": "B6N8vBQgk8i3VdwbEOhstCY3StFqqFPtC9/AsrhtHHw="},
     "runs": ["resnet8-digits-fast-ssr0.5-s1-3f9c2a7d"], "classes": ["licensed/news"], "entries": ["step", "profile"],
     "issued": "2026-01-01T00:00:00Z", "expires": "2026-07-01T00:00:00Z"}

It opens what it names and nothing else: no list may be empty, and none has a word for "all". The grantee's key is an
X25519 key (RFC 7748), to which the data keys of the classes are wrapped; it signs nothing.
"""

from typing import Annotated, Literal

from pydantic import Field

from explorer.errors import ProvenanceError
from explorer.provenance import branches
from explorer.provenance.keys import PublicKey
from explorer.provenance.times import Time, parse_time
from explorer.provenance.trust import Name
from explorer.schema import from_json, parse_json, record

MAX_BYTES = 2**20

_MOST = 10_000  # entries of a list
Run = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=200)]
EntryKind = Annotated[str, Field(pattern=r"^[a-z][a-z-]*$", max_length=40)]


@record
class Grantee:
    """Who may read."""

    name: Name
    public_key: PublicKey  # X25519


@record
class Grant:
    """What a grantee may read, and from when until when."""

    format: Literal["explorer/grant/v1"]
    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]
    owner: Name  # the authority that grants
    grantee: Grantee
    runs: Annotated[tuple[Run, ...], Field(min_length=1, max_length=_MOST)]  # run ids
    classes: Annotated[tuple[branches.Path, ...], Field(min_length=1, max_length=_MOST)]  # branches of the taxonomy
    entries: Annotated[tuple[EntryKind, ...], Field(min_length=1, max_length=100)]  # kinds of ledger entries
    issued: Time
    expires: Time


def parse_grant(content: bytes, *, where: str) -> Grant:
    """Read a grant; whether it holds is for its signature to say. Raises `ProvenanceError` for what is not one."""
    value = parse_json(content, where=where, error=ProvenanceError, max_bytes=MAX_BYTES)
    grant = from_json(Grant, value, where=where, error=ProvenanceError)
    if parse_time(grant.issued) >= parse_time(grant.expires):
        raise ProvenanceError(f"{where}: it expires {grant.expires}, which is not after it was issued, {grant.issued}")
    return grant
