"""Limits on quality, time, cost, memory, inference and deletion, and whether a recipe keeps each of them.

A limit holds, is uncertain (the estimate is within it, its interval is not), fails, or is unknown, always with a reason
in words. Nothing unknown is guessed: an unknown limit does not hold.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import get_args

from explorer.analysis.figures import Deletion, Figures, Reached
from explorer.errors import AnalysisError, unknown
from explorer.page.amounts import unreadable
from explorer.provenance.levels import Cost, Level, reaches, read_cost, replay_words


class Limit(StrEnum):
    """Quantity that is limited."""

    QUALITY = "quality"
    TIME = "time"
    COST = "cost"
    MEMORY = "peak memory"
    INFERENCE = "inference"
    INFERENCE_RATIO = "inference beside the baseline"
    DELETION = "deletion"


class Standing(StrEnum):
    """State of a recipe at a limit, the best first."""

    HOLDS = "holds"
    UNCERTAIN = "uncertain"
    UNKNOWN = "unknown"
    FAILS = "fails"


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits that are asked for. None and an empty mapping are no limit.

    Without a quality it is the baseline's at its full budget. Times are in seconds; inference is of one example.
    """

    quality: float | None = None  # at least, or at most where lower is better
    max_seconds: float | None = None
    max_usd: float | None = None
    max_inference_seconds: float | None = None
    max_inference_ratio: float | None = None  # to the baseline
    deletable: Mapping[str, Level] = field(default_factory=dict)  # class: the level at which it must be deletable
    deletion_at_most: Mapping[str, Cost] = field(default_factory=dict)  # class: how much training to repeat at most
    max_deletion_seconds: float | None = None  # of each of these classes
    max_memory: float | None = None  # bytes, at the peak of a run

    def __post_init__(self) -> None:
        if self.quality is not None and not math.isfinite(self.quality):
            raise AnalysisError(f"quality: found {self.quality}; expected a finite number")
        limits = (self.max_seconds, self.max_usd, self.max_inference_seconds, self.max_inference_ratio)
        for value in (*limits, self.max_deletion_seconds, self.max_memory):
            if value is not None and not 0 < value < math.inf:
                raise AnalysisError(f"limit: found {value}; expected a finite number above 0")
        for level in self.deletable.values():
            if level not in get_args(Level):
                raise AnalysisError(unknown("level of deletion", level, get_args(Level)))
        if lost := sorted(self.deletion_at_most.keys() - self.deletable.keys()):
            raise AnalysisError(f"a limit on what deleting {lost[0]} takes needs its level: {lost[0]}=G2")
        if self.max_deletion_seconds is not None and not self.deletable:
            raise AnalysisError("a limit on the time of deletion needs the class that is to be deleted")


def read_deletable(option: str, written: str) -> tuple[str, str, Cost | None]:
    """Read a class, the level at which it must be deletable, and how much training that may repeat.

    The existence of class and level is checked later, by `Limits` and `ask`.

    >>> read_deletable("--deletable", "open/mit=G2, at most 1% of training")
    ('open/mit', 'G2', Cost(share=0.01, steps=None))
    """
    name, equals, asked = written.rpartition("=")
    level, at_most, most = asked.partition(", at most ")
    if not name or not equals or not level:
        expected = "CLASS=LEVEL, such as open/mit=G2 or 'open/mit=G2, at most 1% of training'"
        raise unreadable(option, written, expected)
    return name, level.strip().upper(), read_cost(most, where=option) if at_most else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A recipe at one limit. `found` and `allowed` are in the unit of the limit: the metric's, seconds, US dollars,
    bytes, a ratio; seconds for a deletion."""

    limit: Limit
    standing: Standing
    found: float | None = None
    low: float | None = None  # its interval; only for a ratio of inference times
    high: float | None = None  # the upper end of its interval
    allowed: float | None = None
    class_: str = ""
    level: Level | None = None  # at which the class can be deleted
    reason: str = ""  # why it is unknown or uncertain

    @property
    def miss(self) -> float:
        """Return by how much a failed limit is missed, as a share of it; 1 for a level of deletion."""
        if self.standing is not Standing.FAILS:
            return 0.0
        if self.found is None or not self.allowed or (self.limit is Limit.DELETION and self.found <= self.allowed):
            return 1.0
        return abs(self.found / self.allowed - 1)


def findings_of(limits: Limits, known: Figures) -> tuple[Finding, ...]:
    """Return a recipe's findings on the quality and on each limit: where it has the quality, or else comes nearest."""
    reached = known.reached
    findings, judged = [_quality(reached)], reached.target is not None
    seconds = reached.best_seconds if reached.seconds is None else reached.seconds
    if judged and limits.max_seconds is not None:
        findings.append(_within(Limit.TIME, seconds, reached.high, limits.max_seconds))
    if judged and limits.max_usd is not None:
        usd, high = known.usd(seconds), known.usd(reached.high)
        findings.append(_within(Limit.COST, usd, high, limits.max_usd, missing=known.no_price))
    if limits.max_memory is not None:
        missing = "it was not measured in all of its runs"
        findings.append(_within(Limit.MEMORY, known.peak_memory, None, limits.max_memory, missing=missing))
    missing = "its inference was not measured"
    if limits.max_inference_seconds is not None:
        most = limits.max_inference_seconds
        findings.append(_within(Limit.INFERENCE, known.inference_seconds, None, most, missing=missing))
    if limits.max_inference_ratio is not None:
        findings.append(_inference_ratio(known, limits.max_inference_ratio, missing=missing))
    for class_, level in limits.deletable.items():
        if judged:
            most = limits.deletion_at_most.get(class_)
            findings.append(_deletion(class_, level, known.deletions[class_], most, limits.max_deletion_seconds))
    return tuple(findings)


