"""Who may vouch for the tags of a table: each authority for those that name it, in its own branches.

The trust file's quorum counts too: for the classes of every authority that is named, so many authorities entitled to
them must have signed. Anyone may put a record into the quarantine, which never trains.
"""

from collections.abc import Collection
from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer.errors import ProvenanceError, unknown
from explorer.provenance.envelope import Envelope, add_signatures
from explorer.provenance.keys import public_bytes
from explorer.provenance.require import check_signed, check_signer, require
from explorer.provenance.tag_table import TagTable, Voucher
from explorer.provenance.taxonomy import QUARANTINE
from explorer.provenance.trust import Authority, Quorum, Role, Trust

_ONE = Quorum(documents={Role.DATA_GOVERNANCE: 1}, checkpoints={})


def check_vouchers(envelope: Envelope, table: TagTable, *, trust: Trust, now: int, where: str) -> tuple[Authority, ...]:
    """The authorities that signed for what they may vouch for, by name.

    Raises `ProvenanceError`, with the slot of a tag, if one that a tag names has not, and if they are too few.
    """
    signed = check_signed(envelope, trust=trust, where=where)
    found: dict[str, Authority] = {}
    for voucher in table.vouchers:
        authority, classes, here = _named(voucher, trust, where)
        if signed.isdisjoint(key.raw for key in authority.keys):
            raise ProvenanceError(f"{here}: {authority.name} has not signed, or its signature does not match")
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
            found.update((one.name, one) for one in vouching)
    return tuple(found[name] for name in sorted(found))


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
