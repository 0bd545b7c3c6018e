"""The trust file: the authorities to believe, their roles and branches, the spans of their keys, and quorums.

    {"format": "explorer/trust/v1",
     "name": "example.com/lab",
     "authorities": [
       {"name": "example.com/data-governance", "role": "data-governance", "branches": ["open", "licensed/news"],
        "keys": [{"public_key": "iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w=",
                  "not_before": "2026-01-01T00:00:00Z", "not_after": "2027-01-01T00:00:00Z", "revoked": null}]}],
     "quorum": {"documents": {"data-governance": 1}, "checkpoints": {"trainer": 1, "data-governance": 1}}}

It is a trust anchor: it has no signature, every checker has its own, and a run's ledger names its digest. Anything that
it does not allow is refused: a role without quorum accepts nothing, an authority without branches vouches for no class,
and a file without authorities refuses everything.

**Quorum** counts authorities, each once, however many of its keys have signed; no public key occurs in the file twice.
For `documents`, this many authorities of the role must have signed the same one. For `checkpoints`, this many trainers
must have signed, and this many authorities of the other named roles must have cosigned; naming none refuses them all.

**Rotation** adds a second key whose span overlaps the first. A document is judged by its time `issued`, so documents
that an old key signed in its time stay valid until they expire.

**Revocation** takes effect at a time: documents issued before stay valid, later ones are refused. `issued` is the
signer's own word, and a stolen key can backdate a document. To reject everything by a stolen key, revoke it as of its
`not_before`. A document that a ledger named in a checkpoint cosigned before the theft is older than the theft by the
word of its witnesses; this proves that it was not backdated.

**Changes** are a new authority, a further key, a revocation or a quorum. Each gives a new `Trust`. When the first
authority of a role is added, one authority of that role is required from then on: for documents, and for checkpoints
too unless it is an auditor or an evaluator, who may cosign but are not required to. `with_quorum` requires more.
"""

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from explorer import canonical, rundir
from explorer.errors import ProvenanceError, unknown
from explorer.note import Algorithm, Verifier, is_weak
from explorer.provenance.envelope import key_id
from explorer.provenance.keys import PublicKey, parse_public
from explorer.provenance.spellings import ClassPath, Line, Time, covers, parse_time
from explorer.schema import from_json, parse_json, record, to_json


class Role(StrEnum):
    """What an authority may sign."""

    DATA_GOVERNANCE = "data-governance"  # the taxonomy, and tags in its branches
    MODEL_RISK = "model-risk"  # the routing policy
    TRAINER = "trainer"  # the ledger of a run
    AUDITOR = "auditor"  # requests to read
    EVALUATOR = "evaluator"  # what it has found out about a model


MAX_BYTES = 2**20
MAX_KEYS = 200  # in a whole file
FORMAT = "explorer/trust/v1"
NO_COSIGNER = "none"  # the quorum of a ledger that requires no cosignature

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
    branches: tuple[ClassPath, ...] = ()  # of the taxonomy, for which it may vouch
    keys: Annotated[tuple[AuthorityKey, ...], Field(min_length=1)]

    def vouches_for(self, path: str) -> bool:
        """Return whether a class or branch lies in one of its branches."""
        return any(covers(branch, path) for branch in self.branches)


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
        """Return the authority and the entry of this public key (32 bytes); None if the file does not have it."""
        owners = ((one, key) for one in self.authorities for key in one.keys if key.raw == public_key)
        return next(owners, None)


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
    """Return a trust file's content. Raises `ProvenanceError` for one that could not be read back."""
    content = (json.dumps(to_json(trust), indent=1) + "\n").encode()
    parse_trust(content, where=where)
    return content


def write_trust(path: Path, trust: Trust) -> None:
    """Write a trust file whole or not at all. Raises `ProvenanceError` for one that could not be read back."""
    rundir.write_bytes(path, trust_content(trust, where=str(path)))


def _check(trust: Trust, where: str) -> None:
    # Every name and every key once: one authority under two names, or one key under two owners, would count twice
    # towards a quorum.
    names: set[str] = set()
    owners: dict[bytes, str] = {}
    for at, authority in enumerate(trust.authorities):
        here = f"{where}: authorities[{at}]"
        if authority.name in names:
            raise ProvenanceError(f"{here}: the name {authority.name!r} is given twice; a further key goes into 'keys'")
        if authority.name == NO_COSIGNER:
            raise ProvenanceError(
                f"{here}: the name {NO_COSIGNER!r} means that no cosignature is required; choose another"
            )
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


# ---------------------------------------------------------------------------------------------- changes of a trust file

NOT_WAITED_FOR = frozenset({Role.AUDITOR, Role.EVALUATOR})  # readers: a checkpoint is valid without them
LEAST_ID = 4  # digits of a key id that suffice to name a key


