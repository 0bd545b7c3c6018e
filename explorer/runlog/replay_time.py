"""How long a deletion takes: seconds of the whole command on a machine that nothing else keeps busy.

That is starting, the steps, evaluation. A step takes what the recipe's profile says, phase by phase, or else the mean
of the run itself, less the share of its examples that stay out. The interval is one for the run that is to come, not
for a mean: each step at the quartiles of the profile, these stretched by `DRIFT` for another day's machine and widened
to the step time of the run itself where it had the machine alone; the phases left to replay taken as the cheapest that
they can be, and as the dearest; the examples that stay out saving all that they cost, and nothing; evaluation,
checkpoints, first steps and the ledger costing nothing, and all that they cost the run. Without a profile there is no
interval.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from explorer import records, rundir
from explorer.costing import Duration, StepTime
from explorer.records import ProfileRecord, ResultRecord, RunRecord

START = Duration(seconds=5.0, low=1.0, high=30.0)  # until the first step: imports, data, documents, a model built
DRIFT = 1.25  # how much faster or slower the same machine may be on another day; an allowance

LEDGER = "ledger_seconds_per_step"  # a metric of recorded runs; profiles end no segment of steps

STRUCTURE = "nothing is trained: a process starts, reads the model and writes it without the region"
UNMEASURED = "how long a step takes was never measured on a quiet machine; --profile does that now"
OWN = "how long a step takes is on no record beside the ledger: the run is not of a recipe"
MEAN = "by the mean step of the run itself, which says nothing of how much it varies; --profile does that now"


@dataclass(frozen=True, kw_only=True, slots=True)
class Time:
    """Seconds, and how they are known; None where they are not."""

    seconds: float | None
    low: float | None
    high: float | None
    source: Literal["structure", "profiled", "measured"] | None
    words: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Besides:
    """What a replay takes beside its steps, from what the run says of itself. Seconds."""

    rest: Duration  # starting, evaluation, checkpoints
    step: float | None  # the mean of the run's own steps; None: it did not have the machine alone


STRUCTURAL = Time(seconds=START.seconds, low=START.low, high=START.high, source="structure", words=STRUCTURE)


def replay_time(run: Path, *, steps: int, share: float, step: Duration | None = None) -> Time:
    """The time of replaying the last `steps` of a run, in which so large a share of the examples stays out.

    `step` is the time of one of these steps as it was measured just now, without those examples. Raises `RunError` for
    damaged records.
    """
    if not (run / rundir.RUN).exists():
        words = OWN if (run / rundir.LOOP).exists() else UNMEASURED
        return Time(seconds=None, low=None, high=None, source=None, words=words)
    record = records.read(RunRecord, run / rundir.RUN)
    besides = besides_of(run, steps=steps, of=record.steps)
    profile, measured = profile_of(run, record), None
    if step is not None:
        measured, words = replayed({"": steps}, {"": step}, steps), "by steps measured now"
        share = 0.0
    elif profile is not None and set(record.phases) <= set(profile.phases):
        measured, words = replayed(record.phases, profile.phases, steps), f"by a profile of {profile.made_at}"
    elif besides.step is None:
        return Time(seconds=None, low=None, high=None, source=None, words=UNMEASURED)
    else:
        seconds = besides.rest.seconds + (1 - share) * steps * besides.step
        return Time(seconds=seconds, low=None, high=None, source="measured", words=MEAN)
    own = [] if besides.step is None else [steps * besides.step]
    return Time(
        seconds=besides.rest.seconds + (1 - share) * measured.seconds,
        low=besides.rest.low + (1 - share) * min([measured.low, *own]) / DRIFT,
        high=besides.rest.high + max([measured.high, *own]) * DRIFT,
        source="profiled",
        words=f"{words}, on a machine that nothing else keeps busy",
    )


def besides_of(run: Path, *, steps: int, of: int) -> Besides:
    """What the run's result says about the rest. Raises `RunError` for a damaged result."""
    if not (run / rundir.RESULT).exists():
        return Besides(rest=START, step=None)
    result = records.read(ResultRecord, run / rundir.RESULT)
    timings = result.timings
    whole = timings.evaluation + timings.checkpoint
    alone = result.timed_steps > 0 and not result.contended
    return Besides(
        rest=Duration(
            seconds=START.seconds + whole * steps / max(1, of),
            low=START.low,
            high=START.high + whole + timings.warmup + steps * result.metrics.get(LEDGER, 0.0),
        ),
        step=timings.training() / result.timed_steps if alone else None,
    )


def replayed(phases: Mapping[str, int], times: Mapping[str, StepTime], steps: int) -> Duration:
    """The time of the last `steps` steps of a run with so many steps in each phase. Which phases these are in is not
    on record: the lower end has the cheapest, the upper end the dearest, and in the middle all have their share."""
    share = steps / max(1, sum(phases.values()))
    return Duration(
        seconds=share * sum(count * times[phase].seconds for phase, count in phases.items()),
        low=_filled(sorted((times[phase].low, count) for phase, count in phases.items()), steps),
        high=_filled(sorted(((times[phase].high, count) for phase, count in phases.items()), reverse=True), steps),
    )


def profile_of(run: Path, record: RunRecord) -> ProfileRecord | None:
    """The profile of the run's recipe on its hardware, beside it. Raises `RunError` for a damaged one."""
    for path in sorted((run.parent / rundir.PROFILES).glob("[!.]*.json")):
        profile = records.read(ProfileRecord, path)
        if profile.recipe_digest == record.recipe_digest and profile.hardware == record.hardware:
            return profile
    return None


def _filled(priced: Iterable[tuple[float, int]], steps: int) -> float:
    """The seconds of so many steps, taken from these (seconds of one, how many there are) in their order."""
    seconds = 0.0
    for each, count in priced:
        taken = min(count, steps)
        seconds, steps = seconds + taken * each, steps - taken
    return seconds
