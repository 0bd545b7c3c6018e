"""Whether a signed document is to be believed: the signatures that a trust file asks for, and a fault in words if not.

Three steps, in this order: who signed the bytes (`check_signed`), what the bytes say (the caller reads the payload),
and whether these signers may say it (`require`). No payload is read that nobody in the trust file has signed.
"""

from collections.abc import Collection

from explorer.errors import ProvenanceError
from explorer.provenance.envelope import Envelope, key_id, signers
from explorer.provenance.roles import Role
from explorer.provenance.times import format_time, parse_time
from explorer.provenance.trust import Authority, AuthorityKey, Trust

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
