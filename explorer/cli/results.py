"""`explorer results`: the verdicts on a sweep, or the table of its runs."""

import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer.cli import options
from explorer.cli.verbs import part
from explorer.errors import ExplorerError
from explorer.page.amounts import MISSING, age_words, busy_times, dollars, energy, seconds
from explorer.page.document import Block
from explorer.page.terminal import Answer, show, table, visible
from explorer.planned import left_out_words
from explorer.store import queries
from explorer.store.plain_text import csv_text, markdown_text
from explorer.store.published import database, is_copy
from explorer.store.queries import Table
from explorer.store.run_sources import is_current

Sweep = Annotated[str | None, typer.Argument(metavar="[SWEEP]", help="Name of a sweep. Default: all sweeps.")]
Metric = Annotated[str | None, typer.Option("--metric", metavar="NAME", help="Metric to show instead of quality.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="File to write.")]

SHOWN = ("recipe", "ssr", "seed", "quality", "train_seconds", "time_source", "cost_usd", "hardware")
ENERGY = "energy_kwh"  # shown where a run has it


class TableFormat(StrEnum):
    """The output format of `explorer results`."""

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
        typer.Option(
            "--composition", help="Show how the methods of a sweep compose: predicted and measured speedups, pairs."
        ),
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Include runs of earlier specifications; the column superseded marks them.")
    ] = False,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="SWEEP", help="Compare the recipes of other sweeps with its baseline."),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget", metavar="RATIO", help="Budget to compare at, with --composition. Default: the full budget."
        ),
    ] = None,
    rows: Annotated[bool, typer.Option("--rows", help="Show one row per finished run of the sweep.")] = False,
    old_rows: Annotated[bool, typer.Option("--each", hidden=True)] = False,
    runs: options.Runs = options.RUNS,
    at: options.ReadAt = None,
) -> Answer | None:
    """Show the verdict on every recipe of a sweep. Finished runs that are not in the database yet are added first.

    With --rows, without a sweep, and in the other formats it shows the table behind the plots: one row per finished run
    of the present specifications. With --composition it shows how the methods of a sweep compose.
    """
    here = options.of_runs(runs) if at is None else ("--at", at)
    if at is not None:
        runs = part("read --at")(at)
    if composition:
        if out is not None or format is not TableFormat.TABLE:
            raise ExplorerError("--composition is printed as tables, or as JSON with --json")
        if every:
            raise ExplorerError("--composition covers the present specification only: expected it without --all")
        return part("results --composition")(runs, sweep, metric=metric, budget=budget)
    if budget is not None:
        raise ExplorerError("--budget: found without --composition, which it belongs to")
    if against is not None:
        return part("results --against")(runs, against, sweep=sweep, metric=metric)
    tell_upkeep(runs)
    where = database(runs)
    if not every:
        tell_left_out(runs, sweep)
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
        if sweep is not None and (tuned := queries.tuned_by(where, sweep)) is not None:
            words = f"no verdict: these runs chose the values of the recipes of {tuned}, which measures them again"
            return [*_result_blocks(finished), f"{words}: {shlex.join(('explorer', 'results', tuned, *here))}"]
        controls = part("results SWEEP, controls")(where, finished) if metric is None and _controlled(finished) else ()
        # The verdict is on the present specification, so a table with superseded runs has none.
        if sweep is not None and not (rows or old_rows or every):
            command = shlex.join(("explorer", "results", sweep, "--rows", *here))
            more = f"\nall {len(finished.rows)} runs: {command}"
            remarks = [*controls, more, *_unfinished(queries.states(where, sweep=sweep))]
            if verdicts := part("results SWEEP")(runs, sweep, metric=metric, remarks=remarks):
                return verdicts
        return [*_result_blocks(finished), *controls, *_unfinished(queries.states(where, sweep=sweep))]

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
    # One metric names its column; with several, the column is quality of whatever kind.
    metrics = {row[index["metric"]] for row in rows}
    name_of_quality = metrics.pop() if len(metrics) == 1 else "quality"
    titles = {
        "ssr": "budget",
        "quality": name_of_quality,
        "train_seconds": "time",
        "time_source": "source",
        "cost_usd": "cost",
        ENERGY: "energy",
    }
    # A column that would say the same in every row is left out.
    several = len({row[index["sweep"]] for row in rows}) > 1
    controls = any(row[index["control"]] for row in rows)
    columns = (("sweep",) if several else ()) + SHOWN[:1] + (("control",) if controls else ()) + SHOWN[1:]
    if ENERGY in finished.columns:
        index[ENERGY] = finished.columns.index(ENERGY)
        columns = (*columns[:-1], ENERGY, columns[-1])
    if "superseded" in finished.columns:
        index["superseded"] = finished.columns.index("superseded")
        columns += ("superseded",)
    of_metric = [finished.columns.index(name) for name in ("unit", "format")]
    shown = [
        tuple(_cell(name, row[index[name]], *(row[at] or "" for at in of_metric)) for name in columns) for row in rows
    ]
    right = ("budget", "seed", name_of_quality, "time", "cost", "energy")
    yield table(tuple(titles.get(name, name) for name in columns), shown, right=right)
    recipe, busy = (finished.columns.index(name) for name in ("recipe", "busy_profile"))
    if words := busy_times(row[recipe] for row in rows if row[busy]):
        yield words
    yield from _price_lines(finished)


