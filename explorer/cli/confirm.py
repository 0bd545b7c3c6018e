"""`explorer confirm`: run a recipe of a sweep and its baseline again, on fresh seeds."""

import json as jsonlib
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer import rundir
from explorer.analysis.ask import ask
from explorer.analysis.limits import Limits
from explorer.analysis.sentences import control_words
from explorer.analysis.verdict import Verdict, sweep_verdicts
from explorer.cli import options
from explorer.cli.results import tell_upkeep
from explorer.cli.sweep import execute, finish
from explorer.cli.sweep_plan import estimated, plan_blocks
from explorer.cli.verdicts import verdict_blocks
from explorer.errors import SweepError
from explorer.page import amounts
from explorer.page.terminal import Answer, show, visible
from explorer.recipes.machine import this_machine
from explorer.store import frames
from explorer.store.frames import with_confirming
from explorer.store.published import database
from explorer.store.queries import Filter
from explorer.sweep.confirm import check_same, confirmation, started, timed, written
from explorer.sweep.plan import Plan, make_plan
from explorer.sweep.spec import read_spec
from explorer.yaml_document import parse_document


def confirm(
    sweep: Annotated[str, typer.Argument(metavar="SWEEP", help="Name of the sweep in which the recipe was chosen.")],
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="[RECIPE]",
            help="The recipe to confirm. Default: the answer of `explorer ask SWEEP`, the cheapest recipe that is as"
            " good as the baseline.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, metavar="N", help="Number of fresh seeds.")] = 3,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only write the specification and show its time and cost.")
    ] = False,
    runs: options.Runs = options.RUNS,
    data: options.Data = None,
    engine: options.Engine = "warm",
    workers: options.Workers = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON: the plan, or one line per event and one for the verdict.")
    ] = False,
) -> Answer | None:
    """Run a recipe and its baseline on seeds that had no part in choosing it.

    The same command continues after an interruption. The exit status is 0 only if the fresh seeds confirm the recipe by
    themselves.
    """
    recipe = recipe or _winner(runs, sweep)
    planned, path = _planned(runs, sweep, recipe, seeds=seeds, data=data)
    if plan:
        return _planned_answer(planned, path, sweep, recipe, runs=runs, data=data, workers=workers)
    summary = execute(planned, runs=runs, engine=engine, workers=workers, profile=True, json=json)
    finish(summary, json=json)
    verdict = _verdict(runs, sweep, recipe)
    if json:
        # The last of the lines of JSON that `execute` has printed.
        print(jsonlib.dumps({"event": "verdict", "recipe": recipe} | _as_json(verdict)))
    else:
        show([*verdict_blocks(runs, planned.spec.name, data=data), f"{recipe}: {_words(verdict)}"])
    if verdict is None or not verdict.is_confirmed:
        raise typer.Exit(1)
    return None


def _winner(runs: Path, sweep: str) -> str:
    """Return the winner of `explorer ask` on the machine of the sweep, and say so on standard error.

    Raises `SweepError` where no recipe is as good as the baseline for less.
    """
    recorded = started(runs, sweep)
    tell_upkeep(runs)
    where = database(runs)
    rows = frames.results(where, where=Filter(sweep=sweep))  # a sweep without results is no unknown name
    # Fresh seeds run on the machine of the sweep, of several on this one, so predictions for others choose nothing.
    own = this_machine().hardware.name if "machines" in recorded else recorded.get("hardware", {}).get("name")
    here = rows["hardware"] == own
    rows = rows[here] if here.any() else rows
    if rows.empty:
        raise SweepError(f"{sweep}: no run has finished, so there is no winner yet; name the recipe to confirm")
    verdicts = sweep_verdicts(rows, with_confirming(where, sweep))
    asked = ask(rows, frames.deletion_forecasts(where, sweep=sweep), Limits(), verdicts=verdicts)
    if asked.winner is None:
        names = ", ".join(dict.fromkeys(verdict.comparison.recipe for verdict in verdicts)) or "none"
        raise SweepError(
            f"{sweep}: no recipe is known to be as good as the baseline for less, so there is no winner; name the"
            f" recipe to confirm; known: {names}"
        )
    recipe, reached = asked.winner.recipe, asked.winner.reached
    words = f"{amounts.quality(reached.target, asked.kind)} in {amounts.seconds(reached.seconds)}"
    said = f"explorer: confirming {recipe}, the cheapest recipe of {sweep} that is as good as the baseline ({words})"
    command = shlex.join(("explorer", "ask", sweep, *options.of_runs(runs)))
    print(visible(f"{said}: see `{command}`"), file=sys.stderr)
    return recipe


def _planned(runs: Path, sweep: str, recipe: str, *, seeds: int, data: Path | None) -> tuple[Plan, Path]:
    """Plan the confirmation, and write its specification once all of it is checked."""
    recorded = started(runs, sweep)
    content = confirmation(runs, sweep, recipe, seeds=seeds)
    path, text = runs / f"{content['name']}.yaml", written(content, recipe=recipe, of=sweep)
    planned = make_plan(read_spec(parse_document(text, where=str(path))), runs=runs, data=data)
    # Other code, data or documents than the sweep had would confirm something else, and nothing is written.
    check_same(planned, recorded)
    rundir.write_bytes(path, text.encode())
    return planned, path


def _planned_answer(
    planned: Plan, path: Path, sweep: str, recipe: str, *, runs: Path, data: Path | None, workers: int | None
) -> Answer:
    planned = timed(planned, runs / sweep)
    estimate, at_once = estimated(planned, runs=runs, workers=workers)
    seeds = f"{path}: seeds {', '.join(map(str, planned.spec.seeds))}, which no run of {sweep} has used"
    return Answer(
        page=lambda: [*plan_blocks(planned, estimate, at_once, data=data), seeds],
        record=lambda: {
            "sweep": sweep,
            "recipe": recipe,
            "name": planned.spec.name,
            "spec": str(path),
            "seeds": list(planned.spec.seeds),
            "runs": len(planned.runs),
            "missing": estimate.runs,
            "unknown": estimate.unknown,
            "train_seconds": estimate.train_seconds,
            "wall_seconds": estimate.wall_seconds,
            "usd": estimate.usd,
            "workers": at_once,
        },
    )


def _verdict(runs: Path, sweep: str, recipe: str) -> Verdict | None:
    """Return the verdict on the recipe in its sweep, with the result on fresh seeds."""
    where = database(runs)
    verdicts = sweep_verdicts(frames.results(where, sweep=sweep), with_confirming(where, sweep))
    return next((verdict for verdict in verdicts if verdict.comparison.recipe == recipe and verdict.confirmation), None)


def _words(verdict: Verdict | None) -> str:
    if verdict is None or verdict.confirmation is None:
        return "nothing can be compared yet"
    return "; ".join(filter(None, (verdict.confirmation.sentence, control_words(verdict))))


def _as_json(verdict: Verdict | None) -> dict[str, Any]:
    if verdict is None or verdict.confirmation is None:
        return {"verdict": None}
    fresh, result = verdict.confirmation, verdict.confirmation.result
    return {
        "verdict": fresh.verdict,
        "sentence": _words(verdict),
        "sweeps": fresh.sweeps,
        "seeds": fresh.seeds,
        "ratio": result and result.ratio,
        "ratio_low": result and result.adjusted_low,
        "ratio_high": result and result.adjusted_high,
        "vanishes_against": verdict.control and verdict.control.name,
    }
