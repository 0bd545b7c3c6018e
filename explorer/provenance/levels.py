"""The levels of a deletion in their one order, and the limit on what a deletion may take.

    G0  inactive
    G1  localised and ablated, by experiment only
    G2  exact by structure: a sealed region is dropped
    G3  exact by replay: training is repeated without the class

The order is that of what may be said afterwards. G2 and G3 allow the same: what is left follows from a record in which
the class moved nothing that stays, and a run that never had the class, trained to compare, comes out bit for bit alike.
Only from there on is anything called deleted. So neither is above the other, and `at least G2` is met by both. What
tells them apart is the cost, which has a limit of its own: the steps that are trained again. By structure that is none;
by replay it is anything up to the whole training.

    at most 1% of training        at most 500 steps        at most 0 steps
"""

import math
import re
from dataclasses import dataclass
from typing import Literal

from explorer.errors import ProvenanceError

Level = Literal["G2", "G3"]  # what is less is no deletion
AnyLevel = Literal["G0", "G1", "G2", "G3"]

STRENGTH: dict[str, int] = {"G0": 0, "G1": 1, "G2": 2, "G3": 2}
EXACT: Level = "G2"  # how "any exact way" is written

_FORM = "a share of training such as 1% of training, or steps such as 500 steps"
_COST = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?(%|steps?)( of training)?")


def reaches(level: str, asked: str) -> bool:
    """Return whether a deletion at one level is as strong as another level asks.

    >>> reaches("G3", "G2"), reaches("G2", "G3"), reaches("G1", "G2")
    (True, True, False)
    """
    return STRENGTH[level] >= STRENGTH[asked]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """At most so much of a training may be repeated: a share of its steps, or a number of them."""

    share: float | None = None
    steps: int | None = None

    def allows(self, steps: float, *, of: float) -> bool:
        """Return whether so many steps `of` a training are within the limit."""
        if self.steps is not None:
            return steps <= self.steps
        assert self.share is not None
        return steps <= self.share * of

    def __str__(self) -> str:
        """
        >>> str(Cost(share=0.015)), str(Cost(steps=500))
        ('1.5% of training', '500 steps')
        """
        return f"{self.steps} steps" if self.share is None else f"{100 * self.share:.12g}% of training"


def read_cost(written: str, *, where: str) -> Cost:
    """Return the limit that is written. Raises `ProvenanceError` that names `where` and what is expected.

    >>> read_cost("1% of training", where="at_most")
    Cost(share=0.01, steps=None)
    """
    match = _COST.fullmatch(written.strip())
    if match is None:
        raise ProvenanceError(f"{where}: found {written!r:.80}; expected {_FORM}")
    number, unit, of = match.groups()
    if unit == "%":
        if of is None or not 0 <= float(number) <= 100:
            raise ProvenanceError(f"{where}: found {written!r:.80}; expected 0% to 100% of training")
        return Cost(share=float(number) / 100)
    if of is not None or not float(number).is_integer() or not math.isfinite(float(number)):
        raise ProvenanceError(f"{where}: found {written!r:.80}; expected a whole number of steps")
    return Cost(steps=int(float(number)))


def replay_words(steps: float, *, of: float) -> str:
    """Return what a deletion repeats.

    >>> replay_words(800, of=800), replay_words(0, of=800)
    ('800 of 800 steps to replay, 100% of training', 'nothing to replay')
    """
    if not steps:
        return "nothing to replay"
    return f"{steps:.0f} of {of:.0f} steps to replay, {100 * steps / of:.3g}% of training"
