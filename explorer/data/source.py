"""`source`: the Python source of the installed distributions, byte by byte, with the licences they declare as classes.

Real provenance that ships with every Python environment: nothing is downloaded, and every class is what distributions
say of themselves (families.py). The stream of each distribution is cut into blocks of its own, so an example belongs to
one distribution and has one class. Files that are not UTF-8 are passed over.

The digest of the dataset covers the digest of every file that may be read, and reading checks each against it.
"""

import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from explorer import canonical
from explorer.data.blocks import cut
from explorer.data.dataset import Dataset, DataSource, Fitted, Modality, Provenance, TaskName
from explorer.data.distributions import installed, read
from explorer.data.families import SEPARATOR, Family, Member, families, shared
from explorer.data.sequences import Text
from explorer.errors import DataError

TEST_SHARE = 20  # the test side of a class has this part of the bytes of the training side


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

    def families(self) -> tuple[Family, ...]:
        """The classes that the environment holds, sorted. Raises `DataError` if there are fewer than two."""
        return families(installed(search_path()), least_bytes=self.least_bytes)

    def load(self, data: Path | None) -> Dataset:
        train, test, codes, sources = [], [], [], []
        found = self.families()
        for code, family in enumerate(found):
            for member, limit in shared(family.train, self.bytes_per_class):
                blocks, origins = self._examples(member, limit)
                train.append(blocks)
                codes += [code] * len(blocks)
                sources += origins
            for member, limit in shared(family.test, self.bytes_per_class // TEST_SHARE):
                test.append(self._examples(member, limit)[0])
        if len(set(codes)) < len(found) or not any(map(len, test)):
            raise DataError(
                f"dataset 'source': {self.bytes_per_class} bytes a class do not give every class an example of "
                f"{self.context + 1} bytes: expected a shorter context or a larger bytes_per_class"
            )
        provenance = Provenance(
            classes=tuple(family.path for family in found),
            codes=np.asarray(codes, dtype=np.int64),
            sources=tuple(sources),
        )
        return Text.of(torch.cat(train), torch.cat(test), provenance=provenance)

    def digest(self, data: Path | None) -> str:
        return _digest(self.families())

    def _examples(self, member: Member, limit: int) -> tuple[Tensor, list[str]]:
        """The blocks of a distribution's first `limit` bytes, and where the first byte of each stands."""
        stream, starts, paths = bytearray(), [], []
        for file in member.files:
            if len(stream) >= limit:
                break
            content = read(member.distribution, file)
            if _is_text(content):
                starts.append(len(stream))
                paths.append(file.path)
                stream += content + SEPARATOR
        blocks = cut(bytes(stream[:limit]), context=self.context)
        within = np.searchsorted(starts, np.arange(len(blocks)) * self.context, side="right") - 1
        who = f"{member.distribution.name} {member.distribution.version}"
        return blocks, [f"{who}: {paths[index]}" for index in within]


def search_path() -> list[Path]:
    """Where Python looks for distributions."""
    return [Path(entry) for entry in sys.path]


@lru_cache(maxsize=4)
def _digest(found: tuple[Family, ...]) -> str:
    """Of every file that may be read, with its class and side."""
    sides = [
        [
            family.path,
            side,
            member.distribution.name,
            member.distribution.version,
            [[file.path, file.digest] for file in member.files],
        ]
        for family in found
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
