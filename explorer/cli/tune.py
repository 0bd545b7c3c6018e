"""`explorer tune`: tune every recipe of a sweep with equal effort, before its claim is measured."""

import json as jsonlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer.campaign.tune import tune as tune_recipes
from explorer.campaign.tune import tuning_plan
from explorer.cli import options
from explorer.cli.sweep import execute, finish
from explorer.cli.sweep_plan import Before, estimated
from explorer.costing import cost_usd, default_price, load_prices, own_prices
from explorer.errors import SweepError
from explorer.page import amounts
from explorer.page.document import Block
from explorer.page.terminal import Answer, show, table
from explorer.run_files import to_json
from explorer.sweep.chosen import is_tuned, with_tuned
from explorer.sweep.execute import Summary
from explorer.sweep.plan import Plan, make_plan
from explorer.sweep.spec import SweepSpec, load_spec
from explorer.sweep.tuned import TunedRecipe, TunedRecord

TUNING = "tuning"  # the place of a tuning, below that of its sweep


def tune(
    spec: options.Spec,
    plan: Annotated[bool, typer.Option("--plan", help="Only show the tuning runs, their time and cost.")] = False,
    runs: options.Runs = options.RUNS,
    data: options.Data = None,
    engine: options.Engine = "warm",
    workers: options.Workers = None,
    at: options.TuneAt = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON: the plan, or one line per event and one for the values.")
    ] = False,
) -> Answer | None:
    """Tune every recipe of a sweep with equal effort: as many points at the same budget, on seeds of their own.

    What is tuned is in the specification, under `tune`. The runs are those of an ordinary sweep, SWEEP-tune, and the
    same command continues after any interruption. The exit status is 0 only if every recipe is tuned.
    """
    asked = load_spec(spec)
    if plan:
        planned = tuning_plan(asked, runs=runs, data=data)
        return Answer(
            page=lambda: tuning_blocks(asked, planned, runs=runs, workers=workers),
            record=lambda: _planned_json(asked, planned, runs=runs, workers=workers),
        )
    directory = runs / asked.name
    if asked.tune is not None and is_tuned(asked, directory):
        tuned = with_tuned(asked, directory).tuned
        assert tuned is not None
    else:
        tuned = tune_first(asked, runs=runs, data=data, engine=engine, workers=workers, at=at, json=json, tell=False)
    if json:
        print(as_event(tuned))
    else:
        show(tuned_blocks(tuned, runs=runs))
    return None


def tune_first(
    asked: SweepSpec,
    *,
    runs: Path,
    data: Path | None,
    engine: str,
    workers: int | None,
    json: bool,
    on: str | None = None,
    at: str | None = None,
    tell: bool = True,
) -> TunedRecord:
    """Tune a sweep. A tuning that has not ended ends the command.

    `at` is the place of the sweep: its tuning is a sweep of its own, so it has a place of its own below that one.
    `tell`: print what was chosen.
    """
    place = None if at is None else f"{at.rstrip('/')}/{TUNING}"
    ended: list[Summary] = []

    def run(planned: Plan) -> Summary:
        settings = {"engine": engine, "workers": workers, "on": on, "at": place, "json": json}
        ended.append(execute(planned, runs=runs, profile=False, answers=False, **settings))
        return ended[-1]

    tuned = tune_recipes(asked, runs=runs, data=data, execute=run)
    if tuned is None:
        finish(ended[-1], json=json)
        raise SweepError(f"{asked.source}: tune: runs are missing; the same command does them")
    if tell and json:
        print(as_event(tuned), flush=True)
    elif tell:
        show(tuned_blocks(tuned, runs=runs), file=sys.stderr)
    return tuned


def as_event(tuned: TunedRecord) -> str:
    """Return what was chosen as the line of JSON that follows the events of the runs."""
    return jsonlib.dumps({"event": "tuned", **to_json(tuned)})


