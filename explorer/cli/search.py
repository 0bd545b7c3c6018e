"""`explorer search`: let a searcher choose the runs of a sweep, and name the recipe to confirm."""

import json as jsonlib
import shlex
import sys
from collections.abc import Iterator
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
from explorer.page.terminal import Answer, from_here, show, table, visible
from explorer.run_files import METRICS, Metric
from explorer.search.search_answer import Answer as Searched
from explorer.sweep.execute import Settings, Summary
from explorer.sweep.spec import load_spec
from explorer.sweep.workers import default_workers

SHOWN = 10  # recipes of the ranking, and combinations that were left out
NO_CLAIM = "searched: chosen runs, no bands; the best of many looks better than it is, so only fresh seeds make a claim"


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
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON: the plan, or one line per event and one for the answer.")
    ] = False,
) -> Answer | None:
    """Search for the recipe that reaches the target soonest, among all combinations of methods.

    Step times are measured first, so that times are known before anything is trained. Then a searcher chooses a run
    whenever a worker would be idle, until its time is spent. The same command continues after any interruption. What it
    finds is no claim: `explorer confirm` trains it on fresh seeds.
    """
    loaded = load_spec(spec)
    with JsonLines() if json and not plan else ProgressBar(loaded.name) as progress:
        prepared = prepare(
            loaded, runs=runs, data=data, settings=Settings(on_event=progress.show), on_rehearse=tell_rehearsal
        )
    if plan:
        return Answer(
            page=lambda: [*_plan_blocks(prepared, runs, workers), f"\nnext: {_again(spec, runs, data)}"],
            record=lambda: _plan_record(prepared, runs, workers),
        )
    ended: list[Searched] = []

    def act(settings: Settings) -> Summary:
        summary, answer = run_search(prepared, settings)
        ended.append(answer)
        return summary

    summary = execute(prepared.plan, runs=runs, engine=engine, workers=workers, profile=True, json=json, act=act)
    (answer,) = ended
    if json:
        print(jsonlib.dumps({"event": "answer"} | run_files.to_json(answer)))
    else:
        for failure in summary.failures:
            print(visible(f"failed: {failure.run_id}: {failure.message}"), file=sys.stderr)
        show(answer_blocks(answer, METRICS.get(answer.metric)))
        print(f"\nnext: {_confirm(answer, runs) or _again(spec, runs, data)}")
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
    yield from _left_out([(one.name, one.reason) for one in prepared.left_out])
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


# --- the answer ---


def answer_blocks(answer: Searched, kind: Metric | None) -> Iterator[Block | str]:
    """Yield the answer of a search: what it took, the recipes in front, what methods do, what was left out."""
    tried = len(answer.ranking)
    failed = f", {answer.failed} of them failed" if answer.failed else ""
    yield (
        f"{answer.sweep}: {amounts.count(answer.runs, 'run')}{failed} of {amounts.count(tried, 'recipe')} of"
        f" {answer.recipes}; {duration(answer.spent)} of training of {duration(answer.spend)}; {answer.ended}"
    )
    shown = amounts.quality(answer.target, kind) if kind is not None else f"{answer.target:g}"
    if answer.target is None:
        yield "the baseline has not finished its full budget, so there is no target yet"
        return
    base = answer.baseline_seconds
    taken = "not reached by the baseline" if base is None else f"{amounts.seconds(base)} for the baseline"
    yield f"target: {answer.metric.replace('_', ' ')} {shown}, {taken}"
    yield table(
        ("recipe", "runs", "time to target", "of the baseline's", "step time", "expected regret"),
        [
            (
                f"{place.recipe} (baseline)" if not place.methods else place.recipe,
                place.runs,
                amounts.seconds(place.seconds),
                amounts.ratio(None if base is None or place.seconds is None else place.seconds / base),
                "measured" if place.measured else "predicted",
                "none" if place.regret == 0 else "not reached" if place.regret is None else f"{place.regret:.1%}",
            )
            for place in answer.ranking[:SHOWN]
        ],
        right=("runs", "time to target", "of the baseline's", "expected regret"),
    )
    if answer.effects:
        yield table(
            ("method", "runs", "effect on quality", "interval", "time of a run"),
            [
                (
                    effect.method,
                    effect.runs,
                    f"{effect.quality:+.3g}",
                    f"{effect.low:+.3g} to {effect.high:+.3g}",
                    amounts.ratio(effect.time),
                )
                for effect in sorted(answer.effects, key=lambda effect: -effect.quality)
            ],
            right=("runs", "effect on quality", "interval", "time of a run"),
        )
    yield from _left_out([(one.name, one.reason) for one in answer.left_out])
    yield from _winners(answer)
    yield NO_CLAIM


def _winners(answer: Searched) -> Iterator[str]:
    ahead = answer.contenders
    if not ahead:
        yield "no recipe is expected to reach the target sooner than the baseline"
        return
    regret = "" if ahead[0].regret is None else f", expected regret {ahead[0].regret:.1%}"
    yield f"winner: {ahead[0].recipe}, {amounts.seconds(ahead[0].seconds)} to the target{regret}"
    if len(ahead) > 1:
        yield f"runner-up: {ahead[1].recipe}, {amounts.seconds(ahead[1].seconds)}"


def _left_out(names: list[tuple[str, str]]) -> Iterator[str]:
    yield from (f"left out: {name}: {reason}" for name, reason in names[:SHOWN])
    if len(names) > SHOWN:
        yield f"left out: {len(names) - SHOWN} more, which `search.json` lists"


def _confirm(answer: Searched, runs: Path) -> str | None:
    if not answer.contenders or answer.ended == "stopped":
        return None
    option = () if runs == options.RUNS else ("--runs", str(runs))
    return shlex.join(("explorer", "confirm", answer.sweep, answer.contenders[0].recipe, *option))


def _again(spec: Path, runs: Path, data: Path | None) -> str:
    option = () if runs == options.RUNS else ("--runs", str(runs))
    place = () if data is None else ("--data", str(from_here(data)))
    return shlex.join(("explorer", "search", str(from_here(spec)), *option, *place))
