"""The trust file: which authorities are believed, for what, from when until when, and how many of them it takes.

    {"format": "explorer/trust/v1",
     "name": "example.com/lab",
     "authorities": [
       {"name": "example.com/data-governance", "role": "data-governance", "branches": ["open", "licensed/news"],
        "keys": [{"public_key": "iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w=",
                  "not_before": "2026-01-01T00:00:00Z", "not_after": "2027-01-01T00:00:00Z", "revoked": null}]}],
     "quorum": {"documents": {"data-governance": 1}, "checkpoints": {"trainer": 1, "data-governance": 1}}}

It is an anchor: nobody signs it, whoever checks brings it along, and a run's ledger names its digest. What it does not
say is refused: a role without quorum accepts nothing, an authority without branches vouches for no class, and a file
without authorities refuses everything.

**Quorum** counts authorities, each once, however many of its keys have signed; no public key stands in the file twice.
For `documents`, so many authorities of the role must have signed the same one. For `checkpoints`, so many trainers must
have signed, and so many authorities of the other roles that it names must have cosigned; naming none refuses them all.

**Rotation** is a second key whose span overlaps the first. A document is judged by the moment it was `issued`, so what
an old key signed in its time stays valid until it expires.

**Revocation** holds from a moment: what was issued before stays valid, what came after is refused. `issued` is the
signer's own word: whoever holds a stolen key can date a document back. To believe nothing of a stolen key, revoke it
as of its `not_before`. A document that a ledger named in a checkpoint cosigned before the theft is older than the theft
on other people's word; that is how one shows that it was not dated back.
"""

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from explorer import canonical, rundir
from explorer.errors import ProvenanceError
from explorer.note import is_weak
from explorer.provenance import branches as taxonomy_branches
from explorer.provenance.keys import PublicKey, parse_public
from explorer.provenance.lines import Line
from explorer.provenance.roles import Role
from explorer.provenance.times import Time, parse_time
from explorer.schema import from_json, parse_json, record, to_json

MAX_BYTES = 2**20
MAX_KEYS = 200  # in a whole file
FORMAT = "explorer/trust/v1"
NOBODY = "none"  # the quorum of a ledger that asks for no cosignature

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$", max_length=200)]
"""The name of an authority and of the key that it cosigns with, such as `example.com/data-governance`."""

Threshold = Annotated[int, Field(ge=1, le=MAX_KEYS)]


@record
class Revocation:
    """A key that is believed no longer."""

    at: Time  # documents issued then or later are refused
    reason: Annotated[Line, Field(max_length=500)]


@record
class AuthorityKey:
    """A public key of an authority and when it may sign: from `not_before`, before `not_after`."""

    public_key: PublicKey
    not_before: Time
    not_after: Time
    revoked: Revocation | None = None

    @property
    def raw(self) -> bytes:
        """The 32 bytes of the public key."""
        return parse_public(self.public_key)

    @property
    def valid_from(self) -> int:
        """The first moment at which it may sign, in seconds since 1970."""
        return parse_time(self.not_before)

    @property
    def valid_until(self) -> int:
        """The first moment at which it may sign no longer, by age or revocation."""
        ends = parse_time(self.not_after)
        return ends if self.revoked is None else min(ends, parse_time(self.revoked.at))


@record
class Authority:
    """Somebody who is believed in one role."""

    name: Name
    role: Role
    branches: tuple[taxonomy_branches.Path, ...] = ()  # of the taxonomy, for which it may vouch
    keys: Annotated[tuple[AuthorityKey, ...], Field(min_length=1)]

    def vouches_for(self, path: str) -> bool:
        """Whether a class or branch lies in one of its branches."""
        return any(taxonomy_branches.covers(branch, path) for branch in self.branches)


@record
class Quorum:
    """How many authorities of a role it takes. A role that is not named is never enough."""

    documents: dict[Role, Threshold]
    checkpoints: dict[Role, Threshold]


@record
class Trust:
    """A trust file."""

    format: Literal["explorer/trust/v1"]
    name: Name
    authorities: tuple[Authority, ...]
    quorum: Quorum

    @property
    def digest(self) -> str:
        """SHA-256 of its canonical JSON, in hexadecimal: the name under which a ledger pins it."""
        return canonical.digest(to_json(self))

    def owner(self, public_key: bytes) -> tuple[Authority, AuthorityKey] | None:
        """Whose key this is (32 bytes)."""
        found = ((one, key) for one in self.authorities for key in one.keys if key.raw == public_key)
        return next(found, None)


def read_trust(path: Path) -> Trust:
    """Read a trust file. Raises `ProvenanceError` that names the file, the key and the fault."""
    return parse_trust(rundir.read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError), where=str(path))


def parse_trust(content: bytes, *, where: str) -> Trust:
    """Read the content of a trust file; see `read_trust`."""
    if not content.strip():
        raise ProvenanceError(f"{where}: empty; an empty trust file refuses everything")
    value = parse_json(content, where=where, error=ProvenanceError, max_bytes=MAX_BYTES)
    trust = from_json(Trust, value, where=where, error=ProvenanceError)
    _check(trust, where)
    return trust


def trust_content(trust: Trust, *, where: str) -> bytes:
    """A trust file's content. Raises `ProvenanceError` for what could not be read again."""
    content = (json.dumps(to_json(trust), indent=1) + "\n").encode()
    parse_trust(content, where=where)
    return content


def write_trust(path: Path, trust: Trust) -> None:
    """Write a trust file whole or not at all. Raises `ProvenanceError` for what could not be read again."""
    rundir.write_bytes(path, trust_content(trust, where=str(path)))


def _check(trust: Trust, where: str) -> None:
    names: set[str] = set()
    owners: dict[bytes, str] = {}
    for at, authority in enumerate(trust.authorities):
        here = f"{where}: authorities[{at}]"
        if authority.name in names:
            raise ProvenanceError(f"{here}: the name {authority.name!r} stands twice; a further key goes into 'keys'")
        if authority.name == NOBODY:
            raise ProvenanceError(f"{here}: the name {NOBODY!r} means that nobody has to cosign; choose another")
        names.add(authority.name)
        for number, key in enumerate(authority.keys):
            _check_key(key, owners, authority.name, f"{here}.keys[{number}]")
    if len(owners) > MAX_KEYS:
        raise ProvenanceError(f"{where}: {len(owners)} keys; at most {MAX_KEYS} are read")


def _check_key(key: AuthorityKey, owners: dict[bytes, str], name: str, where: str) -> None:
    if parse_time(key.not_before) >= parse_time(key.not_after):
        raise ProvenanceError(f"{where}: not_before {key.not_before} is not before not_after {key.not_after}")
    if is_weak(key.raw):
        raise ProvenanceError(f"{where}: the public key {key.public_key} is weak: anybody can sign for it")
    if key.raw in owners:
        raise ProvenanceError(f"{where}: the public key {key.public_key} is that of {owners[key.raw]!r} already")
    owners[key.raw] = name
