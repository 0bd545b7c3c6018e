"""`explorer sweep run|profile`: run the missing runs of a sweep, measure its step times."""

import json
import math
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import typer

from explorer.analysis.sentences import so_far
from explorer.analysis.verdict import sweep_verdicts
from explorer.campaign.until import run_until
from explorer.cli import options
from explorer.cli.signing import provide_passphrase
from explorer.cli.sweep_plan import SHARED, listed
from explorer.cli.verbs import part
from explorer.costing import train_seconds
from explorer.errors import ExplorerError, SweepError
from explorer.page.amounts import BUSY
from explorer.page.document import Block
from explorer.page.progress import Bar, duration, tell_rehearsal
from explorer.page.terminal import show, table, visible
from explorer.planned import left_out_words
from explorer.run_files import ProfileRecord, RunRecord
from explorer.store import frames
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.sweep.at_place import at_place
from explorer.sweep.chosen import is_tuned
from explorer.sweep.execute import Event, Settings, Summary, profile_sweep, run_sweep
from explorer.sweep.plan import Plan, make_plan
from explorer.sweep.profiles import read_profiles
from explorer.sweep.spec import load_spec
from explorer.sweep.work import check_engine
from explorer.sweep.workers import use_gpus
from explorer.training.ledgered import is_recorded


def run(
    spec: options.Spec,
    runs: options.Runs = options.RUNS,
    data: options.Data = None,
    engine: options.Engine = "warm",
    workers: options.Workers = None,
    on: options.On = None,
    device: options.Device = None,
    profile: Annotated[bool, typer.Option(help="Measure step times before the first run.")] = True,
    at: options.At = None,
    json: Annotated[bool, typer.Option("--json", help="Print events as lines of JSON.")] = False,
) -> None:
    """Run the missing runs of a sweep. The same command continues after any interruption.

    Step times are measured first, so that every finished run has its time at once; nothing else should run meanwhile.
    When all runs are done, the baseline is measured again; if its time has drifted, or the machine was busy, so are all
    recipes. A sweep with the key `tune` is tuned before its first run; one with the key `until` gets more seeds after
    its last.
    """
    asked = listed(load_spec(spec))
    if device is not None:
        use_gpus(device)
    if not is_tuned(asked, runs / asked.name):
        part("sweep run, untuned")(asked, runs=runs, data=data, engine=engine, workers=workers, on=on, at=at, json=json)
    planned = make_plan(asked, runs=runs, data=data, on_rehearse=tell_rehearsal)
    planned = planned if at is None else at_place(planned)
    if not json and (words := left_out_words(len(planned.left_out), planned.spec.name, *options.of_runs(runs))):
        print(words)
    for words in (*planned.notes, *(f"warning: {words}" for words in planned.warnings)):
        print(visible(words), file=sys.stderr)
    if planned.spec.command is not None and (workers or 1) > 1:
        print(SHARED, file=sys.stderr)
    summary = run_until(
        planned,
        lambda plan: execute(plan, runs=runs, engine=engine, workers=workers, on=on, profile=profile, at=at, json=json),
        runs=runs,
        tell=lambda words: print(visible(words), file=sys.stderr),
    )
    finish(summary, json=json)
    if not json:
        if planned.spec.governance is not None and planned.runs:
            # All of its runs take the same steps; so the first one represents them.
            first = planned.directory / planned.runs[0].record.run_id
            show(part("governed runs, next")(first, "run"), file=sys.stderr)
        print(f"next: {shlex.join(('explorer', 'results', planned.spec.name, *options.of_runs(runs)))}")


