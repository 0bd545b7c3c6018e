"""Rows of sharded data as tensors that are read when they are indexed.

Shapes: N examples.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from torch import Tensor

from explorer.data.dataset import Check, Rows, Split, split_of
from explorer.data.shards.shard_files import Opened, ShardFiles
from explorer.errors import DataError, ErasedError

Taken = Callable[[Opened, np.ndarray], Tensor]  # rows of a shard, by their numbers in it


class ShardRows(Rows):
    """One column of a side, N x shape, as `take` reads it from each shard."""

    def __init__(self, files: ShardFiles, take: Taken, *, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self._files, self._take = files, take
        self.shape = (len(files.layout), *shape)
        self.dtype = dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: int | slice | Tensor) -> Tensor:
        """Return the rows with these numbers. Raises `DataError` for a shard that cannot be had."""
        if isinstance(index, int):
            return self[torch.tensor([index])][0]
        numbers = np.arange(len(self))[index] if isinstance(index, slice) else index.numpy()
        column = torch.empty((len(numbers), *self.shape[1:]), dtype=self.dtype)
        for number, opened, places, rows in by_shard(self._files, numbers):
            try:
                column[torch.from_numpy(places)] = self._take(opened, rows)
            except (ValueError, RuntimeError) as error:
                raise DataError(f"shard {self._files.where(number)}: {error}") from error
        return column

    def content(self, index: int) -> bytes:
        """Return the bytes of one row."""
        layout = self._files.layout
        number = int(layout.shards_of(np.array(index)))
        (opened,) = self._files.opened([number])
        row = index - int(layout.starts[number])
        if opened.erased[row]:
            raise was_erased(self._files, number, index)
        return self.content_in(opened, row)

    def content_in(self, opened: Opened, row: int) -> bytes:
        """Return the bytes of a row of an open shard."""
        return self._take(opened, np.array([row])).numpy().tobytes()

    def of(self, files: ShardFiles) -> Self:
        """Return the same column of other files."""
        return type(self)(files, self._take, shape=self.shape[1:], dtype=self.dtype)


def checked(train: Split, files: ShardFiles, check: Check) -> tuple[Split, ShardFiles]:
    """Return the examples, and their files, with `check` called for each example when its shard is opened."""
    inputs, labels = train.inputs, train.labels
    assert isinstance(inputs, ShardRows) and isinstance(labels, ShardRows)

    def look(number: int, opened: Opened) -> None:
        for row in np.flatnonzero(~opened.erased).tolist():  # an erased one is refused when it is asked for
            content = inputs.content_in(opened, row) + labels.content_in(opened, row)
            check(int(files.layout.starts[number]) + row, content)

    looking = files.looking(look)
    return split_of(inputs.of(looking), labels.of(looking)), looking


class KeptRows(ShardRows):
    """A column that has more than what is taken from it: an image before it is decoded, a token with the next one."""

    def content_in(self, opened: Opened, row: int) -> bytes:
        """Return the bytes of a row of the column `input`."""
        return bytes(opened.input(row))


def by_shard(files: ShardFiles, numbers: np.ndarray) -> Iterator[tuple[int, Opened, np.ndarray, np.ndarray]]:
    """Yield each shard that has some of these examples: its number, it, their places among `numbers`, and their rows in
    it. Raises `DataError` for an example that was erased, and for a shard that cannot be had."""
    if not len(numbers):
        return
    shards = files.layout.shards_of(numbers)
    order = np.argsort(shards, kind="stable")
    cuts = [0, *(np.flatnonzero(np.diff(shards[order])) + 1), len(order)]
    groups = [order[start:stop] for start, stop in pairwise(cuts)]
    needed = [int(shards[places[0]]) for places in groups]
    for number, places, opened in zip(needed, groups, files.opened(needed), strict=True):
        rows = numbers[places] - files.layout.starts[number]
        if (erased := numbers[places][opened.erased[rows]]).size:
            raise was_erased(files, number, int(erased[0]))
        yield number, opened, places, rows


def was_erased(files: ShardFiles, number: int, example: int) -> ErasedError:
    return ErasedError(
        f"shard {files.where(number)}: example {example} was erased (`explorer data erase`): a governed run leaves it"
        " out once the salt of its tag is destroyed too (`explorer tags erase`), or it is deleted by `explorer delete"
        " run`; for other runs write the shards again, without it"
    )
