"""`source`: the Python source of the installed distributions, byte by byte, with their declared licences as classes.

This is real provenance that every Python environment has: nothing is downloaded, and every class is declared by the
distributions. Classes follow from metadata only, in these steps:

1. Every distribution with a recognised licence has the class of that licence (distributions.py).
2. Of equal files, only that of the first distribution by name is kept. A file that is shipped under two classes is left
   out: it claims both, and choosing one would let it train what the other forbids.
3. A class needs two distributions and a least number of bytes; smaller ones are pooled as `open/pooled`, and a pool
   that is still too small is left out.
4. An eighth of a class's distributions, at least one but never the largest, are held out for validation. They are
   chosen by a hash of their names.
5. The distributions of a class contribute evenly: each gives the same number of bytes, or all that it has. Its files
   are in the order of their digests, which is arbitrary but fixed, each followed by a zero byte.

The stream of each distribution is cut into blocks of its own, so an example belongs to one distribution and has one
class. Files that are not UTF-8 are skipped. The digest of the dataset covers the digest of every file that may be read,
and each file is checked against it when it is read.
"""

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from explorer import canonical
from explorer.data.dataset import Dataset, DataSource, Fitted, Modality, Provenance, TaskName
from explorer.data.distributions import POOLED, SUFFIX, Distribution, PythonFile, installed, read
from explorer.data.local import first_of_each
from explorer.data.sequences import Text, cut_blocks
from explorer.errors import DataError
from explorer.schema import LATER

# --- the classes that an environment holds ---------------------------------------------------------------------------

