"""Lanes: a step's rows in a fixed number of parts, whose results are added up in one fixed order.

A sum of floating-point numbers depends on the order of the additions. So that a step gives the same bits whatever the
number of processes that share it, the slots of each class are dealt to V lanes in turn, and what one lane has of one
share, a *cell*, goes through the model in passes of its own: their shapes, and so their kernels and their rounding, do
not depend on who makes them. The results of the cells are added by one binary tree over the lanes, whose left part is
the largest power of two below the number of lanes (the tree of RFC 6962):

    6 lanes    ((0 + 1) + (2 + 3)) + (4 + 5)

A lane without rows of the share has no result, and the other side goes up as it is. Which lanes have rows follows from
the step only. Slots are dealt class by class because batches interleave classes evenly: dealt by their numbers, a class
could come to lie in one lane, and the ranks of the others would wait while it is passed. Slots whose examples are left
out keep their turn, so the rest stay in their lanes.

A *rank* is one of the processes that train a run together. It makes the passes of one whole subtree, the ranks go up
the rest of the tree by exchanging sums, and at the end each of them has the total. Sums of two numbers do not depend on
their order, so both sides of an exchange get the same bits. Ranks take unequal subtrees where their number is no power
of two: three of them take 2, 2 and 4 of 8 lanes.

**Batch normalisation** normalises each cell by itself, like ghost batch normalisation. Every cell of a share begins
with the running statistics that there were before the share, and afterwards these become the mean of what the cells
left, weighted by their rows.

With one lane the cell is the share, and nothing is added.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from explorer.engine.averages import with_statistics
from explorer.engine.state import Share
from explorer.errors import TrainingError

Results = dict[str, Tensor]  # of a cell or of several, by name; they are added name by name
MAX_LANES = 1024


class Exchange(Protocol):
    """The connection between the ranks of a run (engine/ranks.py)."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def swap(self, mine: Tensor, *, source: int, targets: tuple[int, ...]) -> Tensor:
        """Send bytes to the targets, and return as many from the source."""
        ...


@dataclass(frozen=True, slots=True)
class Merge:
    """One way up the tree for a rank: it gets the sum of the other side, and gives its own."""

    source: int
    targets: tuple[int, ...]


def left_part(lanes: range) -> int:
    """Return the lane with which the right part of these begins."""
    return lanes.start + (1 << (len(lanes) - 1).bit_length() - 1)


def blocks(lanes: int, ranks: int) -> tuple[range, ...]:
    """Return the lanes of each rank, a subtree each: the largest is halved until there are enough.

    >>> blocks(8, 3)
    (range(0, 2), range(2, 4), range(4, 8))
    """
    parts = [range(lanes)]
    while len(parts) < ranks:
        at = max(range(len(parts)), key=lambda place: len(parts[place]))
        part, middle = parts[at], left_part(parts[at])
        parts[at : at + 1] = [range(part.start, middle), range(middle, part.stop)]
    return tuple(parts)


def merges(lanes: int, *, rank: int, ranks: int) -> tuple[Merge, ...]:
    """Return a rank's way up the tree, from its subtree to the root."""
    starts = [block.start for block in blocks(lanes, ranks)]

    def climb(part: range, members: list[int]) -> list[Merge]:
        if len(members) == 1:
            return []
        middle = left_part(part)
        left, right = ([r for r in members if (starts[r] >= middle) is side] for side in (False, True))
        mine, other = (left, right) if rank in left else (right, left)
        below = range(part.start, middle) if rank in left else range(middle, part.stop)
        place = mine.index(rank)
        # Where the sides differ in size, some ranks of the smaller one serve several of the other.
        targets = tuple(peer for at, peer in enumerate(other) if at % len(mine) == place)
        return [*climb(below, mine), Merge(other[place % len(other)], targets)]

    return tuple(climb(range(lanes), list(range(ranks))))


class Lanes:
    """The lanes of a run, as one of its ranks passes them."""

    def __init__(self, count: int, exchange: Exchange) -> None:
        self.count = count
        self._exchange = exchange
        self._mine = blocks(count, exchange.size)[exchange.rank]
        self._merges = merges(count, rank=exchange.rank, ranks=exchange.size)
        self._parcels: dict[frozenset[str], Parcel] = {}

    def cells(self, share: Share) -> dict[int, Share]:
        """Return the share's cells of this rank, by lane; lanes without rows have none."""
        if self.count == 1:
            return {0: share}
        cells: dict[int, Share] = {}
        lanes = self.lanes_of(share)
        for lane in self._mine:
            slots = share.slots[lanes == lane]
            if len(slots):
                cells[lane] = replace(share, slots=slots, lane=lane)
        return cells

    def lanes_of(self, share: Share) -> np.ndarray:
        """Return the lane of each of the share's slots."""
        dealt = share.slots if share.dealt is None else share.dealt
        # Each class begins with another lane, so that what its slots leave over is spread out, too.
        return (share.code + np.searchsorted(dealt, share.slots)) % self.count

    def total(self, results_of: Callable[[int], Results | None], like: Mapping[str, Tensor]) -> Results:
        """Return the sum of the results of all lanes, on every rank the same.

        Args:
            results_of: returns the results of a lane of this rank, or None for one without rows; called in the order of
                the lanes, so that few results are in memory at a time.
            like: every result that there may be, by name, for shape and type.
        """
        total = self._summed(self._mine, results_of)
        for merge in self._merges:
            total = self._merged(total, merge, like)
        return total or {}

    def _summed(self, lanes: range, results_of: Callable[[int], Results | None]) -> Results | None:
        if len(lanes) == 1:
            return results_of(lanes.start)
        middle = left_part(lanes)
        left = self._summed(range(lanes.start, middle), results_of)
        return _plus(left, self._summed(range(middle, lanes.stop), results_of))

    def _merged(self, mine: Results | None, merge: Merge, like: Mapping[str, Tensor]) -> Results | None:
        names = frozenset(like)
        if names not in self._parcels:
            self._parcels[names] = Parcel(like)
        parcel, route = self._parcels[names], {"source": merge.source, "targets": merge.targets}
        there = self._exchange.swap(parcel.flags(mine or {}), **route)
        return _plus(mine, parcel.unpack(self._exchange.swap(parcel.pack(mine or {}), **route), there))


