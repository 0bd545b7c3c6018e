"""Tuning: the points that every recipe tries, the choice among them, and what it is worth.

Recipes are compared fairly only if all were tuned with equal effort: tuning is part of the method (Dahl et al.,
"Benchmarking Neural Network Training Algorithms", 2023, arXiv:2306.07179). So every recipe gets as many points, and as
long as none is chosen by earlier results the very same ones.

Qualities are signed here: higher is better. None is a point that diverged.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.stats import qmc

from explorer.sweep.tune_key import Axis, Scalar

KEY = 2023  # of the scramble, the same for every sweep
OUTER = 0.05  # share of a range at each end that counts as its edge
WIDER = 0.5  # share of a range by which it is made wider

Values = dict[str, Scalar]


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge:
    """A chosen value at an end of its range, where a better one may lie beyond."""

    key: str
    side: Literal["low", "high"]
    wider: tuple[float, float] | None  # a range to try; None for a list of choices


def points(axes: Sequence[Axis], count: int) -> list[Values]:
    """Return the first points of a scrambled Halton sequence, which fills a space evenly (Owen 2017, arXiv:1706.02808).

    The sequence depends on the number of axes only, and a longer one begins with a shorter one.
    """
    shares = qmc.Halton(d=len(axes), scramble=True, rng=KEY).random(count)
    return [{axis.key: axis.at(float(share)) for axis, share in zip(axes, row, strict=True)} for row in shares]


def best(qualities: Sequence[float | None]) -> int | None:
    """Return the place of the best quality, the first of equal ones; None if all diverged."""
    finite = [place for place, quality in enumerate(qualities) if quality is not None]
    return max(finite, key=lambda place: (qualities[place], -place), default=None)


def edges(axes: Sequence[Axis], tried: Sequence[Values], chosen: int) -> list[Edge]:
    """Return the values of the chosen point that are at an end of their range or list.

    That is the outer `OUTER` of a range, and the outermost value that was tried: nothing beyond it is known.
    """
    result = []
    for axis in axes:
        shares = [axis.share(point[axis.key]) for point in tried]
        known = [share for share in shares if share is not None]
        mine = shares[chosen]
        if mine is None or min(known) == max(known):
            continue
        outer = 0.0 if axis.scale == "of" else OUTER
        if mine <= max(outer, min(known)):
            result.append(Edge(key=axis.key, side="low", wider=_wider(axis, "low")))
        elif mine >= min(1 - outer, max(known)):
            result.append(Edge(key=axis.key, side="high", wider=_wider(axis, "high")))
    return result


def _wider(axis: Axis, side: Literal["low", "high"]) -> tuple[float, float] | None:
    """Return the range, longer by `WIDER` of its length on one side; a linear one does not cross 0."""
    if axis.scale == "of":
        return None
    if axis.scale == "log":
        factor = (axis.high / axis.low) ** WIDER
        low, high = axis.low / factor, axis.high * factor
    else:
        more = (axis.high - axis.low) * WIDER
        low, high = axis.low - more, axis.high + more
        low = max(low, 0.0) if axis.low >= 0 else low
    return (float(f"{low:.2g}"), axis.high) if side == "low" else (axis.low, float(f"{high:.2g}"))


def expected_best(qualities: Sequence[float | None]) -> list[float]:
    """Return the expected best quality of the first 1, 2, ... of the points, over all orders in which they may come.

    This is exact: of n sorted qualities, the i-th is the best of k drawn ones in (i-1 choose k-1) of (n choose k)
    cases (Dodge et al., "Show Your Work", 2019, arXiv:1909.03004). A point that diverged counts as the worst other.

    >>> expected_best([1.0, 3.0, 2.0])
    [2.0, 2.6666666666666665, 3.0]
    """
    finite = [quality for quality in qualities if quality is not None]
    if not finite:
        return []
    lowest = min(finite)
    ordered = sorted(lowest if quality is None else quality for quality in qualities)
    count = len(ordered)
    return [
        sum(quality * (math.comb(place, drawn - 1) / math.comb(count, drawn)) for place, quality in enumerate(ordered))
        for drawn in range(1, count + 1)
    ]
