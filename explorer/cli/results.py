"""`explorer results` and `explorer store`: what came out of runs and sweeps."""

import dataclasses
import shlex
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from explorer.cli.options import RUNS, Json, Runs, today
from explorer.cli.output import tell_left_out, tell_upkeep
from explorer.cli.verbs import part
from explorer.errors import ExplorerError
from explorer.page.amounts import age_words, busy_times, dollars
from explorer.page.terminal import print_json, print_table, visible
from explorer.store import queries
from explorer.store.export import csv_text, markdown_text
from explorer.store.export import export as write
from explorer.store.ingest import Ingested
from explorer.store.ingest import ingest as bring_in
from explorer.store.ingest import rebuild as make_anew
from explorer.store.place import database
from explorer.store.queries import Table

Sweep = Annotated[str | None, typer.Argument(metavar="[SWEEP]", help="One sweep. Default: all of them.")]
Metric = Annotated[str | None, typer.Option("--metric", metavar="NAME", help="Another metric in the place of quality.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Where to write it.")]

SHOWN = ("recipe", "ssr", "seed", "quality", "train_seconds", "time_source", "cost_usd", "hardware")


class TableFormat(StrEnum):
    """What `results` prints."""

    TABLE = "table"
    CSV = "csv"
    MD = "md"
    PARQUET = "parquet"


def results(
    sweep: Sweep = None,
    metric: Metric = None,
    format: Annotated[TableFormat, typer.Option("--format", help="How.")] = TableFormat.TABLE,
    out: Out = None,
    composition: Annotated[
        bool,
        typer.Option("--composition", help="How the methods of one sweep compose: predicted speedups, pairs, parts."),
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Also runs of earlier specifications, which the column superseded tells.")
    ] = False,
    budget: Annotated[
        float | None, typer.Option("--budget", metavar="RATIO", help="With --composition: at which. Default: the full.")
    ] = None,
    each: Annotated[bool, typer.Option("--each", help="One line for each finished run of the sweep.")] = False,
    runs: Runs = RUNS,
    json: Json = False,
) -> None:
    """The verdict on every recipe of a sweep. With --each, without a sweep, and in other formats: the table that the
    plots are made of, one row for each finished run of the present specifications. With --composition: how the methods
    of a sweep compose. Finished runs that the database lacks are brought in first."""
    if composition:
        if out is not None or format is not TableFormat.TABLE:
            raise ExplorerError("--composition is printed as tables, or as JSON with --json")
        if every:
            raise ExplorerError("--composition is of the present specification: --all does not go with it")
        part("results --composition")(runs, sweep, metric=metric, budget=budget, json=json)
        return
    if budget is not None:
        raise ExplorerError("--budget belongs to --composition")

    tell_upkeep(runs)
    where = database(runs)
    if not every:
        tell_left_out(where, sweep)
    if out is not None or format is TableFormat.PARQUET:
        _export(where, out, sweep=sweep, metric=metric, format=format, every=every)
        return
    found = queries.results(where, sweep=sweep, metric=metric, every=every)
    if json:
        print_json([dict(zip(found.columns, row, strict=True)) for row in found.rows])
    elif format is TableFormat.TABLE and not found.rows:
        _print_states(queries.states(where, sweep=sweep))
    elif format is TableFormat.TABLE:
        shown = None if each or every else sweep
        if shown is not None and _print_verdicts(runs, where, found, sweep=shown, metric=metric):
            return
        _print_results(found)
        if metric is None:
            part("results SWEEP, controls")(where, found)
    else:
        print((csv_text if format is TableFormat.CSV else markdown_text)(found), end="")


def ingest(runs: Runs = RUNS, json: Json = False) -> None:
    """Load finished runs into the database; runs that are there already are left alone."""
    _tell(bring_in(runs), json=json)


def rebuild(runs: Runs = RUNS, json: Json = False) -> None:
    """Make the database anew from the run directories."""
    _tell(make_anew(runs), json=json)


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Ends in .csv, .parquet or .md.")],
    sweep: Annotated[
        str | None, typer.Option("--sweep", metavar="NAME", help="One sweep. Default: all of them.")
    ] = None,
    runs: Runs = RUNS,
) -> None:
    """Write the results to a file."""
    print(f"{write(database(runs), file, sweep=sweep)} rows in {file}")