HELD_OUT = 8  # one in this many distributions is held out
SEPARATOR = b"\0"


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A distribution in a class, with the files that it contributes, in reading order."""

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
    """Return the classes of these distributions, sorted by path. Raises `DataError` if there are fewer than two."""
    # Small classes are pooled rather than dropped; the pool has to be as large as any class.
    classes: dict[str, list[Member]] = {}
    for member in _claims([distribution for distribution in distributions if distribution.licence]):
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


def shared(members: Sequence[Member], total: int, *, least: int = 0) -> list[tuple[Member, int]]:
    """Divide `total` bytes among the members: the same number from each, or all that it has. Where that gives no member
    `least` bytes, only the first ones that can have so many get any."""
    shares = _evenly(members, total)
    if max((limit for _, limit in shares), default=least) >= least:
        return shares
    return _evenly([member for member in members if member.size >= least][: max(1, total // least)], total)


def _evenly(members: Sequence[Member], total: int) -> list[tuple[Member, int]]:
    # Smallest first: what a small one leaves of its part is divided among the larger ones.
    limits, left = {}, total
    for place, member in enumerate(sorted(members, key=lambda member: member.size)):
        limits[member.distribution.key] = min(member.size, left // (len(members) - place))
        left -= limits[member.distribution.key]
    return [(member, limits[member.distribution.key]) for member in members]


def _claims(distributions: Sequence[Distribution]) -> list[Member]:
    """Return the distributions with their own files: the first of equal files, without those that two classes claim."""
    claims: dict[str, set[str | None]] = {}
    for distribution in distributions:
        for file in distribution.files:
            claims.setdefault(file.digest, set()).add(distribution.licence)
    # Contents that one class claims, each of which the first distribution with it takes.
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
    """Return a class divided into training and held-out distributions: those whose names have the smallest hashes, but
    never the largest distribution."""
    # By a hash of the name: a new distribution does not move the others. The largest trains, since it may be most of
    # its class.
    *others, _ = sorted(members, key=lambda member: (member.size, member.distribution.key))
    others.sort(key=lambda member: hashlib.sha256(member.distribution.key.encode()).digest())
    held = {member.distribution.key for member in others[: max(1, len(members) // HELD_OUT)]}
    by_name = sorted(members, key=lambda member: member.distribution.key)
    return Family(
        path=path,
        train=tuple(member for member in by_name if member.distribution.key not in held),
        test=tuple(member for member in by_name if member.distribution.key in held),
    )


# --- the dataset -----------------------------------------------------------------------------------------------------

TEST_SHARE = 20  # the test side of a class has at most one in this many of `bytes_per_class`


@dataclass(frozen=True, kw_only=True, slots=True)
class Source(DataSource):
    """The Python files of the installed distributions, by declared licence."""

    name: ClassVar[str] = "source"
    summary: ClassVar[str] = "Python files of the installed distributions, by licence; test: other distributions"
    source: ClassVar[str] = "the Python environment that it is loaded in"
    licence: ClassVar[str] = "what each distribution declares"
    modality: ClassVar[Modality] = "text"
    task: ClassVar[TaskName] = "language"
    fitted: ClassVar[Fitted] = {}  # read byte by byte
    metrics: ClassVar[tuple[str, ...]] = ("bits_per_byte",)

    context: Annotated[int, Field(ge=8, le=4096)] = 128
    bytes_per_class: Annotated[int, Field(ge=1000, le=10**9)] = 1_000_000
    least_bytes: Annotated[int, Field(ge=1000, le=10**9)] = 100_000
    examples: Annotated[
        int | None, Field(ge=2, description="training examples to use, the first of each class; null: all")
    ] = field(default=None, metadata=LATER)

    def families(self) -> tuple[Family, ...]:
        """Return the classes in the environment, sorted. Raises `DataError` if there are fewer than two."""
        return families(installed(search_path()), least_bytes=self.least_bytes)

    def load(self, data: Path | None) -> Dataset:
        train, test, codes, sources = [], [], [], []
        families_here = self.families()
        for code, family in enumerate(families_here):
            for member, limit in shared(family.train, self.bytes_per_class, least=self.context + 1):
                blocks, origins = self._examples(member, limit)
                train.append(blocks)
                codes += [code] * len(blocks)
                sources += origins
            for member, limit in shared(family.test, self.bytes_per_class // TEST_SHARE, least=self.context + 1):
                test.append(self._examples(member, limit)[0])
        if len(set(codes)) < len(families_here) or not any(map(len, test)):
            raise DataError(
                f"dataset 'source': {self.bytes_per_class} bytes a class do not give every class an example of "
                f"{self.context + 1} bytes: expected a shorter context or a larger bytes_per_class"
            )
        chosen = first_of_each(np.asarray(codes, dtype=np.int64), self.examples, dataset=self.name)
        provenance = Provenance(
            classes=tuple(family.path for family in families_here),
            codes=np.asarray(codes, dtype=np.int64)[chosen],
            sources=tuple(sources[place] for place in chosen),
        )
        return Text.of(torch.cat(train)[torch.from_numpy(chosen)], torch.cat(test), provenance=provenance)

    def digest(self, data: Path | None) -> str:
        return _digest(self.families())

    def _examples(self, member: Member, limit: int) -> tuple[Tensor, list[str]]:
        """Return the blocks of a distribution's first `limit` bytes, and the file in which each begins."""
        stream, starts, paths = bytearray(), [], []
        for file in member.files:
            if len(stream) >= limit:
                break
            content = read(member.distribution, file)
            if _is_text(content):
                starts.append(len(stream))
                paths.append(file.path)
                stream += content + SEPARATOR
        blocks = cut_blocks(bytes(stream[:limit]), context=self.context)
        within = np.searchsorted(starts, np.arange(len(blocks)) * self.context, side="right") - 1
        who = f"{member.distribution.name} {member.distribution.version}"
        return blocks, [f"{who}: {paths[index]}" for index in within]


def search_path() -> list[Path]:
    """Return the directories in which Python looks for distributions, but for those that a package brings along.

    `import setuptools`, which compiling a model does, adds `site-packages/setuptools/_vendor` to the search path. With
    it, the dataset would depend on what the process has imported.
    """
    entries = [Path(entry) for entry in sys.path]
    places = {entry.resolve() for entry in entries if any(entry.glob(f"*{SUFFIX}"))}
    return [entry for entry in entries if places.isdisjoint(entry.resolve().parents)]


@lru_cache(maxsize=4)
def _digest(classes: tuple[Family, ...]) -> str:
    """Compute the digest of every file that may be read, with its class and side."""
    sides = [
        [
            family.path,
            side,
            member.distribution.name,
            member.distribution.version,
            [[file.path, file.digest] for file in member.files],
        ]
        for family in classes
        for side, members in (("train", family.train), ("test", family.test))
        for member in members
    ]
    return canonical.digest(sides)


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
