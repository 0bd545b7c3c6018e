"""Errors of profiled times: how exact the ratio of two of them is, by the windows of their step times.

A profile times a recipe in windows, round after round. Where several recipes are measured in turn, the windows of one
round belong to one moment, and what the machine does at that moment affects all of them. The time that counts is the
median of the windows, so the error of a ratio comes from resampling the rounds: jointly where two recipes were
measured in turn, so that drift which they share cancels as far as it does in the medians; each on its own where they
were not. With the quantile of Student's t for one round less than there are, this holds the truth at least as often as
it says (`benchmarks/coverage.md`). The textbook's 1.25 standard deviations of the paired differences over the root of
their number does not: where drift is large both medians come from one round, and it is two to three times too small.

    windows         the seconds of the whole run in each round: as above
    quartiles       where a profile kept no windows: the error of a median of `OLD_WINDOWS` normal windows, unpaired
    neither         where times were measured in the runs themselves: nothing is added, because runs of different seeds
                    differ in their times, and resampling seeds resamples these

Some noise stays the same for as long as a recipe is in memory, and no window shows it: the addresses of its tensors,
the choice of kernels. So `BUILD` is added to every profiled time; it is an allowance, not an estimate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from explorer.analysis.inference import Error, Errors, draws

BUILD = 0.01  # standard deviation of log step time from one build of a recipe to the next
OLD_WINDOWS = 7  # windows of a profile of which only the quartiles are known
QUARTILE_DF = 2.72  # a spread from quartiles has this many times fewer degrees of freedom than one from all windows
RESAMPLES = 1000
EXACT: Errors = ()
BUILT = Error(size=BUILD, df=None)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StepTimes:
    """The noise of one profiled time, as far as it is known. Logarithms are relative to the time that is stated."""

    log_W: np.ndarray | None = None  # each round's; None: no windows were kept
    measured_with: str = ""  # the profiling pass, whose recipes were measured in turn; empty: no other was
    errors: Errors = EXACT  # of the logarithm of the time by its quartiles, where there are no windows

    @property
    def is_profiled(self) -> bool:
        return self.log_W is not None or bool(self.errors)


def of_windows(seconds_W: Sequence[float] | np.ndarray, stated: float, *, measured_with: str) -> StepTimes:
    """Return the noise of a time from the seconds of a run in each round."""
    log_W = np.log(np.asarray(seconds_W, dtype=float) / stated)
    if log_W.size < 2:
        return StepTimes(errors=(BUILT,))  # one window says nothing about its noise
    return StepTimes(log_W=log_W, measured_with=measured_with)


def of_quartiles(low: float, high: float, stated: float) -> StepTimes:
    """Return the noise of a time from the quartiles of its windows."""
    # The quartiles of a normal distribution are 1.349 standard deviations apart, and the variance of a median of n
    # values is pi/2 times that of their mean.
    spread = (high - low) / 1.349 / stated
    error = Error(size=spread * math.sqrt(math.pi / 2 / OLD_WINDOWS), df=OLD_WINDOWS / QUARTILE_DF)
    return StepTimes(errors=(error, BUILT))


def between(first: StepTimes, second: StepTimes, *, share: float) -> StepTimes:
    """Return the noise of a time between two, `share` of the way in the logarithm from the first to the second."""
    if first is second:
        return first
    # Rounds that do not belong together cannot be interpolated round by round; the nearer budget is taken instead.
    if first.log_W is None or second.log_W is None or not _in_turn(first, second):
        return first if share < 0.5 else second
    log_W = (1 - share) * first.log_W + share * second.log_W
    return StepTimes(log_W=log_W, measured_with=first.measured_with)


def error_of(times: StepTimes) -> Errors:
    """Return the errors of the logarithm of one time."""
    if times.log_W is None:
        return times.errors
    rows_RW = draws(times.log_W.size, resamples=RESAMPLES, key="rounds")
    median_R = np.median(times.log_W[rows_RW], axis=1)
    return Error(size=float(median_R.std()), df=times.log_W.size - 1), BUILT


def error_of_ratio(first: StepTimes, second: StepTimes) -> Errors:
    """Return the errors of the logarithm of a ratio of two times."""
    if not _in_turn(first, second):
        return *error_of(first), *error_of(second)
    assert first.log_W is not None and second.log_W is not None
    # The same rows for both: a round that was slow for both cancels in the ratio.
    rows_RW = draws(first.log_W.size, resamples=RESAMPLES, key="rounds")
    ratio_R = np.median(first.log_W[rows_RW], axis=1) - np.median(second.log_W[rows_RW], axis=1)
    drawn = Error(size=float(ratio_R.std()), df=first.log_W.size - 1)
    return drawn, BUILT, BUILT  # one build of each recipe, whatever the rounds share


def _in_turn(first: StepTimes, second: StepTimes) -> bool:
    """Return whether the rounds of both belong together."""
    if first.log_W is None or second.log_W is None or first.log_W.size != second.log_W.size:
        return False
    return first.measured_with == second.measured_with != ""
