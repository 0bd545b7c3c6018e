"""`explorer methods`, `explorer run` and `explorer replay`: the training methods, one run, and its steps again."""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer import run_files, rundir
from explorer.cli import options
from explorer.cli.models import defaults, listed, parameter_table, warn_broken
from explorer.cli.signing import provide_passphrase
from explorer.cli.verbs import part
from explorer.errors import RecipeError, RunError
from explorer.page.document import Block
from explorer.page.progress import step_bar
from explorer.page.terminal import Answer, show, visible
from explorer.planned import is_own
from explorer.recipes import catalogue
from explorer.recipes.catalogue import cost
from explorer.recipes.choice import OURS
from explorer.run_files import ResultRecord, RunRecord
from explorer.runlog.documents import keep
from explorer.runlog.run_ledger import RunLedger
from explorer.sweep.commands.command_record import recorded_recipe
from explorer.sweep.commands.command_task import is_command
from explorer.sweep.work import perform_command
from explorer.training.govern import load_loop
from explorer.training.govern import replay as replay_loop
from explorer.training.ledgered import is_recorded
from explorer.training.replay import Elsewhere, Replayed
from explorer.training.replay import replay as replay_steps
from explorer.training.run import documents_in, execute
from explorer.training.run_plan import PlannedRun, plan_single, recipe_of
from explorer.training.start import keep_start, kept_in, start_in
from explorer.yaml_document import read_document


def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Method to describe in full. Default: list all.")
    ] = None,
    json: options.Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table of all methods in Markdown.")] = False,
) -> Answer | None:
    """List the training methods, with their parameters, defaults, sources and interactions."""
    if markdown:
        show([catalogue.markdown().removesuffix("\n")])  # with --json too
        return None
    if name is not None:
        described = catalogue.describe(name)
        return Answer(page=lambda: _method(described), record=lambda: described)
    described_all, broken = catalogue.describe_all()
    warn_broken(broken)
    rows = [(m["name"], m["summary"], defaults(m["parameters"]), m["origin"]) for m in described_all]
    page = listed(("method", "what it does", "parameters"), rows)
    return Answer(page=lambda: [page], record=lambda: described_all)


def run(
    recipe: Annotated[
        Path, typer.Argument(metavar="RECIPE", help="A recipe (YAML), or the run.json of a recorded run.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Parent directory of the run. Default: RUNS/single.")
    ] = None,
    runs: options.Runs = options.RUNS,
    data: options.Data = None,
    governance: Annotated[
        Path | None,
        typer.Option(
            "--governance",
            metavar="DIR",
            help="Directory of signed documents, instead of the one that the recipe names. For a recorded run: where"
            " its salts and the trainer's key are now.",
        ),
    ] = None,
    ranks: options.Ranks = None,
    json: options.Json = False,
) -> Answer:
    """Train one run, or train a recorded one again and compare it with its record bit for bit.

    A recipe file has task, train and methods, like a sweep specification. It may have name, budget (1.0), seed (0),
    threads (1), governance (a directory of signed documents) and start (a model with its attestation, and the classes
    to admit from it).
    """
    recorded = record_task(recipe) if recipe.suffix == ".json" else {}
    if is_command(recorded):
        return _command(recipe, out or runs / "single")
    if is_own({"recipe": recorded}):
        raise RecipeError(f"{recipe}: a program of yours made this run (explorer.train, explorer.begin): run it again")
    planned = planned_from(recipe, data, governance)
    record = planned.record
    directory = (out or runs / record.sweep) / record.run_id
    if directory.resolve() == recipe.parent.resolve() and (directory / rundir.RESULT).exists():
        raise RecipeError(f"{recipe}: the run would be trained into its own directory; name another one with --out")
    trained = (directory / rundir.RESULT).exists()
    begin(planned, directory)
    if not json:
        for words in (*planned.notes, *(f"warning: {warning}" for warning in planned.warnings)):
            print(words, file=sys.stderr)
    with step_bar(record.model) as show:
        result = execute(directory, data=data, ranks=ranks, on_progress=show)
    same = _same_bits(recipe, result.state_digest)
    rest = {"directory": directory, "trained_already": trained, "same_bits": same, "warnings": planned.warnings}
    rest |= {"notes": planned.notes} if planned.notes else {}
    return Answer(
        page=lambda: _run_lines(record, result, directory, same, trained=trained),
        record=lambda: run_files.to_json(result) | rest,
        holds=same is not False,
        then=lambda: part("governed runs, next")(directory, "run"),
    )


