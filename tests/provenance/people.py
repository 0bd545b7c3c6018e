"""Keys from fixed seeds, authorities and trust files of them, and the moment that tests call now."""

import hashlib
from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer.provenance.keys import public_text
from explorer.provenance.spellings import parse_time
from explorer.provenance.trust import FORMAT, Authority, AuthorityKey, Quorum, Revocation, Role, Trust

YEAR_BEGINS = "2026-01-01T00:00:00Z"
ISSUED = "2026-05-01T00:00:00Z"
TODAY = "2026-06-01T00:00:00Z"
EXPIRES = "2026-12-01T00:00:00Z"
YEAR_ENDS = "2027-01-01T00:00:00Z"
NOW = parse_time(TODAY)

GOVERNANCE = "example.com/data-governance"
RISK = "example.com/model-risk"


def private(seed: str) -> Ed25519PrivateKey:
    """The key of this seed, always the same."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(seed.encode()).digest())


def public(
    seed: str, *, not_before: str = YEAR_BEGINS, not_after: str = YEAR_ENDS, revoked: str | None = None
) -> AuthorityKey:
    """The key of this seed as a trust file lists it."""
    revocation = None if revoked is None else Revocation(at=revoked, reason="the laptop was stolen")
    return AuthorityKey(
        public_key=public_text(private(seed)), not_before=not_before, not_after=not_after, revoked=revocation
    )


def authority(name: str, role: Role, *keys: AuthorityKey, branches: tuple[str, ...] = ()) -> Authority:
    """An authority; without keys it has the one whose seed is its name."""
    return Authority(name=name, role=role, branches=branches, keys=keys or (public(name),))


def governance(*keys: AuthorityKey) -> Authority:
    return authority(GOVERNANCE, Role.DATA_GOVERNANCE, *keys, branches=("open", "licensed/news"))


def risk(*keys: AuthorityKey) -> Authority:
    return authority(RISK, Role.MODEL_RISK, *keys)


def trust(*authorities: Authority, documents: Mapping[Role, int] | None = None) -> Trust:
    """A trust file that asks for one authority of each role, unless told otherwise."""
    needed = {one.role: 1 for one in authorities} if documents is None else dict(documents)
    quorum = Quorum(documents=needed, checkpoints={})
    return Trust(format=FORMAT, name="example.com/lab", authorities=authorities, quorum=quorum)
