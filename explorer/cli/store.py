"""`explorer store`, `profile import` and `sweep prune`: verbs that change what the database of results holds."""

import dataclasses
import hashlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer import run_files, rundir, schema
from explorer.canonical import canonical
from explorer.cli import options
from explorer.errors import RunError, StoreError, SweepError
from explorer.page.document import Block, Paragraph
from explorer.page.terminal import Answer, table
from explorer.planned import read_plan
from explorer.run_files import ProfileRecord
from explorer.rundir import PROFILES
from explorer.store.export import export as write
from explorer.store.ingest import Ingested
from explorer.store.ingest import ingest as bring_in
from explorer.store.ingest import rebuild as rebuild_all
from explorer.store.published import database, opened
from explorer.sweep.prune import plan_pruning, size_of
from explorer.sweep.prune import prune as remove
from explorer.yaml_document import read_document


def ingest(runs: options.Runs = options.RUNS) -> Answer:
    """Load finished runs into the database; runs that it already has stay as they are."""
    return _ingested(bring_in(runs))


def rebuild(runs: options.Runs = options.RUNS) -> Answer:
    """Rebuild the database from the run directories."""
    return _ingested(rebuild_all(runs))


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write, ending in .csv, .parquet or .md.")],
    sweep: Annotated[
        str | None, typer.Option("--sweep", metavar="NAME", help="Name of a sweep. Default: all sweeps.")
    ] = None,
    runs: options.Runs = options.RUNS,
) -> Answer:
    """Write the results to a file, one row per finished run. `explorer export` does the same, and makes pages."""
    rows = write(database(runs), file, sweep=sweep)
    return Answer(page=lambda: [f"{rows} rows in {file}"], record=lambda: {"file": str(file), "rows": rows})


def _ingested(done: Ingested) -> Answer:
    """Answer with the outcome of an ingest. It does not hold if a directory could not be used."""

    def page() -> Iterator[Block | str]:
        yield f"{done.added} added, {done.unchanged} unchanged, {done.removed} removed: {done.database}"
        for problem in (*done.problems, *done.undeclared):
            yield Paragraph(f"explorer: {problem.directory}: {problem.reason}", "alert")

    return Answer(page=page, record=lambda: dataclasses.asdict(done), holds=not done.problems)


# --- explorer sweep prune ---


def prune(
    sweep: Annotated[str, typer.Argument(metavar="SPEC|NAME", help="A sweep, by its specification or its name.")],
    named: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Only these runs. Governed runs are removed only if named."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove the runs. Default: only list them.")] = False,
    runs: options.Runs = options.RUNS,
) -> Answer:
    """List the runs that an earlier specification of a sweep left behind, or remove them with --yes.

    The plan that the sweep was last started with decides. A run that others depend on is kept: the parent of a ledger
    or of a deletion, a run that the project's ledger is about, one with an attested model or a confirmed recipe, and
    one in progress.
    """
    name = _name_of(sweep, runs=runs)
    pruning = plan_pruning(runs, name, named=named or ())
    # Sizes are taken before the removal, which may then keep a run that has just started.
    sizes = {path.name: size_of(path) for path in pruning.removable}
    if yes:
        pruning = remove(runs, name, named=named or ())
        bring_in(runs)
    done = [path.name for path in pruning.removable]
    sizes = {run: sizes.get(run, 0) for run in done}
    rows = [(run, f"{sizes[run] / 1e6:,.1f}") for run in done]
    whole = f"{len(done)} run directories of {name}, {sum(sizes.values()) / 1e6:,.1f} MB"
    end = f"{whole}: removed" if yes else f"{whole}: --yes removes them"
    return Answer(
        page=lambda: [
            *([table(("removed" if yes else "run", "MB"), rows, right=("MB",))] if rows else []),
            *(f"kept: {kept.directory.name}: {kept.reason}" for kept in pruning.kept),
            end if rows else f"nothing to remove from {name}",
        ],
        record=lambda: {
            "name": name,
            "removed": yes,
            "runs": done,
            "bytes": sum(sizes.values()),
            "kept": [{"run_id": kept.directory.name, "reason": kept.reason} for kept in pruning.kept],
        },
    )


