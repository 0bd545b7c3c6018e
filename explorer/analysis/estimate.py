"""An effect with its interval, or with the reason why there is none; and many of them at once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from explorer.analysis.comparison import Judged
from explorer.analysis.inference import holm


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """An effect whose absence is 0. `reason` says why there is no value, or no interval."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    p_holm: float | None = None  # adjusted for all effects of the same kind
    family: int = 0
    n: int = 0  # seeds, or windows of a profile
    reason: str | None = None

    @property
    def differs(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def estimate(found: Judged, value: float, *, n: int, confidence: float) -> Estimate:
    """An effect as it was judged."""
    if found.effect is None:
        return Estimate(value=value, n=n, reason=found.reason)
    interval = found.effect.interval(confidence)
    return Estimate(value=value, low=interval.low, high=interval.high, p_value=interval.p_value, n=n)


def adjusted(estimates: Sequence[Estimate]) -> list[Estimate]:
    """The estimates as one family (Holm): those that have a p-value are told from chance together."""
    tested = [index for index, each in enumerate(estimates) if each.p_value is not None]
    done = list(estimates)
    p_values = holm([each.p_value for each in estimates if each.p_value is not None]) if tested else []
    for index, p_value in zip(tested, p_values, strict=True):
        done[index] = replace(done[index], p_holm=p_value, family=len(tested))
    return done
