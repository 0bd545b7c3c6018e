"""`explorer sweep plan|run|status|profile|prune`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli.credentials import provide_passphrase
from explorer.cli.output import print_json, print_table, visible
from explorer.cli.settings import RUNS, Data, Json, Runs, Spec
from explorer.costing.words import busy_words
from explorer.planned import left_out_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from explorer.records import ProfileRecord, RunRecord
    from explorer.sweep.execute import Summary
    from explorer.sweep.plan import Estimate, Plan, PlannedRun
    from explorer.sweep.work import EngineName

Engine = Annotated[
    str,
    typer.Option("--engine", metavar="NAME", help="Notebook engine: warm, cold or inline; the results are the same."),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, metavar="N", help="Runs side by side. Default: cores / threads of a run."),
]


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Plan, run and follow a sweep of recipes over budgets and seeds.", no_args_is_help=True)
    group.command()(plan)
    group.command()(run)
    group.command()(status)
    group.command()(profile)
    group.command()(prune)
    app.add_typer(group, name="sweep")


def plan(spec: Spec, runs: Runs = RUNS, data: Data = None, workers: Workers = None, json: Json = False) -> None:
    """What a sweep would run: how many runs, what is done already, time and dollars. Nothing is written."""
    from explorer.sweep.plan import make_plan
    from explorer.sweep.spec import load_spec

    planned = make_plan(load_spec(spec), runs=runs, data=data, on_rehearse=tell_rehearsal)
    estimate, side_by_side = estimated(planned, runs=runs, workers=workers)
    if json:
        print_json(
            planned.to_json()
            | {
                "missing": [run.record.run_id for run in planned.missing],
                "other_code": [run.record.run_id for run in planned.runs if run.other_code],
                "superseded": [path.name for path in planned.left_out],
                "train_seconds": estimate.train_seconds,
                "wall_seconds": estimate.wall_seconds,
                "unknown": estimate.unknown,
                "usd": estimate.usd,
                "workers": side_by_side,
                "warnings": planned.warnings,
                "busy_profile": list(_busy(planned)),
            }
        )
        return
    print_plan(planned, estimate, side_by_side)


def estimated(planned: "Plan", *, runs: Path, workers: int | None) -> "tuple[Estimate, int]":
    """What the missing runs take, and how many of them run side by side."""
    from explorer.costing import load_prices, own_prices
    from explorer.sweep.executors import default_workers

    device = planned.runs[0].record.hardware.device
    side_by_side = workers or default_workers(threads=planned.spec.threads, device=device)
    return planned.estimate(workers=side_by_side, prices=(*load_prices(), *own_prices(runs))), side_by_side


def print_plan(planned: "Plan", estimate: "Estimate", side_by_side: int) -> None:
    """A plan in words: its recipes, what is done, what is left in time and money."""
    _print_recipes(planned)
    if planned.spec.governance is not None:
        print(f"governed by the documents in {planned.spec.governance}, which are believed now")
    print(f"{len(planned.runs)} runs, {len(planned.runs) - len(planned.missing)} done, {estimate.runs} to do")
    for words in planned.warnings:
        print(f"warning: {visible(words)}")
    if planned.waiting:
        print(f"at most {len(planned.waiting)} control runs more, whose budgets follow from the profile")
    for each in planned.not_run:
        print(f"not run: {each.name}: {each.reason}")
    if others := sum(run.other_code for run in planned.runs):
        print(f"{others} of those done were trained by other code of the same version; delete them to train them again")
    if words := left_out_words(len(planned.left_out), planned.spec.name):
        print(words)
    if max(planned.spec.budgets) <= 1:
        print(
            "no budget is above 1: a recipe with faster steps than the baseline ends before it, so at the baseline's"
            " full time it is not tested"
        )
    if told := busy_words(_busy(planned), again=f"explorer sweep profile {planned.spec.source}"):
        print(visible(told))
    if estimate.runs:
        print(_forecast(estimate, side_by_side, hardware=planned.runs[0].record.hardware.name))


def run(
    spec: Spec,
    runs: Runs = RUNS,
    data: Data = None,
    engine: Engine = "warm",
    workers: Workers = None,
    profile: Annotated[bool, typer.Option(help="Measure step times before the first run.")] = True,
    json: Annotated[
        bool, typer.Option("--json", help="Print an event as a line of JSON whenever something happens.")
    ] = False,
) -> None:
    """Run what is missing of a sweep. The same command goes on after an interruption, whatever it was.

    Step times are measured first, and nothing else should run meanwhile: finished runs then have their time at once.
    When all runs are done the baseline is timed again; if it drifted, or the machine was busy, all recipes are.
    """
    from explorer.sweep.plan import make_plan
    from explorer.sweep.spec import load_spec

    planned = make_plan(load_spec(spec), runs=runs, data=data, on_rehearse=tell_rehearsal)
    if not json and (words := left_out_words(len(planned.left_out), planned.spec.name)):
        print(words)
    for words in planned.warnings:
        print(f"warning: {visible(words)}", file=sys.stderr)
    summary = execute(planned, runs=runs, engine=engine, workers=workers, profile=profile, json=json)
    finish(summary, json=json)


def profile(spec: Spec, runs: Runs = RUNS, data: Data = None, json: Json = False) -> None:
    """Measure the step times of a sweep's recipes again, all of them in turn. Nothing else should run meanwhile.

    Nothing is trained. The profiles that there are stay until the new ones are whole.
    """
    from explorer.cli.progress import JsonLines, ProgressBar
    from explorer.store.ingest import ingest
    from explorer.sweep.execute import Settings, profile_sweep
    from explorer.sweep.plan import make_plan
    from explorer.sweep.profiles import read_profiles
    from explorer.sweep.spec import load_spec

    planned = make_plan(load_spec(spec), runs=runs, data=data, on_rehearse=tell_rehearsal)
    _provide_passphrases(planned, all_runs=True)
    before = read_profiles(planned.directory)
    with JsonLines() if json else ProgressBar(planned.spec.name) as progress:
        summary = profile_sweep(planned, Settings(on_event=progress.show))
    ingest(runs)
    if not json:
        _print_step_times(planned, before, read_profiles(planned.directory))
    if summary.interrupted:
        raise KeyboardInterrupt
    if summary.warnings:
        raise typer.Exit(1)


def _print_step_times(
    planned: "Plan", before: "Mapping[str, ProfileRecord]", after: "Mapping[str, ProfileRecord]"
) -> None:
    """The seconds of a whole run of each recipe at its largest budget, before and now."""
    from explorer.costing import train_seconds

    longest: dict[str, RunRecord] = {}
    for run in sorted(planned.runs, key=lambda run: run.record.steps):
        longest[run.record.recipe_digest] = run.record

    def seconds(profiles: "Mapping[str, ProfileRecord]", record: "RunRecord") -> float | None:
        known = profiles.get(record.recipe_digest)
        if known is None or not set(record.phases) <= set(known.phases):
            return None
        return train_seconds(record.phases, known.phases).seconds

    rows = [
        (visible(record.recipe), f"{record.ssr:g}", *(_shown(seconds(each, record)) for each in (before, after)))
        for record in longest.values()
    ]
    columns = ("recipe", "budget", "seconds before", "seconds now")
    print_table(columns, rows, right=columns[1:])


def _shown(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.3g}"


def tell_rehearsal(names: "Sequence[str]") -> None:
    """Say that recipes are tried out now: it can take a while."""
    count = "1 recipe" if len(names) == 1 else f"{len(names)} recipes"
    print(f"trying a few steps of {count} before anything is trained", file=sys.stderr, flush=True)


def status(spec: Spec, runs: Runs = RUNS, json: Json = False) -> None:
    """Where a sweep stands: runs done, running, failed, interrupted and planned, by recipe and budget."""
    from explorer.document import read_document
    from explorer.sweep.profiles import busy_reasons, read_profiles
    from explorer.sweep.status import sweep_status

    content = read_document(spec).value
    name = content.get("name") if isinstance(content, dict) else None
    found = sweep_status(runs / str(name), content=content if isinstance(content, dict) else None)
    profiles = read_profiles(found.directory)
    busy = busy_reasons(profiles, found.recipes)
    if json:
        print_json(
            {
                "name": found.name,
                "active": found.active,
                "spec_changed": found.spec_changed,
                "profiled": found.recipes <= profiles.keys(),
                "busy_profile": list(busy),
                "counts": found.counts,
                "waiting": found.waiting,
                "not_run": [{"name": name, "reason": reason} for name, reason in found.not_run],
                "superseded": list(found.superseded),
                "runs": [
                    {"run_id": r.run_id, "recipe": r.recipe, "ssr": r.ssr, "seed": r.seed, "state": r.state}
                    | ({"control": r.control} if r.control else {})
                    | ({"message": r.message} if r.message else {})
                    for r in found.runs
                ],
            }
        )
        return
    counted: dict[str, dict[str, int]] = {}
    for item in found.runs:
        states = counted.setdefault(_label(item.recipe, item.control), {})
        states[item.state] = states.get(item.state, 0) + 1
    columns = tuple(found.counts)
    rows = [(recipe, *(states.get(state, 0) or None for state in columns)) for recipe, states in counted.items()]
    print_table(("recipe", *columns), rows, right=columns)
    print(f"sweep {found.name}: {'running now' if found.active else 'not running'}")
    if not found.recipes <= profiles.keys():
        print("its step times are not measured yet")
    if told := busy_words(busy, again=f"explorer sweep profile {spec}"):
        print(visible(told))
    if found.spec_changed:
        print(f"the specification has changed since the sweep was started: see 'explorer sweep plan {spec}'")
    if found.waiting:
        print(f"at most {found.waiting} control runs more, whose budgets follow from the profile")
    for name, reason in found.not_run:
        print(f"not run: {name}: {reason}")
    if words := left_out_words(len(found.superseded), found.name):
        print(words)
    for item in found.runs:
        if item.message:
            print(f"  {item.run_id}: {item.state}: {item.message}")


def prune(
    sweep: Annotated[
        str, typer.Argument(metavar="SPEC|NAME", help="A sweep, by its specification or by its name below the runs.")
    ],
    named: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]...", help="Only these. A governed run has to be named.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them. Default: only list them.")] = False,
    runs: Runs = RUNS,
    json: Json = False,
) -> None:
    """List the runs that an earlier specification of a sweep left behind, or remove them with --yes.

    The plan that the sweep was last started with decides. A run that others rest on is kept: the parent of a ledger or
    a deletion, one that the project's ledger is about, one with an attested model or a confirmed recipe, one in
    progress.
    """
    from explorer.sweep.prune import plan_pruning, size_of
    from explorer.sweep.prune import prune as remove

    name = _name_of(sweep, runs=runs)
    found = plan_pruning(runs, name, named=named or ())
    sizes = {path.name: size_of(path) for path in found.removable}
    if yes:
        from explorer.store.ingest import ingest

        found = remove(runs, name, named=named or ())
        ingest(runs)
    done = [path.name for path in found.removable]
    sizes = {run: sizes.get(run, 0) for run in done}
    if json:
        kept = [{"run_id": each.directory.name, "reason": each.reason} for each in found.kept]
        print_json({"name": name, "removed": yes, "runs": done, "bytes": sum(sizes.values()), "kept": kept})
        return
    rows = [(run, f"{sizes[run] / 1e6:,.1f}") for run in done]
    if rows:
        print_table(("removed" if yes else "run", "MB"), rows, right=("MB",))
    for each in found.kept:
        print(visible(f"kept: {each.directory.name}: {each.reason}"))
    whole = f"{len(done)} run directories of {name}, {sum(sizes.values()) / 1e6:,.1f} MB"
    if not rows:
        print(f"nothing to remove from {name}")
    else:
        print(f"{whole}: removed" if yes else f"{whole}: --yes removes them")


def _name_of(sweep: str, *, runs: Path) -> str:
    """The sweep that is meant: by name, or by a specification that is the one it was last started with."""
    from explorer.document import read_document
    from explorer.errors import SweepError
    from explorer.planned import read_plan

    path = Path(sweep)
    if path.suffix not in (".yaml", ".yml"):
        return sweep
    content = read_document(path).value
    name = content.get("name") if isinstance(content, dict) else None
    if not isinstance(name, str) or Path(name).name != name:
        raise SweepError(f"{path}: found the name {name!r:.80}; expected that of a sweep in {runs}")
    if read_plan(runs / name)["spec"] != content:
        raise SweepError(
            f"{path}: not what {name} was last started with, so what it leaves out is not settled:"
            f" start it with `explorer sweep run {path}`, or give the name instead: `explorer sweep prune {name}`"
        )
    return name


def execute(planned: "Plan", *, runs: Path, engine: str, workers: int | None, profile: bool, json: bool) -> "Summary":
    """Run a planned sweep with progress on the screen; every finished run is in the database a moment later."""
    from explorer.cli.progress import JsonLines, ProgressBar
    from explorer.errors import SweepError, unknown
    from explorer.store.ingest import ingest
    from explorer.sweep.execute import Settings, run_sweep
    from explorer.sweep.work import ENGINES

    if engine not in ENGINES:
        raise SweepError(unknown("notebook engine", engine, ENGINES))
    _provide_passphrases(planned)
    chosen: EngineName = engine  # pyright: ignore[reportAssignmentType]
    with JsonLines() if json else ProgressBar(planned.spec.name) as progress:
        settings = Settings(
            engine=chosen,
            workers=workers,
            profile=profile,
            on_event=progress.show,
            on_result=lambda directory: _ingested(ingest, runs),
        )
        summary = run_sweep(planned, settings)
    ingest(runs)
    return summary


def finish(summary: "Summary", *, json: bool) -> None:
    """Say how executing a sweep ended; exit status 0 only if it is complete."""

    if not json:
        print(f"{summary.done} runs done, {summary.executed} of them now, in {summary.seconds:.0f} s")
        for failure in summary.failures:
            print(f"failed: {failure.run_id}: {failure.message}", file=sys.stderr)
        if summary.waiting:
            print(
                f"at most {summary.waiting} control runs wait for step times, which were not measured", file=sys.stderr
            )
    if summary.interrupted:
        raise KeyboardInterrupt
    if not summary.complete:
        raise typer.Exit(1)


def _provide_passphrases(planned: "Plan", *, all_runs: bool = False) -> None:
    """Ask for what the ledgers of the missing runs, or of all, are signed with, before any of them starts."""
    from explorer.training.ledgered import is_recorded

    recorded = {recipe.name for recipe in planned.spec.recipes if is_recorded(recipe)}
    needed = (run.documents for run in (planned.runs if all_runs else planned.missing) if run.record.recipe in recorded)
    for path in {documents.trainer for documents in needed if documents is not None}:
        provide_passphrase(path)


def _ingested(ingest: Any, runs: Path) -> None:
    ingest(runs)


def _busy(planned: "Plan") -> tuple[str, ...]:
    """Why the machine was busy while the recipes of the plan were profiled."""
    from explorer.sweep.profiles import busy_reasons, read_profiles

    return busy_reasons(read_profiles(planned.directory), {run.record.recipe_digest for run in planned.runs})


def _print_recipes(planned: "Plan") -> None:
    written = {recipe.name: " + ".join(method.name for method in recipe.methods) for recipe in planned.spec.recipes}
    groups: dict[tuple[str, str | None], list[PlannedRun]] = {}
    for run in planned.runs:
        groups.setdefault((run.record.recipe, run.record.control), []).append(run)
    rows = []
    for (recipe, control), own in groups.items():
        seconds = [run.seconds for run in own if run.seconds is not None]
        done = sum(not run.missing for run in own)
        name = (
            f"{recipe} (baseline)" if recipe == planned.spec.baseline and control is None else _label(recipe, control)
        )
        in_all = f"{sum(seconds):.0f}" if len(seconds) == len(own) else None
        rows.append((name, written[recipe] or "none", len(own), done, in_all))
    columns = ("recipe", "methods", "runs", "done", "seconds in all")
    print_table(columns, rows, right=columns[2:])


def _label(recipe: str, control: str | None) -> str:
    """A recipe's name, with what its runs are for."""
    return f"{recipe} (control: {control.replace('-', ' ')})" if control else recipe


def _forecast(estimate: "Estimate", workers: int, *, hardware: str) -> str:
    from explorer.cli.price_list import today
    from explorer.cli.progress import duration
    from explorer.costing import price_words

    if estimate.unknown == estimate.runs:
        return "no step time is known on this hardware yet: `explorer sweep run` measures it first"
    known = f"about {duration(estimate.wall_seconds)} with {workers} runs side by side"
    price = visible(price_words(estimate.price, hardware=hardware, today=today()))
    money = price if estimate.usd is None else f"{estimate.usd:.3g} USD at {price}"
    rest = f"; {estimate.unknown} runs of unknown step time are not in it" if estimate.unknown else ""
    return f"{known}; {duration(estimate.train_seconds)} of training; {money}{rest}"