def record_task(path: Path) -> Mapping[str, Any]:
    """Return the part of a record that says what trains; empty where it does not say."""
    content = rundir.read_json(path)
    identity = content.get("identity") if isinstance(content, dict) else None
    recipe = identity.get("recipe") if isinstance(identity, dict) else None
    return recipe if isinstance(recipe, dict) else {}


def _command(path: Path, out: Path) -> Answer:
    """Run the command or notebook of a recorded run again, in a directory of its own, and compare the results."""
    record = run_files.read(RunRecord, path)
    directory = out / record.run_id
    if directory.resolve() == path.parent.resolve():
        raise RecipeError(f"{path}: the run would be trained into its own directory; name another one with --out")
    setting = recorded_recipe(path.parent, record)
    if not (directory / rundir.RUN).exists():
        run_files.write(directory / rundir.RUN, replace(record, steps=0, phases={}))
    done = perform_command(directory, setting, threads=record.hardware.threads)
    before = path.parent / rundir.RESULT
    recorded = run_files.read(ResultRecord, before).metrics if before.exists() else {}
    return Answer(
        page=lambda: [*_run_lines(record, done, directory, None), *_recorded_lines(record, recorded)],
        record=lambda: run_files.to_json(done) | {"directory": directory, "recorded": recorded},
    )


def _recorded_lines(record: RunRecord, recorded: Mapping[str, float]) -> Iterator[str]:
    for name, value in recorded.items():
        kind = record.metric(name)
        yield f"  {name} in the record  {kind.show(value) if kind else value}; a command's bits are not promised"


def _run_lines(
    record: RunRecord, result: ResultRecord, directory: Path, same: bool | None, *, trained: bool = False
) -> Iterator[str]:
    yield f"{record.run_id}: {'trained already, ' if trained else ''}{result.steps} steps in {directory}"
    for metric, value in result.metrics.items():
        kind = record.metric(metric)
        yield f"  {metric}  {kind.show(value) if kind else value}"
    if same is not None:
        yield "  bit-identical to the record" if same else "  NOT the same bits as the record"
    if given_up := run_files.given_up(record):
        yield f"  {given_up}"


def begin(planned: PlannedRun, directory: Path) -> None:
    """Make the directory of a run, where there is none. A passphrase that the run needs is asked for now."""
    if planned.documents is not None:
        if is_recorded(recipe_of(planned.record)):
            provide_passphrase(planned.documents.trainer)
        start = start_in(planned.record)
        if start is not None:
            keep_start(planned.start or kept_in(planned.documents, start), start, directory)
        keep(planned.documents, directory)
    # The record comes last: a directory with one is complete, and a run can begin in it.
    if not (directory / rundir.RUN).exists():
        run_files.write(directory / rundir.RUN, planned.record)


def planned_from(path: Path, data: Path | None, governance: Path | None) -> PlannedRun:
    """Plan the run of a recipe file, or of a record."""
    return (_recorded if path.suffix == ".json" else _single)(path, data, governance)


def _recorded(path: Path, data: Path | None, governance: Path | None) -> PlannedRun:
    """Return the run of a record. Its documents keep their time of checking; its private files may have moved."""
    record = run_files.read(run_files.RunRecord, path)
    documents = documents_in(path.parent, record)
    if documents is not None and governance is not None:
        documents = replace(documents, private=governance.resolve(), delegation=None)  # the trainer's key is there
    return PlannedRun(record=record, documents=documents)


def _single(path: Path, data: Path | None, governance: Path | None) -> PlannedRun:
    return plan_single(
        read_document(path).value,
        name=path.stem.lower(),
        where=str(path),
        data=data,
        beside=path.parent,
        governance=governance,
        now=options.clock(),
    )


def _same_bits(recipe: Path, state_digest: str) -> bool | None:
    """Return whether the recorded run next to `run.json` ended with the same bits; None if there is no record."""
    recorded = recipe.parent / rundir.RESULT
    if recipe.suffix != ".json" or not recorded.exists():
        return None
    return run_files.read(run_files.ResultRecord, recorded).state_digest == state_digest