def _export(
    where: Path, out: Path | None, *, sweep: str | None, metric: str | None, format: TableFormat, every: bool
) -> None:
    if out is None:
        raise ExplorerError("Parquet is not text: say where to write it with --out FILE")
    chosen = None if format is TableFormat.TABLE else format.value
    print(f"{write(where, out, sweep=sweep, metric=metric, format=chosen, every=every)} rows in {out}")


def _print_verdicts(runs: Path, where: Path, found: Table, *, sweep: str, metric: str | None) -> bool:
    """The verdicts on a sweep's recipes, if there is anything to compare."""
    if not part("results SWEEP")(runs, sweep, metric=metric):
        return False
    if metric is None:
        part("results SWEEP, controls")(where, found)
    print(f"every run, {len(found.rows)} of them: explorer results {shlex.quote(sweep)} --each")
    return True


def _print_results(found: Table) -> None:
    index = {name: found.columns.index(name) for name in (*SHOWN, "sweep", "metric", "unit", "control")}
    rows = sorted(found.rows, key=lambda row: tuple(row[index[name]] for name in ("sweep", "recipe", "ssr", "seed")))
    quality = _one([row[index["metric"]] for row in rows]) or "quality"
    named = {"quality": quality, "train_seconds": "seconds", "time_source": "source", "cost_usd": "dollars"}
    several = len({row[index["sweep"]] for row in rows}) > 1
    controls = any(row[index["control"]] for row in rows)
    columns = (("sweep",) if several else ()) + SHOWN[:1] + (("control",) if controls else ()) + SHOWN[1:]
    if "superseded" in found.columns:
        index["superseded"] = found.columns.index("superseded")
        columns += ("superseded",)
    shown = [tuple(_cell(name, row[index[name]]) for name in columns) for row in rows]
    right = ("ssr", "seed", quality, "seconds", "dollars")
    print_table(tuple(named.get(name, name) for name in columns), shown, right=right)
    recipe, busy = (found.columns.index(name) for name in ("recipe", "busy_profile"))
    if words := busy_times(row[recipe] for row in rows if row[busy]):
        print(visible(words))
    _print_prices(found)


def _print_states(counts: Mapping[str, int]) -> None:
    """What there is in the place of finished runs."""
    words = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    print(f"no finished runs yet: {words or 'no runs at all'}")


def _print_prices(found: Table) -> None:
    """What the dollars of each hardware are made with, and as of when."""
    names = ("hardware", "usd_per_hour", "price_as_of", "price_source")
    rates = {tuple(row[found.columns.index(name)] for name in names) for row in found.rows}
    for hardware, usd, as_of, source in sorted(rates, key=lambda rate: tuple(map(str, rate))):
        if usd is None:
            print(f"no price for {visible(hardware)}")
            continue
        told = (f"{dollars(usd)}/h" + (f" as of {as_of}" if as_of else ""), age_words(as_of or "", today()), source)
        print(f"dollars on {visible(hardware)}: {visible(', '.join(filter(None, told)))}")


def _one(names: list[str]) -> str | None:
    return names[0] if len(set(names)) == 1 else None


def _cell(name: str, value: object) -> object:
    if name == "cost_usd":
        if not isinstance(value, float):
            return "no price"
        return f"{value:.4f}" if value >= 0.001 else f"{value:.2g}"
    if name == "time_source":
        return "unknown" if value is None else value
    if name == "control":
        return value or ""
    if name == "superseded":
        return "superseded" if value else ""
    return f"{value:.4g}" if isinstance(value, float) else value


def _tell(done: Ingested, *, json: bool) -> None:
    """What an ingest found; exit status 1 if a directory could not be used."""
    if json:
        print_json(dataclasses.asdict(done))
    else:
        print(f"{done.added} added, {done.unchanged} unchanged, {done.removed} removed: {done.database}")
        for problem in (*done.problems, *done.undeclared):
            print(f"explorer: {problem.directory}: {problem.reason}", file=sys.stderr)
    if done.problems:
        raise typer.Exit(1)
