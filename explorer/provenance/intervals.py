"""Intervals of [0, 1], for training progress and for depth: half-open, and closed at 1 so that nothing is left out.

`[0, 0.5]` holds 0 and not 0.5, `[0.5, 1]` holds both its ends: written side by side they cover everything once.
"""

import itertools
from collections.abc import Iterable
from typing import Annotated

from annotated_types import Ge, Le

from explorer.errors import ProvenanceError

Share = Annotated[float, Ge(0), Le(1)]
Interval = tuple[Share, Share]

WHOLE: Interval = (0.0, 1.0)


def inside(value: float, interval: Interval) -> bool:
    """Whether the interval holds the value; NaN and what lies outside [0, 1] are in none.

    >>> inside(0.5, (0, 0.5)), inside(0.5, (0.5, 1)), inside(1, (0.5, 1))
    (False, True, True)
    """
    start, end = interval
    return start <= value < end or value == 1 == end


def partition(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """The coarsest intervals that cover [0, 1] and cross no end of the given ones.

    >>> partition([(0.25, 1.0)])
    ((0.0, 0.25), (0.25, 1.0))
    """
    ends = sorted({0.0, 1.0, *itertools.chain.from_iterable(intervals)})
    return tuple(itertools.pairwise(ends))


def written(interval: Interval) -> str:
    """The interval as mathematicians write it.

    >>> written((0, 0.5)), written((0.5, 1))
    ('[0, 0.5)', '[0.5, 1]')
    """
    start, end = interval
    return f"[{exact(start)}, {exact(end)}{']' if end == 1 else ')'}"


def exact(value: float) -> str:
    """The shortest text that is this number and no other: 0.9999999 is not 1, which would be a guarantee.

    >>> exact(1.0), exact(0.9999999), exact(0.25)
    ('1', '0.9999999', '0.25')
    """
    return repr(abs(float(value))).removesuffix(".0")  # abs: -0.0 is 0


def check_interval(interval: Interval | None, where: str) -> None:
    """Check that an interval holds something. Raises `ProvenanceError` that begins with `where`."""
    if interval is not None and not interval[0] < interval[1]:
        raise ProvenanceError(f"{where}: {list(interval)} holds nothing; expected [from, to] with from below to")
