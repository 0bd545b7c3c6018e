"""Forecast what deleting a target takes: by which of two exact ways, from which step, how long, and what prevents it.

G2, exact by structure: all that the target influenced lies in sealed regions that no other class shares, or it
influenced nothing; the regions are dropped, and nothing is trained. G3, exact by replay: training continues without the
target from the newest state that was kept at or before the first step that the target could have influenced.

The time is that of the whole command on a machine without other load: starting, the steps, evaluation. A step takes
what the recipe's profile says, phase by phase, or else the mean of the run itself, less the share of its examples that
stay out. The interval is one for the run that is to come, not for a mean: each step at the quartiles of the profile,
stretched by `DRIFT` for another day's machine and widened to the step time of the run itself where it had the machine
to itself; the phases left to replay taken as the cheapest and as the dearest that they can be; the examples that stay
out saving all that they cost, and nothing; evaluation, checkpoints, first steps and the ledger costing nothing, and all
that they cost the run. Without a profile there is no interval.

Whether data, code and machine are still those of the run can only be seen by executing it.
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
    "the run is of a training loop whose code is its owner's, and no file says how to run it again. A class that has a"
    " sealed region for itself alone needs no training (G2); for anything else give a function that trains by the"
    " `govern` it is handed: --loop MODULE:FUNCTION"
)


def obstacles(presence: Presence, reached: Reach, *, level: str) -> tuple[str, ...]:
    """Return the obstacles, in words; empty: none that can be seen from here."""
    run, found = presence.run, [*_unfinished(presence), *learned_before(presence.run, reached)]
    try:
        record = read_record(run)
        private = Path(source_of(run.run).private)
        if not (private / TRAINER_FILE).exists():
            found.append(f"{private / TRAINER_FILE}: missing: nobody can sign the new ledger")
        found += _all(presence, reached)
        if level == "G3" and isinstance(record, LoopRecord):
            found.append(NO_CODE)
        if level == "G3":
            found += _erased(presence, reached, read_salts(private / SALTS_FILE))
        elif not (model := run.run / rundir.MODEL / MODEL).exists():
            found.append(f"{model}: missing: there is no model to drop a region from")
    except ExplorerError as error:
        found.append(str(error))
    return tuple(found)


def _unfinished(presence: Presence) -> list[str]:
    run = presence.run
    if run.outline.end is None:
        return ["the ledger has no end: the run is unfinished"]
    stopped = stopped_early(run)
    return [] if stopped is None else [stopped]


def stopped_early(run: RunLedger) -> str | None:
    """In words, where a run that ended did fewer steps than it had announced: what made it stop is on no record, and
    may have been the target. None: it did them all, or has no end."""
    if run.outline.end is None:
        return None
    (end,) = run.read([run.outline.end], End)
    stopped = f"the run was stopped after {end.entry.step} steps, which is not what its plan says"
    return None if end.entry.outcome == "finished" else stopped


def learned_before(run: RunLedger, reached: Reach) -> list[str]:
    """Classes that the model which the run began with had learned from already: no step here can take that away."""
    mine = (*reached.whole, *reached.partly)
    parents = (each for each in run.genesis.parents if each.kind == "model")
    admitted = {path for each in parents for path, weight in each.admitted.items() if read_float(weight) > 0}
    known = sorted(path for path in admitted if any(covers(path, own) or covers(own, path) for own in mine))
    return [f"the model that the run began with was trained on {path}: delete it there first" for path in known]


def _all(presence: Presence, reached: Reach) -> list[str]:
    """Return an obstacle if no example would be left: such a run is no run, and no model could be compared with it."""
    trained = np.flatnonzero(presence.tags.classes != len(presence.run.genesis.classes))
    out = np.union1d(presence.rows_of(reached.target), presence.rows_of(presence.absent))
    if len(np.setdiff1d(trained, out)):
        return []
    return ["every example of the run would be left out, and nothing is left to train: destroy the model instead"]


def _erased(presence: Presence, reached: Reach, salts: Salts) -> list[str]:
    """Examples that the run trained on, that are not in the target, and that were erased since: nothing continues a
    state that they shaped as if they were there still, and without them it is another deletion."""
    classes = presence.tags.classes
    if len(salts) != len(classes):
        return [f"{len(salts)} salts for {len(classes)} tags: they belong to another table"]
    trained = classes != len(presence.run.genesis.classes)  # what the run set aside is of no class
    destroyed = ~np.frombuffer(salts.content, np.uint8).reshape(-1, SALT_BYTES).any(axis=1)
    out = np.union1d(presence.rows_of(reached.target), presence.rows_of(presence.absent))
    gone = np.setdiff1d(np.flatnonzero(trained & destroyed), out)
    if not len(gone):
        return []
    return [f"record {gone[0]} was erased since the run, and so {len(gone)} in all: delete them first, or as well"]


# --- time ---

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
    """What a replay takes besides its steps, from what the run says of itself. Seconds."""

    rest: Duration  # starting, evaluation, checkpoints
    step: float | None  # the mean of the run's own steps; None: it did not have the machine alone


STRUCTURAL = Time(seconds=START.seconds, low=START.low, high=START.high, source="structure", words=STRUCTURE)


def replay_time(run: Path, *, steps: int, share: float, step: Duration | None = None) -> Time:
    """Return the time of replaying the last `steps` of a run, in which so large a share of the examples stays out.

    `step` is the time of one of these steps as it was measured just now, without those examples. Raises `RunError` for
    damaged records.
    """
    if not (run / rundir.RUN).exists():
        words = OWN if (run / rundir.LOOP).exists() else UNMEASURED
        return Time(seconds=None, low=None, high=None, source=None, words=words)
    record = run_files.read(RunRecord, run / rundir.RUN)
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
    """Return what the run's result says about the rest. Raises `RunError` for a damaged result."""
    if not (run / rundir.RESULT).exists():
        return Besides(rest=START, step=None)
    result = run_files.read(ResultRecord, run / rundir.RESULT)
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
    """Return the time of the last `steps` steps of a run with so many steps in each phase. Which phases these are in is
    not on record: the lower end has the cheapest, the upper end the dearest, and in the middle all have their share."""
    share = steps / max(1, sum(phases.values()))
    return Duration(
        seconds=share * sum(count * times[phase].seconds for phase, count in phases.items()),
        low=_filled(sorted((times[phase].low, count) for phase, count in phases.items()), steps),
        high=_filled(sorted(((times[phase].high, count) for phase, count in phases.items()), reverse=True), steps),
    )


