"""Upkeep of the database: readers bring it up to the run directories first, so that no answer lacks a finished run.

`run_sources.gap_of` finds what is missing in milliseconds; an ingest follows only if something is. Reading never
forgets: runs whose directories are gone stay in the database until `explorer store ingest` is asked to forget them,
since a disk that is not mounted looks the same. Where the database cannot be written, readers get what it has and a
warning that names what is missing.
"""

import os
import shlex
from pathlib import Path

from explorer import rundir
from explorer.errors import ExplorerError, RunError, StoreError
from explorer.store import queries
from explorer.store.ingest import ingest
from explorer.store.place_copy import refresh
from explorer.store.published import database, is_copy
from explorer.store.queries import Question
from explorer.store.run_sources import gap_of

PATIENCE = 5.0  # seconds to wait for another writer, which brings in the same runs


def bring_up(runs: Path, *, patience: float = PATIENCE) -> tuple[str, ...]:
    """Bring in what the database lacks, and return warnings for the reader.

    Raises `StoreError` if there is no directory of runs or the snapshot cannot be read, and what `ingest` raises where
    there is no snapshot to fall back on.
    """
    if is_copy(runs):
        return refresh(runs)
    if not database(runs).exists():
        try:
            ingest(runs, patience=patience)
        except RunError as fault:
            if not isinstance(fault.__cause__, OSError):  # in use by another process, not unwritable
                raise
            raise StoreError(
                f"{runs}: has no database, and none can be made ({fault}): ask someone who may write there to run"
                f" `explorer store ingest --runs {shlex.quote(str(runs))}`, or work on a copy"
            ) from fault
        return tuple(map(_profile_warning, gap_of(runs).damaged_profiles))
    gap = gap_of(runs)
    warnings = [_gone_warning(gap.gone)] if gap.gone else []
    if gap.finished or gap.other:
        try:
            if not ingest(runs, patience=patience, forget=False).published:
                # The newer files changed nothing. Without a new time on the snapshot every reader would look again.
                os.utime(database(runs))
        except (ExplorerError, OSError) as fault:
            missing = f"{_count(gap.finished)} not in the database" if gap.finished else "the database is out of date"
            warnings.insert(0, f"{missing}, which cannot be written now ({fault}); `explorer store ingest` tries again")
        gap = gap_of(runs)  # the ingest may have found damaged profiles, or seen them mended
    return (*warnings, *map(_profile_warning, gap.damaged_profiles))


def refuse_gone(runs: Path, sweep: str) -> None:
    """Raise `StoreError` if the database has finished runs of a sweep and none of their directories is there."""
    sql = "SELECT directory FROM runs WHERE sweep = ? AND state = 'finished' AND imported IS NULL"
    question = Question(sql=sql, parameters=(sweep,))
    directories = [directory for (directory,) in queries.select(database(runs), question).rows]
    if directories and not any((runs / directory).is_dir() for directory in directories):
        raise StoreError(
            f"{runs / sweep}: the directories of its {len(directories)} finished runs are gone; the database has only"
            " their numbers. Put them back, or forget them with `explorer store ingest`"
        )


def _count(runs: int) -> str:
    return "1 finished run is" if runs == 1 else f"{runs:,} finished runs are"


def _gone_warning(gone: int) -> str:
    runs = "1 finished run" if gone == 1 else f"{gone:,} finished runs"
    has, them = ("has", "it") if gone == 1 else ("have", "them")
    return f"{runs} of the database {has} no directory any more; `explorer store ingest` forgets {them}"


def _profile_warning(profile: tuple[str, str]) -> str:
    path, reason = profile
    fault = reason if path in reason else f"{path}: {reason}"
    if path.endswith(f"/{rundir.IMPORTED}"):
        return f"{fault}; none of its runs is shown until it is imported again"
    return f"{fault}; its recipe has no time until `explorer sweep profile` measures it again"
