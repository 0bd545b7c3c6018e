"""`explorer profile import`: times of recipes that were measured on another machine, for the results that are here."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer import run_files, rundir, schema
from explorer.canonical import canonical
from explorer.cli.options import RUNS, Runs
from explorer.errors import RunError, StoreError
from explorer.page.terminal import Answer
from explorer.run_files import ProfileRecord
from explorer.rundir import PROFILES
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.store.queries import opened


@dataclass(frozen=True, kw_only=True, slots=True)
class Carried:
    """A profile in a file from elsewhere: checked, and the bytes as they are."""

    file: Path
    profile: ProfileRecord
    content: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Profiles that `explorer profile --out` has written.")
    ],
    runs: Runs = RUNS,
) -> Answer:
    """Import profiles from other machines: results of the same recipes get predicted times there.

    A recipe is the same if its data, batch size, precision, methods and documents are. All files are checked before any
    is taken in. The SHA-256 that is printed is the one that was printed where the file was written.
    """
    if not runs.is_dir():
        raise StoreError(f"there is no directory {runs}: name the directory that holds the sweeps")
    carried = [read_carried(file) for file in files]
    for each in carried:
        rundir.write_bytes(runs / rundir.PROFILES / f"{each.profile.key}.json", each.content)
    ingest(runs)
    told = [_told(database(runs), each) for each in carried]
    return Answer(page=lambda: [line for one in told for line in _lines(one)], record=lambda: told)


def read_carried(file: Path) -> Carried:
    """Read a profile that anybody may have made. Raises `RunError` that names the file, the key and the fault."""
    content = rundir.read_bytes(file, max_bytes=rundir.MAX_JSON_BYTES, error=RunError)
    value = schema.parse_json(content, where=str(file), error=RunError, max_bytes=rundir.MAX_JSON_BYTES)
    profile = run_files.check_profile(
        run_files.from_json(run_files.ProfileRecord, value, where=str(file)), where=str(file)
    )
    canonical(run_files.to_json(profile))  # no number or text that a database would refuse
    if not profile.effective:
        raise RunError(
            f"{file}: an earlier version made it, which named no recipe beyond its machine; profile it again"
        )
    return Carried(file=file, profile=profile, content=content)


def _told(database: Path, carried: Carried) -> dict[str, Any]:
    """Return how many results get times from the profile."""
    profile, full = carried.profile, carried.profile.validation
    with opened(database) as connection:
        source = f"{PROFILES}/{profile.key}.json"
        asked = "SELECT predicted, count(*) FROM run_profiles WHERE source = ? GROUP BY predicted"
        priced = dict(connection.execute(asked, [source]).fetchall())
        asked = "SELECT count(*) FROM runs WHERE effective_digest = ? AND state = 'finished'"
        same = connection.execute(asked, [profile.effective]).fetchall()[0][0]
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
        "predicted": priced.get(True, 0),
        "profiled": priced.get(False, 0),
    }


def _lines(told: dict[str, Any]) -> Iterator[str]:
    where = told["hardware"]
    yield f"{told['recipe']} on {where}, made {told['made_at']} with torch {told['torch']}"
    yield f"  sha256 {told['sha256']}"
    if told["predicted"] or told["profiled"]:
        for source in ("predicted", "profiled"):
            if told[source]:
                yield f"  {_count(told[source])} now with {source} times on {where}"
    elif told["of_this_recipe"]:
        yield f"  {_count(told['of_this_recipe'])} of this recipe, and it says no time of theirs:"
        yield "  they were trained there, a newer profile says it, or phases of theirs were not profiled"
    else:
        yield f"  it predicts nothing here: no finished run is of this recipe ({told['effective'][:12]})"
        yield "  other data, parameters, batch size, precision or documents make another recipe"
    if told["ratio"] is None:
        yield "  it was not compared with a full run there"
    else:
        yield f"  compared with a full run there: predicted {told['ratio']:.3f} of what was measured"


def _count(runs: int) -> str:
    return "1 finished run is" if runs == 1 else f"{runs} finished runs are"