def profile_of(run: Path, record: RunRecord) -> ProfileRecord | None:
    """Return the profile of the run's recipe on its hardware, next to it. Raises `RunError` for a damaged one."""
    for path in sorted((run.parent / rundir.PROFILES).glob("[!.]*.json")):
        profile = run_files.read(ProfileRecord, path)
        if profile.recipe_digest == record.recipe_digest and profile.hardware == record.hardware:
            return profile
    return None


def _filled(priced: Iterable[tuple[float, int]], steps: int) -> float:
    """Return the seconds of so many steps, taken from these (seconds of one, how many there are) in their order."""
    seconds = 0.0
    for each, count in priced:
        taken = min(count, steps)
        seconds, steps = seconds + taken * each, steps - taken
    return seconds


# --- forecast ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """The way that a deletion takes, whatever it costs."""

    level: Level
    start: int  # steps done in the state that it begins from; of G2: all of them
    steps: int  # to execute
    share: float  # of the examples in these steps, that stay out
    dropped: tuple[str, ...]  # sealed regions


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """What deleting a target from a run takes."""

    reach: Reach
    route: Route
    time: Time
    obstacles: tuple[str, ...]  # why it cannot be done here and now

    @property
    def level(self) -> Level | None:
        """Return the level that is available; None: something is in the way."""
        return None if self.obstacles else self.route.level


def forecast(run: RunLedger, target: Target, *, step: Duration | None = None) -> Forecast:
    """Forecast what deleting the target takes; `step` is the time of one step to replay, measured now.

    Raises `LedgerError` for a target that the run does not have and for a damaged ledger, `ProvenanceError` for
    documents that are not those of the run, `RunError` for damaged records.
    """
    return forecast_of(Presence(run), target, step=step)


def forecast_of(presence: Presence, target: Target, *, step: Duration | None = None) -> Forecast:
    """The same, for who has read the run already."""
    run, reached = presence.run, reach_of(presence, target)
    route = route_of(run, reached)
    return Forecast(
        reach=reached,
        route=route,
        time=time_of(run.run, route, step=step),
        obstacles=obstacles(presence, reached, level=route.level),
    )


def route_of(run: RunLedger, reached: Reach) -> Route:
    """Return the route of a deletion."""
    if reached.structural:
        dropped = tuple(sorted(reached.regions))
        return Route(level="G2", start=run.steps, steps=0, share=0.0, dropped=dropped)
    return replay_route(run, reached)


def replay_route(run: RunLedger, reached: Reach) -> Route:
    """Return the route by replay, which exists for every target."""
    start = max((step for step in kept(run.run) if step <= (reached.first or 0)), default=0)
    slots = reached.slots[max(0, start - run.begins) :]
    share = sum(slots) / max(1, reached.batch * len(slots))
    return Route(level="G3", start=start, steps=run.steps - start, share=share, dropped=())


def time_of(run: Path, route: Route, *, step: Duration | None = None) -> Time:
    """Forecast the time of a route. Raises `RunError` for damaged records."""
    return STRUCTURAL if route.level == "G2" else replay_time(run, steps=route.steps, share=route.share, step=step)


def kept(run: Path) -> tuple[int, ...]:
    """Return the steps after which a checkpoint stays, ascending, both of its files there. The initial state needs
    none."""
    found = []
    for path in (run / rundir.KEPT).glob("step-*.json"):
        number = path.stem.removeprefix("step-")
        if number.isascii() and number.isdigit() and path.with_suffix(".safetensors").exists():
            found.append(int(number))
    return tuple(sorted(found))
