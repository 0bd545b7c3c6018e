"""The phases of a policy: the stretches of training within which no weight changes.

A phase is an interval of training progress and the set of conditions that are switched on in it. The phases of one set
of conditions cover the training once, and every set of those conditions that a rule asks for has its own.
"""

import itertools
from collections.abc import Collection
from dataclasses import dataclass

from explorer.errors import ProvenanceError
from explorer.provenance.intervals import WHOLE, Interval, inside, partition, written
from explorer.provenance.policy import RoutingPolicy


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """A stretch of training: from and to as shares of it, half-open and closed at 1."""

    progress: Interval
    conditions: frozenset[str]

    def __str__(self) -> str:
        on = f", {' and '.join(sorted(self.conditions))}" if self.conditions else ""
        return f"progress {written(self.progress)}{on}"


def phases(policy: RoutingPolicy) -> tuple[Phase, ...]:
    """All phases. One begins only where a rule begins or ends; those without any condition come first."""
    asked = sorted(_asked(policy))
    found: list[Phase] = []
    for count in range(len(asked) + 1):
        for on in map(frozenset, itertools.combinations(asked, count)):
            found += [Phase(progress=interval, conditions=on) for interval in _stretches(policy, on)]
    return tuple(found)


def phase_at(policy: RoutingPolicy, *, progress: float, conditions: Collection[str] = ()) -> Phase:
    """The phase in which training stands; conditions that no rule asks for make no difference.

    Raises `ProvenanceError` for progress outside [0, 1].
    """
    if not inside(progress, WHOLE):
        raise ProvenanceError(f"found progress {progress}: expected a share of training, in [0, 1]")
    on = frozenset(conditions) & _asked(policy)
    interval = next(each for each in _stretches(policy, on) if inside(progress, each))
    return Phase(progress=interval, conditions=on)


def _asked(policy: RoutingPolicy) -> frozenset[str]:
    return frozenset(rule.condition for rule in policy.rules if rule.condition is not None)


def _stretches(policy: RoutingPolicy, on: frozenset[str]) -> tuple[Interval, ...]:
    """The stretches of training under these conditions."""
    active = [rule for rule in policy.rules if rule.condition is None or rule.condition in on]
    return partition(rule.progress for rule in active if rule.progress is not None)
