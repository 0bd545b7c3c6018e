"""The phases of a policy: the stretches of training within which no weight changes.

A phase is an interval of training progress and the set of conditions that are switched on in it. The phases of one set
of conditions cover the training once, and every set of those conditions that a rule asks for has its own.
"""

import itertools
from dataclasses import dataclass

from explorer.provenance.intervals import Interval, partition, written
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
    asked = sorted({rule.condition for rule in policy.rules if rule.condition is not None})
    found: list[Phase] = []
    for count in range(len(asked) + 1):
        for on in map(frozenset, itertools.combinations(asked, count)):
            active = [rule for rule in policy.rules if rule.condition is None or rule.condition in on]
            ends = partition(rule.progress for rule in active if rule.progress is not None)
            found += [Phase(progress=interval, conditions=on) for interval in ends]
    return tuple(found)
