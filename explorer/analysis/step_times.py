"""How exact a time is that comes from a profile: what the windows of step times tell of the ratio of two of them.

A profile times a recipe in windows, round after round. Where several recipes are measured in turn, the windows of one
round belong to one moment: what the machine does at that moment it does to all of them. The time that counts is the
median of the windows, so the error of a ratio is found by resampling the rounds: jointly where two recipes were
measured in turn, so that drift which they share cancels as far as it does in the medians; each on its own where they
were not. With the quantile of Student's t for one round less than there are, this holds the truth at least as often as
it says (`benchmarks/coverage.md`). The textbook's 1.25 standard deviations of the paired differences over the root of
their number does not: where drift is large both medians come from one round, and it is two to three times too small.

    windows         the seconds of the whole run in each round: as above
    quartiles       of a profile that kept no windows: the error of a median of `OLD_WINDOWS` normal windows, unpaired
    neither         of times measured in the runs themselves: nothing is added, for runs of different seeds differ in
                    their times, and resampling seeds resamples these

No window shows what stays the same for as long as a recipe is in memory: where its tensors lie, which kernels were
chosen. So `BUILD` is added to every profiled time, an allowance and no estimate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from explorer.analysis.inference import Error, Errors, draws

BUILD = 0.01  # standard deviation of log step time from one build of a recipe to the next
OLD_WINDOWS = 7  # of profiles whose quartiles alone are known
QUARTILE_DF = 2.72  # so many times fewer degrees of freedom has a spread from quartiles than one from all windows
RESAMPLES = 1000
EXACT: Errors = ()
BUILT = Error(size=BUILD, df=None)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StepTimes:
    """What is known of the noise of one profiled time. Logarithms are to the time that is stated."""

    log_W: np.ndarray | None = None  # each round's; None: no windows were kept
    measured_with: str = ""  # the profiling pass; recipes of one pass were measured in turn. Empty: with no other
    errors: Errors = EXACT  # of the logarithm of the time by its quartiles, where there are no windows

    @property
    def is_profiled(self) -> bool:
        return self.log_W is not None or bool(self.errors)


def of_windows(seconds_W: Sequence[float] | np.ndarray, stated: float, *, measured_with: str) -> StepTimes:
    """From the seconds of a run in each round."""
    log_W = np.log(np.asarray(seconds_W, dtype=float) / stated)
    if log_W.size < 2:
        return StepTimes(errors=(BUILT,))  # one window tells nothing of its noise
    return StepTimes(log_W=log_W, measured_with=measured_with)


def of_quartiles(low: float, high: float, stated: float) -> StepTimes:
    """From the quartiles of the windows."""
    spread = (high - low) / 1.349 / stated
    error = Error(size=spread * math.sqrt(math.pi / 2 / OLD_WINDOWS), df=OLD_WINDOWS / QUARTILE_DF)
    return StepTimes(errors=(error, BUILT))


def between(first: StepTimes, second: StepTimes, *, share: float) -> StepTimes:
    """Of a time between two, `share` of the way in the logarithm from the first to the second."""
    if first is second:
        return first
    if first.log_W is None or second.log_W is None or not _in_turn(first, second):
        return first if share < 0.5 else second
    log_W = (1 - share) * first.log_W + share * second.log_W
    return StepTimes(log_W=log_W, measured_with=first.measured_with)


def error_of(times: StepTimes) -> Errors:
    """The errors of the logarithm of one time."""
    if times.log_W is None:
        return times.errors
    rows_RW = draws(times.log_W.size, resamples=RESAMPLES, key="rounds")
    median_R = np.median(times.log_W[rows_RW], axis=1)
    return Error(size=float(median_R.std()), df=times.log_W.size - 1), BUILT


def error_of_ratio(first: StepTimes, second: StepTimes) -> Errors:
    """The errors of the logarithm of a ratio of two times."""
    if not _in_turn(first, second):
        return *error_of(first), *error_of(second)
    assert first.log_W is not None and second.log_W is not None
    rows_RW = draws(first.log_W.size, resamples=RESAMPLES, key="rounds")
    ratio_R = np.median(first.log_W[rows_RW], axis=1) - np.median(second.log_W[rows_RW], axis=1)
    drawn = Error(size=float(ratio_R.std()), df=first.log_W.size - 1)
    return drawn, BUILT, BUILT


def _in_turn(first: StepTimes, second: StepTimes) -> bool:
    """Whether the rounds of both belong together."""
    both = first.log_W is not None and second.log_W is not None
    return (
        both and first.measured_with == second.measured_with != "" and first.log_W.size == second.log_W.size  # pyright: ignore[reportOptionalMemberAccess]
    )
