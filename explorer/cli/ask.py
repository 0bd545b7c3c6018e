"""`explorer ask`: the best recipe of a sweep under limits on quality, time, cost, memory, inference, deletability."""

import dataclasses
import datetime
import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from explorer.analysis.ask import Asked, Candidate
from explorer.analysis.ask import ask as answer
from explorer.analysis.budget_law import ASSUMED, Forecast, forecast
from explorer.analysis.limits import Limits, read_deletable
from explorer.analysis.verdict import sweep_verdicts
from explorer.cli import options
from explorer.cli.results import of_home, tell_left_out, tell_upkeep
from explorer.cli.verbs import part
from explorer.errors import StoreError, unknown
from explorer.page import amounts
from explorer.page.document import Block
from explorer.page.terminal import Answer, table
from explorer.planned import data_option_of
from explorer.store import frames, queries
from explorer.store.frames import with_confirming
from explorer.store.published import database, is_copy
from explorer.views.explorer.tabs import ask_words

Sweep = Annotated[
    str | None, typer.Argument(metavar="[SWEEP]", help="Name of a sweep. Default: the only one there is.")
]


def ask(
    sweep: Sweep = None,
    quality: Annotated[
        str | None,
        typer.Option(
            "--quality",
            metavar="Q",
            help="Minimum quality, or the maximum where lower is better: 0.93 or 93%. Default: the baseline's.",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric", metavar="NAME", help="Metric that measures quality. Default: the metric of the sweep."
        ),
    ] = None,
    max_time: Annotated[
        str | None, typer.Option("--max-time", metavar="TIME", help="Maximum training time, such as 90s, 15min or 2h.")
    ] = None,
    max_cost: Annotated[
        str | None, typer.Option("--max-cost", metavar="USD", help="Maximum cost of training, in US dollars.")
    ] = None,
    max_inference: Annotated[
        str | None,
        typer.Option(
            "--max-inference",
            metavar="TIME|RATIO",
            help="Maximum inference time per example (3ms), or relative to the baseline (1.02x).",
        ),
    ] = None,
    deletable: Annotated[
        list[str] | None,
        typer.Option(
            "--deletable",
            metavar="CLASS=LEVEL",
            help="Deletion level of a class: open/mit=G2, or 'open/mit=G3, at most 1% of training'; repeatable.",
        ),
    ] = None,
    max_deletion: Annotated[
        str | None,
        typer.Option(
            "--max-deletion", metavar="TIME", help="Maximum time to delete any one of these classes, such as 10min."
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option("--max-memory", metavar="SIZE", help="Maximum peak memory of training, such as 2GiB or 500MB."),
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option("--hardware", metavar="NAME", help="Only results on this hardware. Default: all hardware."),
    ] = None,
    at_budget: Annotated[
        float | None,
        typer.Option(
            "--forecast",
            metavar="BUDGET",
            help="Also forecast the quality of each recipe at a larger budget, at most 4 times the largest one run.",
        ),
    ] = None,
    runs: options.Runs = options.RUNS,
    at: options.ReadAt = None,
) -> Answer:
    """Find the best recipe under limits on quality, time, cost, memory, inference and deletability, with evidence.

    Nothing is extrapolated, and unknown values are named, never guessed. The exit status is 0 only if a recipe holds
    every limit, its uncertainty included. A forecast is no part of that: it changes neither the answer nor the status.
    """
    # Limits are parsed first: a misspelt one is refused before the database is brought up to date.
    limits = _limits(quality, max_time, max_cost, max_inference, deletable or [], max_deletion, max_memory)
    runs = runs if at is None else part("read --at")(at)
    tell_upkeep(runs)
    where = database(runs)
    chosen = sweep or _only_sweep(where)
    tell_left_out(runs, chosen)
    rows = frames.results(where, sweep=chosen, metric=metric)
    _refuse_superseded(where, chosen, rows, runs)
    forecasts = frames.deletion_forecasts(where, sweep=chosen)
    verdicts = sweep_verdicts(rows, with_confirming(where, chosen, metric=metric)) if len(rows) else []
    asked = answer(_on(rows, hardware), forecasts, limits, verdicts=verdicts)
    ahead = None
    if at_budget is not None:
        unfinished = frames.unfinished(where, sweep=chosen)
        ahead = forecast(_on(rows, hardware), budget=at_budget, unfinished=unfinished)
    return Answer(page=lambda: _page(asked, ahead, runs), record=lambda: _record(asked, ahead, runs), holds=asked.holds)


def _limits(
    quality: str | None,
    max_time: str | None,
    max_cost: str | None,
    max_inference: str | None,
    deletable: list[str],
    max_deletion: str | None,
    max_memory: str | None,
) -> Limits:
    inference = (None, None) if max_inference is None else amounts.read_inference("--max-inference", max_inference)
    wanted = [read_deletable("--deletable", written) for written in deletable]
    levels: Any = {name: level for name, level, _ in wanted}
    return Limits(
        quality=None if quality is None else amounts.read_quality("--quality", quality),
        max_seconds=None if max_time is None else amounts.read_seconds("--max-time", max_time),
        max_usd=None if max_cost is None else amounts.read_usd("--max-cost", max_cost),
        max_inference_seconds=inference[0],
        max_inference_ratio=inference[1],
        deletable=levels,
        deletion_at_most={name: most for name, _, most in wanted if most is not None},
        max_deletion_seconds=None if max_deletion is None else amounts.read_seconds("--max-deletion", max_deletion),
        max_memory=None if max_memory is None else amounts.read_memory("--max-memory", max_memory),
    )


def _only_sweep(where: Path) -> str:
    known = queries.sweeps(where)
    if len(known) != 1:
        raise StoreError(f"{where}: found {len(known)} sweeps; name one of them: {', '.join(known) or 'none'}")
    return known[0]


def _refuse_superseded(where: Path, sweep: str, rows: pd.DataFrame, runs: Path) -> None:
    """Raise `StoreError` with the next command where every finished run belongs to an earlier specification."""
    if rows.empty and queries.left_out(where, sweep=sweep):
        command = shlex.join(("explorer", "results", sweep, "--all", *of_home(runs)))
        raise StoreError(
            f"{sweep}: no run of its present specification has finished. `explorer sweep run SPEC` runs what is "
            f"missing; `{command}` shows the runs of earlier specifications"
        )


def _on(rows: pd.DataFrame, hardware: str | None) -> pd.DataFrame:
    if hardware is None:
        return rows
    known = {str(name) for name in rows["hardware"]}
    if hardware not in known:
        raise StoreError(unknown("hardware", hardware, known))
    return rows[rows["hardware"] == hardware]


def _page(asked: Asked, ahead: list[Forecast] | None, runs: Path) -> Iterator[Block | str]:
    yield f"asked: {ask_words.limits_words(asked)}"
    yield ask_words.headline(asked)
    if second := ask_words.runner_up(asked):
        yield second
    yield ""
    # On a single machine the column of hardware would repeat one name in every row.
    several = len({candidate.setting.machine for candidate in asked.candidates}) > 1
    shown = [at for at, column in enumerate(ask_words.COLUMNS) if several or column != "hardware"]
    rows = [[row[at] for at in shown] for row in ask_words.evidence(asked)]
    yield table([ask_words.COLUMNS[at] for at in shown], rows, right=ask_words.NUMBERS)
    yield from ask_words.notes(asked, datetime.date.today())
    best = asked.best
    if best is not None and best.verdict is not None and best.verdict.asks:
        command = ask_words.confirming_command(best, *of_home(runs), *data_option_of(runs, best.setting.sweep))
        yield f"To confirm it on fresh seeds: {command}"
    if ahead is not None:
        yield ""
        yield f"{ask_words.forecast_title(ahead[0].budget)}:"
        yield table(ask_words.FORECAST_COLUMNS, ask_words.forecast_rows(ahead), right=ask_words.FORECAST_NUMBERS)
        yield ASSUMED


def _record(asked: Asked, ahead: list[Forecast] | None, runs: Path) -> dict[str, Any]:
    best, second, difference = asked.best, asked.runner_up, asked.difference
    verdict = best and best.verdict
    return {
        "asked": {**_limits_record(asked.limits), "metric": asked.kind.name, "least": asked.least},
        "answer": ask_words.headline(asked),
        "holds": asked.holds,
        "best": best and best.label,
        "runner_up": second and second.label,
        "difference": difference and dataclasses.asdict(difference),
        "nearest": asked.nearest and asked.nearest.label,
        "candidates": [_candidate(asked, candidate) for candidate in asked.candidates],
        "extrapolated": [],
        "notes": ask_words.notes(asked, datetime.date.today()),
        "call": verdict and verdict.call,
        "claims": verdict and verdict.claims,
        "confirmation": verdict and verdict.confirmation and verdict.confirmation.sentence,
        "confirm": best
        and verdict
        and (
            ask_words.confirming_command(best, *(() if is_copy(runs) else ("--runs", str(runs))))
            if verdict.asks
            else None
        ),
        # It came after version 0.1.0, whose answers are the same unless a forecast is asked for.
        **({} if ahead is None else {"forecast": _forecast_record(ahead)}),
    }


def _forecast_record(ahead: list[Forecast]) -> dict[str, Any]:
    left = ("setting", "budget", "fitted", "way")
    recipes = [{k: v for k, v in dataclasses.asdict(one).items() if k not in left} for one in ahead]
    return {"budget": ahead[0].budget, "assumed": ASSUMED, "recipes": recipes}


def _limits_record(limits: Limits) -> dict[str, Any]:
    record = dataclasses.asdict(limits)
    # It came after version 0.1.0, whose answers are the same unless memory is asked about.
    return {name: value for name, value in record.items() if name != "max_memory" or value is not None}


def _candidate(asked: Asked, candidate: Candidate) -> dict[str, Any]:
    reached, known = candidate.reached, candidate.known
    return {
        "recipe": candidate.recipe,
        "label": candidate.label,
        "hardware": candidate.setting.hardware,
        "machine": str(candidate.setting.machine),
        "standing": candidate.standing,
        "seconds": reached.seconds,
        "seconds_low": reached.low,
        "seconds_high": reached.high,
        "at_lowest_budget": reached.at_lowest,
        "time_source": candidate.time_source,
        "reach_rate": reached.reach_rate,
        "n": reached.n,
        "quality": reached.target,
        "best_quality": None if math.isnan(reached.best) else reached.best,
        "tested_budget": reached.tested and reached.tested.ssr,
        "usd": candidate.usd,
        **({} if known.peak_memory is None else {"peak_memory": known.peak_memory}),
        "inference_seconds": known.inference_seconds,
        "inference_ratio": known.inference_ratio,
        "inference_ratio_low": known.inference_low,
        "inference_ratio_high": known.inference_high,
        "limits": [
            {
                "limit": finding.limit,
                "class": finding.class_ or None,
                "standing": finding.standing,
                "words": ask_words.finding_words(asked, finding),
            }
            for finding in candidate.findings
        ],
    }
