"""`explorer sweep plan|run|profile`: plan a sweep, run its missing runs, measure its step times."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import typer

from explorer.cli import options
from explorer.cli.signing import provide_passphrase
from explorer.cli.sweep_status import label
from explorer.costing import load_prices, own_prices, train_seconds
from explorer.errors import SweepError, unknown
from explorer.page.amounts import BUSY, busy_words, price_words
from explorer.page.document import Block
from explorer.page.progress import Bar
from explorer.page.terminal import Answer, show, table, visible
from explorer.planned import left_out_words
from explorer.run_files import ProfileRecord, RunRecord
from explorer.store.ingest import ingest
from explorer.sweep.execute import Event, Settings, Summary, profile_sweep, run_sweep
from explorer.sweep.plan import Estimate, Plan, PlannedRun, make_plan
from explorer.sweep.profiles import busy_reasons, read_profiles
from explorer.sweep.spec import load_spec
from explorer.sweep.work import ENGINES, EngineName
from explorer.sweep.workers import default_workers
from explorer.training.ledgered import is_recorded


def plan(
    spec: options.Spec,
    runs: options.Runs = options.RUNS,
    data: options.Data = None,
    workers: options.Workers = None,
) -> Answer:
    """Show what a sweep would run: number of runs, what is done, time and dollars. Nothing is written."""
    planned = make_plan(load_spec(spec), runs=runs, data=data, on_rehearse=tell_rehearsal)
    estimate, at_once = estimated(planned, runs=runs, workers=workers)
    return Answer(
        page=lambda: plan_blocks(planned, estimate, at_once),
        record=lambda: (
            planned.to_json()
            | {
                "missing": [run.record.run_id for run in planned.missing],
                "other_code": [run.record.run_id for run in planned.runs if run.other_code],
                "superseded": [path.name for path in planned.left_out],
                "train_seconds": estimate.train_seconds,
                "wall_seconds": estimate.wall_seconds,
                "unknown": estimate.unknown,
                "usd": estimate.usd,
                "workers": at_once,
                "warnings": planned.warnings,
                "busy_profile": list(_busy(planned)),
            }
        ),
    )


def estimated(planned: Plan, *, runs: Path, workers: int | None) -> tuple[Estimate, int]:
    """Estimate the missing runs, and return how many of them run at the same time."""
    device = planned.runs[0].record.hardware.device
    at_once = workers or default_workers(threads=planned.spec.threads, device=device)
    return planned.estimate(workers=at_once, prices=(*load_prices(), *own_prices(runs))), at_once


def plan_blocks(planned: Plan, estimate: Estimate, at_once: int) -> Iterator[Block | str]:
    """Yield a plan: its recipes, the runs that are done, and the time and money for the rest."""
    yield _recipes(planned)
    if planned.spec.governance is not None:
        yield f"governed by the documents in {planned.spec.governance}, whose signatures are valid now"
    yield f"{len(planned.runs)} runs, {len(planned.runs) - len(planned.missing)} done, {estimate.runs} to do"
    yield from (f"warning: {warning}" for warning in planned.warnings)
    # What the number of runs leaves out or may mislead about.
    if planned.waiting:
        yield f"up to {len(planned.waiting)} more control runs, whose budgets follow from the profile"
    yield from (f"not run: {control.name}: {control.reason}" for control in planned.not_run)
    if others := sum(run.other_code for run in planned.runs):
        yield f"{others} runs were trained by other code of the same version; delete them to train them again"
    if words := left_out_words(len(planned.left_out), planned.spec.name):
        yield words
    if max(planned.spec.budgets) <= 1:
        yield (
            "no budget is above 1: a recipe with faster steps than the baseline ends earlier, so its quality at the"
            " baseline's full time is not measured"
        )
    if words := busy_words(_busy(planned), again=f"explorer sweep profile {planned.spec.source}"):
        yield words
    if estimate.runs:
        yield _forecast(estimate, at_once, hardware=planned.runs[0].record.hardware.name)


def run(
    spec: options.Spec,
    runs: options.Runs = options.RUNS,
    data: options.Data = None,
    engine: options.Engine = "warm",
    workers: options.Workers = None,
    profile: Annotated[bool, typer.Option(help="Measure step times before the first run.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print events as lines of JSON.")] = False,
) -> None:
    """Run the missing runs of a sweep. The same command continues after any interruption.

    Step times are measured first, so that every finished run has its time at once; nothing else should run meanwhile.
    When all runs are done, the baseline is measured again; if its time has drifted, or the machine was busy, so are all
    recipes.
    """
    planned = make_plan(load_spec(spec), runs=runs, data=data, on_rehearse=tell_rehearsal)
    if not json and (words := left_out_words(len(planned.left_out), planned.spec.name)):
        print(words)
    for words in planned.warnings:
        print(f"warning: {visible(words)}", file=sys.stderr)
    summary = execute(planned, runs=runs, engine=engine, workers=workers, profile=profile, json=json)
    finish(summary, json=json)


def profile(
    spec: options.Spec,
    runs: options.Runs = options.RUNS,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Measure the step times of all recipes of a sweep again. Nothing else should run meanwhile.

    Nothing is trained. The old profiles stay until the new ones are complete.
    """
    planned = make_plan(load_spec(spec), runs=runs, data=data, on_rehearse=tell_rehearsal)
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


def tell_rehearsal(names: Sequence[str]) -> None:
    """Announce on standard error that recipes are tried out, because it can take a while."""
    count = "1 recipe" if len(names) == 1 else f"{len(names)} recipes"
    print(f"trying a few steps of {count} before training starts", file=sys.stderr, flush=True)