def _quality(reached: Reached) -> Finding:
    if reached.target is None:
        return Finding(limit=Limit.QUALITY, standing=Standing.UNKNOWN, reason=reached.reason)
    fails = reached.seconds is None
    standing = Standing.FAILS if fails else Standing.UNCERTAIN if reached.doubt else Standing.HOLDS
    doubt = "" if fails else reached.doubt
    return Finding(limit=Limit.QUALITY, standing=standing, found=reached.best, allowed=reached.target, reason=doubt)


def _within(limit: Limit, value: float | None, high: float | None, allowed: float, *, missing: str = "") -> Finding:
    if value is None:
        return Finding(limit=limit, standing=Standing.UNKNOWN, allowed=allowed, reason=missing)
    standing, reason = Standing.HOLDS, ""
    if value > allowed:
        standing = Standing.FAILS
    elif high is not None and high > allowed:
        standing, reason = Standing.UNCERTAIN, "its interval goes beyond the limit"
    return Finding(limit=limit, standing=standing, found=value, high=high, allowed=allowed, reason=reason)


def _inference_ratio(known: Figures, most: float, *, missing: str) -> Finding:
    """Judge the ratio of inference times. One without an interval is uncertain at best: it may be noise."""
    judged = _within(Limit.INFERENCE_RATIO, known.inference_ratio, known.inference_high, most, missing=missing)
    if judged.standing is Standing.HOLDS and judged.high is None:
        judged = replace(
            judged, standing=Standing.UNCERTAIN, reason="its profile kept no rounds, so it has no interval"
        )
    return replace(judged, low=known.inference_low)


def _deletion(class_: str, wanted: Level, forecast: Deletion | str, repeat: Cost | None, most: float | None) -> Finding:
    if isinstance(forecast, str):
        return Finding(limit=Limit.DELETION, standing=Standing.UNKNOWN, class_=class_, allowed=most, reason=forecast)
    # The level first, then how much is repeated, then the time: a level that is missed makes the others pointless.
    standing, reason = Standing.HOLDS, ""
    if not reaches(forecast.level, wanted):
        standing = Standing.FAILS
    elif repeat is not None and (forecast.steps is None or forecast.of is None):
        standing, reason = Standing.UNKNOWN, "how many steps are to be replayed is not known"
    elif (
        repeat is not None
        and forecast.steps is not None
        and forecast.of is not None
        and not repeat.allows(forecast.steps, of=forecast.of)
    ):
        standing, reason = Standing.FAILS, f"{replay_words(forecast.steps, of=forecast.of)}; at most {repeat} allowed"
    elif most is not None:
        judged = _within(
            Limit.DELETION,
            forecast.seconds,
            forecast.high,
            most,
            missing="the time of a step to replay was not measured",
        )
        standing, reason = judged.standing, judged.reason
    return Finding(
        limit=Limit.DELETION,
        standing=standing,
        found=forecast.seconds,
        high=forecast.high,
        allowed=most,
        class_=class_,
        level=forecast.level,
        reason=reason,
    )
