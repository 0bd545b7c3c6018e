"""Datasets in shards: what they have in common, whatever their examples are.

`path` is a directory below --data, or the URL of a bucket. The digest of the data is that of its index, which has the
digest of every shard: it is as fast for a million shards as for one, and every shard is verified when it is opened.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, overload

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from explorer.data.dataset import Blocks, DataFile, Dataset, DataSource, Fitted, Provenance, Skipped, Split, split_of
from explorer.data.local import below
from explorer.data.shards import shard_index
from explorer.data.shards.shard_cache import ShardCache, limit
from explorer.data.shards.shard_files import Opened, ShardFiles
from explorer.data.shards.shard_index import Index, Layout, Shard, Side
from explorer.data.shards.shard_rows import ShardRows, Taken
from explorer.errors import DataError, PlaceError
from explorer.objects import Objects, open_objects

EXAMPLES = "training examples to use at least: whole shards, as many of each class; null: all"
URL = "://"
LEAST_MEMORY = 2**26  # bytes of opened shards of a side
PARQUET = "application/vnd.apache.parquet"


class Sources(Sequence[str]):
    """Where each training example is: the name of its shard, so that a tag table names few sources."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def __len__(self) -> int:
        return len(self._layout)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._layout.shards[int(self._layout.shards_of(np.array(index)))].name


class Opening:
    """Shards that can be read: their index, and the files of both sides."""

    def __init__(self, index: Index, objects: Objects, *, window: int, local: bool) -> None:
        self.index, self.url = index, objects.url
        allowed = limit(local=local)
        cache = ShardCache(allowed) if allowed else None
        layout = Layout(index.train)
        # Two windows of every class: the one that is read, and the one that is fetched meanwhile.
        largest = max(shard.bytes for shard in index.train.shards)
        memory = max(LEAST_MEMORY, 2 * window * largest * max(1, len(layout.tags)))
        self.train = ShardFiles(objects, layout, cache=cache, memory=memory)
        self.test = ShardFiles(objects, Layout(index.test), cache=cache, memory=LEAST_MEMORY)

    def splits(
        self, rows: Callable[..., ShardRows], taken: Taken, *, shape: tuple[int, ...], dtype: torch.dtype
    ) -> tuple[Split, Split]:
        """Return both sides, whose inputs are `taken` from each shard."""
        labels = self.index.labels
        kind = np.dtype(labels.dtype)

        def label(opened: Opened, rows: np.ndarray) -> Tensor:
            values = opened.labels if opened.labels.dtype == kind else opened.labels.view(kind)
            taken = values.reshape(len(opened), *labels.shape)[rows]
            if kind.kind in "iu" and taken.size and not 0 <= taken.min() <= taken.max() < self.index.classes:
                raise ValueError(f"labels {taken.min()} to {taken.max()}: expected 0 to {self.index.classes - 1}")
            return torch.from_numpy(taken)

        train, test = (
            split_of(
                inputs=rows(files, taken, shape=shape, dtype=dtype),
                labels=ShardRows(files, label, shape=labels.shape, dtype=getattr(torch, labels.dtype)),
            )
            for files in (self.train, self.test)
        )
        return train, test

    def facts(self, window: int) -> dict[str, Any]:
        """Return the fields of a dataset that are the same for all kinds of shards."""
        index, layout = self.index, self.train.layout
        tagged = None
        if layout.tags:
            tagged = Provenance(
                classes=layout.tags, codes=layout.codes, sources=Sources(layout), simulated=index.simulated
            )
        return {
            "classes": index.classes,
            "names": index.names,
            "centre": index.centre,
            "scale": index.scale,
            "provenance": tagged,
            "blocks": Blocks(ends=layout.ends, window=window),
            "skipped": tuple(Skipped(reason=s.reason, count=s.count, names=s.names) for s in index.skipped),
            "counts": (index.train.labels, index.test.labels) if index.train.labels else None,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Shards(DataSource, ABC):
    """Examples in shards."""

    source: ClassVar[str] = "shards of yours, made by `explorer data shard`"
    licence: ClassVar[str] = "whatever holds for the examples"
    fitted: ClassVar[Fitted] = {}

    path: Annotated[str, Field(min_length=1, max_length=1000, description="directory below --data, or s3://BUCKET/..")]
    examples: Annotated[int | None, Field(ge=1, description=EXAMPLES)] = None
    window: Annotated[int, Field(ge=1, le=10_000, description="shards of a class that are shuffled together")] = 16

    def load(self, data: Path | None) -> Dataset:
        _, index = self._index(data)
        if (index.modality, index.task) != (self.modality, self.aim):
            raise DataError(
                f"dataset {self.name!r}: {self.path} has {index.modality}, {index.task}: expected {self.modality},"
                f" {self.aim}"
            )
        if self.examples is not None:
            index = with_first(index, self.examples)
        objects = self._objects(data)
        return self.dataset(index, Opening(index, objects, window=self.window, local=URL not in self.path))

    @abstractmethod
    def dataset(self, index: Index, opening: Opening) -> Dataset:
        """Return the dataset of an index. Raises `DataError` for examples that do not fit the parameters."""

    @classmethod
    def of_path(cls, place: Path) -> Self | None:
        if not (place / shard_index.FILE).is_file():
            return None
        index = _parsed(shard_index.read_content(open_objects(str(place))), str(place / shard_index.FILE))
        return cls(path=place.name, **cls.parameters(index)) if index.modality == cls.modality else None

    @classmethod
    def parameters(cls, index: Index) -> dict[str, Any]:
        """Return the parameters that an index asks for."""
        return {}

    def digest(self, data: Path | None) -> str:
        return shard_index.digest_of(self._content(data))

    def files(self, data: Path | None) -> tuple[DataFile, ...]:
        content, index = self._index(data)
        shards: tuple[Shard, ...] = index.train.shards + index.test.shards
        return (
            DataFile(
                path=f"{self.path}/{shard_index.FILE}", sha256=shard_index.digest_of(content), media="application/json"
            ),
            *(DataFile(path=f"{self.path}/{shard.name}", sha256=shard.sha256, media=PARQUET) for shard in shards),
        )

    def _objects(self, data: Path | None) -> Objects:
        if URL not in self.path:
            return open_objects(str(below(data, self.path, dataset=self.name)))
        try:
            return open_objects(self.path)
        except PlaceError as error:
            raise DataError(f"dataset {self.name!r}: {error}") from error

    def _content(self, data: Path | None) -> bytes:
        return shard_index.read_content(self._objects(data))

    def _index(self, data: Path | None) -> tuple[bytes, Index]:
        content = self._content(data)
        return content, _parsed(content, f"{self.path}/{shard_index.FILE}")


def with_first(index: Index, examples: int) -> Index:
    """Return the index with the first training shards of each class, in turn, until they have so many examples."""
    turns: dict[str | None, int] = {}
    numbered = []
    for place, shard in enumerate(index.train.shards):
        turns[shard.tag] = turns.get(shard.tag, 0) + 1
        numbered.append((turns[shard.tag], place, shard))
    chosen: list[tuple[int, Shard]] = []
    for _, place, shard in sorted(numbered, key=lambda one: one[:2]):
        if sum(one.rows for _, one in chosen) >= examples:
            break
        chosen.append((place, shard))
    shards = tuple(shard for _, shard in sorted(chosen, key=lambda one: one[0]))
    return replace(index, train=Side(shards=shards))


@lru_cache(maxsize=4)
def _parsed(content: bytes, where: str) -> Index:
    return shard_index.parse(content, where=where)
