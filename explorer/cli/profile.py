"""`explorer profile`: what a run will take and cost on this machine; and profiles from other machines."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from explorer.cli.output import print_json
from explorer.cli.profile_import import import_
from explorer.cli.progress import step_bar
from explorer.cli.settings import RUNS, Data, Json, Runs
from explorer.cli.training import begin, planned_from
from explorer.errors import RecipeError

if TYPE_CHECKING:
    from explorer.recipes.single import Planned
    from explorer.records import ProfileRecord, RunRecord, Validation

    Subject = tuple[Path, Planned]


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
        list[Path], typer.Argument(metavar="RECIPE...", help="Recipes (YAML), or the run.json of runs of theirs.")
    ],
    budgets: Annotated[
        list[float] | None,
        typer.Option("--budget", metavar="RATIO", help="At which budgets. Default: the recipe's own."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the profile: a .json file, or a directory for several."),
    ] = None,
    validate: Annotated[
        bool, typer.Option("--validate", help="Train it in full too, at the largest budget, and compare.")
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
    from explorer.cli.profile_tables import print_profile, profile_json
    from explorer.costing import load_prices, own_prices
    from explorer.recipes.extrapolate import extrapolate
    from explorer.recipes.profile import profile

    if out is not None and out.suffix == ".json" and len(recipes) > 1:
        raise RecipeError(f"--out {out}: one file for {len(recipes)} recipes; expected a directory")
    subjects = [(path, planned_from(path, data, governance)) for path in recipes]
    schedules = [(subject, _at_budgets(subject, budgets, data)) for subject in subjects]
    documents = {each.run_id: planned.documents for (_, planned), each_of in schedules for each in each_of}
    with step_bar("measuring step times") as show:
        found = profile(
            [each for _, each_of in schedules for each in each_of],
            data=data,
            documents_of=lambda record: documents[record.run_id],
            besides=True,
            on_progress=show,
        )
    profiles = {record.recipe_digest: record for record in found}
    for subject, each_of in schedules:
        record = profiles[each_of[0].recipe_digest]
        compared = _compared(subject, each_of, record, validate=validate, data=data)
        profiles[record.recipe_digest] = replace(record, validation=compared or record.validation)
    written = {} if out is None else {key: _write(record, out) for key, record in profiles.items()}
    prices = (*load_prices(), *own_prices(runs))
    times = {
        key: [extrapolate(each, record) for each in _schedules_of(key, schedules)] for key, record in profiles.items()
    }
    if json:
        print_json([profile_json(profiles[key], times[key], prices, written.get(key)) for key in profiles])
        return
    for key, record in profiles.items():
        print_profile(record, times[key], prices, written.get(key))


def _at_budgets(subject: "Subject", budgets: list[float] | None, data: Path | None) -> "list[RunRecord]":
    """The run on this machine at each budget; a recorded one may be of another."""
    from explorer.recipes.here import plan_here

    _, planned = subject
    asked = sorted(set(budgets)) if budgets else [planned.record.ssr]
    return [plan_here(planned.record, data=data, documents=planned.documents, ssr=ssr) for ssr in asked]


def _compared(
    subject: "Subject", at: "list[RunRecord]", profile: "ProfileRecord", *, validate: bool, data: Path | None
) -> "Validation | None":
    """What a full run took beside the prediction: one that is trained now, or the recorded one if it was alone here."""
    import tempfile

    from explorer import records, rundir
    from explorer.recipes.extrapolate import train_in_full, validation

    path, planned = subject
    if validate:
        longest = max(at, key=lambda record: record.steps)
        with tempfile.TemporaryDirectory(prefix="explorer-") as place:
            directory = Path(place) / longest.run_id
            begin(planned._replace(record=longest), directory)
            return train_in_full(directory, profile, data=data)
    beside = path.with_name(rundir.RESULT)
    if path.name != rundir.RUN or not beside.exists() or planned.record.hardware != profile.hardware:
        return None
    result = records.read(records.ResultRecord, beside)
    alone = not result.contended and result.timed_steps and set(planned.record.phases) <= set(profile.phases)
    return validation(planned.record, result, profile) if alone else None


def _write(profile: "ProfileRecord", out: Path) -> Path:
    from explorer import records

    path = out if out.suffix == ".json" else out / f"{profile.key}.json"
    records.write(path, profile)
    return path


def _schedules_of(recipe_digest: str, schedules: "list[tuple[Subject, list[RunRecord]]]") -> "list[RunRecord]":
    """The runs of one recipe, one for each budget: seeds take the same time."""
    runs = (record for _, each_of in schedules for record in each_of if record.recipe_digest == recipe_digest)
    return list({record.ssr: record for record in runs}.values())
