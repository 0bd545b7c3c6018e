"""Levels of deletion and their order, and limits on the training that a deletion may repeat.

    G0  inactive
    G1  localised and ablated, by experiment only
    G2  exact by structure: a sealed region is dropped
    G3  exact by replay: training is repeated without the class

The order is that of the claims they support. G2 and G3 support the same claim: the remaining model follows from a
record in which the class changed nothing that remains, and a run that never had the class, trained for comparison, is
equal bit for bit. Only these two are called deletion. So neither is above the other, and both satisfy `at least G2`.
They differ in cost, which has a limit of its own: the steps to train again. By structure there are none; by replay
there may be any number up to the whole training.

    at most 1% of training        at most 500 steps        at most 0 steps
"""

import math
import re
from dataclasses import dataclass
from typing import Literal

from explorer.errors import ProvenanceError

Level = Literal["G2", "G3"]  # anything less is no deletion
AnyLevel = Literal["G0", "G1", "G2", "G3"]

STRENGTH: dict[str, int] = {"G0": 0, "G1": 1, "G2": 2, "G3": 2}
EXACT: Level = "G2"  # how "any exact way" is written

_FORM = "a share of training such as 1% of training, or steps such as 500 steps"
_COST = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?(%|steps?)( of training)?")


def reaches(level: str, asked: str) -> bool:
    """Return whether a deletion at `level` is at least as strong as the level `asked`.

    >>> reaches("G3", "G2"), reaches("G2", "G3"), reaches("G1", "G2")
    (True, True, False)
    """
    return STRENGTH[level] >= STRENGTH[asked]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """A limit on the training that may be repeated: a share of its steps, or a number of steps."""

    share: float | None = None
    steps: int | None = None

    def allows(self, steps: float, *, of: float) -> bool:
        """Return whether `steps`, out of the `of` steps of a training, are within the limit."""
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
    """Read a limit. Raises `ProvenanceError` that names `where` and the expected form.

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
    """Return the cost of a replay in words.

    >>> replay_words(800, of=800), replay_words(0, of=800)
    ('800 of 800 steps to replay, 100% of training', 'nothing to replay')
    """
    if not steps:
        return "nothing to replay"
    return f"{steps:.0f} of {of:.0f} steps to replay, {100 * steps / of:.3g}% of training"
