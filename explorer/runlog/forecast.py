"""Forecast a deletion: which of two exact routes it takes, from which step, for how long, and what prevents it.

G2, exact by structure: all influence of the target lies in sealed regions that no other class shares, or there is none.
The regions are dropped, and nothing is trained. G3, exact by replay: training continues without the target from the
newest checkpoint that was kept at or before the first step that the target could have influenced.

The forecast is of the wall-clock time of the whole command on a machine without other load: start, steps, evaluation. A
step takes the time in the recipe's profile, phase by phase, or else the mean of the run itself; the share of the
examples that stay out is deducted.

The interval is for one run to come, not for a mean. Its ends add up the extremes:

    part                     low                                        high
    a step                   lower quartile of the profile / `DRIFT`    upper quartile x `DRIFT`
    phases left to replay    the cheapest                               the dearest
    examples that stay out   save their share of the time               save nothing
    evaluation, checkpoints, first steps, ledger    nothing             as much as in the run

The run's own mean step time widens the interval where the run had the machine to itself. Without a profile there is no
interval.

Whether data, code and machine are still those of the run shows only when it is executed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from explorer import run_files, rundir
from explorer.costing import Duration, StepTime
from explorer.entries.fields import read_float
from explorer.entries.kinds import End
from explorer.errors import ExplorerError
from explorer.provenance.commitments import SALT_BYTES, Salts, read_salts
from explorer.provenance.levels import Level
from explorer.provenance.spellings import covers
from explorer.run_files import LoopRecord, ProfileRecord, ResultRecord, RunRecord
from explorer.runlog.documents import SALTS_FILE, TRAINER_FILE, source_of
from explorer.runlog.influence import Presence, Reach, reach_of, read_record
from explorer.runlog.model_file import MODEL
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target

# --- obstacles ---

NO_CODE = (
    "the run is of a custom loop: its code is its owner's, and no file here can run it again. A class with a sealed"
    " region of its own needs no training (G2); for any other target name a function that trains by the `govern` that"
    " it is given: --loop MODULE:FUNCTION"
)


def obstacles(presence: Presence, reached: Reach, *, level: str, private: Path | None = None) -> tuple[str, ...]:
    """List the obstacles to a deletion, in words; empty: none that can be seen from here.

    `private` is where the salts and the trainer's key are now, if not where the run had them.
    """
    run, listed = presence.run, [*learned_before(presence.run, reached)]
    if run.outline.end is None:
        listed.insert(0, "the ledger has no end: the run is unfinished")
    elif stopped := stopped_early(run):
        listed.insert(0, stopped)
    # The rest needs records of the run; the first that is missing or damaged is the last obstacle listed.
    try:
        record = read_record(run)
        private = Path(source_of(run.run).private) if private is None else private
        if not (private / TRAINER_FILE).exists():
            listed.append(f"{private / TRAINER_FILE}: missing: the new ledger cannot be signed")
        listed += _all(presence, reached)
        if level == "G3" and isinstance(record, LoopRecord):
            listed.append(NO_CODE)
        if level == "G3":
            listed += _erased(presence, reached, read_salts(private / SALTS_FILE))
        elif not (model := run.run / rundir.MODEL / MODEL).exists():
            listed.append(f"{model}: missing: there is no model to drop a region from")
    except ExplorerError as error:
        listed.append(str(error))
    return tuple(listed)


def stopped_early(run: RunLedger) -> str | None:
    """Return an obstacle if the run did fewer steps than planned: the reason is on no record, and may have been the
    target. None: it did all steps, or has no end."""
    if run.outline.end is None:
        return None
    (end,) = run.read([run.outline.end], End)
    stopped = f"the run was stopped after {end.entry.step} steps, fewer than its plan has"
    return None if end.entry.outcome == "finished" else stopped


def learned_before(run: RunLedger, reached: Reach) -> list[str]:
    """Return an obstacle for each class of the target that the run's initial model had learned from: no change to this
    run can take that away."""
    mine = (*reached.whole, *reached.partly)
    parents = (parent for parent in run.genesis.parents if parent.kind == "model")
    admitted = {path for parent in parents for path, weight in parent.admitted.items() if read_float(weight) > 0}
    # Both directions: the other run may have had a coarser taxonomy or a finer one.
    known = sorted(path for path in admitted if any(covers(path, own) or covers(own, path) for own in mine))
    return [f"the model that the run began with was trained on {path}: delete it there first" for path in known]


def _all(presence: Presence, reached: Reach) -> list[str]:
    """Return an obstacle if no example would be left to train on."""
    trained = np.flatnonzero(presence.tags.classes != len(presence.run.genesis.classes))
    out = np.union1d(presence.rows_of(reached.target), presence.rows_of(presence.absent))
    if len(np.setdiff1d(trained, out)):
        return []
    return ["every example of the run would be left out, so there is nothing to train: destroy the model instead"]


def _erased(presence: Presence, reached: Reach, salts: Salts) -> list[str]:
    """Return an obstacle if examples outside the target that the run trained on were erased since. A replay cannot
    train on them any more, and without them it would be another deletion."""
    classes = presence.tags.classes
    if len(salts) != len(classes):
        return [f"{len(salts)} salts for {len(classes)} tags: they belong to another table"]
    trained = classes != len(presence.run.genesis.classes)  # rows that the run set aside have no class
    # A destroyed salt is overwritten with zeros.
    destroyed = ~np.frombuffer(salts.content, np.uint8).reshape(-1, SALT_BYTES).any(axis=1)
    out = np.union1d(presence.rows_of(reached.target), presence.rows_of(presence.absent))
    gone = np.setdiff1d(np.flatnonzero(trained & destroyed), out)
    if not len(gone):
        return []
    return [f"{len(gone)} records were erased since the run, first record {gone[0]}: delete them first, or as well"]


# --- time ---

START = Duration(seconds=5.0, low=1.0, high=30.0)  # until the first step: imports, data, documents, building the model
DRIFT = 1.25  # allowance for the same machine being faster or slower on another day

LEDGER = "ledger_seconds_per_step"  # a metric of recorded runs; profiles close no segment of steps

STRUCTURE = "nothing is trained: a process starts, reads the model and writes it without the region"
UNMEASURED = "the step time was never measured on a quiet machine; --profile measures it now"
OWN = "the step time of a custom loop is not on record: --profile --loop MODULE:FUNCTION measures it now"
FIRST = "by the first steps of the loop measured now, on a machine without other load"
MEAN = "by the run's own mean step time, without its spread; --profile measures both now"


@dataclass(frozen=True, kw_only=True, slots=True)
class Time:
    """A forecast in seconds, with its source. None: not known."""

    seconds: float | None
    low: float | None
    high: float | None
    source: Literal["structure", "profiled", "measured"] | None
    words: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Overhead:
    """Seconds that a replay takes in addition to its steps, and the run's own step time."""

    rest: Duration  # start, evaluation, checkpoints
    step: float | None  # mean of the run's steps; None: not timed, or on a shared machine