def _states_words(counts: Mapping[str, int]) -> str:
    words = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    return f"no finished runs yet: {words or 'no runs at all'}"


def _unfinished(counts: Mapping[str, int]) -> Iterator[str]:
    """Yield the runs without a result in one line; nothing where all have finished."""
    others = {state: count for state, count in counts.items() if state not in ("finished", "superseded")}
    if others:
        words = ", ".join(f"{count} {state}" for state, count in sorted(others.items()))
        yield f"runs without a result: {words}; `explorer sweep status SPEC` says why"


def _price_lines(finished: Table) -> Iterator[str]:
    """Yield the price behind the dollars of each hardware, with its date and source."""
    names = ("hardware", "usd_per_hour", "price_as_of", "price_source")
    rates = {tuple(row[finished.columns.index(name)] for name in names) for row in finished.rows}
    for hardware, usd, as_of, source in sorted(rates, key=lambda rate: tuple(map(str, rate))):
        if usd is None:
            yield f"no price for {hardware}"
            continue
        rate = f"{dollars(usd)}/h" + (f" as of {as_of}" if as_of else "")
        parts = (rate, age_words(as_of or "", options.today()), source)
        yield f"dollars on {hardware}: {', '.join(filter(None, parts))}"


def _cell(name: str, value: Any, unit: str, style: str) -> object:
    match name:
        case "quality":
            return measured(value, unit, style)
        case "train_seconds":
            return seconds(value)
        case "cost_usd":
            return dollars(value) if isinstance(value, float) else "no price"
        case "energy_kwh":
            return energy(value)
        case "time_source":
            return "unknown" if value is None else value
        case "superseded":
            return "superseded" if value else ""
        case "control":
            return value or ""
    return f"{value:.4g}" if isinstance(value, float) else value


def measured(value: float | None, unit: str, style: str) -> str:
    """Return a value of a metric as `run_files.Metric` shows it, without pydantic, whose import takes as long as all
    of this verb.

    >>> measured(0.98766, "fraction", ""), measured(1.5, "nats", ".2f"), measured(None, "1", "")
    ('98.77%', '1.50 nats', '-')
    """
    if value is None:
        return MISSING
    suffix = "" if unit in ("fraction", "1", "") else f" {unit}"
    return f"{value:{style or ('.2%' if unit == 'fraction' else '.4g')}}{suffix}"


# --- remarks on standard error ---


def tell_upkeep(runs: Path) -> None:
    """Bring the database up to date with the run directories, and print what an answer lacks on standard error."""
    # Usually it is current, and then the part that writes the database is not even imported.
    if is_current(runs):
        return
    for words in part("results, of new runs")(runs):
        print(visible(f"explorer: {words}"), file=sys.stderr)


def tell_left_out(runs: Path, sweep: str | None) -> None:
    """Print on standard error how many runs of earlier specifications the answers leave out."""
    for name, count in queries.left_out(database(runs), sweep=sweep).items():
        print(visible(f"explorer: {name}: {left_out_words(count, name, *of_home(runs))}"), file=sys.stderr)


def of_home(runs: Path) -> tuple[str, ...]:
    """Return the option that names the runs in a printed command; what follows from a copy is done where they are."""
    return () if is_copy(runs) else options.of_runs(runs)