def _name_of(sweep: str, *, runs: Path) -> str:
    """Return the name of a sweep, given as such or by the specification that it was last started with."""
    path = Path(sweep)
    if path.suffix not in (".yaml", ".yml"):
        return sweep
    content = read_document(path).value
    name = content.get("name") if isinstance(content, dict) else None
    if not isinstance(name, str) or Path(name).name != name:
        raise SweepError(f"{path}: found the name {name!r:.80}; expected the name of a sweep in {runs}")
    # A specification that was edited since would call other runs superseded than the sweep does.
    if read_plan(runs / name)["spec"] != content:
        start, prune = (
            shlex.join(("explorer", "sweep", *words, *options.of_runs(runs)))
            for words in (("run", str(path)), ("prune", name))
        )
        raise SweepError(
            f"{path}: differs from the specification that {name} was last started with; start it with"
            f" `{start}`, or give the name instead: `{prune}`"
        )
    return name


# --- explorer profile import ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Carried:
    """A checked profile from another machine, and the bytes of its file."""

    file: Path
    profile: ProfileRecord
    content: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Profiles written by `explorer profile --out`.")
    ],
    runs: options.Runs = options.RUNS,
) -> Answer:
    """Import profiles from other machines: results of the same recipes get predicted times there.

    Recipes are the same if their data, batch size, precision, methods and documents are. All files are checked before
    any is imported. The printed SHA-256 is the one that was printed where the file was written.
    """
    if not runs.is_dir():
        raise StoreError(f"there is no directory {runs}: name the directory that holds the sweeps")
    carried = [read_carried(file) for file in files]
    for profile in carried:
        # Byte for byte, so that the SHA-256 stays the one of the other machine.
        rundir.write_bytes(runs / rundir.PROFILES / f"{profile.profile.key}.json", profile.content)
    bring_in(runs)
    records = [_import_record(database(runs), profile) for profile in carried]
    return Answer(page=lambda: [line for record in records for line in _import_lines(record)], record=lambda: records)


def read_carried(file: Path) -> Carried:
    """Read a profile of unknown origin. Raises `RunError` that names the file, the key and the fault."""
    content = rundir.read_bytes(file, max_bytes=rundir.MAX_JSON_BYTES, error=RunError)
    value = schema.parse_json(content, where=str(file), error=RunError, max_bytes=rundir.MAX_JSON_BYTES)
    profile = run_files.check_profile(
        run_files.from_json(run_files.ProfileRecord, value, where=str(file)), where=str(file)
    )
    # Canonical JSON refuses the numbers and texts that a database would refuse too, such as NaN and lone surrogates.
    canonical(run_files.to_json(profile))
    if not profile.effective:
        raise RunError(f"{file}: made by an earlier version, which did not record the recipe; profile the recipe again")
    return Carried(file=file, profile=profile, content=content)


def _import_record(database: Path, carried: Carried) -> dict[str, Any]:
    """Return how many results get times from the profile."""
    profile, full = carried.profile, carried.profile.validation
    with opened(database) as connection:
        source = f"{PROFILES}/{profile.key}.json"
        timed = "SELECT predicted, count(*) FROM run_profiles WHERE source = ? GROUP BY predicted"
        counts = dict(connection.execute(timed, [source]).fetchall())
        finished = "SELECT count(*) FROM runs WHERE effective_digest = ? AND state = 'finished'"
        same = connection.execute(finished, [profile.effective]).fetchall()[0][0]
    return {
        "file": str(carried.file),
        "sha256": carried.sha256,
        "key": profile.key,
        "recipe": profile.recipe,
        "hardware": profile.hardware.name,
        "made_at": profile.made_at,
        "torch": profile.torch,
        "ratio": None if full is None else full.ratio,
        "effective": profile.effective,
        "of_this_recipe": same,
        "predicted": counts.get(True, 0),
        "profiled": counts.get(False, 0),
    }


def _import_lines(record: dict[str, Any]) -> Iterator[str]:
    hardware = record["hardware"]
    yield f"{record['recipe']} on {hardware}, made {record['made_at']} with torch {record['torch']}"
    yield f"  sha256 {record['sha256']}"
    # A profile that changes nothing says why, because the usual reason is a recipe that differs slightly.
    if record["predicted"] or record["profiled"]:
        for source in ("predicted", "profiled"):
            if record[source]:
                yield f"  {_count(record[source])} now with {source} times on {hardware}"
    elif record["of_this_recipe"]:
        yield f"  {_count(record['of_this_recipe'])} of this recipe, but none gets a time from this profile:"
        yield "  they were trained there, or a newer profile covers them, or some of their phases were not profiled"
    else:
        yield f"  predicts nothing here: no finished run has this recipe ({record['effective'][:12]})"
        yield "  recipes differ if their data, parameters, batch size, precision or documents do"
    if record["ratio"] is None:
        yield "  not compared with a full run there"
    else:
        yield f"  compared with a full run there: predicted {record['ratio']:.3f}x the measured time"


def _count(runs: int) -> str:
    return "1 finished run is" if runs == 1 else f"{runs} finished runs are"
