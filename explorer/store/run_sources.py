"""Sources of the database: the runs, plans and profiles below a directory of runs, and those that a snapshot lacks.

Every reading verb asks first whether the snapshot is current. The answer comes from directory listings, the times of
files and one look into the snapshot; it costs milliseconds, and imports nothing that writes. What it must never do is
call an old snapshot current, so where it cannot tell it answers no, and an ingest decides by digests.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

from explorer import rundir
from explorer.canonical import digest
from explorer.costing import Price, load_prices, own_prices
from explorer.errors import PriceError, RunError
from explorer.store.published import database, is_copy, opened

PROFILE_FILES = "[!.]*.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """Differences between the run directories and the snapshot."""

    finished: int  # runs with a result that the snapshot lacks, or has as unfinished
    other: int  # plans, profiles and price tables that are new or changed; runs that began, stopped or failed since
    gone: int  # finished runs of the snapshot that have no directory any more
    damaged_profiles: tuple[tuple[str, str], ...] = ()  # each with its fault, as the snapshot has it; imports too

    @property
    def is_empty(self) -> bool:
        """Return whether a reader can use the snapshot as it is, and has nothing to be warned of."""
        return not (self.finished or self.other or self.gone or self.damaged_profiles)


def is_current(runs: Path) -> bool:
    """Return whether the snapshot has every finished run, plan, profile and price, and nothing to warn a reader of.

    Raises `StoreError` if the snapshot cannot be read.
    """
    return not is_copy(runs) and database(runs).exists() and gap_of(runs).is_empty


def gap_of(runs: Path) -> Gap:
    """Compare the run directories with the snapshot. Raises `StoreError` if the snapshot cannot be read."""
    snapshot = database(runs)
    made = snapshot.stat().st_mtime_ns if snapshot.exists() else 0  # before it is read: a newer one may replace it
    with opened(snapshot) as connection:
        states = dict(connection.execute("SELECT directory, state FROM runs WHERE imported IS NULL").fetchall())
        problems = dict(connection.execute("SELECT directory, reason FROM problems").fetchall())
        profiles = {path for (path,) in connection.execute("SELECT DISTINCT source FROM profiles").fetchall()}
        plans = dict(connection.execute("SELECT source, version FROM plans").fetchall())
        imports = dict(connection.execute("SELECT source, version FROM imports").fetchall())
        imported = dict(connection.execute("SELECT sweep, runs FROM imports").fetchall())
        priced = connection.execute("SELECT prices FROM schema_version").fetchall()[0][0]
    finished = {path for path, state in states.items() if state == "finished"}
    present, missing, other = set[str](), 0, 0
    for sweep in sweeps(runs):
        for name in _run_names(sweep):
            directory = f"{sweep.name}/{name}"
            present.add(directory)
            # A result is written last and never changed, so a run that the snapshot has as finished is not opened.
            if directory not in finished and directory not in problems:
                ended = (sweep / name / rundir.RESULT).exists()
                missing += ended
                other += not ended and _moved_on(sweep / name, states.get(directory), made=made)
        other += _file_changed(sweep / rundir.SWEEP, plans.get(f"{sweep.name}/{rundir.SWEEP}"), made=made)
        other += _import_changed(sweep, imports, problems, made=made)
        imported.pop(sweep.name, None)
        other += _profiles_changed(runs, sweep, profiles | problems.keys(), made=made)
    other += _profiles_changed(runs, runs, profiles | problems.keys(), made=made)
    other += _prices_changed(runs, priced)
    return Gap(
        finished=missing,
        other=other,
        gone=len(finished - present) + sum(imported.values()),
        damaged_profiles=tuple(
            (path, reason)
            for path, reason in problems.items()
            if f"{rundir.PROFILES}/" in path or path.endswith(f"/{rundir.IMPORTED}")
        ),
    )


def _moved_on(run: Path, state: str | None, *, made: int) -> bool:
    """Return whether a run without a result is in another state than the snapshot has it in."""
    if state is None:
        return (run / rundir.RUN).exists()
    if rundir.is_locked(run) != (state == "running"):
        return True
    failure = run / rundir.FAILURE
    return failure.exists() and failure.stat().st_mtime_ns >= made


def candidates(sweep_directory: Path) -> list[Path]:
    """Return the directories of a sweep with a run record or a result. Links are not followed."""
    return sorted(
        path
        for path in _directories(sweep_directory)
        if (path / rundir.RUN).exists() or (path / rundir.RESULT).exists()
    )


def sweeps(runs: Path) -> list[Path]:
    """Return the sweeps below `runs`. Names that start with `_` or `.` are not sweeps; links are not followed."""
    return _directories(runs)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes. Raises `RunError` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error


def known_prices(runs: Path) -> tuple[Price, ...]:
    """Return the shipped prices, and the user's own. Raises `PriceError`."""
    return (*load_prices(), *own_prices(runs))


def prices_digest(prices: Iterable[Price]) -> str:
    """Return the digest of prices that a snapshot is marked with."""
    return digest([list(astuple(price)) for price in prices])


def _directories(parent: Path) -> list[Path]:
    if not parent.is_dir():
        return []
    return sorted(
        path for path in parent.iterdir() if path.is_dir() and not path.is_symlink() and path.name[0] not in "_."
    )


def _run_names(sweep: Path) -> list[str]:
    """Return the names of directories in a sweep that may be runs, without a stat of each. Links are not followed."""
    try:
        with os.scandir(sweep) as entries:
            return [
                entry.name for entry in entries if entry.name[0] not in "_." and entry.is_dir(follow_symlinks=False)
            ]
    except OSError as fault:
        raise RunError(f"cannot read {sweep}: {fault.strerror or fault}") from fault


def _file_changed(file: Path, version: str | None, *, made: int) -> bool:
    try:
        newer = file.stat().st_mtime_ns >= made
    except FileNotFoundError:
        return False  # gone, or there never was one
    # The digest decides, because a file that is written again with the same content is no change.
    return (version is None or newer) and file_digest(file) != version


def _import_changed(sweep: Path, imports: Mapping[str, str], problems: Mapping[str, str], *, made: int) -> bool:
    name, file = f"{sweep.name}/{rundir.IMPORTED}", sweep / rundir.IMPORTED
    if name in problems and file.exists():
        return file.stat().st_mtime_ns >= made
    # An import is deleted by deleting its file; while its directory is there, the disk is.
    return _file_changed(file, imports.get(name), made=made) or (name in imports and not file.exists())


def _profiles_changed(runs: Path, place: Path, known: set[str], *, made: int) -> bool:
    return any(
        path.relative_to(runs).as_posix() not in known or path.stat().st_mtime_ns >= made
        for path in (place / rundir.PROFILES).glob(PROFILE_FILES)
    )


def _prices_changed(runs: Path, priced: str) -> bool:
    # The table is small, so it is compared whole: a file's time would not show a table that was removed.
    try:
        return prices_digest(known_prices(runs)) != priced
    except PriceError:
        return True  # the ingest says what is wrong with it
