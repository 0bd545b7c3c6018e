"""`explorer results`: what came out of runs and sweeps."""

import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from explorer.cli import options
from explorer.cli.verbs import part
from explorer.errors import ExplorerError
from explorer.page.amounts import age_words, busy_times, dollars
from explorer.page.document import Block
from explorer.page.terminal import Answer, show, table, visible
from explorer.planned import left_out_words
from explorer.store import queries
from explorer.store.plain_text import csv_text, markdown_text
from explorer.store.published import database
from explorer.store.queries import Table
from explorer.store.run_sources import is_current

Sweep = Annotated[str | None, typer.Argument(metavar="[SWEEP]", help="One sweep. Default: all of them.")]
Metric = Annotated[str | None, typer.Option("--metric", metavar="NAME", help="Show this metric instead of quality.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="File to write.")]

SHOWN = ("recipe", "ssr", "seed", "quality", "train_seconds", "time_source", "cost_usd", "hardware")


class TableFormat(StrEnum):
    """The format of `results`."""

    TABLE = "table"
    CSV = "csv"
    MD = "md"
    PARQUET = "parquet"


def results(
    sweep: Sweep = None,
    metric: Metric = None,
    format: Annotated[TableFormat, typer.Option("--format", help="Output format.")] = TableFormat.TABLE,
    out: Out = None,
    composition: Annotated[
        bool,
        typer.Option("--composition", help="Show how the methods of a sweep compose: predictions, pairs, parts."),
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Include runs of earlier specifications, marked in the column superseded.")
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option("--budget", metavar="RATIO", help="With --composition: the budget. Default: the full budget."),
    ] = None,
    each: Annotated[bool, typer.Option("--each", help="Show one line per finished run of the sweep.")] = False,
    runs: options.Runs = options.RUNS,
) -> Answer | None:
    """Show the verdict on every recipe of a sweep. Finished runs that are not in the database yet are added first.

    With --each, without a sweep, and in other formats: the table behind the plots, one row per finished run of the
    present specifications. With --composition: how the methods of a sweep compose.
    """
    if composition:
        if out is not None or format is not TableFormat.TABLE:
            raise ExplorerError("--composition is printed as tables, or as JSON with --json")
        if every:
            raise ExplorerError("--composition is of the present specification: --all does not go with it")
        return part("results --composition")(runs, sweep, metric=metric, budget=budget)
    if budget is not None:
        raise ExplorerError("--budget belongs to --composition")
    tell_upkeep(runs)
    where = database(runs)
    if not every:
        tell_left_out(where, sweep)
    if out is not None or format is TableFormat.PARQUET:
        count = _export(where, out, sweep=sweep, metric=metric, format=format, every=every)
        show([f"{count} rows in {out}"])  # with --json too
        return None
    finished = queries.results(where, sweep=sweep, metric=metric, every=every)

    def page() -> Iterable[Block | str]:
        if format is not TableFormat.TABLE:
            return [(csv_text if format is TableFormat.CSV else markdown_text)(finished).removesuffix("\n")]
        if not finished.rows:
            return [_states_words(queries.states(where, sweep=sweep))]
        shown = None if each or every else sweep
        verdicts = [] if shown is None else part("results SWEEP")(runs, shown, metric=metric)
        controls = part("results SWEEP, controls")(where, finished) if metric is None and _controlled(finished) else ()
        if verdicts:
            more = f"every run, {len(finished.rows)} of them: explorer results {shlex.quote(sweep or '')} --each"
            return [*verdicts, *controls, more]
        return [*_result_blocks(finished), *controls]

    return Answer(page=page, record=lambda: [dict(zip(finished.columns, row, strict=True)) for row in finished.rows])


def _export(
    where: Path, out: Path | None, *, sweep: str | None, metric: str | None, format: TableFormat, every: bool
) -> int:
    if out is None:
        raise ExplorerError("Parquet is not text: say where to write it with --out FILE")
    chosen = None if format is TableFormat.TABLE else format.value
    return part("results --out")(where, out, sweep=sweep, metric=metric, format=chosen, every=every)


def _controlled(finished: Table) -> bool:
    """Return whether controls are among the runs."""
    control = finished.columns.index("control")
    return any(row[control] for row in finished.rows)


def _result_blocks(finished: Table) -> Iterator[Block | str]:
    index = {name: finished.columns.index(name) for name in (*SHOWN, "sweep", "metric", "unit", "control")}
    rows = sorted(finished.rows, key=lambda row: tuple(row[index[name]] for name in ("sweep", "recipe", "ssr", "seed")))
    quality = _one([row[index["metric"]] for row in rows]) or "quality"
    named = {"quality": quality, "train_seconds": "seconds", "time_source": "source", "cost_usd": "dollars"}
    several = len({row[index["sweep"]] for row in rows}) > 1
    controls = any(row[index["control"]] for row in rows)
    columns = (("sweep",) if several else ()) + SHOWN[:1] + (("control",) if controls else ()) + SHOWN[1:]
    if "superseded" in finished.columns:
        index["superseded"] = finished.columns.index("superseded")
        columns += ("superseded",)
    shown = [tuple(_cell(name, row[index[name]]) for name in columns) for row in rows]
    right = ("ssr", "seed", quality, "seconds", "dollars")
    yield table(tuple(named.get(name, name) for name in columns), shown, right=right)
    recipe, busy = (finished.columns.index(name) for name in ("recipe", "busy_profile"))
    if words := busy_times(row[recipe] for row in rows if row[busy]):
        yield words
    yield from _price_lines(finished)


def _states_words(counts: Mapping[str, int]) -> str:
    """Return the states of runs, where none has finished."""
    words = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    return f"no finished runs yet: {words or 'no runs at all'}"


def _price_lines(finished: Table) -> Iterator[str]:
    """Yield the price behind the dollars of each hardware, with its date and source."""
    names = ("hardware", "usd_per_hour", "price_as_of", "price_source")
    rates = {tuple(row[finished.columns.index(name)] for name in names) for row in finished.rows}
    for hardware, usd, as_of, source in sorted(rates, key=lambda rate: tuple(map(str, rate))):
        if usd is None:
            yield f"no price for {hardware}"
            continue
        told = (
            f"{dollars(usd)}/h" + (f" as of {as_of}" if as_of else ""),
            age_words(as_of or "", options.today()),
            source,
        )
        yield f"dollars on {hardware}: {', '.join(filter(None, told))}"


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


# --- what the database lacks, on standard error ---


def tell_upkeep(runs: Path) -> None:
    """Bring the database up to the run directories, and say on standard error what an answer lacks."""
    if is_current(runs):  # the usual case, in which the part that writes the database is not even imported
        return
    for words in part("results, of new runs")(runs):
        print(visible(f"explorer: {words}"), file=sys.stderr)


def tell_left_out(where: Path, sweep: str | None) -> None:
    """Say on standard error how many runs of earlier specifications a database leaves out of its answers."""
    for name, count in queries.left_out(where, sweep=sweep).items():
        print(visible(f"explorer: {name}: {left_out_words(count, name)}"), file=sys.stderr)
