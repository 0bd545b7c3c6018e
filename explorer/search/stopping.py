"""When there are enough seeds: a number that is decided once, from the spread of the first ones.

Stein's rule (1945) has two stages. The spread s of the first n seeds gives the number of all, N = (t s / h)^2, for an
interval of half width h, where t is the quantile of Student's t for the first stage. The interval takes the mean of all
N seeds, and for its error still the spread of the first n with their degrees of freedom. A mean is independent of the
spread of the same seeds if they are normal, so N is independent of what the added seeds say, and the interval holds the
truth exactly as often as it says, however N comes out. There is one look.

Rules that look again and again do not keep their level. One that stops once an interval excludes 1 finds a difference
between equal recipes in the end; one that stops once a naive interval is narrow (Chow and Robbins 1965) stops where the
spread is small by luck. `benchmarks/stopping.md` has all of them side by side.

The error of a speedup has other parts, which more seeds do not reduce: the noise of step times. Their reach is taken
off the width first.
"""

import math
from dataclasses import dataclass, replace

from explorer.analysis.equal_quality import Call, EqualQuality
from explorer.analysis.inference import parted, reach_of

ROUNDING = 1e-9  # of a number of seeds, which would else be one too many


@dataclass(frozen=True, kw_only=True, slots=True)
class Needed:
    """The number of seeds, of both stages, that an interval takes. `reason` says why there is none."""

    recipe: str
    half_width: float | None = None  # of the log speedup, with the seeds of the first stage
    seeds: int | None = None
    reason: str = ""


def needed_for(result: EqualQuality, *, half_width: float, first: int | None = None) -> Needed | str:
    """Return the seeds that the interval of a first stage takes, or why that cannot be said yet.

    Args:
        result: the comparison by the seeds of the first stage, judged as one of its family.
        half_width: the largest half width of the interval of the log speedup.
        first: seeds of the whole first stage, of which the result may have some; then the number is what to expect.
    """
    if result.call in (Call.UNKNOWN, Call.ONE_SEED):
        return result.reason or str(result.call)
    if result.errors is None or result.seed_error is None:
        return Needed(recipe=result.recipe, reason=result.reason or str(result.call))
    alpha, first = (1 - result.confidence) / max(1, result.family), first or result.n
    reach = reach_of(result.errors, alpha)
    # Seeds that agree exactly have no part in the error: all of it is that of the times.
    parts, others = parted(result.errors, result.seed_error)
    times = reach_of(others, alpha)
    if times >= half_width:
        return f"the noise of step times makes the interval {spread(times)}; profile again on an idle machine"
    of_seeds = tuple(replace(error, df=(error.df or 0) + first - result.n) for error in parts)
    wanted = result.n * (reach_of(of_seeds, alpha) / math.sqrt(half_width**2 - times**2)) ** 2
    return Needed(recipe=result.recipe, half_width=reach, seeds=max(first, math.ceil(wanted - ROUNDING)))


def spread(half_width: float) -> str:
    """Return how far an interval reaches to either side of a ratio.

    >>> spread(math.log(1.1))
    '+-10%'
    """
    return f"+-{math.expm1(half_width):.0%}"
