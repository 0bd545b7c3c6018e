"""The tally of a search: what was spent, what is left to try, and the times that the means of finished runs show.

A recipe that does not reach the target is charged its longest budget and the baseline's time: both are trained by
anyone who chooses it in vain.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

import numpy as np

from explorer.analysis.monotone import crossing, monotone
from explorer.search.searcher import Methods, Ranked, Seen, Space, Trial

BASELINE: Methods = frozenset()
REPEATS = 3  # seeds of a recipe that is repeated, at most
SLACK = 1e-9  # of the spend: rounding of sums


class Tally:
    """The state of a search: what was seen of a space, and what runs now."""

    def __init__(self, space: Space, seen: Sequence[Seen], pending: Collection[Trial] = ()) -> None:
        self.space = space
        self.taken = {one.trial for one in seen} | set(pending)
        self.spent = sum(space.seconds(trial.methods, trial.budget) for trial in self.taken)
        # One failed run rules its recipe out: no other seed will mend it.
        self.failed = {one.trial.methods for one in seen if one.quality is None}
        self.qualities: dict[Methods, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
        for trial, quality in seen:
            if quality is not None and trial.methods not in self.failed:
                self.qualities[trial.methods][trial.budget].append(quality)

    # --- what may come next ---

    def affords(self, methods: Methods, budget: float) -> bool:
        """Return whether such a run ends before the spend does."""
        return self.spent + self.space.seconds(methods, budget) <= self.space.spend * (1 + SLACK)

    def trial(self, methods: Methods, budget: float, *, repeats: int | None = None) -> Trial | None:
        """Return the recipe's next run at a budget, within so many seeds; None: it failed, was tried on all of them, or
        costs too much."""
        if methods in self.failed or not self.affords(methods, budget):
            return None
        trials = (Trial(methods, budget, seed) for seed in self.space.seeds[:repeats])
        return next((trial for trial in trials if trial not in self.taken), None)

    # --- what the means show ---

    @property
    def target(self) -> float | None:
        """Return the quality to reach; None: the baseline's longest budget has not been run."""
        return self.mean(BASELINE, self.space.ladder[-1]) if self.space.target is None else self.space.target

    def mean(self, methods: Methods, budget: float) -> float | None:
        """Return the mean quality; None: no run of it has finished."""
        values = self.qualities.get(methods, {}).get(budget)
        return float(np.mean(values)) if values else None

    def pace(self, methods: Methods, budget: float, quality: float | None = None) -> float | None:
        """Return the time of a budget over the baseline's time to the same quality: 0.5 is twice as fast.

        Comparable between budgets, so that a rung of the ladder can be judged by the time that it saves. `quality` is
        that of one run; None: the mean. The baseline's curve is continued in log time beyond its ends. None: it or the
        recipe has not been run there.
        """
        quality = self.mean(methods, budget) if quality is None else quality
        if quality is None or self._baseline is None:
            return None
        times, means = self._baseline
        right = int(np.clip(np.searchsorted(means, quality), 1, len(means) - 1))
        share = (quality - means[right - 1]) / (means[right] - means[right - 1])
        # Not beyond another ladder from its ends: a line through noise leads anywhere.
        reach = times[-1] - times[0] + np.log(2)
        same = times[right - 1] + share * (times[right] - times[right - 1])
        same = min(max(same, times[0] - reach), times[-1] + reach)
        return float(np.exp(np.log(self.space.seconds(methods, budget)) - same))

    @cached_property
    def _baseline(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Log times and rising mean qualities of the baseline; None: it was run at fewer than two budgets."""
        curve = [(point, mean) for point in self.space.ladder if (mean := self.mean(BASELINE, point)) is not None]
        if len(curve) < 2:
            return None
        times = np.log([self.space.seconds(BASELINE, point) for point, _ in curve])
        means = monotone(np.array([[mean for _, mean in curve]]))[0]
        # A level stretch has no inverse.
        return times, means + np.arange(len(means)) * (1e-9 + 1e-6 * np.ptp(means))

    def seconds(self, methods: Methods) -> float | None:
        """Return the recipe's time to the target; None: it does not reach it, or was not run at its longest budget."""
        top = self.space.ladder[-1]
        target, own = self.target, self.qualities.get(methods)
        if target is None or own is None or top not in own:
            return None
        points = [budget for budget in self.space.ladder if budget in own]
        times = np.array([[self.space.seconds(methods, budget) for budget in points]])
        met = crossing(times, monotone(np.array([[np.mean(own[point]) for point in points]])), np.array([target]))
        seconds = times[0, 0] if met.below_R[0] else met.x_R[0]
        return float(seconds) if np.isfinite(seconds) else None

    def ranking(self) -> list[Ranked]:
        """Return the recipes that were tried, best first: by their times, then those not seen to reach the target by
        their pace at the longest budget that they were run at. A regret is that of the means, without their noise."""
        tried = [methods for methods in self.qualities if methods != BASELINE]
        base = self.space.seconds(BASELINE, self.space.ladder[-1])
        times = {methods: self.seconds(methods) for methods in (BASELINE, *tried)}
        charged = {methods: seconds or self._in_vain(methods, base) for methods, seconds in times.items()}
        best = min(charged.values())
        ranked = [
            Ranked(methods=methods, seconds=times[methods], regret=charged[methods] / best - 1)
            for methods in (*((BASELINE,) if BASELINE in self.qualities else ()), *tried)
        ]
        return sorted(ranked, key=lambda one: (one.regret, self._slowness(one.methods), sorted(one.methods)))

    def _in_vain(self, methods: Methods, base: float) -> float:
        return self.space.seconds(methods, self.space.ladder[-1]) + base

    def _slowness(self, methods: Methods) -> float:
        budgets = [budget for budget in self.space.ladder if budget in self.qualities[methods]]
        pace = self.pace(methods, budgets[-1])
        return np.inf if pace is None else pace


def first(trials: Iterator[Trial | None]) -> Trial | None:
    """Return the first of the runs that is possible."""
    return next((trial for trial in trials if trial is not None), None)