def new_trust(name: str) -> Trust:
    """Return a trust file without authorities, which refuses everything. Invalid characters of a name become
    hyphens."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip("._-") or "trust"
    return Trust(format=FORMAT, name=name, authorities=(), quorum=Quorum(documents={}, checkpoints={}))


def with_key(trust: Trust, name: str, key: AuthorityKey, *, role: Role, branches: tuple[str, ...]) -> Trust:
    """Add an authority, or a further key to an existing one, whose branches need not be repeated.

    Args:
        trust: the trust file to change.
        name: the name of the authority.
        key: its new key.
        role: its role.
        branches: its branches; empty for an existing authority: those that it has.

    Raises `ProvenanceError` if the authority has another role or other branches.
    """
    present = next((one for one in trust.authorities if one.name == name), None)
    if present is None:
        added = Authority(name=name, role=role, branches=branches, keys=(key,))
        return replace(trust, authorities=(*trust.authorities, added), quorum=_asking(trust.quorum, role))
    if present.role is not role:
        raise ProvenanceError(f"{name} has the role {present.role} already; a name has one role")
    if branches and set(branches) != set(present.branches):
        own = ", ".join(present.branches) or "no branch"
        raise ProvenanceError(f"{name} vouches for {own}; a further key does not change that: leave the branches out")
    return _with(trust, replace(present, keys=(*present.keys, key)))


def with_revocation(trust: Trust, name: str, *, key: str | None, revocation: Revocation) -> Trust:
    """Revoke a key of an authority. `key` is its public key or the beginning of its id; None: its only key.

    Raises `ProvenanceError` if no key or more than one fits, and for a key that is already revoked from an earlier
    time.
    """
    authority = find(trust, name)
    chosen = _choose(authority, key)
    # A revocation may move back in time but never forward: that would make refused documents valid again.
    if chosen.revoked is not None and parse_time(chosen.revoked.at) <= parse_time(revocation.at):
        raise ProvenanceError(f"key {key_id(chosen.raw)[:16]} of {name} is revoked as of {chosen.revoked.at} already")
    revoked = replace(chosen, revoked=revocation)
    return _with(trust, replace(authority, keys=tuple(revoked if one == chosen else one for one in authority.keys)))


def with_quorum(trust: Trust, role: Role, *, documents: int | None, checkpoints: int | None) -> Trust:
    """Require this many authorities of a role; None leaves a number unchanged."""
    quorum = trust.quorum
    if documents is not None:
        quorum = replace(quorum, documents={**quorum.documents, role: documents})
    if checkpoints is not None:
        quorum = replace(quorum, checkpoints={**quorum.checkpoints, role: checkpoints})
    return replace(trust, quorum=quorum)


def find(trust: Trust, name: str) -> Authority:
    """Return the authority of this name. Raises `ProvenanceError` that lists the known names."""
    for authority in trust.authorities:
        if authority.name == name:
            return authority
    raise ProvenanceError(unknown("authority", name, (one.name for one in trust.authorities)))


def cosigner(authority: Authority, key: AuthorityKey) -> Verifier | None:
    """Return the verifier of an authority's cosignatures. A trainer has none: it signs, under the name of the
    ledger."""
    if authority.role is Role.TRAINER:
        return None
    return Verifier(name=authority.name, algorithm=Algorithm.COSIGNATURE, public_key=key.raw)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock the directory of `path` against changes by other processes.

    Raises `ProvenanceError` if another process holds the lock, and for a link.
    """
    # A change replaces the file at this path: it would replace the link, and leave the file that others read.
    if path.is_symlink():
        raise ProvenanceError(f"{path}: a link; name the file itself")
    try:
        descriptor = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        raise ProvenanceError(f"cannot open {path.parent}: {error.strerror or error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise ProvenanceError(f"{path}: another process is changing it; wait and try again") from error
    finally:
        os.close(descriptor)


def _asking(quorum: Quorum, role: Role) -> Quorum:
    documents = {**quorum.documents, role: quorum.documents.get(role, 1)}
    if role in NOT_WAITED_FOR:
        return Quorum(documents=documents, checkpoints=quorum.checkpoints)
    return Quorum(documents=documents, checkpoints={**quorum.checkpoints, role: quorum.checkpoints.get(role, 1)})


def _choose(authority: Authority, key: str | None) -> AuthorityKey:
    chosen = [one for one in authority.keys if (one.revoked is None if key is None else _is_named(one, key))]
    if len(chosen) != 1:
        ids = ", ".join(f"{key_id(one.raw)[:16]}{' (revoked)' if one.revoked else ''}" for one in authority.keys)
        asked = "which key of" if key is None else f"key {key!r} names {len(chosen)} keys of"
        raise ProvenanceError(f"{asked} {authority.name}? it has: {ids}")
    return chosen[0]


def _is_named(key: AuthorityKey, words: str) -> bool:
    return words == key.public_key or (len(words) >= LEAST_ID and key_id(key.raw).startswith(words.lower()))


def _with(trust: Trust, changed: Authority) -> Trust:
    return replace(trust, authorities=tuple(changed if o.name == changed.name else o for o in trust.authorities))