STRUCTURAL = Time(seconds=START.seconds, low=START.low, high=START.high, source="structure", words=STRUCTURE)


def replay_time(run: Path, *, steps: int, share: float, step: Duration | None = None) -> Time:
    """Return the time of replaying the last `steps` of a run, in which a `share` of the examples stays out.

    `step` is the time of one of these steps as measured just now, without those examples. Raises `RunError` for damaged
    records.
    """
    if not (run / rundir.RUN).exists():
        own = (run / rundir.LOOP).exists()
        if not own or step is None:
            return Time(seconds=None, low=None, high=None, source=None, words=OWN if own else UNMEASURED)
        return Time(
            seconds=START.seconds + steps * step.seconds,
            low=START.low + steps * step.low / DRIFT,
            high=START.high + steps * step.high * DRIFT,
            source="profiled",
            words=FIRST,
        )
    record = run_files.read(RunRecord, run / rundir.RUN)
    overhead = overhead_of(run, steps=steps, of=record.steps)
    profile, measured = profile_of(run, record), None
    # The best source wins: measured now, then a profile that covers every phase, then the run's own mean.
    if step is not None:
        measured, words = replayed({"": steps}, {"": step}, steps), "by steps measured now"
        share = 0.0
    elif profile is not None and set(record.phases) <= set(profile.phases):
        measured, words = replayed(record.phases, profile.phases, steps), f"by a profile of {profile.made_at}"
    elif overhead.step is None:
        return Time(seconds=None, low=None, high=None, source=None, words=UNMEASURED)
    else:
        seconds = overhead.rest.seconds + (1 - share) * steps * overhead.step
        return Time(seconds=seconds, low=None, high=None, source="measured", words=MEAN)
    # The middle deducts the examples that stay out. The low end assumes that they save their whole share, the high end
    # that they save nothing: a step of a smaller batch can take as long as one of a full batch.
    own = [] if overhead.step is None else [steps * overhead.step]
    return Time(
        seconds=overhead.rest.seconds + (1 - share) * measured.seconds,
        low=overhead.rest.low + (1 - share) * min([measured.low, *own]) / DRIFT,
        high=overhead.rest.high + max([measured.high, *own]) * DRIFT,
        source="profiled",
        words=f"{words}, on a machine without other load",
    )


def overhead_of(run: Path, *, steps: int, of: int) -> Overhead:
    """Read the times apart from steps from the run's result. Raises `RunError` for a damaged result."""
    if not (run / rundir.RESULT).exists():
        return Overhead(rest=START, step=None)
    result = run_files.read(ResultRecord, run / rundir.RESULT)
    timings = result.timings
    whole = timings.evaluation + timings.checkpoint
    quiet = result.timed_steps > 0 and not result.contended
    return Overhead(
        rest=Duration(
            seconds=START.seconds + whole * steps / max(1, of),
            low=START.low,
            high=START.high + whole + timings.warmup + steps * result.metrics.get(LEDGER, 0.0),
        ),
        step=timings.training() / result.timed_steps if quiet else None,
    )


