"""`explorer search`: let a searcher choose the runs of a sweep, and name the recipe to confirm."""

import json as jsonlib
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from explorer import run_files
from explorer.campaign.searching import Prepared, prepare, run_search
from explorer.cli import options
from explorer.cli.sweep import JsonLines, ProgressBar, execute
from explorer.costing import cost_usd, default_price, load_prices, own_prices
from explorer.page import amounts
from explorer.page.amounts import price_words
from explorer.page.document import Block
from explorer.page.progress import duration, tell_rehearsal
from explorer.page.terminal import Answer, from_here, show, visible
from explorer.search.search_answer import Answer as Searched
from explorer.search.search_words import answer_blocks, confirm_command, left_out_words
from explorer.sweep.execute import Settings, Summary
from explorer.sweep.spec import load_spec
from explorer.sweep.workers import default_workers


def search(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="A sweep specification (YAML) with the key `search`.")],
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Measure step times, if that was not done, and show what may be tried and spent."),
    ] = False,
    runs: options.Runs = options.RUNS,
    data: options.Data = None,
    engine: options.Engine = "warm",
    workers: options.Workers = None,
    on: options.On = None,
    at: options.At = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON: the plan, or one line per event and one for the answer.")
    ] = False,
) -> Answer | None:
    """Search for the recipe that reaches the target soonest, among all combinations of methods.

    Step times are measured first, on this machine, so that times are known before anything is trained. Then a searcher
    chooses a run whenever a worker would be idle, until its time is spent. The same command continues after any
    interruption. What it finds is no claim: `explorer confirm` trains it on fresh seeds.
    """
    loaded = load_spec(spec)
    again = _again(spec, {"--runs": None if runs == options.RUNS else runs, "--data": data, "--on": on, "--at": at})
    with JsonLines() if json and not plan else ProgressBar(loaded.name) as progress:
        prepared = prepare(
            loaded, runs=runs, data=data, settings=Settings(on_event=progress.show), on_rehearse=tell_rehearsal
        )
    if plan:
        return Answer(
            page=lambda: [*_plan_blocks(prepared, runs, workers), f"\nnext: {again}"],
            record=lambda: _plan_record(prepared, runs, workers),
        )
    ended: list[Searched] = []

    def act(settings: Settings) -> Summary:
        summary, answer = run_search(prepared, settings)
        ended.append(answer)
        return summary

    where = {"workers": workers, "on": on, "at": at}
    summary = execute(prepared.plan, runs=runs, engine=engine, profile=True, json=json, act=act, **where)
    (answer,) = ended
    if json:
        print(jsonlib.dumps({"event": "answer"} | run_files.to_json(answer)))
    else:
        for failure in summary.failures:
            print(visible(f"failed: {failure.run_id}: {failure.message}"), file=sys.stderr)
        show(answer_blocks(answer))
        print(f"\nnext: {_confirm(answer, runs, data) or again}")
    if summary.interrupted:
        raise KeyboardInterrupt
    return None


# --- the plan ---


def _plan_blocks(prepared: Prepared, runs: Path, workers: int | None) -> Iterator[Block | str]:
    space, spent = prepared.space, prepared.spent_on(prepared.seen)
    methods = ", ".join(space.methods)
    yield (
        f"{prepared.plan.spec.name}: which of {len(space.recipes)} recipes, of up to {prepared.search.up_to} of"
        f" {amounts.count(len(space.methods), 'method')}, reaches the target soonest? ({methods})"
    )
    first = sum(space.seconds(frozenset(), budget) for budget in space.ladder) * len(space.seeds)
    ladder = ", ".join(f"{budget:g}" for budget in space.ladder)
    yield f"searcher: {prepared.searcher.name}; budgets {ladder}; seeds {', '.join(map(str, space.seeds))}"
    yield (
        f"first: the baseline at every budget with every seed, {duration(first)} of training; it defines the target"
        if space.target is None
        else f"first: the baseline at every budget with every seed, {duration(first)} of training"
    )
    yield f"runs: {len(prepared.seen)} done; at most {duration(space.spend - spent)} of training to spend"
    grid = sum(space.seconds(methods, budget) for methods in space.recipes for budget in space.ladder)
    yield f"the whole grid would take {duration(grid * len(space.seeds))}: {grid * len(space.seeds) / space.spend:.3g}x"
    yield from (f"left out: {words}" for words in left_out_words((one.name, one.reason) for one in prepared.left_out))
    at_once = workers or _usual(prepared)
    yield (
        f"time: at least {duration((space.spend - spent) / at_once)} with {amounts.count(at_once, 'run')} at the same"
        " time; training is as long as on an idle machine, and evaluations add to it"
    )
    hardware = prepared.plan.runs[0].record.hardware
    price = default_price(hardware.name, (*load_prices(), *own_prices(runs)))
    words = visible(price_words(price, hardware=hardware.name, today=options.today()))
    usd = None if price is None else cost_usd(space.spend - spent, price, hardware.world_size)
    yield f"cost: {words if usd is None else f'at most {amounts.dollars(usd)} at {words}'}"


def _plan_record(prepared: Prepared, runs: Path, workers: int | None) -> dict[str, object]:
    space = prepared.space
    return {
        "sweep": prepared.plan.spec.name,
        "searcher": prepared.searcher.name,
        "recipes": len(space.recipes),
        "methods": list(space.methods),
        "ladder": list(space.ladder),
        "seeds": list(space.seeds),
        "spend": space.spend,
        "spent": prepared.spent_on(prepared.seen),
        "runs": len(prepared.seen),
        "workers": workers or _usual(prepared),
        "left_out": [{"name": one.name, "reason": one.reason} for one in prepared.left_out],
    }


def _usual(prepared: Prepared) -> int:
    plan = prepared.plan
    return default_workers(threads=plan.spec.threads, device=plan.runs[0].record.hardware.device)


def _confirm(answer: Searched, runs: Path, data: Path | None) -> str | None:
    where = options.of_runs(runs)
    return confirm_command(answer, *where, *(() if data is None else ("--data", from_here(data))))


def _again(spec: Path, given: Mapping[str, str | Path | None]) -> str:
    """Return the command that continues a search, with the options that were given."""
    shown = (
        (name, str(from_here(value) if isinstance(value, Path) else value)) for name, value in given.items() if value
    )
    return shlex.join(("explorer", "search", str(from_here(spec)), *(word for option in shown for word in option)))
