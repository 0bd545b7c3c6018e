"""Who may vouch for the tags of a table: each authority for those that name it, in its own branches.

The trust file's quorum counts too: for the classes of every authority that is named, so many authorities entitled to
them must have signed. Anyone may put a record into the quarantine, which never trains.

Whoever asks either gets the first fault as an error (`check_vouchers`), or every doubt by authority and class, so that
the tags in doubt can be set aside (`weigh_vouchers`).
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer.errors import ProvenanceError, unknown
from explorer.provenance.envelope import Envelope, add_signatures
from explorer.provenance.keys import public_bytes
from explorer.provenance.require import check_signed, check_signer, require
from explorer.provenance.tag_table import TagTable, Voucher
from explorer.provenance.taxonomy import QUARANTINE
from explorer.provenance.times import parse_time
from explorer.provenance.trust import Authority, Quorum, Role, Trust


class Reason(StrEnum):
    """Why the tags of an authority and a class are not believed."""

    UNKNOWN_AUTHORITY = "unknown-authority"  # the trust file does not list it
    UNSIGNED = "unsigned"  # it is named and has not signed
    OUT_OF_BRANCH = "out-of-branch"  # the class is not one of those it may vouch for
    REVOKED = "revoked"  # the keys that it signed with are revoked
    NOT_ENTITLED = "not-entitled"  # its role, its key's span, the attestation's own span, or too few with it


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubt:
    """Why tags are not believed: the kind of reason, and the words of the refusal."""

    reason: Reason
    words: str


Doubts = dict[tuple[str, str], Doubt]
"""Doubts by authority and class path."""

_ONE = Quorum(documents={Role.DATA_GOVERNANCE: 1}, checkpoints={})


def check_vouchers(envelope: Envelope, table: TagTable, *, trust: Trust, now: int, where: str) -> tuple[Authority, ...]:
    """The authorities that signed for what they may vouch for, by name.

    Raises `ProvenanceError`, with the slot of a tag, if one that a tag names has not, and if they are too few.
    """
    signed = check_signed(envelope, trust=trust, where=where)
    found: dict[str, Authority] = {}
    for voucher in table.vouchers:
        found |= _believed(envelope, voucher, table, signed=signed, trust=trust, now=now, where=where)
    return tuple(found[name] for name in sorted(found))


def weigh_vouchers(
    envelope: Envelope, table: TagTable, *, trust: Trust, now: int, where: str
) -> tuple[tuple[Authority, ...], Doubts]:
    """The authorities that are believed for some class, by name, and what is not believed, class by class.

    Raises `ProvenanceError` if nobody in the trust file has signed: then not one word of it is anybody's.
    """
    signed = check_signed(envelope, trust=trust, where=where)
    found: dict[str, Authority] = {}
    doubts: Doubts = {}
    for voucher in table.vouchers:
        for path, count in voucher.classes.items():
            alone = replace(voucher, classes={path: count})
            try:
                found |= _believed(envelope, alone, table, signed=signed, trust=trust, now=now, where=where)
            except ProvenanceError as error:
                reason = _reason(alone, table, path, signed=signed, trust=trust)
                doubts[voucher.authority, path] = Doubt(reason=reason, words=str(error))
    return tuple(found[name] for name in sorted(found)), doubts


def sign_for(
    envelope: Envelope, table: TagTable, keys: Collection[Ed25519PrivateKey], *, trust: Trust, now: int, where: str
) -> Envelope:
    """Add signatures of keys that may vouch for the tags that name their authority, or for all where none does.

    Raises `ProvenanceError`, with the slot of a tag, for a key that may not.
    """
    named = {voucher.authority: _named(voucher, trust, where) for voucher in table.vouchers}
    everything = tuple(path for path in table.histogram if path != QUARANTINE)
    for key in keys:
        owner = trust.owner(public_bytes(key))
        _, classes, here = named.get(owner[0].name if owner else "", (None, everything, where))
        check_signer(
            public_bytes(key),
            trust=trust,
            role=Role.DATA_GOVERNANCE,
            issued=table.issued,
            now=now,
            branches=classes,
            where=here,
        )
    return add_signatures(envelope, keys)


def _believed(
    envelope: Envelope,
    voucher: Voucher,
    table: TagTable,
    *,
    signed: frozenset[bytes],
    trust: Trust,
    now: int,
    where: str,
) -> dict[str, Authority]:
    """The authorities that vouch for these tags, by name. Raises `ProvenanceError` where they are not believed."""
    authority, classes, here = _named(voucher, trust, where)
    if signed.isdisjoint(key.raw for key in authority.keys):
        raise ProvenanceError(f"{here}: {authority.name} has not signed, or its signature does not match")
    found: dict[str, Authority] = {}
    alone = replace(trust, authorities=(authority,), quorum=_ONE)
    for believed in (alone, trust):  # first the one that is named, then as many as it takes
        vouching = require(
            envelope,
            trust=believed,
            role=Role.DATA_GOVERNANCE,
            issued=table.issued,
            expires=table.expires,
            now=now,
            branches=classes,
            where=here,
        )
        found |= {one.name: one for one in vouching}
    return found


def _reason(voucher: Voucher, table: TagTable, path: str, *, signed: frozenset[bytes], trust: Trust) -> Reason:
    """The kind of a refusal, from the widest to the narrowest."""
    authority = next((one for one in trust.authorities if one.name == voucher.authority), None)
    if authority is None:
        return Reason.UNKNOWN_AUTHORITY
    keys = [key for key in authority.keys if key.raw in signed]
    if not keys:
        return Reason.UNSIGNED
    if path != QUARANTINE and not authority.vouches_for(path):
        return Reason.OUT_OF_BRANCH
    issued = parse_time(table.issued)
    if all(key.revoked is not None and parse_time(key.revoked.at) <= issued for key in keys):
        return Reason.REVOKED
    return Reason.NOT_ENTITLED


def _named(voucher: Voucher, trust: Trust, where: str) -> tuple[Authority, tuple[str, ...], str]:
    """Who that is, for which classes it has to be entitled, and the words for a tag that it has to be entitled to."""
    classes = tuple(path for path in voucher.classes if path != QUARANTINE)
    authority = next((one for one in trust.authorities if one.name == voucher.authority), None)
    foreign = [path for path in classes if authority is not None and not authority.vouches_for(path)]
    path = min(foreign or classes or (QUARANTINE,), key=lambda path: voucher.classes[path].first)
    here = f"{where}: the tag of slot {voucher.classes[path].first} ({path}, by {voucher.authority})"
    if authority is None:
        raise ProvenanceError(f"{here}: {unknown('authority', voucher.authority, (o.name for o in trust.authorities))}")
    return authority, classes, here