def replayed(phases: Mapping[str, int], times: Mapping[str, StepTime], steps: int) -> Duration:
    """Return the time of the last `steps` steps of a run, given its steps in each phase and the time of a step there.

    Which phases the last steps are in is not on record: the low end takes the cheapest, the high end the dearest, and
    the middle takes each phase's share.
    """
    share = steps / max(1, sum(phases.values()))
    return Duration(
        seconds=share * sum(count * times[phase].seconds for phase, count in phases.items()),
        low=_filled(sorted((times[phase].low, count) for phase, count in phases.items()), steps),
        high=_filled(sorted(((times[phase].high, count) for phase, count in phases.items()), reverse=True), steps),
    )


def profile_of(run: Path, record: RunRecord) -> ProfileRecord | None:
    """Return the profile of the run's recipe on its hardware; None: there is none. Raises `RunError` for a damaged
    one."""
    for path in sorted((run.parent / rundir.PROFILES).glob("[!.]*.json")):
        profile = run_files.read(ProfileRecord, path)
        if profile.recipe_digest == record.recipe_digest and profile.hardware == record.hardware:
            return profile
    return None


def _filled(priced: Iterable[tuple[float, int]], steps: int) -> float:
    """Return the seconds of `steps` steps, taken in order from pairs of a step's seconds and the number of such
    steps."""
    total = 0.0
    for seconds, count in priced:
        taken = min(count, steps)
        total, steps = total + taken * seconds, steps - taken
    return total


# --- forecast ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """The route of a deletion, whatever it costs."""

    level: Level
    start: int  # steps done in the state that it begins from; G2: all of them
    steps: int  # to execute
    share: float  # of the examples in these steps that stay out
    dropped: tuple[str, ...]  # sealed regions


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """Forecast of deleting a target from a run."""

    reach: Reach
    route: Route
    time: Time
    obstacles: tuple[str, ...]  # why it cannot be done here and now

    @property
    def level(self) -> Level | None:
        """Return the level that is available; None: there are obstacles."""
        return None if self.obstacles else self.route.level


def forecast(run: RunLedger, target: Target, *, step: Duration | None = None, private: Path | None = None) -> Forecast:
    """Forecast the deletion of a target; `step` is the time of one step to replay, measured now.

    `private` is where the salts and the trainer's key are now, if not where the run had them.

    Raises `LedgerError` for a target that the run does not have and for a damaged ledger, `ProvenanceError` for
    documents that are not those of the run, `RunError` for damaged records.
    """
    return forecast_of(Presence(run), target, step=step, private=private)


def forecast_of(
    presence: Presence, target: Target, *, step: Duration | None = None, private: Path | None = None
) -> Forecast:
    """Like `forecast`, but reuse a `Presence` across targets."""
    run, reached = presence.run, reach_of(presence, target)
    route = route_of(run, reached)
    return Forecast(
        reach=reached,
        route=route,
        time=time_of(run.run, route, step=step),
        obstacles=obstacles(presence, reached, level=route.level, private=private),
    )


def route_of(run: RunLedger, reached: Reach) -> Route:
    """Return the route of a deletion."""
    if reached.structural:
        dropped = tuple(sorted(reached.regions))
        return Route(level="G2", start=run.steps, steps=0, share=0.0, dropped=dropped)
    return replay_route(run, reached)


def replay_route(run: RunLedger, reached: Reach) -> Route:
    """Return the route by replay, which exists for every target."""
    # The newest checkpoint that is free of the target: it was taken before the first step of influence. Step 0, the
    # initial state, needs no checkpoint.
    start = max((step for step in kept(run.run) if step <= (reached.first or 0)), default=0)
    slots = reached.slots[max(0, start - run.begins) :]
    share = sum(slots) / max(1, reached.batch * len(slots))
    return Route(level="G3", start=start, steps=run.steps - start, share=share, dropped=())


def time_of(run: Path, route: Route, *, step: Duration | None = None) -> Time:
    """Forecast the time of a route. Raises `RunError` for damaged records."""
    return STRUCTURAL if route.level == "G2" else replay_time(run, steps=route.steps, share=route.share, step=step)


def kept(run: Path) -> tuple[int, ...]:
    """Return the steps after which a checkpoint was kept, ascending. Only those with both files count."""
    steps = []
    for path in (run / rundir.KEPT).glob("step-*.json"):
        number = path.stem.removeprefix("step-")
        if number.isascii() and number.isdigit() and path.with_suffix(".safetensors").exists():
            steps.append(int(number))
    return tuple(sorted(steps))
