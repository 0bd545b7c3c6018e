"""The classes that an environment holds: its distributions by licence, those that train and those that are held out.

Found from metadata alone, in this order:

1. Every distribution with a licence that is understood has the class of that licence (licences.py).
2. Of equal files one is kept, that of the first distribution by name. A file that is shipped under two classes is
   left out: both are claimed for it, and to choose one would let it train what the other forbids.
3. A class has at least two distributions and a least number of bytes; what is smaller is pooled as `open/pooled`, and
   a pool that is still too small is left out.
4. An eighth of a class's distributions, at least one and never the largest, are held out for validation. They are
   chosen by a hash of their names.
5. The distributions of a class share what is asked of it evenly: each gives the same number of bytes, or all it has.
   Its files follow each other in the order of their digests, which is arbitrary and always the same, a zero byte
   behind each.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from explorer.data.distributions import Distribution, PythonFile
from explorer.data.licences import POOLED
from explorer.errors import DataError

HELD_OUT = 8  # one distribution in so many
SEPARATOR = b"\0"


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A distribution as part of a class, with the files that it alone gives, in the order in which they are read."""

    distribution: Distribution
    files: tuple[PythonFile, ...]

    @property
    def size(self) -> int:
        """Bytes of the stream."""
        return sum(file.size + len(SEPARATOR) for file in self.files)


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A class: the distributions that train and those that are held out, by name."""

    path: str
    train: tuple[Member, ...]
    test: tuple[Member, ...]


@lru_cache(maxsize=4)
def families(distributions: tuple[Distribution, ...], *, least_bytes: int) -> tuple[Family, ...]:
    """The classes of these distributions, sorted by path. Raises `DataError` if there are fewer than two."""
    classes: dict[str, list[Member]] = {}
    for member in _claims([each for each in distributions if each.licence]):
        classes.setdefault(member.distribution.licence or "", []).append(member)
    small = [path for path, members in classes.items() if not _is_enough(members, least_bytes)]
    pool = [member for path in small for member in classes.pop(path)]
    if _is_enough(pool, least_bytes):
        classes[POOLED] = pool
    if len(classes) < 2:
        names = ", ".join(sorted(classes)) or "none"
        raise DataError(
            f"dataset 'source': found classes with two distributions and {least_bytes} bytes: {names}; expected two or "
            f"more: install other distributions or lower least_bytes (too small: {', '.join(sorted(small)) or 'none'})"
        )
    return tuple(_divided(path, classes[path]) for path in sorted(classes))


def shared(members: Sequence[Member], total: int) -> list[tuple[Member, int]]:
    """How many bytes each of them gives so that together they give `total`: the same of each, or all that it has."""
    limits, left = {}, total
    for place, member in enumerate(sorted(members, key=lambda member: member.size)):
        limits[member.distribution.key] = min(member.size, left // (len(members) - place))
        left -= limits[member.distribution.key]
    return [(member, limits[member.distribution.key]) for member in members]


def _claims(distributions: Sequence[Distribution]) -> list[Member]:
    """The distributions with the files that no other has: the first of equal ones, and none that two classes claim."""
    claims: dict[str, set[str | None]] = {}
    for distribution in distributions:
        for file in distribution.files:
            claims.setdefault(file.digest, set()).add(distribution.licence)
    free = {content for content, classes in claims.items() if len(classes) == 1}
    members = []
    for distribution in distributions:
        files = sorted(distribution.files, key=lambda file: file.path, reverse=True)  # the first path of equal files
        own = {file.digest: file for file in files if file.digest in free}
        free -= own.keys()
        if own:
            members.append(Member(distribution=distribution, files=tuple(own[content] for content in sorted(own))))
    return members


def _is_enough(members: Sequence[Member], least_bytes: int) -> bool:
    return len(members) >= 2 and sum(member.size for member in members) >= least_bytes


def _divided(path: str, members: Sequence[Member]) -> Family:
    """Some held out: those whose names have the smallest hashes, the largest distribution excepted."""
    *others, _ = sorted(members, key=lambda member: (member.size, member.distribution.key))
    others.sort(key=lambda member: hashlib.sha256(member.distribution.key.encode()).digest())
    held = {member.distribution.key for member in others[: max(1, len(members) // HELD_OUT)]}
    by_name = sorted(members, key=lambda member: member.distribution.key)
    return Family(
        path=path,
        train=tuple(member for member in by_name if member.distribution.key not in held),
        test=tuple(member for member in by_name if member.distribution.key in held),
    )