def profile(
    spec: options.Spec,
    runs: options.Runs = options.RUNS,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Measure the step times of all recipes of a sweep again. Nothing else should run meanwhile.

    Nothing is trained. The old profiles stay until the new ones are complete.
    """
    planned = make_plan(listed(load_spec(spec)), runs=runs, data=data, on_rehearse=tell_rehearsal)
    _provide_passphrases(planned, all_runs=True)
    before = read_profiles(planned.directory)
    with JsonLines() if json else ProgressBar(planned.spec.name) as progress:
        summary = profile_sweep(planned, Settings(on_event=progress.show))
    ingest(runs)
    if not json:
        show([_step_times(planned, before, read_profiles(planned.directory))])
    if summary.interrupted:
        raise KeyboardInterrupt
    if summary.warnings:
        raise typer.Exit(1)


def _step_times(planned: Plan, before: Mapping[str, ProfileRecord], after: Mapping[str, ProfileRecord]) -> Block | str:
    """Return a table of training seconds for each recipe at its largest budget: by the old profiles and the new."""
    longest: dict[str, RunRecord] = {}
    for run in sorted(planned.runs, key=lambda run: run.record.steps):
        longest[run.record.recipe_digest] = run.record

    def seconds(profiles: Mapping[str, ProfileRecord], record: RunRecord) -> float | None:
        known = profiles.get(record.recipe_digest)
        if known is None or not set(record.phases) <= set(known.phases):
            return None
        return train_seconds(record.phases, known.phases).seconds

    rows = [
        (record.recipe, f"{record.ssr:g}", *(_shown(seconds(profiles, record)) for profiles in (before, after)))
        for record in longest.values()
    ]
    columns = ("recipe", "budget", "seconds before", "seconds now")
    return table(columns, rows, right=columns[1:])


def _shown(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.3g}"


def execute(
    planned: Plan,
    *,
    runs: Path,
    engine: str,
    workers: int | None,
    profile: bool,
    json: bool,
    on: str | None = None,
    at: str | None = None,
    answers: bool = True,
    act: Callable[[Settings], Summary] | None = None,
) -> Summary:
    """Run a planned sweep with progress on the screen. Every finished run enters the database at once.

    `runs` is the directory of all runs, `engine` a notebook engine, `workers` the number of runs at the same time
    (None: as many as the cores allow), `on` the Dask cluster that they run on, `profile` whether step times are
    measured first, `json` whether events are printed as lines of JSON instead of a bar, `at` the place where the sweep
    is executed (None: here), `answers` whether the bar has the best answer so far, and `act` runs something else than
    exactly this plan.
    """
    chosen = check_engine(engine)
    # A passphrase is asked for before the first run, not hours later.
    _provide_passphrases(planned, away=at is not None)
    where, published = database(runs), -math.inf

    with JsonLines(tunes=planned.spec.tunes) if json else ProgressBar(planned.spec.name) as progress:

        def bring_in(directory: Path) -> None:
            nonlocal published
            with _said_once():
                ingest(runs)
                if answers:
                    progress.answer(lambda: so_far(sweep_verdicts(frames.results(where, sweep=planned.spec.name))))
            if at is not None and time.monotonic() - published > PUBLISHING:
                part("sweep run --at")(runs, planned.spec.name, at)
                published = time.monotonic()

        settings = Settings(
            engine=chosen,
            place=at,
            workers=workers,
            profile=profile,
            executor=None if on is None else _cluster(on, planned, engine=engine),
            on_event=progress.show,
            on_result=bring_in,
        )
        summary = run_sweep(planned, settings) if act is None else act(settings)
    with _said_once():
        ingest(runs)  # profiles may have changed after the last run
    if at is not None:
        try:
            part("sweep run --at")(runs, planned.spec.name, at)
        except ExplorerError as error:  # the results are here, and what came of them must be shown
            print(visible(f"warning: readers of {at} do not see the last results: {error}"), file=sys.stderr)
    return summary


def _cluster(on: str, planned: Plan, *, engine: str) -> Callable[[], Executor]:
    """Return what connects to the cluster. Raises `SweepError` where Dask is not installed."""
    if engine == "inline":
        raise SweepError(
            "--on: Dask makes calls in threads, where the engine 'inline' cannot train; 'warm' and 'cold' can"
        )
    try:
        workers = part("sweep run --on")
    except ImportError as error:
        raise SweepError(f"--on needs {error.name}, which is not installed: pip install 'explorer[cluster]'") from error
    classes = [(own.runs[0].record, own.target.machine) for own in planned.classes]
    return partial(workers, on, threads=planned.spec.threads, classes=classes)


PUBLISHING = 60.0  # seconds between two snapshots for readers of a place
_SAID: set[str] = set()  # faults of the database that this command has told; a process is one command


@contextmanager
def _said_once() -> Iterator[None]:
    """Let an error pass the first time only. A database that is too old stays so, after every run and at the end, and
    what a sweep or a search did must still be shown."""
    try:
        yield
    except ExplorerError as error:
        if str(error) in _SAID:
            return
        _SAID.add(str(error))
        raise


def finish(summary: Summary, *, json: bool) -> None:
    """Print how a sweep ended. The exit status is 0 only if it is complete."""
    if not json:
        print(f"{summary.done} runs done, {summary.executed} of them now, in {summary.seconds:.0f} s")
        for failure in summary.failures:
            print(f"failed: {failure.run_id}: {failure.message}", file=sys.stderr)
        if summary.waiting:
            print(f"up to {summary.waiting} control runs wait for step times, which were not measured", file=sys.stderr)
    if summary.interrupted:
        raise KeyboardInterrupt
    if not summary.complete:
        raise typer.Exit(1)


def _provide_passphrases(planned: Plan, *, all_runs: bool = False, away: bool = False) -> None:
    """Ask for the passphrases of the keys that sign the ledgers of the missing runs, or of all runs; with `away`, that
    let other keys sign them."""
    recorded = {recipe.name for recipe in planned.spec.recipes if away or is_recorded(recipe)}
    needed = (run.documents for run in (planned.runs if all_runs else planned.missing) if run.record.recipe in recorded)
    for path in {documents.trainer for documents in needed if documents is not None}:
        provide_passphrase(path)


# --- progress of a running sweep ---

EVERY = 10  # runs between two lines where standard error is no terminal
ANSWERING = 0.05  # share of the time that may go into answers of an unfinished sweep


class Rate:
    """Runs a minute since the first of this start had finished."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None  # moment and number of runs then

    def words(self, done: int) -> str:
        now = time.monotonic()
        if self._first is None:
            self._first = now, done
        begun, before = self._first
        if done <= before or now <= begun:
            return ""
        return f"{60 * (done - before) / (now - begun):.2g} a minute"


class JsonLines:
    """Every event as one line of JSON on standard output; those of a tuning name the sweep that it tunes."""

    def __init__(self, *, tunes: str | None = None) -> None:
        self._tunes = {} if tunes is None else {"tunes": tunes}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def answer(self, words: Callable[[], str]) -> None:
        """Print nothing: the lines are events, and answers are in the database."""

    def show(self, event: Event) -> None:
        line = {
            "event": event.kind,
            "run": event.run.record.run_id if event.run else None,
            "message": event.message,
            **self._tunes,
            **{name: getattr(event, name) for name in ("done", "failed", "total", "fraction", "seconds_left")},
        }
        print(json.dumps(line), flush=True)


class ProgressBar:
    """A bar with rate, time left and the best answer so far; where standard error is no terminal, some lines."""

    def __init__(self, name: str) -> None:
        self._bar = Bar(name)
        self._rate = Rate()
        self._answer, self._not_before = "", -math.inf

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.__exit__(kind, value, traceback)

    def answer(self, words: Callable[[], str]) -> None:
        """Take the best answer so far, but spend at most a share `ANSWERING` of the time on it."""
        begun = time.monotonic()
        if begun >= self._not_before:
            self._answer = words()
            self._not_before = time.monotonic() + (time.monotonic() - begun) / ANSWERING

    def show(self, event: Event) -> None:
        left = "" if not event.seconds_left else f"about {duration(event.seconds_left)} left"
        runs = ", ".join(filter(None, (f"{event.done} of {event.total} runs", self._rate.words(event.done))))
        if event.kind == "profile":
            runs, left = f"measuring step times{' ' * bool(event.message)}{event.message}", "leave the machine idle"
        elif event.kind == "waiting":
            runs, left = event.message, ""
        elif event.kind == "stopping":
            runs, left = "stopping after this step", ""
        left = "; ".join(filter(None, (left, self._answer)))
        self._bar.update(event.fraction, state=runs, left=left)
        self._tell(event, runs, left)

    def _tell(self, event: Event, runs: str, left: str) -> None:
        if event.kind == "busy":
            self._bar.tell(f"{BUSY}: {event.message}")
        elif event.kind == "left":
            self._bar.tell(event.message)
        elif event.kind in ("failed", "retry", "warning"):
            name = f"{event.run.record.run_id}: " if event.run else ""
            self._bar.tell(f"{event.kind}: {name}{event.message}")
        # A log gets a line for each stage and for every tenth run, instead of a bar.
        elif not self._bar.is_drawn and (
            event.kind in ("profile", "waiting", "stopping") or (event.kind == "done" and event.done % EVERY == 0)
        ):
            print(f"{runs}{', ' if left else ''}{left}", file=sys.stderr, flush=True)
