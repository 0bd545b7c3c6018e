"""The uncontended step time of recipes: measured alone on the machine, interleaved, phase by phase.

Runs of a sweep share their machine and slow each other down, so their wall time is no measure of cost. A profile
takes short windows of every phase of every recipe in turn, round after round, so that a machine that drifts drifts
for all of them; the median of the windows counts.
"""

import contextlib
import datetime
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from explorer.engine.checkpoint import Checkpoint, save_checkpoint
from explorer.engine.loop import Loop
from explorer.engine.method import Moment
from explorer.engine.stepping import Place, split_steps, time_inference, time_steps
from explorer.governance.documents import Documents
from explorer.recipes.ledger import keep_environment, recording
from explorer.recipes.plan import pace_of, phase_of, total_steps
from explorer.recipes.run import build_loop, recipe_of
from explorer.records import PhaseProfile, ProfileRecord, RunRecord

WINDOWS = 7
WINDOW_SECONDS = 0.06  # a window repeats its step until it lasts about as long
WARMUP = 2
INFERENCE_EXAMPLES = 256
BESIDES_SECONDS = 0.5  # after so long an evaluation, or a checkpoint, is not timed again


def profile(
    runs: Sequence[RunRecord],
    *,
    data: Path | None,
    documents_of: Callable[[RunRecord], Documents | None] = lambda run: None,
    besides: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[ProfileRecord]:
    """One profile for each distinct recipe among the runs, in the order of their first runs.

    Every phase that any of the runs meets is measured; with `besides` also an evaluation and a checkpoint, which are no
    steps. The caller makes sure that nothing else keeps the machine busy. `documents_of` gives what governs a run.
    `on_progress` hears of each of the rounds.
    """
    with contextlib.ExitStack() as stack:
        subjects = [
            _Subject(group, data=data, documents_of=documents_of, besides=besides, stack=stack)
            for group in _by_recipe(runs).values()
        ]
        for window in range(WINDOWS):
            for subject in subjects:
                subject.measure()
            on_progress(window + 1, WINDOWS)
        profile_pass = secrets.token_hex(8)
        return [replace(subject.record(), profile_pass=profile_pass) for subject in subjects]


@dataclass(slots=True)
class _Phase:
    """A phase under measurement: a step for each window, how often one fits into a window, the windows so far.

    The steps are spread over the phase: what a method draws differs from step to step, and with it the time.
    """

    places: tuple[Place, ...]
    count: int
    seconds: list[float]
    splits: list[dict[str, float]]


class _Subject:
    """A recipe under measurement."""

    def __init__(
        self,
        runs: list[RunRecord],
        *,
        data: Path | None,
        documents_of: Callable[[RunRecord], Documents | None],
        besides: bool,
        stack: contextlib.ExitStack,
    ) -> None:
        """Build the recipe and warm up every phase. What it records goes into a directory that the stack removes."""
        self._runs, self._besides = runs, besides
        longest = max(runs, key=lambda run: run.steps)
        self._loop: Loop = stack.enter_context(rehearsed(longest, data=data, documents=documents_of(longest)))
        self._phases = {name: self._warm(places) for name, places in _places(runs, self._loop).items()}
        once = [time_inference(self._loop, examples=INFERENCE_EXAMPLES, count=1) for _ in range(WARMUP)]
        self._inference_count = max(1, round(WINDOW_SECONDS / (once[-1] * INFERENCE_EXAMPLES)))
        self._inference: list[float] = []

    def measure(self) -> None:
        """One window of each phase and of inference."""
        for phase in self._phases.values():
            place = phase.places[len(phase.seconds)]
            phase.seconds.append(time_steps(self._loop, place, count=phase.count))
            phase.splits.append(split_steps(self._loop, place, count=-(-phase.count // WINDOWS)))
        seconds = time_inference(self._loop, examples=INFERENCE_EXAMPLES, count=self._inference_count)
        self._inference.append(seconds)

    def record(self) -> ProfileRecord:
        """What was measured."""
        run = self._runs[0]
        return ProfileRecord(
            recipe_digest=run.recipe_digest,
            recipe=run.recipe,
            hardware=run.hardware,
            torch=torch.__version__,
            phases={name: self._profiled(phase) for name, phase in self._phases.items()},
            inference_seconds=statistics.median(self._inference),
            made_at=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            effective=run.effective_digest,
            evaluation_seconds=_median_seconds(self._evaluate) if self._besides else None,
            checkpoint_seconds=_median_seconds(self._save) if self._besides else None,
        )

    def _evaluate(self) -> None:
        """One evaluation; it ends with numbers on the host, so that the device has done its part."""
        self._loop.evaluate()

    def _save(self) -> None:
        """One checkpoint, in a directory of its own."""
        with tempfile.TemporaryDirectory(prefix="explorer-") as place:
            whole = Checkpoint(step=self._loop.state.step, tensors=self._loop.tensors(), plain={})
            save_checkpoint(Path(place), whole, run_id=self._runs[0].run_id)

    def _warm(self, places: tuple[Place, ...]) -> _Phase:
        middle = places[len(places) // 2]
        time_steps(self._loop, middle, count=WARMUP)
        once = time_steps(self._loop, middle, count=1)
        return _Phase(places, max(1, round(WINDOW_SECONDS / once)), [], [])

    def _profiled(self, phase: _Phase) -> PhaseProfile:
        low, middle, high = statistics.quantiles(phase.seconds, n=4)
        return PhaseProfile(
            seconds=middle,
            low=low,
            high=high,
            windows=len(phase.seconds),
            split=_median_by_part(phase.splits),
            rounds=tuple(phase.seconds),
        )


def _median_seconds(act: Callable[[], object]) -> float:
    """The median of a few times that it takes; fewer where it takes long."""
    seconds: list[float] = []
    while len(seconds) < WINDOWS and sum(seconds) < BESIDES_SECONDS:
        start = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _median_by_part(splits: Sequence[dict[str, float]]) -> dict[str, float]:
    """What a step is spent on: of every part the median, so that a disturbance in one window moves none of them."""
    parts = dict.fromkeys(part for split in splits for part in split)
    medians = {part: statistics.median(split.get(part, 0.0) for split in splits) for part in parts}
    return {part: seconds for part, seconds in medians.items() if seconds}


@contextlib.contextmanager
def rehearsed(run: RunRecord, *, data: Path | None, documents: Documents | None) -> Iterator[Loop]:
    """The loop of a run, to be timed. What it records goes into a directory that is removed afterwards."""
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
    """Steps for each phase, one a window and spread over it, in the longest run that meets the phase."""
    recipe, dataset = recipe_of(runs[0]), loop.setting.batches.dataset
    places: dict[str, tuple[Place, ...]] = {}
    for total, ssr in sorted({(run.steps, run.ssr) for run in runs}, reverse=True):
        pace = pace_of(recipe, steps=total_steps(recipe, examples=len(dataset.train), ssr=ssr))
        steps: dict[str, list[int]] = {}
        for step in range(total):
            moment = Moment(step=step, total_steps=total, example_shape=dataset.example_shape, pace=pace)
            steps.setdefault(phase_of(recipe.methods, moment), []).append(step)
        for name, numbers in steps.items():
            chosen = [numbers[(2 * window + 1) * len(numbers) // (2 * WINDOWS)] for window in range(WINDOWS)]
            places.setdefault(name, tuple(Place(step=step, total_steps=total, pace=pace) for step in chosen))
    return places
