"""`explorer import`: runs that other tools recorded, next to one's own and never mixed with them."""

import datetime
import shlex
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer import rundir
from explorer.cli import options
from explorer.errors import RunError
from explorer.imports.csv_rows import read_csv
from explorer.imports.imported_file import About, name_fault, write_import
from explorer.imports.mapping import GUESSES, Converted, Source, convert, given, guessed
from explorer.imports.mlflow_runs import read_mlflow
from explorer.imports.wandb_runs import read_wandb
from explorer.page import amounts
from explorer.page.document import Block, Paragraph
from explorer.page.terminal import Answer, show, table
from explorer.store.ingest import ingest
from explorer.store.run_sources import candidates

MOST = 20  # columns and rows that a preview lists by name


class Tool(StrEnum):
    """The tool that recorded the runs."""

    CSV = "csv"
    WANDB = "wandb"
    MLFLOW = "mlflow"


def import_(
    tool: Annotated[Tool, typer.Argument(metavar="csv|wandb|mlflow", help="The tool that recorded the runs.")],
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A CSV file, W&B's offline directory (`wandb/`), or MLflow's `mlflow.db` or `mlruns/`.",
        ),
    ],
    map_: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="MEANING=COLUMN,...",
            help=f"Columns of {', '.join(GUESSES)}: recipe=optimizer+lr joins columns, seconds=hours*3600 multiplies."
            " Default: guessed from their names.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Name of the import. Default: that of the source.")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="RECIPE", help="Default: a recipe called so, else the first by name."),
    ] = None,
    better: Annotated[
        str | None, typer.Option("--better", metavar="higher|lower", help="Default: what the metric's name says.")
    ] = None,
    dataset: Annotated[str, typer.Option("--dataset", metavar="NAME", help="Name of the dataset.")] = "unknown data",
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="Name of the model.")] = "unknown model",
    step: Annotated[
        str | None,
        typer.Option("--step", metavar="COLUMN", help="The step of a CSV file with one row per measurement."),
    ] = None,
    experiment: Annotated[
        str | None, typer.Option("--experiment", metavar="NAME", help="The experiment of MLflow, where it has several.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be imported, and write nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Import with a guessed mapping without asking.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an import of the same name.")] = False,
    json: options.Json = False,
    runs: options.Runs = options.RUNS,
) -> Answer | None:
    """Import runs of other tools: marked as unverified, and never compared with runs of your own.

    A mapping that was guessed is shown first, and written only when you agree. To remove an import, delete its file.
    """
    if better not in (None, "higher", "lower"):
        raise RunError(f"--better: found {better!r:.40}; expected higher or lower")
    if step is not None and tool is not Tool.CSV:
        raise RunError("--step: only CSV files need it; W&B and MLflow record the step themselves")
    if experiment is not None and tool is not Tool.MLFLOW:
        raise RunError("--experiment: only MLflow has experiments; filter a CSV file before it is imported")
    opened = _opened(tool, source, step, experiment)
    mapped = guessed(opened, given(map_ or (), opened.columns))
    made = convert(opened, mapped, baseline=baseline, better=better)
    called = name or _name(source, experiment)
    place = runs / called / rundir.IMPORTED
    _refuse_name(called, place, replace=replace)
    unsure = made.baseline_guessed or any(meaning.guessed for meaning in made.mapped.values())
    written = not dry_run and (yes or not unsure or _agreed(opened, made, called, json=json))
    if written:
        about = About(
            tool=opened.tool,
            source=opened.name,
            sha256=opened.sha256,
            made_at=datetime.datetime.fromtimestamp(options.clock(), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            baseline=made.baseline,
            dataset=dataset,
            model=model,
            metric=made.metric,
            columns={meaning: column.words for meaning, column in made.mapped.items()},
            unused=made.unused,
        )
        for field, text in (("source", about.source), ("dataset", dataset), ("model", model)):
            if fault := name_fault(text):
                raise RunError(f"{field}: {text!r:.80} cannot be a name: {fault}")
        write_import(place, about, made.runs)
        ingest(runs)
    return Answer(
        page=lambda: [*_preview(opened, made), *_outcome(made, place, runs, written=written, dry_run=dry_run)],
        record=lambda: _record(opened, made, called, place, written=written),
        holds=written or dry_run,
    )


def _opened(tool: Tool, source: Path, step: str | None, experiment: str | None) -> Source:
    if not source.exists():
        raise RunError(f"there is no file or directory {source}")
    if source.is_file() and (tool is Tool.CSV or source.suffix.lower() == ".csv"):
        if experiment is not None:
            raise RunError("--experiment: found with a CSV file; expected with mlflow.db or mlruns")
        return read_csv(source, tool=tool.value, step=step)
    if tool is Tool.CSV:
        raise RunError(f"{source}: expected a CSV file, found a directory; W&B and MLflow have directories")
    return read_wandb(source) if tool is Tool.WANDB else read_mlflow(source, experiment=experiment)


def _name(source: Path, experiment: str | None) -> str:
    """Return a name for the import: the experiment's or the file's, without what no directory should be called."""
    stem = experiment or (source.resolve().stem if source.is_file() else source.resolve().name)
    kept = "".join(char if char.isalnum() or char in "-_" else "-" for char in stem).strip("-_")
    return kept[:60] or "imported"


def _refuse_name(name: str, place: Path, *, replace: bool) -> None:
    """Raise `RunError` for a name that leaves the directory of runs, is taken, or belongs to runs of one's own."""
    plain = name and all(char.isalnum() or char in "-_." for char in name) and name[0] not in "_." and len(name) <= 100
    if not plain:
        raise RunError(f"--name: found {name!r:.80}; expected letters, digits, - and _")
    if (place.parent / rundir.SWEEP).exists() or candidates(place.parent):
        raise RunError(f"{place.parent} holds runs of your own; imported runs are never mixed with them: use --name")
    if place.exists() and not replace:
        raise RunError(f"{place} is there already; --replace replaces it, --name NAME imports under another name")


def _agreed(source: Source, made: Converted, name: str, *, json: bool) -> bool:
    """Ask whether what was guessed is right. Where no one can be asked, the answer is no."""
    if json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    show(list(_preview(source, made)))
    return typer.confirm(f"Import {len(made.runs):,} runs as {name}?")


def _preview(source: Source, made: Converted) -> Iterator[Block | str]:
    recipes = len({run.recipe for run in made.runs})
    yield f"{source.name} ({source.tool}): {len(made.runs):,} runs, {amounts.count(recipes, 'recipe')}"
    rows = [
        (meaning, made.mapped[meaning].words, "guessed" if made.mapped[meaning].guessed else "given")
        for meaning in GUESSES
        if meaning in made.mapped
    ]
    rows.append(("baseline", made.baseline, "guessed" if made.baseline_guessed else "given"))
    yield table(("meaning", "column", ""), rows)
    yield from made.notes
    points = sum(len(steps) for run in made.runs for steps, _ in run.curves.values())
    if points:
        yield f"learning curves: {points:,} points of {len({name for run in made.runs for name in run.curves})} metrics"
    if made.unused:
        more = len(made.unused) - MOST
        yield f"not used: {', '.join(made.unused[:MOST])}" + (f" and {more} more" if more > 0 else "")
    if made.left_out:
        yield f"left out: {len(made.left_out):,} rows that are no finished runs"
        yield from (f"  {words}" for words in made.left_out[:MOST])


def _outcome(made: Converted, place: Path, runs: Path, *, written: bool, dry_run: bool) -> Iterator[Block | str]:
    if written:
        yield f"imported, unverified: {len(made.runs):,} runs in {place}"
        yield f"Next: {shlex.join(('explorer', 'results', place.name, *options.of_runs(runs)))}"
    elif dry_run:
        yield "Nothing was written."
    else:
        yield Paragraph(
            "Nothing was written, because columns were guessed: agree with --yes, or name them with --map.", "alert"
        )


def _record(source: Source, made: Converted, name: str, place: Path, *, written: bool) -> dict[str, Any]:
    return {
        "name": name,
        "file": str(place),
        "written": written,
        "tool": source.tool,
        "sha256": source.sha256,
        "runs": len(made.runs),
        "recipes": len({run.recipe for run in made.runs}),
        "baseline": made.baseline,
        "metric": made.metric.name,
        "higher_is_better": made.metric.higher_is_better,
        "mapping": {
            meaning: {"column": column.words, "guessed": column.guessed} for meaning, column in made.mapped.items()
        },
        "notes": list(made.notes),
        "unused": list(made.unused),
        "left_out": list(made.left_out),
    }
