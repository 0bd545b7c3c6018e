"""How methods compose, as values: each recipe's time by part, its predicted speedup beside the measured one, the
interaction of each pair, and who shortens the same part of a step. `composing` finds them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from explorer.analysis.estimate import Estimate
from explorer.analysis.overlap import Overlap
from explorer.run_files import Metric


@dataclass(frozen=True, kw_only=True, slots=True)
class Composed:
    """A recipe of two methods or more beside what they do alone. `reason` says why there is no prediction."""

    label: str
    methods: tuple[str, ...]  # those that it adds to the baseline's, in acting order
    baseline_seconds: float | None = None
    seconds: float | None = None  # of a whole run, by its own profile
    predicted_seconds: float | None = None
    alone: tuple[float, ...] = ()  # log of what each method alone takes over what the baseline takes
    error: Estimate = field(default_factory=Estimate)  # log of measured over predicted time
    reason: str | None = None

    @property
    def speedup(self) -> float | None:
        """How much faster than the baseline it is."""
        return _ratio(self.baseline_seconds, self.seconds)

    @property
    def predicted_speedup(self) -> float | None:
        return _ratio(self.baseline_seconds, self.predicted_seconds)

    @property
    def by_parts(self) -> float | None:
        """log of predicted time over the product of the methods alone: above 0 where they shorten the same part."""
        if self.predicted_seconds is None or self.baseline_seconds is None:
            return None
        return math.log(self.predicted_seconds / self.baseline_seconds) - sum(self.alone)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two methods: what they do together beyond what each does alone, and which parts of a step both shorten."""

    first: str
    second: str
    recipe: str | None  # the one that adds both and nothing else; None if there is none
    quality: Estimate
    time: Estimate
    overlap: Overlap | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Composition:
    """How the methods of one setting compose at one budget. `reason` says why nothing can be said."""

    baseline: str
    kind: Metric | None = None  # what the qualities mean; None where there is no run
    confidence: float = 0.95
    ssr: float | None = None
    budgets: tuple[float, ...] = ()  # those that could be looked at
    methods: tuple[str, ...] = ()  # that were run alone or in a pair
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # recipe -> part -> seconds of a whole run
    recipes: tuple[Composed, ...] = ()
    pairs: tuple[Pair, ...] = ()
    reason: str | None = None

    @property
    def measured_pairs(self) -> tuple[Pair, ...]:
        """Those of which something is known: both were run together and alone."""
        return tuple(pair for pair in self.pairs if pair.quality.value is not None or pair.time.value is not None)


def _ratio(over: float | None, under: float | None) -> float | None:
    return None if over is None or under is None else over / under
