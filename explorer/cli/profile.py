"""`explorer profile`: what a run will take and cost on this machine; and profiles from other machines."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from explorer.cli.output import print_json
from explorer.cli.profile_import import import_
from explorer.cli.progress import step_bar
from explorer.cli.settings import RUNS, Data, Json, Runs
from explorer.cli.training import begin
from explorer.errors import RecipeError

if TYPE_CHECKING:
    from explorer.cli.profile_subjects import Subject
    from explorer.records import ProfileRecord, Validation


class _Group(TyperGroup):
    """`explorer profile RECIPE` is short for `explorer profile run RECIPE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *self.get_help_option_names(ctx)):
            args = ["run", *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        cls=_Group,
        help="How long a recipe takes, and what it costs, before it is trained. `explorer profile RECIPE` is short for"
        " `explorer profile run RECIPE`.",
        no_args_is_help=True,
    )
    group.command()(run)
    group.command("import")(import_)
    app.add_typer(group, name="profile")


def run(
    recipes: Annotated[
        list[Path],
        typer.Argument(metavar="RECIPE...", help="Recipes or sweep specifications (YAML), or the run.json of runs."),
    ],
    budgets: Annotated[
        list[float] | None,
        typer.Option("--budget", metavar="RATIO", help="At which budgets. Default: their own."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the profile: a .json file, or a directory for several."),
    ] = None,
    validate: Annotated[
        bool, typer.Option("--validate", help="Train each in full too, at its largest budget, and compare.")
    ] = False,
    runs: Runs = RUNS,
    data: Data = None,
    governance: Annotated[
        Path | None, typer.Option("--governance", metavar="DIR", help="The signed documents that govern it.")
    ] = None,
    json: Json = False,
) -> None:
    """Measure the time of a step in each phase on this machine, and say what whole runs will take and cost.

    Nothing else should keep the machine busy. Several recipes are measured in turns. The run.json of a finished run
    that was alone on this machine is compared with what that run took. A profile that is written can be carried to
    where the results are, and taken in there with `explorer profile import`.
    """
    from explorer.cli.profile_subjects import subjects_of
    from explorer.cli.profile_tables import print_profile, profile_json
    from explorer.costing import load_prices, own_prices
    from explorer.sweep.presence import timing
    from explorer.training.profile import extrapolate, profile

    subjects = subjects_of(recipes, budgets=budgets, data=data, governance=governance, runs=runs)
    if out is not None and out.suffix == ".json" and len(subjects) > 1:
        raise RecipeError(f"--out {out}: one file for {len(subjects)} recipes; expected a directory")
    documents = {record.run_id: subject.planned.documents for subject in subjects for record in subject.runs}
    with step_bar("measuring step times") as show, timing(on_wait=_tell_wait) as reasons:
        found = profile(
            [record for subject in subjects for record in subject.runs],
            data=data,
            documents_of=lambda record: documents[record.run_id],
            besides=True,
            reasons=reasons,
            on_progress=show,
        )
    prices = (*load_prices(), *own_prices(runs))
    told = []
    for subject, measured in zip(subjects, found, strict=True):
        compared = _trained(subject, measured, data) if validate else subject.compared(measured)
        record = replace(measured, validation=compared)
        written = None if out is None else _write(record, out)
        times = [extrapolate(each, record) for each in subject.runs]
        if json:
            told.append(profile_json(record, times, prices, written))
        else:
            print_profile(record, times, prices, written)
    if json:
        print_json(told)


def _tell_wait(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _trained(subject: "Subject", profile: "ProfileRecord", data: Path | None) -> "Validation":
    """The longest run of a recipe, trained in full now, beside the prediction."""
    import tempfile

    from explorer.training.profile import train_in_full

    with tempfile.TemporaryDirectory(prefix="explorer-") as place:
        directory = Path(place) / subject.longest.run_id
        begin(subject.planned._replace(record=subject.longest), directory)
        return train_in_full(directory, profile, data=data)


def _write(profile: "ProfileRecord", out: Path) -> Path:
    from explorer import records

    path = out if out.suffix == ".json" else out / f"{profile.key}.json"
    records.write(path, profile)
    return path
