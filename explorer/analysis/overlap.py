"""Methods that shorten the same part of the same steps: together they save less than the sum, because what one has
taken away the other cannot take again."""

from dataclasses import dataclass

from explorer.analysis.schedules import PARTS, Phase, Schedule

NOTICEABLE = 0.05  # of the baseline's run


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """Two methods and the parts that both shorten. Shares are of the baseline's training time."""

    parts: tuple[str, ...]
    first: float  # what the first saves of these parts alone
    second: float
    together: float  # what both are predicted to save of them: less than the sum

    @property
    def lost(self) -> float:
        """What the sum of both promises and the parts cannot give."""
        return self.first + self.second - self.together


def overlap(*, baseline: Schedule, first: Schedule, second: Schedule, both: Schedule | None) -> Overlap | None:
    """The parts of which either method alone saves at least `NOTICEABLE`, some of it in the same steps; None if there
    are none.

    Which phases of both coincide is known where one of them has a single phase, and else from a recipe with `both`.
    """
    joint = second if len(first.phases) == 1 else first if len(second.phases) == 1 else both
    if joint is None:
        return None
    saved = {part: _saved(part, baseline, first, second, joint) for part in PARTS}
    shared = [
        part
        for part, (one, other, together) in saved.items()
        if min(one, other) >= NOTICEABLE and one + other - together > 0
    ]
    if not shared:
        return None
    one, other, together = (sum(saved[part][index] for part in shared) for index in range(3))
    return Overlap(parts=tuple(shared), first=one, second=other, together=together)


def _saved(part: str, baseline: Schedule, first: Schedule, second: Schedule, joint: Schedule) -> tuple[float, ...]:
    """What the first, the second and both together save of a part, as shares of the baseline's run."""
    sums, whole = [0.0, 0.0, 0.0], 0.0
    for phase in joint.phases:
        base, one, other = (schedule.during(phase.name) for schedule in (baseline, first, second))
        if base is None or one is None or other is None:
            return 0.0, 0.0, 0.0
        b_p = base.parts.get(part, 0.0)
        left = [_left(part, each, b_p) for each in (one, other)]
        whole += phase.steps * base.seconds
        for index, rest in enumerate((*left, left[0] * left[1])):
            sums[index] += phase.steps * b_p * (1 - rest)
    return tuple(seconds / whole for seconds in sums)


def _left(part: str, phase: Phase, b_p: float) -> float:
    """The share of the part that the method leaves; 1 where it takes nothing away."""
    return min(1.0, phase.parts.get(part, 0.0) / b_p) if b_p else 1.0