def execute(planned: Plan, *, runs: Path, engine: str, workers: int | None, profile: bool, json: bool) -> Summary:
    """Run a planned sweep with progress on the screen. Every finished run enters the database at once.

    `runs` is the directory of all runs, `engine` a notebook engine, `workers` the number of runs at the same time
    (None: as many as the cores allow), `profile` whether step times are measured first, and `json` whether events are
    printed as lines of JSON instead of a bar.
    """
    if engine not in ENGINES:
        raise SweepError(unknown("notebook engine", engine, ENGINES))
    # A passphrase is asked for before the first run, not hours later.
    _provide_passphrases(planned)
    chosen: EngineName = engine  # pyright: ignore[reportAssignmentType]

    def bring_in(directory: Path | None = None) -> None:
        ingest(runs)

    with JsonLines() if json else ProgressBar(planned.spec.name) as progress:
        settings = Settings(
            engine=chosen,
            workers=workers,
            profile=profile,
            on_event=progress.show,
            on_result=bring_in,
        )
        summary = run_sweep(planned, settings)
    ingest(runs)  # profiles may have changed after the last run
    return summary


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


def _provide_passphrases(planned: Plan, *, all_runs: bool = False) -> None:
    """Ask for the passphrases of the keys that sign the ledgers of the missing runs, or of all runs."""
    recorded = {recipe.name for recipe in planned.spec.recipes if is_recorded(recipe)}
    needed = (run.documents for run in (planned.runs if all_runs else planned.missing) if run.record.recipe in recorded)
    for path in {documents.trainer for documents in needed if documents is not None}:
        provide_passphrase(path)


def _busy(planned: Plan) -> tuple[str, ...]:
    """Return the reasons to call the machine busy while the recipes of the plan were profiled."""
    return busy_reasons(read_profiles(planned.directory), {run.record.recipe_digest for run in planned.runs})


def _recipes(planned: Plan) -> Block | str:
    written = {recipe.name: " + ".join(method.name for method in recipe.methods) for recipe in planned.spec.recipes}
    groups: dict[tuple[str, str | None], list[PlannedRun]] = {}
    for run in planned.runs:
        groups.setdefault((run.record.recipe, run.record.control), []).append(run)
    # The runs of a control are rows of their own: they answer another question than the recipe's.
    rows = []
    for (recipe, control), own in groups.items():
        seconds = [run.seconds for run in own if run.seconds is not None]
        done = sum(not run.missing for run in own)
        name = f"{recipe} (baseline)" if recipe == planned.spec.baseline and control is None else label(recipe, control)
        total = f"{sum(seconds):.0f}" if len(seconds) == len(own) else None
        rows.append((name, written[recipe] or "none", len(own), done, total))
    columns = ("recipe", "methods", "runs", "done", "total seconds")
    return table(columns, rows, right=columns[2:])


def _forecast(estimate: Estimate, workers: int, *, hardware: str) -> str:
    if estimate.unknown == estimate.runs:
        return "no step times are known on this hardware yet; `explorer sweep run` measures them first"
    known = f"about {duration(estimate.wall_seconds)} with {workers} runs at the same time"
    price = visible(price_words(estimate.price, hardware=hardware, today=options.today()))
    money = price if estimate.usd is None else f"{estimate.usd:.3g} USD at {price}"
    rest = f"; excludes {estimate.unknown} runs of unknown step time" if estimate.unknown else ""
    return f"{known}; {duration(estimate.train_seconds)} of training; {money}{rest}"


# --- progress of a running sweep ---

EVERY = 10  # runs between two lines where standard error is no terminal


class JsonLines:
    """Every event as one line of JSON on standard output."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, event: Event) -> None:
        line = {
            "event": event.kind,
            "run": event.run.record.run_id if event.run else None,
            "message": event.message,
            **{name: getattr(event, name) for name in ("done", "failed", "total", "fraction", "seconds_left")},
        }
        print(json.dumps(line), flush=True)


class ProgressBar:
    """A bar with the time left; where standard error is no terminal, a line now and then."""

    def __init__(self, name: str) -> None:
        self._bar = Bar(name)

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.__exit__(kind, value, traceback)

    def show(self, event: Event) -> None:
        left = "" if event.seconds_left is None else f"about {duration(event.seconds_left)} left"
        runs = f"{event.done} of {event.total} runs"
        if event.kind == "profile":
            runs, left = f"measuring step times{' ' * bool(event.message)}{event.message}", "leave the machine idle"
        elif event.kind == "waiting":
            runs, left = event.message, ""
        elif event.kind == "stopping":
            runs, left = "stopping after this step", ""
        self._bar.update(event.fraction, state=runs, left=left)
        self._tell(event, runs, left)

    def _tell(self, event: Event, runs: str, left: str) -> None:
        if event.kind == "busy":
            self._bar.tell(f"{BUSY}: {event.message}")
        elif event.kind in ("failed", "retry", "warning"):
            name = f"{event.run.record.run_id}: " if event.run else ""
            self._bar.tell(f"{event.kind}: {name}{event.message}")
        # A log gets a line for each stage and for every tenth run, instead of a bar.
        elif not self._bar.is_drawn and (
            event.kind in ("profile", "waiting", "stopping") or (event.kind == "done" and event.done % EVERY == 0)
        ):
            print(f"{runs}{', ' if left else ''}{left}", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Return a time in whole seconds, minutes and hours.

    >>> duration(7.4), duration(90), duration(5400)
    ('7 s', '1 min 30 s', '1 h 30 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
