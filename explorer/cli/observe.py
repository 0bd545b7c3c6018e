"""`explorer observe`: say something about a model, signed, beside it."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.credentials import KeyFile, PassphraseFile, TrustFile, clock, load_key, provide_passphrase
from explorer.cli.output import print_json
from explorer.cli.settings import Json
from explorer.cli.verify import Model
from explorer.errors import ProvenanceError, RunError
from explorer.provenance.roles import Observer

if TYPE_CHECKING:
    from explorer.provenance.trust import Trust
    from explorer.release.observe import Observing
    from explorer.release.shipped import Shipped


def register(app: typer.Typer) -> None:
    app.command()(observe)


def observe(
    model: Model,
    role: Annotated[Observer, typer.Option("--role", help="As what you say it.")],
    key: KeyFile,
    trust: TrustFile,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", metavar="NAME=VALUE", help="A number; may be repeated.")
    ] = None,
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="One line.")] = None,
    admit: Annotated[
        list[str] | None,
        typer.Option(
            "--admit", metavar="CLASS=WEIGHT", help="With which weight, 0 to 1, you let a class through; repeat."
        ),
    ] = None,
    project: Annotated[
        Path | None,
        typer.Option("--project", metavar="RUNS", help="Append it to the ledger of the project with these runs, too."),
    ] = None,
    passphrase_file: PassphraseFile = None,
    json: Json = False,
) -> None:
    """Sign an observation of a model whose record you believe, and lay it beside the model.

    An evaluator signs with a key of the role evaluator, a fine-tuner with a trainer's, a deployer with one of model
    risk. Whoever lets the model through a gate admits, weights or rejects it.
    """
    from explorer.provenance.trust import read_trust
    from explorer.release.observe import keep
    from explorer.release.observe import observe as sign
    from explorer.release.shipped import open_shipped

    believed, now = read_trust(trust), clock()
    shipped = open_shipped(model, trust=believed, now=now)
    made = sign(
        shipped,
        role=role,
        metrics=_numbers(metric or [], "--metric"),
        note=note,
        admitted=_numbers(admit or [], "--admit"),
        keys=[load_key(key, passphrase_file)],
        trust=believed,
        now=now,
    )
    index = None
    if project is None:
        path = keep(shipped, made)
    else:
        path, index = _keep_in_project(project, shipped, made, trust=believed, now=now)
    if json:
        print_json({"file": str(path), "digest": made.digest, "model": shipped.attested.model, "entry": index})
        return
    print(f"{path}: signed as {role}")
    if index is not None:
        print(f"entry {index} of the ledger of {project}")


def _keep_in_project(
    runs: Path, shipped: "Shipped", made: "Observing", *, trust: "Trust", now: int
) -> tuple[Path, int]:
    """Write it, then append the entry that points to it. The project's ledger is opened first, so that where that
    cannot be done nothing is written."""
    from explorer.project import Project
    from explorer.release.observe import keep
    from explorer.runlog.documents import TRAINER_FILE, source_of, trainer_key

    run = _run_of(runs, shipped.attested.value.run)
    own = Path(source_of(run).private) / TRAINER_FILE
    if own.exists():
        provide_passphrase(own)
    name, private = trainer_key(run, trust=trust, now=now)
    with Project.open(runs, key=private, name=name) as ledger:
        path = keep(shipped, made)
        return path, ledger.append(made.entry)


def _run_of(runs: Path, name: str) -> Path:
    """The directory of a run in a project."""
    found = [path for path in sorted(runs.glob("*/*")) if path.name == name and path.is_dir()]
    if not found:
        raise RunError(f"{runs}: the run that made the model is not here: expected {runs}/<sweep>/{name}")
    return found[0]


def _numbers(pairs: list[str], option: str) -> dict[str, float]:
    """NAME=VALUE, each name once."""
    found: dict[str, float] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not equals or not math.isfinite(value):
            raise ProvenanceError(f"{option} {pair!r}: expected a name, '=' and a number, such as accuracy=0.93")
        if name in found:
            raise ProvenanceError(f"{option}: {name!r} is given twice")
        found[name] = value
    return found
