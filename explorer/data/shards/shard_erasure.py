"""Erasing examples from shards: their rows are overwritten at the place, and in the cache of this machine.

The index stays, and with it the digest of the data, what was signed about it, and the proof of every other row
(shard_table.py).
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from explorer.data.shards import shard_table
from explorer.data.shards.shard_cache import ShardCache
from explorer.data.shards.shard_files import ShardFiles
from explorer.data.shards.shard_index import Index, Layout
from explorer.errors import DataError
from explorer.objects import Objects

ANY_SIZE = 2**63  # of a cache in which nothing has to make room


@dataclass(frozen=True, kw_only=True, slots=True)
class RowsInShard:
    """Rows of a shard that are to be erased."""

    number: int  # of the shard
    shard: str
    rows: tuple[int, ...]


def rows_of(index: Index, examples: Collection[int]) -> tuple[RowsInShard, ...]:
    """Return where these training examples are. Raises `DataError` for a number that none has."""
    layout = Layout(index.train)
    for number in examples:
        if not 0 <= number < len(layout):
            raise DataError(f"record {number}: there are {len(layout)} training examples, counted from 0")
    numbers = np.array(sorted({*examples}))
    shards = layout.shards_of(numbers)
    return tuple(
        RowsInShard(
            number=shard,
            shard=layout.shards[shard].name,
            rows=tuple((numbers[shards == shard] - layout.starts[shard]).tolist()),
        )
        for shard in np.unique(shards).tolist()
    )


def erase(objects: Objects, index: Index, places: Collection[RowsInShard]) -> None:
    """Erase these rows for good, one shard after the other; repeating it changes nothing.

    One erasure at a time: of two at once in the same shard, one would undo the other, and fails. Raises `DataError` for
    a shard that is missing or damaged, `PlaceError` for a store that refuses.
    """
    files = ShardFiles(objects, Layout(index.train), cache=None, memory=0)
    cache = ShardCache(ANY_SIZE)
    objects.remove_drafts("train/")  # they may hold the rows too
    for place in places:
        table = files.table(place.number)
        objects.put(place.shard, shard_table.encode(shard_table.without(table, place.rows)))
        cache.drop(index.train.shards[place.number].sha256)
        # Read again: a store may keep what was there, and another process may have written it back.
        if not shard_table.erased_rows(files.table(place.number))[[*place.rows]].all():
            raise DataError(f"shard {files.where(place.number)}: its rows are still there: erase them again")
