"""`explorer methods` and `explorer run`."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli.credentials import clock, provide_passphrase
from explorer.cli.output import print_json, print_table
from explorer.cli.progress import step_bar
from explorer.cli.settings import RUNS, Data, Json, Runs
from explorer.errors import RecipeError

if TYPE_CHECKING:
    from explorer.training.single import Planned


def register(app: typer.Typer) -> None:
    app.command()(methods)
    app.command()(run)


def methods(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One method, in full.")] = None,
    json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table of all methods in Markdown.")] = False,
) -> None:
    """The training methods: what each does, its parameters, defaults, source and interactions."""
    from explorer.recipes import catalogue

    if markdown:
        print(catalogue.markdown(), end="")
    elif name is None:
        found = catalogue.describe_all()
        if json:
            print_json(found)
        else:
            rows = [(m["name"], m["summary"], _defaults(m["parameters"])) for m in found]
            print_table(("method", "what it does", "parameters"), rows)
    else:
        described = catalogue.describe(name)
        if json:
            print_json(described)
        else:
            _print_method(described)


def run(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe (YAML), or the run.json of a run.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where the run directory goes. Default: RUNS/single.")
    ] = None,
    runs: Runs = RUNS,
    data: Data = None,
    governance: Annotated[
        Path | None,
        typer.Option(
            "--governance",
            metavar="DIR",
            help="The signed documents, instead of those that the recipe names; of a recorded run, where its salts and"
            " the trainer's key are now.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Train one run, or train a recorded one again and compare it with its record bit for bit.

    A recipe file holds task, train and methods as a sweep specification does, and may hold name, budget (1.0), seed
    (0), threads (1), governance: a directory of signed documents, and start: a model with its attestation, and which
    of its classes are let in.
    """
    from explorer import records
    from explorer.training.run import execute

    planned = planned_from(recipe, data, governance)
    record = planned.record
    directory = (out or runs / record.sweep) / record.run_id
    if directory.resolve() == recipe.parent.resolve():
        raise RecipeError(f"{recipe}: this run's own directory: give another one with --out to train it again")
    begin(planned, directory)
    if not json:
        for words in planned.warnings:
            print(f"warning: {words}", file=sys.stderr)
    with step_bar(record.model) as show:
        result = execute(directory, data=data, on_progress=show)
    same = _same_bits(recipe, result.state_digest)
    if json:
        print_json(records.to_json(result) | {"directory": directory, "same_bits": same, "warnings": planned.warnings})
    else:
        print(f"{record.run_id}: {record.steps} steps in {directory}")
        for metric, value in result.metrics.items():
            kind = record.metric(metric)
            print(f"  {metric}  {kind.show(value) if kind else value}")
        if same is not None:
            print("  bit-identical to the record" if same else "  NOT the same bits as the record")
    if same is False:
        raise typer.Exit(1)


def begin(planned: "Planned", directory: Path) -> None:
    """Make the directory of a run, where there is none; what it asks for is asked now."""
    from explorer import records, rundir
    from explorer.runlog.documents import keep
    from explorer.training.ledgered import is_recorded
    from explorer.training.run import recipe_of
    from explorer.training.start import keep_start, kept_in, start_in

    if planned.documents is not None:
        if is_recorded(recipe_of(planned.record)):
            provide_passphrase(planned.documents.trainer)
        start = start_in(planned.record)
        if start is not None:
            keep_start(planned.start or kept_in(planned.documents, start), start, directory)
        keep(planned.documents, directory)
    if not (directory / rundir.RUN).exists():
        records.write(directory / rundir.RUN, planned.record)


def planned_from(path: Path, data: Path | None, governance: Path | None) -> "Planned":
    """The run that a recipe file describes, or that has a record."""
    return (_recorded if path.suffix == ".json" else _single)(path, data, governance)


def _recorded(path: Path, data: Path | None, governance: Path | None) -> "Planned":
    """A run that has a record; it is judged when it was, and its private documents may have moved."""
    from explorer import records
    from explorer.training.run import documents_in
    from explorer.training.single import Planned

    record = records.read(records.RunRecord, path)
    documents = documents_in(path.parent, record)
    if documents is not None and governance is not None:
        documents = replace(documents, private=governance.resolve())
    return Planned(record=record, documents=documents)


def _single(path: Path, data: Path | None, governance: Path | None) -> "Planned":
    """The run of a recipe file."""
    from explorer.document import read_document
    from explorer.training.single import plan_single

    return plan_single(
        read_document(path).value,
        name=path.stem.lower(),
        where=str(path),
        data=data,
        beside=path.parent,
        governance=governance,
        now=clock(),
    )


def _same_bits(recipe: Path, state_digest: str) -> bool | None:
    """Whether the recorded run beside `run.json` ended with the same bits; None if there is no record."""
    from explorer import records, rundir

    recorded = recipe.parent / rundir.RESULT
    if recipe.suffix != ".json" or not recorded.exists():
        return None
    return records.read(records.ResultRecord, recorded).state_digest == state_digest


def _defaults(parameters: list[dict[str, Any]]) -> str:
    from explorer.recipes.catalogue import default

    return ", ".join(f"{p['name']}={default(p)}" for p in parameters) or "none"


def _print_method(method: dict[str, Any]) -> None:
    from explorer.recipes.catalogue import cost, default

    print(f"{method['name']}: {method['description']}\n")
    if method["parameters"]:
        rows = [
            (p["name"], p["type"], default(p), p["range"] or None, p["unit"] or None, p["meaning"])
            for p in method["parameters"]
        ]
        print_table(("parameter", "type", "default", "range", "unit", "meaning"), rows)
    else:
        print("no parameters\n")
    print("\n           ".join(f"formula    {method['formula']}".split("\n")))
    print(f"source     {method['source']}")
    print(f"changes    {method['changes']}")
    print(f"works on   {' and '.join(method['works_on'])}")
    print(f"needs      {method['needs']}")
    if method["governed"]:
        print("           governance: DIR in the recipe file or the specification")
    print(f"acts       {method['acts']}: {', '.join(method['hooks']) or 'in place of the optimiser'}")
    if method["after"] or method["before"]:
        order = [f"after {name}" for name in method["after"]] + [f"before {name}" for name in method["before"]]
        print(f"order      {', '.join(order)}")
    print(f"routing    {method['routing']}")
    print(f"step time  {cost(method)}")
    neutral = method["neutral"]
    shown = "none: it cannot be left at zero" if neutral is None else ", ".join(f"{k}={v}" for k, v in neutral.items())
    print(f"neutral    {shown}")
    for other, reason in method["conflicts"].items():
        print(f"conflicts  with {other}: {reason}")
