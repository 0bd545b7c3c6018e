"""The order of the examples: one endless sequence, a pure function of the position in it.

An epoch has every example once. Each provenance class is shuffled by itself, and the classes are interleaved evenly:
the k-th of n examples of a class stands at (k + 1/2) / n of the epoch. So every batch has each class in its share, to
within one or two examples, whatever the shuffles say. Which class stands where follows from the counts alone: leaving
a class's content out moves nothing. Without provenance there is one class, and this is an ordinary shuffle.
"""

from functools import lru_cache

import numpy as np

from explorer.data.streams import stream


class Order:
    """The sequence for examples of these classes."""

    def __init__(self, codes: np.ndarray, *, seed: int) -> None:
        """`codes`: N, the class of each example."""
        self._seed = seed
        self._members = {int(code): np.flatnonzero(codes == code) for code in np.unique(codes)}
        self._places, self._pattern = _interleaved({code: len(found) for code, found in self._members.items()})
        self._epoch = lru_cache(maxsize=2)(self._shuffled)

    def __len__(self) -> int:
        """The length of an epoch."""
        return len(self._pattern)

    def examples(self, start: int, stop: int) -> np.ndarray:
        """The numbers of the examples at positions [start, stop) of the sequence, int64."""
        epochs, offsets = np.divmod(np.arange(start, stop), len(self))
        found = np.empty(stop - start, np.int64)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            found[here] = self._epoch(int(epoch))[offsets[here]]
        return found

    def codes(self, start: int, stop: int) -> np.ndarray:
        """The classes at those positions, int64."""
        return self._pattern[np.arange(start, stop) % len(self)]

    def _shuffled(self, epoch: int) -> np.ndarray:
        """The examples of one epoch."""
        found = np.empty(len(self), np.int64)
        for code, members in self._members.items():
            draws = stream(self._seed, "order", epoch, code)
            found[self._places[code]] = members[draws.permutation(len(members))]
        return found


def _interleaved(counts: dict[int, int]) -> tuple[dict[int, np.ndarray], np.ndarray]:
    """The places of each class in an epoch, and the class at each place."""
    codes = np.repeat(np.fromiter(counts, np.int64), list(counts.values()))
    fractions = np.concatenate([(np.arange(count) + 0.5) / count for count in counts.values()])
    pattern = codes[np.lexsort((codes, fractions))]
    return {code: np.flatnonzero(pattern == code) for code in counts}, pattern
