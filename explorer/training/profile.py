"""Profiles: the uncontended step time of recipes, phase by phase, and the time of whole runs that follows from it.

Runs of a sweep share their machine and slow each other down, so their wall-clock is no measure of cost. A profile takes
short windows of every phase of every recipe in turn, round after round, so that a machine that drifts drifts for all of
them; the median of the windows counts.

Two builds of one recipe may differ in speed, since their tensors lie elsewhere in memory: the medians of eight builds
were 4% apart, most of which the noise of their windows explains. So each round has a build of its own, if building does
not take long, and the spread of the rounds contains the effect of a build.

The machine is watched meanwhile (watch.py). A window that lost the processor is taken again, and so is a round in which
other processes were busy; the number of repeats is bounded, and windows that stay disturbed are counted in the record.

Recipes are compared by the time of training: steps times the time of a step, phase by phase. Its interval has every
step at the quartiles of the windows. Evaluations and checkpoints are reported apart, and are no cost of the recipe.
"""

import contextlib
import datetime
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from explorer import run_files, rundir
from explorer.costing import Duration, train_seconds
from explorer.engine.checkpoint import Checkpoint, save_checkpoint
from explorer.engine.fit import AUTOMATIC, CHECKPOINT_SECONDS, affordable_evaluations
from explorer.engine.loop import Loop
from explorer.engine.method import Moment
from explorer.engine.stepping import Place, Window, issue_share, split_steps, time_inference, time_steps, time_window
from explorer.errors import RunError, TrainingError
from explorer.run_files import PhaseProfile, ProfileRecord, ResultRecord, RunRecord, Validation
from explorer.runlog.documents import Documents
from explorer.training.ledgered import keep_environment, recording
from explorer.training.run import build_loop, execute
from explorer.training.run_plan import pace_of, phase_of, plan_again, recipe_of, total_steps
from explorer.training.watch import Reading, Watcher, is_disturbed, read_machine

WINDOWS = 7  # of each phase, one a round: the fewest whose quartiles do not involve an extreme
WINDOW_SECONDS = 0.06  # a window repeats its step to last about this long
WARMUP = 2  # steps before a window of a new build
INFERENCE_EXAMPLES = 256  # of one pass, at most
BESIDES_SECONDS = 0.5  # in all, after which an evaluation or a checkpoint is not timed again
BUILD_SECONDS = 3.0  # to spend on building and warming up one recipe, beyond the first two builds
WINDOW_REPEATS = 2  # of a window that lost the processor
ROUND_REPEATS = 4  # in all, of rounds in which other processes were busy


def profile(
    runs: Sequence[RunRecord],
    *,
    data: Path | None,
    documents_of: Callable[[RunRecord], Documents | None] = lambda run: None,
    besides: bool = False,
    reasons: Sequence[str] = (),
    on_fault: Callable[[RunRecord, TrainingError], None] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    read: Callable[[], Reading] = read_machine,
) -> list[ProfileRecord]:
    """Return one profile for each distinct recipe among the runs, in the order of their first runs.

    Args:
        runs: every phase that any of them meets is measured.
        data: the directory of data sets.
        documents_of: returns the documents that govern a run.
        besides: also measure an evaluation and a checkpoint, which are no steps.
        reasons: known reasons why the machine is busy. The caller makes sure that nothing else keeps it busy.
        on_fault: gets a recipe whose steps fail, which is then left out; None: the error is raised.
        on_progress: gets rounds done and rounds in all.
        read: reads the clocks of the machine.
    """
    # Profiles of one pass were measured in turn on one machine: their ratios are more precise than those of two passes.
    profile_pass = secrets.token_hex(8)
    watcher = Watcher(threads=max((run.hardware.threads for run in runs), default=1), read=read)
    with contextlib.ExitStack() as stack:
        # --- a subject for each recipe ---
        subjects = [
            _Subject(group, data=data, documents=documents_of(_longest(group)), besides=besides)
            for group in _by_recipe(runs).values()
        ]
        for subject in subjects:
            stack.callback(subject.close)

        def for_all(act: Callable[[_Subject], None]) -> None:
            for subject in tuple(subjects):
                try:
                    act(subject)
                except TrainingError as error:
                    if on_fault is None:
                        raise
                    on_fault(_longest(subject.runs), error)
                    subjects.remove(subject)

        # --- rounds: one window of every phase of every recipe ---
        for_all(_Subject.begin)
        repeated = 0
        for round in range(WINDOWS):
            for_all(_Subject.prepare)
            again = watcher.attend(lambda: for_all(_Subject.measure), repeats=ROUND_REPEATS - repeated)
            repeated += again
            for subject in subjects:
                subject.keep(taken_again=again)
            on_progress(round + 1, WINDOWS)
        watch = watcher.watch(
            windows=sum(subject.windows for subject in subjects),
            disturbed=sum(subject.disturbed for subject in subjects),
            repeated=sum(subject.repeated for subject in subjects),
            reasons=reasons,
        )
        return [replace(subject.record(), profile_pass=profile_pass, watch=watch) for subject in subjects]


