"""Bringing the database up to the run directories before it is read, so that no finished run is missing from an answer.

What is missing is found by listing directories: a finished run has a result, and one that the snapshot has is not
opened again. Plans and profiles count too, where their file is newer than the snapshot. That takes milliseconds, and
only if something is missing does an ingest follow.

Reading never forgets. Runs whose directories are gone stay in the database until `explorer store ingest` is asked for
it, since a disk that is not mounted looks the same. Where the database cannot be written, what it has is shown, and
what is missing is said.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from explorer import rundir
from explorer.errors import ExplorerError, RunError, StoreError
from explorer.store import queries
from explorer.store.examine import State, file_digest, sweeps
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.store.queries import Question

PATIENCE = 5.0  # seconds to wait for another writer, which brings in the same runs


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """What the run directories have and the snapshot lacks, and the other way round."""

    finished: int  # runs with a result that the snapshot lacks, or has as unfinished
    other: int  # plans and profiles that are new or changed
    gone: int  # finished runs of the snapshot that have no directory any more


def bring_up(runs: Path, *, patience: float = PATIENCE) -> tuple[str, ...]:
    """Bring in what the database lacks, and return what a reader has to be told: nothing if all is well.

    Raises `StoreError` if there is no directory of runs or the snapshot cannot be read, and what `ingest` raises where
    there is no snapshot to fall back on.
    """
    if not database(runs).exists():
        try:
            ingest(runs, patience=patience)
        except RunError as fault:
            if not isinstance(fault.__cause__, OSError):  # in use by another process
                raise
            raise StoreError(
                f"{runs}: has no database, and none can be made ({fault}): ask whoever may write there for "
                f"`explorer store ingest --runs {runs}`, or work on a copy"
            ) from fault
        return tuple(_damaged_profiles(runs))
    gap = gap_of(runs)
    told = [_gone_words(gap.gone)] if gap.gone else []
    if gap.finished or gap.other:
        try:
            if not ingest(runs, patience=patience, forget=False).published:
                os.utime(database(runs))  # what is newer has been looked at
        except (ExplorerError, OSError) as fault:
            missing = f"{_count(gap.finished)} not in the database" if gap.finished else "the database is out of date"
            told.insert(0, f"{missing}, which cannot be written now ({fault}); `explorer store ingest` tries again")
    return (*told, *_damaged_profiles(runs))


def gap_of(runs: Path) -> Gap:
    """What an ingest would bring in. Raises `StoreError` if the snapshot cannot be read."""
    where = database(runs)
    finished = _column(where, f"SELECT directory FROM runs WHERE state = '{State.FINISHED}'")
    problems = _column(where, "SELECT directory FROM problems")
    profiles = _column(where, "SELECT DISTINCT source FROM profiles") | problems
    plans = dict(queries.select(where, Question(sql="SELECT source, version FROM plans")).rows)
    made = where.stat().st_mtime_ns
    here, missing, other = set[str](), 0, 0
    for sweep in sweeps(runs):
        for name in _names(sweep):
            directory = f"{sweep.name}/{name}"
            here.add(directory)
            missing += (
                directory not in finished and directory not in problems and (sweep / name / rundir.RESULT).exists()
            )
        other += _plan_changed(sweep, plans.get(f"{sweep.name}/{rundir.SWEEP}"), made=made)
        other += _profiles_changed(runs, sweep, profiles, made=made)
    other += _profiles_changed(runs, runs, profiles, made=made)
    return Gap(finished=missing, other=other, gone=len(finished - here))


def refuse_gone(runs: Path, sweep: str) -> None:
    """Raise `StoreError` where the database has finished runs of a sweep, and none of their directories is there."""
    asked = "SELECT directory FROM runs WHERE sweep = ? AND state = 'finished'"
    found = queries.select(database(runs), Question(sql=asked, parameters=(sweep,))).rows
    if found and not any((runs / directory).is_dir() for (directory,) in found):
        raise StoreError(
            f"{runs / sweep}: the directories of its {len(found)} finished runs are gone, and the database has the "
            f"numbers alone: put them back, or forget them with `explorer store ingest`"
        )


def _damaged_profiles(runs: Path) -> list[str]:
    """Why recipes have no times: the profiles that cannot be read, each with its fault."""
    asked = Question(sql=f"SELECT directory, reason FROM problems WHERE contains(directory, '{rundir.PROFILES}/')")
    return [
        f"{reason if directory in reason else f'{directory}: {reason}'}; its recipe has no time until"
        " `explorer sweep profile` measures it again"
        for directory, reason in queries.select(database(runs), asked).rows
    ]


def _names(sweep: Path) -> list[str]:
    """The names of the directories in a sweep's that can be runs. Links are not followed."""
    try:
        with os.scandir(sweep) as entries:
            return [each.name for each in entries if each.name[0] not in "_." and each.is_dir(follow_symlinks=False)]
    except OSError as fault:
        raise RunError(f"cannot read {sweep}: {fault.strerror or fault}") from fault


def _plan_changed(sweep: Path, version: str | None, *, made: int) -> bool:
    plan = sweep / rundir.SWEEP
    try:
        newer = plan.stat().st_mtime_ns >= made
    except FileNotFoundError:
        return False  # gone, or there never was one
    return (version is None or newer) and file_digest(plan) != version


def _profiles_changed(runs: Path, place: Path, known: set[str], *, made: int) -> bool:
    return any(
        path.relative_to(runs).as_posix() not in known or path.stat().st_mtime_ns >= made
        for path in (place / rundir.PROFILES).glob("[!.]*.json")
    )


def _column(where: Path, sql: str) -> set[str]:
    return {value for (value,) in queries.select(where, Question(sql=sql)).rows}


def _count(runs: int) -> str:
    return "1 finished run is" if runs == 1 else f"{runs:,} finished runs are"


def _gone_words(gone: int) -> str:
    runs = "1 finished run" if gone == 1 else f"{gone:,} finished runs"
    has, them = ("has", "it") if gone == 1 else ("have", "them")
    return f"{runs} of the database {has} no directory any more; `explorer store ingest` forgets {them}"
