"""Changes of a trust file: a new authority, a further key, a revocation, a quorum. Each gives a new `Trust`.

A trust file whose first authority of a role is added asks for one authority of that role: for documents, and for
checkpoints too unless it is an auditor or an evaluator, who read and may cosign but are not waited for. `with_quorum`
asks for more.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from explorer.errors import ProvenanceError, unknown
from explorer.note import Algorithm, Verifier
from explorer.provenance.envelope import key_id
from explorer.provenance.roles import Role
from explorer.provenance.times import parse_time
from explorer.provenance.trust import FORMAT, Authority, AuthorityKey, Quorum, Revocation, Trust

NOT_WAITED_FOR = frozenset({Role.AUDITOR, Role.EVALUATOR})  # readers: a checkpoint holds without them
LEAST_ID = 4  # digits of a key id that are enough to name a key


def new_trust(name: str) -> Trust:
    """A trust file without authorities: it refuses everything. What a name cannot have becomes a hyphen."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip("._-") or "trust"
    return Trust(format=FORMAT, name=name, authorities=(), quorum=Quorum(documents={}, checkpoints={}))


def with_key(trust: Trust, name: str, key: AuthorityKey, *, role: Role, branches: tuple[str, ...]) -> Trust:
    """Add an authority, or a further key to one that is there. Raises `ProvenanceError` if it is there in another role
    or with other branches; no branches mean those it has."""
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
    """Revoke a key of an authority: the one whose id begins with `key` or whose public key it is, or the only one.

    Raises `ProvenanceError` if there is no such key, more than one, or one revoked from an earlier moment already.
    """
    authority = find(trust, name)
    chosen = _choose(authority, key)
    if chosen.revoked is not None and parse_time(chosen.revoked.at) <= parse_time(revocation.at):
        raise ProvenanceError(f"key {key_id(chosen.raw)[:16]} of {name} is revoked as of {chosen.revoked.at} already")
    revoked = replace(chosen, revoked=revocation)
    return _with(trust, replace(authority, keys=tuple(revoked if one == chosen else one for one in authority.keys)))


def with_quorum(trust: Trust, role: Role, *, documents: int | None, checkpoints: int | None) -> Trust:
    """Ask for so many authorities of a role; None leaves a number as it is."""
    quorum = trust.quorum
    if documents is not None:
        quorum = replace(quorum, documents={**quorum.documents, role: documents})
    if checkpoints is not None:
        quorum = replace(quorum, checkpoints={**quorum.checkpoints, role: checkpoints})
    return replace(trust, quorum=quorum)


def find(trust: Trust, name: str) -> Authority:
    """The authority of this name. Raises `ProvenanceError` that says which there are."""
    for authority in trust.authorities:
        if authority.name == name:
            return authority
    raise ProvenanceError(unknown("authority", name, (one.name for one in trust.authorities)))


def cosigner(authority: Authority, key: AuthorityKey) -> Verifier | None:
    """The key as cosigned checkpoints know it. A trainer has none: it signs, under the name of the ledger."""
    if authority.role is Role.TRAINER:
        return None
    return Verifier(name=authority.name, algorithm=Algorithm.COSIGNATURE, public_key=key.raw)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keep other processes from changing files beside `path`. Raises `ProvenanceError` while one of them does.

    It does so for a link too: a change would replace the link, and the file that others read would stay as it was.
    """
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