@dataclass(slots=True)
class _Phase:
    """A phase under measurement: a step for each window, how often it fits into a window, the windows so far.

    The steps are spread over the phase: the draws of methods differ from step to step, and with them the time.
    """

    places: tuple[Place, ...]
    count: int
    windows: list[Window] = field(default_factory=list)
    splits: list[dict[str, float]] = field(default_factory=list)
    issues: list[float] = field(default_factory=list)  # shares of a step; none on a CPU

    @property
    def best(self) -> float:
        """Return the highest ratio of processor time to wall time so far."""
        return max((window.ratio for window in self.windows), default=0.0)


class _Subject:
    """A recipe under measurement, built again and again."""

    def __init__(self, runs: list[RunRecord], *, data: Path | None, documents: Documents | None, besides: bool) -> None:
        self.runs, self._data, self._documents, self._besides = runs, data, documents, besides
        self._stack = contextlib.ExitStack()
        self._phases: dict[str, _Phase] = {}
        self._examples, self._inference_count, self._inference = 0, 0, list[float]()
        self._latest: tuple[dict[str, tuple[Window, dict[str, float]]], float] | None = None
        self._builds = self._wanted = 1  # how many builds there were, and how many the rounds are to have
        self.windows = self.repeated = self.disturbed = 0

    def begin(self) -> None:
        """Build the recipe, warm up every phase, and decide how many builds the rounds can have."""
        begun = time.perf_counter()
        loop = self._build()
        self._phases = {name: self._warm(places) for name, places in _places(self.runs, loop).items()}
        dataset = loop.setting.batches.dataset
        self._examples = min(INFERENCE_EXAMPLES, len(dataset.test), loop.setting.task.at_once(dataset))
        once = [time_inference(loop, examples=self._examples, count=1) for _ in range(WARMUP)]
        self._inference_count = max(1, round(WINDOW_SECONDS / (once[-1] * self._examples)))
        took = time.perf_counter() - begun
        self._wanted = min(WINDOWS, max(2, round(BUILD_SECONDS / took)))

    def close(self) -> None:
        self._stack.close()

    def prepare(self) -> None:
        """Build the recipe again if the next round has a build of its own."""
        round = len(self._inference)
        # The builds are spread evenly over the rounds.
        if round * self._wanted // WINDOWS < self._builds:
            return
        self._build()
        self._builds += 1
        for phase in self._phases.values():
            time_steps(self._loop, phase.places[round], count=WARMUP + 1)
        time_inference(self._loop, examples=self._examples, count=1)

    def measure(self) -> None:
        """Take one window of each phase and of inference, for `keep`."""
        taken = {name: self._take(phase) for name, phase in self._phases.items()}
        seconds = time_inference(self._loop, examples=self._examples, count=self._inference_count)
        self._latest = (taken, seconds)

    def keep(self, *, taken_again: int) -> None:
        """Add the latest measurements to the record; their round was repeated `taken_again` times."""
        assert self._latest is not None
        taken, seconds = self._latest
        for name, (window, split) in taken.items():
            phase = self._phases[name]
            phase.windows.append(window)
            phase.splits.append(split)
            if self._loop.setting.batches.device.type == "cuda":
                phase.issues.append(issue_share(self._loop, phase.places[len(phase.issues)]))
        self._inference.append(seconds)
        self.windows += len(taken)
        self.repeated += taken_again * len(taken)
        # Counted over again in each round: a better window makes earlier ones count as disturbed.
        self.disturbed = sum(
            is_disturbed(window.ratio, best=phase.best) for phase in self._phases.values() for window in phase.windows
        )

    def record(self) -> ProfileRecord:
        """Return the profile so far, once all rounds are done."""
        run = self.runs[0]
        return ProfileRecord(
            recipe_digest=run.recipe_digest,
            recipe=run.recipe,
            hardware=run.hardware,
            torch=torch.__version__,
            phases={name: _profiled(phase) for name, phase in self._phases.items()},
            inference_seconds=statistics.median(self._inference),
            inference_rounds=tuple(self._inference),
            made_at=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            effective=run.effective_digest,
            evaluation_seconds=_median_seconds(self._evaluate) if self._besides else None,
            checkpoint_seconds=_median_seconds(self._save) if self._besides else None,
            builds=self._builds,
        )

    def _build(self) -> Loop:
        """Return a new loop, in place of the last one, whose memory and ledger go first."""
        self._stack.close()
        run = _longest(self.runs)
        self._loop: Loop = self._stack.enter_context(rehearsed(run, data=self._data, documents=self._documents))
        return self._loop

    def _take(self, phase: _Phase) -> tuple[Window, dict[str, float]]:
        """Return the next window of the phase; the best of a few where it loses the processor."""
        place = phase.places[len(phase.windows)]
        taken = [time_window(self._loop, place, count=phase.count)]
        while is_disturbed(taken[-1].ratio, best=phase.best) and len(taken) <= WINDOW_REPEATS:
            taken.append(time_window(self._loop, place, count=phase.count))
            self.repeated += 1
        # Chosen by how little it was disturbed and never by its time, which would bias the profile towards fast ones.
        window = max(taken, key=lambda window: window.ratio)
        return window, split_steps(self._loop, place, count=-(-phase.count // WINDOWS))

    def _evaluate(self) -> None:
        """Evaluate once, which ends with numbers on the host, so that the device has finished."""
        self._loop.evaluate()

    def _save(self) -> None:
        """Write one checkpoint, in a directory of its own."""
        with tempfile.TemporaryDirectory(prefix="explorer-") as place:
            whole = Checkpoint(step=self._loop.state.step, tensors=self._loop.tensors(), plain={})
            save_checkpoint(Path(place), whole, run_id=self.runs[0].run_id)

    def _warm(self, places: tuple[Place, ...]) -> _Phase:
        middle = places[len(places) // 2]
        time_steps(self._loop, middle, count=WARMUP)
        once = time_steps(self._loop, middle, count=1)
        return _Phase(places, max(1, round(WINDOW_SECONDS / once)))


def _profiled(phase: _Phase) -> PhaseProfile:
    seconds = tuple(window.seconds for window in phase.windows)
    low, middle, high = statistics.quantiles(seconds, n=4)
    return PhaseProfile(
        seconds=middle,
        low=low,
        high=high,
        windows=len(seconds),
        split=_median_by_part(phase.splits),
        rounds=seconds,
        ratios=tuple(window.ratio for window in phase.windows),
        issue=statistics.median(phase.issues) if phase.issues else None,
    )


def _longest(runs: Sequence[RunRecord]) -> RunRecord:
    return max(runs, key=lambda run: run.steps)


def _median_seconds(act: Callable[[], object]) -> float:
    """Return the median of a few times; of fewer where one takes long."""
    seconds: list[float] = []
    while len(seconds) < WINDOWS and sum(seconds) < BESIDES_SECONDS:
        start = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _median_by_part(splits: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the median time of every part of a step, so that a disturbance in one window moves none of them."""
    parts = dict.fromkeys(part for split in splits for part in split)
    medians = {part: statistics.median(split.get(part, 0.0) for split in splits) for part in parts}
    return {part: seconds for part, seconds in medians.items() if seconds}


@contextlib.contextmanager
def rehearsed(run: RunRecord, *, data: Path | None, documents: Documents | None) -> Iterator[Loop]:
    """Yield the loop of a run, to be timed. What it records goes into a directory that is removed afterwards."""
    loop = build_loop(run, data=data, documents=documents)
    with tempfile.TemporaryDirectory(prefix="explorer-") as made:
        scratch = Path(made)
        keep_environment(scratch, recorded=False)
        with recording(loop, run, recipe_of(run), scratch, documents, data=data, rehearsal=True):
            yield loop


def _by_recipe(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    groups: dict[str, list[RunRecord]] = {}
    for run in runs:
        groups.setdefault(run.recipe_digest, []).append(run)
    return groups


def _places(runs: list[RunRecord], loop: Loop) -> dict[str, tuple[Place, ...]]:
    """Return steps for each phase, one a window and spread over it, in the longest run that meets the phase."""
    recipe, dataset = recipe_of(runs[0]), loop.setting.batches.dataset
    places: dict[str, tuple[Place, ...]] = {}
    for total, ssr in sorted({(run.steps, run.ssr) for run in runs}, reverse=True):
        pace = pace_of(recipe, steps=total_steps(recipe, examples=len(dataset.train), ssr=ssr))
        steps: dict[str, list[int]] = {}
        for step in range(total):
            moment = Moment(step=step, total_steps=total, example_shape=dataset.example_shape, pace=pace)
            steps.setdefault(phase_of(recipe.methods, moment), []).append(step)
        for name, numbers in steps.items():
            # The middle of each of as many equal parts as there are windows.
            chosen = [numbers[(2 * window + 1) * len(numbers) // (2 * WINDOWS)] for window in range(WINDOWS)]
            places.setdefault(name, tuple(Place(step=step, total_steps=total, pace=pace) for step in chosen))
    return places


# --- the time of a whole run ---


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseTime:
    """A phase of a run: its steps, the time of one, and of all."""

    name: str
    steps: int
    step: Duration
    total: Duration


@dataclass(frozen=True, kw_only=True, slots=True)
class Extrapolated:
    """Time of a run on an otherwise idle machine."""

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
    """Return the time of the run by this profile.

    Raises `RunError` for a phase that was not profiled, or a profile without evaluation and checkpoint.
    """
    if profile.evaluation_seconds is None or profile.checkpoint_seconds is None:
        raise RunError(f"profile {profile.key}: evaluation and checkpoints were not measured; profile the recipe again")
    training = train_seconds(run.phases, profile.phases)
    evaluations = max(1, chosen := recipe_of(run).numbers.evaluations)
    if chosen == AUTOMATIC:
        evaluations = affordable_evaluations(training=training.seconds, one=profile.evaluation_seconds)
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
    """Train the run in this directory to its end, and compare its time with the prediction of the profile.

    The caller makes sure that nothing else keeps the machine busy.
    """
    run = run_files.read(RunRecord, directory / rundir.RUN)
    return validation(run, execute(directory, data=data), profile)


def validation(run: RunRecord, result: ResultRecord, profile: ProfileRecord) -> Validation:
    """Return a finished run's time and the prediction for its schedule.

    Its own time is that of the timed steps, scaled to all of them. Raises `RunError` for a run that shared the machine,
    or has no timed step.
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


# --- a recorded run, planned again on this machine ---


def plan_here(
    record: RunRecord, *, data: Path | None, documents: Documents | None = None, ssr: float | None = None
) -> RunRecord:
    """Return the run on this machine, at another budget if one is given.

    Raises `RunError` for other data or documents than those of the record: that would be another recipe.
    """
    planned = plan_again(record, data=data, documents=documents, ssr=ssr)
    if planned.effective_digest != record.effective_digest:
        changed = [
            name
            for name in ("recipe", "data", "governance", "start")
            if planned.identity.get(name) != record.identity.get(name)
        ]
        raise RunError(
            f"run {record.run_id}: {' and '.join(changed)} here differ from its record: this would be another recipe,"
            f" {planned.effective_digest[:8]} and not {record.effective_digest[:8]}"
        )
    return planned