def _method(method: dict[str, Any]) -> Iterator[Block | str]:
    yield f"{method['name']}: {method['summary']}\n\n{method['description']}\n"
    if method["parameters"]:
        yield parameter_table(method["parameters"])
    else:
        yield "no parameters\n"
    yield "\n           ".join(f"formula    {method['formula']}".split("\n"))
    yield f"source     {method['source']}"
    yield f"changes    {method['changes']}"
    yield f"works on   {' and '.join(method['works_on'])}"
    yield f"needs      {method['needs']}"
    if method["governed"]:
        yield "           governance: DIR in the recipe file or the specification"
    yield f"acts       {method['acts']}: {', '.join(method['hooks']) or 'in place of the optimiser'}"
    if method["after"] or method["before"]:
        order = [f"after {name}" for name in method["after"]] + [f"before {name}" for name in method["before"]]
        yield f"order      {', '.join(order)}"
    if method["turns"]:
        yield f"turns      with {', '.join(method['turns'])}: one of them, drawn for the step, acts in it"
    yield f"routing    {method['routing']}"
    yield f"step time  {cost(method)}"
    neutral = method["neutral"]
    shown = "none: it has no strength zero" if neutral is None else ", ".join(f"{k}={v}" for k, v in neutral.items())
    yield f"neutral    {shown}"
    for other, reason in method["conflicts"].items():
        yield f"conflicts  with {other}: {reason}"
    if method["origin"] != OURS:
        yield f"from       {method['origin']}"
    form = method["functional"]
    if "absent" in form:
        yield f"function   none: {form['absent']}"
    else:
        yield f"function   {form['call']}"
        yield form["import"]


def replay(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a recorded run.")],
    steps: options.Steps = None,
    data: options.Data = None,
    governance: options.TagSalts = None,
    loop: options.OwnLoop = None,
    json: options.Json = False,
) -> Answer:
    """Execute steps of a recorded run again and compare them with its ledger, bit for bit.

    `explorer ledger verify` checks that the ledger is complete and who signed it.
    """

    def on_environment(differing: tuple[Elsewhere, ...]) -> None:
        if not json:
            print_elsewhere(differing)

    if loop is not None:
        if steps is not None:
            raise RunError("--steps: found with --loop; your own loop is executed from its first step to its end")
        replayed = replay_loop(run, load_loop(loop), private=governance, on_environment=on_environment)
    else:
        wanted = None if steps is None else parse_steps(steps)
        replayed = replay_steps(run, steps=wanted, data=data, private=governance, on_environment=on_environment)
    before = RunLedger(run).continues
    return Answer(
        page=lambda: [*_lines(replayed), *(f"  continues {words}" for words in before)],
        record=lambda: {**asdict(replayed), "equal": replayed.equal, **({"continues": list(before)} if before else {})},
        holds=replayed.equal,
    )


def parse_steps(text: str) -> tuple[int, int]:
    """Parse the two numbers of A:B.

    >>> parse_steps("0:100")
    (0, 100)
    """
    match = re.fullmatch(r"([0-9]{1,15}):([0-9]{1,15})", text)
    if match is None:
        raise RunError(f"--steps: found {text!r:.40}, expected A:B, such as 100:150 for the 50 steps from 100 on")
    return int(match[1]), int(match[2])


def print_elsewhere(differing: tuple[Elsewhere, ...]) -> None:
    """Print differences from the recorded environment, before work that may take long."""
    if differing:
        print("the environment differs from the record, so bits may differ:")
    for change in differing:
        print(visible(f"  {change.what}: {change.recorded} then, {change.here} here"), flush=True)


def _lines(replayed: Replayed) -> list[str]:
    lines = [f"{replayed.run}: steps {replayed.first}:{replayed.last}, executed from {replayed.source}"]
    if replayed.secrets_missing:
        lines.append(
            f"  commitments not compared, because their secrets are not here: {', '.join(replayed.secrets_missing)}"
        )
    if replayed.sealed_missing:
        lines.append(
            f"  numbers not compared, because they are sealed with those secrets: {', '.join(replayed.sealed_missing)}"
        )
    done = f"{replayed.steps} steps, {replayed.states} states and {replayed.blobs} blobs in {replayed.entries} entries"
    if replayed.difference is None:
        return [*lines, f"  bit for bit as recorded: {done}"]
    first = replayed.difference
    return [
        *lines,
        f"  NOT as recorded, after {done} that are",
        f"  entry {first.entry}, {first.kind} at step {first.step}: {first.field}",
        f"    expected {first.expected}",
        f"    found    {first.found}",
    ]
