"""The best recipe under stated limits: which recipes keep them, which limits the others miss, and how certain that is.

A candidate is a recipe on one hardware, at the least time in which its curve has the requested quality. Curves are
monotone, linear in log time, and never extrapolated: a recipe that would reach the quality beyond its last budget does
not have it, and one that exceeds it at its lowest budget is taken at that budget. Controls are no candidates.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from explorer.analysis.comparison import RESAMPLES, judge
from explorer.analysis.figures import Figures, Reached, by_ladder, figures_of, key_of, reached_by
from explorer.analysis.inference import exponential
from explorer.analysis.ladders import SEARCHED, Ladder, Setting, ladders
from explorer.analysis.limits import Finding, Limit, Limits, Standing, findings_of
from explorer.analysis.sentences import busy_notes
from explorer.analysis.step_times import error_of_ratio
from explorer.analysis.verdict import Verdict, sweep_verdicts
from explorer.errors import AnalysisError, unknown
from explorer.run_files import Metric

RANK = list(Standing)


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A recipe on one hardware, with its findings on every limit."""

    setting: Setting
    recipe: str
    label: str
    recipe_digest: str
    is_baseline: bool
    time_source: str
    tuning: str | None  # how the baseline was tuned; None: it was not
    known: Figures
    findings: tuple[Finding, ...]
    verdict: Verdict | None  # compared with its baseline at equal quality; None for the baseline itself

    @property
    def reached(self) -> Reached:
        return self.known.reached

    @property
    def is_predicted(self) -> bool:
        """Return whether some of its times are predictions for a machine that it was not run on."""
        return "predicted" in self.time_source.split("+")

    @property
    def seconds(self) -> float | None:
        """Return the least time in which it has the quality."""
        return self.known.reached.seconds

    @property
    def usd(self) -> float | None:
        """Return the cost of that time."""
        return self.known.usd(self.seconds)

    @property
    def standing(self) -> Standing:
        """Return the worst of its findings."""
        return max((finding.standing for finding in self.findings), key=RANK.index)

    @property
    def failed(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.standing is Standing.FAILS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Time or cost of the runner-up over that of the best: 1.3 is 30% more."""

    ratio: float | None  # None where the runner-up's is only an upper limit
    low: float | None
    high: float | None
    reason: str  # why there is no interval, or no ratio

    @property
    def beyond_noise(self) -> bool:
        return self.low is not None and self.low > 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """An answer. Candidates are ordered by standing: holds, uncertain, unknown, fails; then by what they take."""

    limits: Limits
    kind: Metric
    confidence: float
    least: Literal["time", "cost"]  # the quantity that is minimised
    candidates: tuple[Candidate, ...]
    difference: Difference | None  # None: there is no runner-up
    time_notes: tuple[str, ...] = ()  # reservations about the times of its candidates

    @property
    def best(self) -> Candidate | None:
        """Return the best candidate, a guess if none is certain to hold; None if nothing is feasible."""
        first = self.candidates[0]
        return first if _feasible(first) else None

    @property
    def winner(self) -> Candidate | None:
        """Return the recipe to confirm: the best feasible one, certain or not, that takes less than the baseline."""
        bases = [candidate for candidate in self.candidates if candidate.is_baseline]
        if any(base.reached.at_lowest for base in bases):
            return None  # what the baseline needs is not known, only an upper limit of it
        least = min((_taken(base, self.least) for base in bases), default=math.inf)
        others = (candidate for candidate in self.candidates if not candidate.is_baseline and _feasible(candidate))
        return next((candidate for candidate in others if _taken(candidate, self.least) < least), None)

    @property
    def runner_up(self) -> Candidate | None:
        return self.candidates[1] if len(self.candidates) > 1 and _feasible(self.candidates[1]) else None

    @property
    def overtaken(self) -> bool:
        """Return whether another recipe takes less than the best, but is not sure to hold the limits."""
        others = (candidate for candidate in self.candidates if _feasible(candidate))
        return any(_taken(other, self.least) < _taken(self.candidates[0], self.least) for other in others)

    @property
    def holds(self) -> bool:
        """Return whether the best candidate holds every limit, its uncertainty included."""
        return self.candidates[0].standing is Standing.HOLDS

    @property
    def nearest(self) -> Candidate | None:
        """Return the candidate that misses least, if nothing is feasible; preferably one whose limits are all known.

        One that has the quality, at whatever cost, is nearer than one that never does, because money can lift a limit
        and not a curve. Among equals it is the one that fails fewest limits, and those by least.
        """
        if self.best is not None:
            return None
        return min(self.candidates, key=_distance)


def ask(
    rows: pd.DataFrame,
    forecasts: pd.DataFrame,
    limits: Limits,
    *,
    verdicts: Sequence[Verdict] | None = None,
    baseline: str | None = None,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> Asked:
    """Return the best recipe under limits. Cost is minimised if it is limited, otherwise time.

    Args:
        rows: rows of `results`, with one metric.
        forecasts: rows of `deletion_forecasts` of their runs.
        limits: what is asked for.
        verdicts: those on the sweep's recipes, with fresh seeds; by default computed from the rows.
        baseline: name of the recipe whose quality and inference count; by default the sweep's own.
        confidence: of all intervals.
        resamples: bootstrap resamples of the seeds.

    Raises `AnalysisError` for limits that do not fit the rows.
    """
    # --- the recipes, their baselines and verdicts ---
    recipes = [ladder for ladder in ladders(rows, x="train_seconds", empty=True) if ladder.control is None]
    _check(rows, recipes, forecasts, limits, baseline)
    names = Counter((ladder.setting, ladder.recipe) for ladder in recipes)
    by_name = {(ladder.setting, ladder.recipe): ladder for ladder in recipes}
    if verdicts is None:
        verdicts = sweep_verdicts(rows, baseline=baseline, confidence=confidence, resamples=resamples)
    judged = {(verdict.comparison.setting, verdict.comparison.label): verdict for verdict in verdicts}
    # --- each recipe with its figures and findings ---
    parts, candidates = by_ladder(rows), []
    for ladder in recipes:
        name = (ladder.setting, baseline or ladder.baseline)
        base = by_name[name] if names[name] == 1 else None
        reached = reached_by(ladder, baseline=base, target=limits.quality, confidence=confidence, resamples=resamples)
        verdict = judged.get((ladder.setting, ladder.label))
        same = verdict is not None and verdict.comparison.baseline == name[1]
        known = figures_of(
            parts[key_of(ladder)],
            forecasts,
            ladder,
            comparison=verdict.comparison if verdict is not None and same else None,
            is_baseline=ladder is base,
            classes=limits.deletable,
            reached=reached,
        )
        candidates.append(
            Candidate(
                setting=ladder.setting,
                recipe=ladder.recipe,
                label=ladder.label,
                recipe_digest=ladder.recipe_digest,
                is_baseline=ladder is base,
                time_source=ladder.time_source,
                tuning=None if base is None else base.tuning,
                known=known,
                findings=findings_of(limits, known),
                verdict=verdict,
            )
        )
    # --- the order: a certain answer before a cheap one; times and names break ties ---
    least: Literal["time", "cost"] = "time" if limits.max_usd is None else "cost"
    candidates.sort(key=lambda c: (RANK.index(c.standing), _taken(c, least), _taken(c, "time"), c.label))
    return Asked(
        limits=limits,
        kind=recipes[0].setting.kind,
        confidence=confidence,
        least=least,
        candidates=tuple(candidates),
        difference=_difference(candidates, least, confidence),
        time_notes=tuple(busy_notes(rows)),
    )


def _check(
    rows: pd.DataFrame, recipes: list[Ladder], forecasts: pd.DataFrame, limits: Limits, baseline: str | None
) -> None:
    if not recipes:
        raise AnalysisError("there is no finished run of a recipe to choose from")
    metrics = sorted({str(metric) for metric in rows["metric"]})
    if len(metrics) > 1:
        raise AnalysisError(f"these runs are judged by {', '.join(metrics)}: choose one metric")
    quality = limits.quality
    if quality is not None and recipes[0].setting.kind.bounded and not 0 <= quality <= 1:
        raise AnalysisError(f"quality: found {quality:g}; {metrics[0]} is a fraction from 0 to 1, such as 0.93")
    names = {ladder.recipe for ladder in recipes}
    if baseline is not None and baseline not in names:
        raise AnalysisError(unknown("baseline", baseline, names))
    classes = {str(name) for name in forecasts["class"]}
    for class_ in limits.deletable:
        if classes and class_ not in classes:
            raise AnalysisError(unknown("class", class_, classes))


def _difference(ordered: list[Candidate], least: str, confidence: float) -> Difference | None:
    """Compare the runner-up with the best candidate, over the seeds that both were run with."""
    if len(ordered) < 2 or not all(_feasible(candidate) for candidate in ordered[:2]):
        return None
    best, other = ordered[0].reached, ordered[1].reached
    if other.at_lowest:
        return Difference(ratio=None, low=None, high=None, reason="the runner-up was not tried at a smaller budget")
    ratio = _taken(ordered[1], least) / _taken(ordered[0], least)
    if best.seeds != other.seeds or len({best.n, other.n, len(best.seeds)}) > 1:
        return Difference(ratio=ratio, low=None, high=None, reason="they were not run with the same seeds")
    if best.doubt == SEARCHED or other.doubt == SEARCHED:
        return Difference(ratio=ratio, low=None, high=None, reason=SEARCHED)
    # A ratio of costs is one of times, shifted by the ratio of prices, which has no error.
    shift = math.log(ratio) - math.log(other.seconds_R[0] / best.seconds_R[0])
    logs_R = np.log(other.seconds_R) - np.log(best.seconds_R) + shift
    noise = error_of_ratio(other.times, best.times)
    judged = judge(logs_R, n=best.n, df=min(best.df, other.df), weight_R=best.weight_R, noise=noise)
    if judged.effect is None:
        return Difference(ratio=ratio, low=None, high=None, reason=judged.reason or "")
    interval = judged.effect.interval(confidence, scale=exponential)
    return Difference(ratio=ratio, low=interval.low, high=interval.high, reason="")


def _feasible(candidate: Candidate) -> bool:
    return candidate.standing in (Standing.HOLDS, Standing.UNCERTAIN)


def _taken(candidate: Candidate, least: str) -> float:
    amount = candidate.seconds if least == "time" else candidate.usd
    return math.inf if amount is None else amount


def _distance(candidate: Candidate) -> tuple[bool, bool, int, float, float]:
    """Return the distance of a candidate from keeping the limits, as a key to sort by."""
    failed = candidate.failed
    without = any(finding.limit is Limit.QUALITY for finding in failed)
    return not failed, without, len(failed), sum(finding.miss for finding in failed), _taken(candidate, "time")
