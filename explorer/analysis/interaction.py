"""What two methods do together beyond what each does alone: in quality, and in time.

    quality   I = q_ab - q_a - q_b + q_0    seed by seed at equal budget, in the metric's unit
    time      I = log(t_ab t_0 / (t_a t_b)) with the training times of whole runs

0 means that the effects add up, or multiply. A pair that saves less time together than the product of both has I > 0.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from explorer.analysis.comparison import RESAMPLES, judge
from explorer.analysis.estimate import Estimate, estimate
from explorer.analysis.inference import draws
from explorer.analysis.prediction import log_ratio, measured
from explorer.analysis.schedules import Schedule

Qualities = Mapping[int, float]  # by seed


def quality_interaction(
    *, neither: Qualities, first: Qualities, second: Qualities, both: Qualities, confidence: float
) -> Estimate:
    """The interaction in quality, paired by seed: Student's t with n-1 degrees of freedom over the n seeds that all
    four have."""
    seeds = sorted(set(neither) & set(first) & set(second) & set(both))
    if not seeds:
        return Estimate(reason="no seed was run with all four")
    values = np.array([both[seed] - first[seed] - second[seed] + neither[seed] for seed in seeds])
    values = values.round(12)  # seeds may agree exactly, and then the rounding of floats must not look like an effect
    value, n = float(values.mean()), len(seeds)
    resampled = values[draws(n, resamples=RESAMPLES, key="interaction")].mean(axis=1)
    return estimate(judge(np.concatenate([[value], resampled]), n=n, df=n - 1), value, n=n, confidence=confidence)


def time_interaction(
    *, neither: Schedule, first: Schedule, second: Schedule, both: Schedule, confidence: float
) -> Estimate:
    """The interaction in time, from the profiles of the four recipes."""
    four: Iterable[Schedule] = (neither, first, second, both)
    return log_ratio(
        [measured(both), measured(neither)],
        [measured(first), measured(second)],
        schedules=four,
        confidence=confidence,
    )