def plan_untuned(asked: SweepSpec, *, runs: Path, data: Path | None, workers: int | None) -> tuple[Plan, Before]:
    """Return the plan of a sweep that is not tuned yet, with its recipes as they are written, and what precedes it."""
    planned = tuning_plan(asked, runs=runs, data=data)
    return make_plan(replace(asked, tune=None), runs=runs, data=data), Before(
        blocks=(
            *tuning_blocks(asked, planned, runs=runs, workers=workers),
            "",
            "then, with the values that it chooses:",
        ),
        record={"tune": _planned_json(asked, planned, runs=runs, workers=workers)},
    )


def tuning_blocks(asked: SweepSpec, planned: Plan, *, runs: Path, workers: int | None) -> Iterator[Block | str]:
    """Yield the plan of a tuning: its runs, and what the missing ones take."""
    assert asked.tune is not None
    of, recipes = asked.tune, len(planned.runs) // max(1, len(asked.tune.seeds))
    total = of.runs * (len(asked.recipes) - len(asked.twins)) * len(of.seeds)
    axes = ", ".join(axis.key for axis in of.space)
    yield (
        f"{planned.spec.name}: which {axes} is best for each of {len(asked.recipes) - len(asked.twins)} recipes?"
        f" {of.runs} {of.sampler} points a recipe at budget {of.budget:g}, seeds {', '.join(map(str, of.seeds))}"
    )
    estimate, at_once = estimated(planned, runs=runs, workers=workers)
    more = total - len(planned.runs)
    later = f", and {more} more, whose points follow from results" if more > 0 and recipes else ""
    yield f"{len(planned.runs)} runs, {len(planned.runs) - estimate.runs} of them done{later}"
    if estimate.unknown < estimate.runs:
        cost = "" if estimate.usd is None else f", {amounts.dollars(estimate.usd)}"
        yield f"about {amounts.seconds(estimate.wall_seconds)} with {at_once} runs at the same time{cost}"
    elif estimate.runs:
        yield "their time is not known before the first of them is done"


def _planned_json(asked: SweepSpec, planned: Plan, *, runs: Path, workers: int | None) -> dict[str, Any]:
    assert asked.tune is not None
    estimate, at_once = estimated(planned, runs=runs, workers=workers)
    return planned.to_json() | {
        "sampler": asked.tune.sampler,
        "missing": [run.record.run_id for run in planned.missing],
        "train_seconds": estimate.train_seconds,
        "wall_seconds": estimate.wall_seconds,
        "unknown": estimate.unknown,
        "usd": estimate.usd,
        "workers": at_once,
        "warnings": planned.warnings,
    }


def tuned_blocks(tuned: TunedRecord, *, runs: Path) -> Iterator[Block | str]:
    """Yield what was chosen for each recipe, what that took, and values at an edge of the space."""
    price = default_price(tuned.hardware.name, (*load_prices(), *own_prices(runs)))

    def cost(own: TunedRecipe) -> str | None:
        return None if price is None else amounts.dollars(cost_usd(own.seconds, price, tuned.hardware.world_size))

    rows = [
        (
            own.recipe,
            own.words,
            None if own.quality is None else tuned.metric.show(own.quality),
            len(own.points),
            amounts.seconds(own.seconds),
            cost(own),
            ", ".join(f"{edge.key} ({edge.side} end)" for edge in own.edges),
        )
        for own in tuned.recipes
    ]
    columns = ("recipe", "chosen", tuned.metric.name, "points", "seconds", "dollars", "at an edge")
    yield table(columns, rows, right=("points", "seconds", "dollars"))
    yield (
        f"tuned {tuned.words}. Qualities are those of the runs that chose the values, so they are too good;"
        " the sweep measures them again on its own seeds"
    )
    if tuned.contended:
        yield "runs shared the machine, so the seconds are those of a busy one"
    for own in tuned.recipes:
        yield from (f"{own.recipe}: {words}" for words in own.edge_words)
