"""The time of a whole run from a profile of its recipe: steps phase by phase, evaluations, checkpoints.

Training is what recipes are compared by: steps times the time of a step, each phase with its own. Its interval has
every step at the quartiles of the windows. What stands beside training is told apart, and is no cost of the recipe.
"""

from dataclasses import dataclass
from pathlib import Path

from explorer import records, rundir
from explorer.costing import Duration, train_seconds
from explorer.engine.fit import CHECKPOINT_SECONDS
from explorer.errors import RunError
from explorer.recipes.run import execute, recipe_of
from explorer.records import ProfileRecord, ResultRecord, RunRecord, Validation


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseTime:
    """A phase of a run: its steps, the time of one, and of all."""

    name: str
    steps: int
    step: Duration
    total: Duration


@dataclass(frozen=True, kw_only=True, slots=True)
class Extrapolated:
    """The time of a run that is alone on the machine."""

    run: RunRecord
    phases: tuple[PhaseTime, ...]
    training: Duration
    evaluations: int
    evaluation_seconds: float  # of all of them
    checkpoints: int  # how many fall due
    checkpoint_seconds: float

    @property
    def whole_seconds(self) -> float:
        return self.training.seconds + self.evaluation_seconds + self.checkpoint_seconds


def extrapolate(run: RunRecord, profile: ProfileRecord) -> Extrapolated:
    """The time of the run by that profile, which has evaluation and checkpoint.

    Raises `RunError` for a phase that was not profiled, or a profile without what stands beside training.
    """
    if profile.evaluation_seconds is None or profile.checkpoint_seconds is None:
        raise RunError(f"profile {profile.key}: evaluation and checkpoints were not measured; profile the recipe again")
    training = train_seconds(run.phases, profile.phases)
    evaluations = recipe_of(run).numbers.evaluations
    evaluation_seconds = evaluations * profile.evaluation_seconds
    checkpoints = int((training.seconds + evaluation_seconds) / CHECKPOINT_SECONDS)
    return Extrapolated(
        run=run,
        phases=tuple(_phase(profile, name, steps) for name, steps in run.phases.items() if steps),
        training=training,
        evaluations=evaluations,
        evaluation_seconds=evaluation_seconds,
        checkpoints=checkpoints,
        checkpoint_seconds=checkpoints * profile.checkpoint_seconds,
    )


def train_in_full(directory: Path, profile: ProfileRecord, *, data: Path | None) -> Validation:
    """Train the run in that directory to its end, and hold what its steps took against what the profile says.

    The caller makes sure that nothing else keeps the machine busy.
    """
    run = records.read(RunRecord, directory / rundir.RUN)
    return validation(run, execute(directory, data=data), profile)


def validation(run: RunRecord, result: ResultRecord, profile: ProfileRecord) -> Validation:
    """A finished run beside the prediction for its schedule.

    Its own time is that of the timed steps, stretched to the first ones. Raises `RunError` for a run that shared the
    machine, or has no timed step: its time is no measure.
    """
    if result.contended:
        raise RunError(f"run {run.run_id}: other runs shared the machine, so its own time is no measure of a profile")
    if not result.timed_steps:
        raise RunError(f"run {run.run_id}: its {run.steps} steps are too few to be timed; take a longer budget")
    return Validation(
        steps=run.steps,
        predicted=train_seconds(run.phases, profile.phases).seconds,
        measured=result.timings.training() / result.timed_steps * run.steps,
    )


def _phase(profile: ProfileRecord, name: str, steps: int) -> PhaseTime:
    step = profile.phases[name]
    return PhaseTime(
        name=name,
        steps=steps,
        step=Duration(seconds=step.seconds, low=step.low, high=step.high),
        total=train_seconds({name: steps}, profile.phases),
    )
