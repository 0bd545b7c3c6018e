"""`explorer export`: the results of a sweep for others, as a page that works offline or as a table."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from explorer import rundir
from explorer.cli import options
from explorer.cli.results import Metric, tell_upkeep
from explorer.cli.verbs import part
from explorer.errors import StoreError
from explorer.page.terminal import Answer
from explorer.store.export import export as write_rows
from explorer.store.published import database


class ExportFormat(StrEnum):
    """The format of an export."""

    HTML = "html"
    CSV = "csv"
    PARQUET = "parquet"
    MD = "md"


def export(
    sweep: Annotated[
        str | None, typer.Argument(metavar="[SWEEP]", help="Name of a sweep. Default: all sweeps.")
    ] = None,
    to: Annotated[
        ExportFormat | None,
        typer.Option("--to", help="Format: html is an interactive page. Default: the ending of FILE, or html."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="File to write. Default: SWEEP with the format.")
    ] = None,
    metric: Metric = None,
    every: Annotated[bool, typer.Option("--all", help="Include runs of earlier specifications, in a table.")] = False,
    runs: options.Runs = options.RUNS,
) -> Answer:
    """Export results: as one interactive page that works offline, or as a table with one row per finished run.

    The page needs no kernel, no server and no network: its reader chooses metric, x axis, recipes and scales. Tables
    are read again by `explorer.load`.
    """
    chosen = _format(to, out)
    if chosen is ExportFormat.HTML and sweep is None:
        raise StoreError("a page is about one sweep: found none, expected its name")
    if chosen is ExportFormat.HTML and (metric is not None or every):
        raise StoreError("--metric and --all are for tables; the page has every metric of the present specification")
    file = out or Path(f"{sweep or 'results'}.{chosen.value}")
    tell_upkeep(runs)
    if chosen is ExportFormat.HTML:
        content = part("export --to html")(runs, sweep)
        rundir.write_bytes(file, content)
        return Answer(
            page=lambda: [f"{file}: {len(content) / 1e6:.1f} MB, works offline"],
            record=lambda: {"file": str(file), "format": chosen.value, "bytes": len(content)},
        )
    count = write_rows(database(runs), file, sweep=sweep, metric=metric, format=chosen.value, every=every)
    return Answer(
        page=lambda: [f"{count} rows in {file}"],
        record=lambda: {"file": str(file), "format": chosen.value, "rows": count},
    )


def _format(to: ExportFormat | None, out: Path | None) -> ExportFormat:
    """Return the format that is asked for, or else that of the file's ending."""
    if to is not None or out is None:
        return to or ExportFormat.HTML
    ending = out.suffix.removeprefix(".").lower()
    if ending not in tuple(ExportFormat):
        raise StoreError(f"{out}: its ending names no format; expected --to {', '.join(ExportFormat)}")
    return ExportFormat(ending)