def _plus(left: Results | None, right: Results | None) -> Results | None:
    """Return the sum of two sides; the result of one side only is taken as it is."""
    if not left or not right:
        return left or right
    both = [name for name in left if name in right]
    sums = torch._foreach_add([left[name] for name in both], [right[name] for name in both])  # pyright: ignore
    return left | right | dict(zip(both, sums, strict=True))


class Parcel:
    """Results with these names and shapes as one row of bytes, and apart from them, on the host, a 1 or a 0 for each
    name that is there: a host that read it from a GPU would wait for that."""

    def __init__(self, like: Mapping[str, Tensor]) -> None:
        # The widest types first, so that every value begins at a multiple of its size.
        self._like = dict(sorted(like.items(), key=lambda item: (-item[1].element_size(), item[0])))
        self._ends = np.cumsum([tensor.nbytes for tensor in self._like.values()], dtype=np.int64)
        self._size = int(self._ends[-1]) if len(self._ends) else 0

    def pack(self, results: Results) -> Tensor:
        """Return the results as bytes; names that are absent have any values."""
        device = next(iter(self._like.values())).device
        row = torch.zeros(self._size, dtype=torch.uint8, device=device)
        views = self._views(row)
        if results:
            torch._foreach_copy_([views[name] for name in results], list(results.values()))  # pyright: ignore
        return row

    def flags(self, results: Results) -> Tensor:
        """Return which names the results have."""
        return torch.tensor([name in results for name in self._like], dtype=torch.uint8)

    def unpack(self, row: Tensor, there: Tensor) -> Results:
        """Return the results in such bytes, in memory of their own laid out like the tensors they stand for."""
        taken: Results = {}
        for (name, view), flag in zip(self._views(row).items(), there.tolist(), strict=True):
            if flag:
                taken[name] = torch.empty_like(self._like[name], requires_grad=False).copy_(view)
        return taken

    def _views(self, row: Tensor) -> Results:
        starts = (0, *self._ends[:-1].tolist())
        return {
            name: row[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            for (name, tensor), start in zip(self._like.items(), starts, strict=True)
        }


# --- running statistics ---


@dataclass(frozen=True, slots=True)
class _Buffer:
    name: str
    module: nn.Module
    key: str

    @property
    def tensor(self) -> Tensor | None:
        return self.module._buffers[self.key]


class Statistics:
    """The buffers of a model: the running statistics of batch normalisation, and the others, which stay."""

    def __init__(self, model: nn.Module) -> None:
        own = {id(module) for module in with_statistics(model)}
        self._running: list[_Buffer] = []
        self._others: list[_Buffer] = []
        for path, module in model.named_modules():
            for key in module._buffers:
                buffer = _Buffer(f"{path}.{key}" if path else key, module, key)
                (self._running if id(module) in own else self._others).append(buffer)

    def of(self, share: Share) -> "Merging":
        """Return the statistics that the share may change, as they are now."""
        return Merging(
            [buffer for buffer in self._running if buffer.name in share.buffers],
            [buffer for buffer in self._others if buffer.name in share.buffers],
        )


class Merging:
    """Running statistics while the cells of a share are passed."""

    def __init__(self, running: list[_Buffer], others: list[_Buffer]) -> None:
        self._before = {buffer: buffer.tensor.clone() for buffer in running if buffer.tensor is not None}
        self._others = [(buffer, buffer.tensor, _version(buffer.tensor)) for buffer in others]

    @property
    def like(self) -> Results:
        """Return what `results` returns, for shape and type."""
        return {buffer.name: before for buffer, before in self._before.items()}

    def restart(self) -> None:
        """Put back what there was before the share."""
        for buffer, before in self._before.items():
            if buffer.tensor is not None:
                buffer.tensor.copy_(before)

    def results(self, rows: int) -> Results:
        """Return the statistics that a cell of so many rows has left, times its rows. Raises `TrainingError` where its
        passes wrote to anything else."""
        for buffer, tensor, version in self._others:
            if buffer.tensor is not tensor or _version(tensor) != version:
                raise TrainingError(
                    f"{buffer.name} ({type(buffer.module).__name__}) was written to in a forward pass: what several"
                    " lanes write is merged for batch normalisation only; expected lanes: 1 for this model"
                )
        return {buffer.name: buffer.tensor * rows for buffer in self._before if buffer.tensor is not None}

    def write(self, total: Results, *, rows: int) -> None:
        """Write the mean over all rows of the share, given the sum over its cells."""
        for buffer, before in self._before.items():
            if buffer.tensor is not None:
                mean = total[buffer.name] / rows if before.is_floating_point() else total[buffer.name] // rows
                buffer.tensor.copy_(mean)


def _version(tensor: Tensor | None) -> int:
    return 0 if tensor is None or tensor.is_inference() else tensor._version
