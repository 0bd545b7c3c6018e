"""How far classes are told apart: accuracies and their intervals, from the counts that a linear probe leaves.

    counts      K K: row, the class of the examples; column, the class that they were taken for
    balanced    mean over the classes of the share that was recognised; chance is 1 / K
    of a class  (share of its examples that were recognised + share of the others', class by class alike, that were not
                taken for it) / 2; chance is 1/2, however many classes there are

An interval of 95% takes Wilson's for each share and combines them by their distances from the shares (Zou and Donner,
"Construction of confidence limits about effect measures", 2008). It says how far the figure would move with other
probes of the same classes, those that the rule is fitted to included. Probes that share a fitted rule are not
independent: the variance is taken as 2.25 times that of independent ones, which is the correction of Nadeau and Bengio
("Inference for the generalization error", 2003) for five folds. `benchmarks/probe.md` measures the coverage. A class
with one probe cannot be told apart and does not count.

Numbers only, no torch: what was recorded is read here too. Shapes: K classes.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
VARIANCE = 2.25  # (1/5 + (1/5) / (4/5)) / (1/5): of accuracies from five folds, against independent examples
Z = 1.959963984540054  # of a two-sided 95% interval


class Told(NamedTuple):
    """How far classes are told apart, as a share in [0, 1]."""

    accuracy: float
    low: float
    high: float
    chance: float

    @property
    def words(self) -> str:
        """For people.

        >>> Told(0.95, 0.9, 0.98, 0.5).words
        '0.95 (0.90 to 0.98), chance 0.50'
        """
        return f"{self.accuracy:.2f} ({self.low:.2f} to {self.high:.2f}), chance {self.chance:.2f}"


def balanced(counts_KK: Counts) -> float:
    """The mean of the shares that were recognised, of the classes with two probes or more."""
    sizes = counts_KK.sum(1)
    tested = sizes > 1
    shares = counts_KK.diagonal()[tested] / sizes[tested]
    return float(shares.mean()) if len(shares) else 0.0


def told_apart(counts_KK: Counts) -> Told | None:
    """Of all classes together; None where fewer than two have two probes."""
    sizes = counts_KK.sum(1).tolist()
    shares = [(int(counts_KK[c, c]), size) for c, size in enumerate(sizes) if size > 1]
    if len(shares) < 2:
        return None
    return _combined([(right, size, 1 / len(shares)) for right, size in shares], chance=1 / len(shares))


def told_of(counts_KK: Counts, place: int) -> Told | None:
    """Of one class against the others; None where it has one probe, or no other has two."""
    sizes = counts_KK.sum(1).tolist()
    others = [c for c, size in enumerate(sizes) if size > 1 and c != place]
    if sizes[place] < 2 or not others:
        return None
    shares = [(int(counts_KK[place, place]), sizes[place], 0.5)]
    shares += [(sizes[c] - int(counts_KK[c, place]), sizes[c], 0.5 / len(others)) for c in others]
    return _combined(shares, chance=0.5)


def wilson(right: float, size: float) -> tuple[float, float]:
    """Wilson's interval of a share.

    >>> [round(end, 3) for end in wilson(9, 10)]
    [0.596, 0.982]
    """
    share, squared = right / size, Z**2
    middle = (share + squared / (2 * size)) / (1 + squared / size)
    half = Z / (1 + squared / size) * math.sqrt(share * (1 - share) / size + squared / (4 * size**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def _combined(shares: list[tuple[int, int, float]], *, chance: float) -> Told:
    """The weighted sum of shares (right, size, weight) with its interval."""
    accuracy = sum(weight * right / size for right, size, weight in shares)
    below = above = 0.0
    for right, size, weight in shares:
        low, high = wilson(right / VARIANCE, size / VARIANCE)
        below += (weight * (right / size - low)) ** 2
        above += (weight * (high - right / size)) ** 2
    low, high = max(0.0, accuracy - math.sqrt(below)), min(1.0, accuracy + math.sqrt(above))
    return Told(accuracy=accuracy, low=low, high=high, chance=chance)
