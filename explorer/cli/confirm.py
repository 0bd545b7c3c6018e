"""`explorer confirm`: run a recipe of a sweep and its baseline again, on fresh seeds."""

import json as jsonlib
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer import rundir
from explorer.analysis.sentences import control_words
from explorer.analysis.verdict import Verdict, sweep_verdicts
from explorer.cli import options
from explorer.cli.sweep import execute, finish
from explorer.cli.sweep_plan import estimated, plan_blocks
from explorer.cli.verdicts import verdict_blocks
from explorer.page.terminal import Answer, show
from explorer.store import frames
from explorer.store.frames import with_confirming
from explorer.store.published import database
from explorer.sweep.confirm import check_same, confirmation, started, timed, written
from explorer.sweep.plan import Plan, make_plan
from explorer.sweep.spec import read_spec
from explorer.yaml_document import parse_document


def confirm(
    sweep: Annotated[str, typer.Argument(metavar="SWEEP", help="Name of the sweep in which the recipe was chosen.")],
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="The recipe to confirm.")],
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
    planned, path = _planned(runs, sweep, recipe, seeds=seeds, data=data)
    if plan:
        return _planned_answer(planned, path, sweep, recipe, runs=runs, workers=workers)
    summary = execute(planned, runs=runs, engine=engine, workers=workers, profile=True, json=json)
    finish(summary, json=json)
    verdict = _verdict(runs, sweep, recipe)
    if json:
        # The last of the lines of JSON that `execute` has printed.
        print(jsonlib.dumps({"event": "verdict"} | _as_json(verdict)))
    else:
        show([*verdict_blocks(runs, planned.spec.name), f"{recipe}: {_words(verdict)}"])
    if verdict is None or not verdict.is_confirmed:
        raise typer.Exit(1)
    return None


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


def _planned_answer(planned: Plan, path: Path, sweep: str, recipe: str, *, runs: Path, workers: int | None) -> Answer:
    planned = timed(planned, runs / sweep)
    estimate, at_once = estimated(planned, runs=runs, workers=workers)
    seeds = f"{path}: seeds {', '.join(map(str, planned.spec.seeds))}, which no run of {sweep} has used"
    return Answer(
        page=lambda: [*plan_blocks(planned, estimate, at_once), seeds],
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
