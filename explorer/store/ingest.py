"""The one writer of the database: brings it up to the run directories, then publishes a snapshot for readers.

What is in the directories decides, and of each sweep its plan (`explorer.planned`). A run that is new is read, checked
and added; one that changed, because it went on or was run again, is added in its new version; one that is gone is
marked as gone. A directory that cannot be read or contradicts itself is reported and stays visible as damaged, and the
others go on. Doing it twice changes nothing, and doing it from nothing gives the same snapshot.

Files that a finished run lists are read once, when the run is added; `explorer.audit.integrity` reads them again.
"""

import dataclasses
import itertools
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

from explorer import rundir
from explorer.costing import Price, load_prices, own_prices
from explorer.errors import StoreError
from explorer.store import schema
from explorer.store.bulk import insert
from explorer.store.connect import connect_in_memory
from explorer.store.examine import State, candidates, read_metrics, sweeps
from explorer.store.place import STORAGE_VERSION, database
from explorer.store.publish import LiveMetric, publish, put_in_place, quoted, remove
from explorer.store.rows import TABLES, Found, Source, is_settled, look

DIRECTORY = "_store"
WORKING = "store.duckdb"
FRESH = "fresh.duckdb"  # the working database, while it is made
SNAPSHOT = "snapshot.duckdb"  # the next snapshot, while it is made
ROOM = 16 * 2**20  # free bytes of a disk below which an error of the database is called one of the disk
BATCH = 100  # sources to a transaction
PATIENCE = 60.0  # seconds to wait for another ingest, which takes much less


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A run or profile that cannot be used."""

    directory: str  # relative to the directory of runs
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Ingested:
    """What an ingest did."""

    added: int  # runs and profiles in a new version, among them the first
    unchanged: int
    removed: int
    problems: tuple[Problem, ...]  # all that there are now, not only the new ones
    undeclared: tuple[Problem, ...]  # finished runs with undeclared metrics: these are kept, and not shown
    database: Path
    published: bool  # False: the snapshot was up to date


def ingest(
    runs: Path, *, live: bool = False, patience: float = PATIENCE, force: bool = False, forget: bool = True
) -> Ingested:
    """Bring database and snapshot up to the run directories below `runs`.

    `live` adds what unfinished runs have measured so far to the snapshot, and to nothing else. `force` makes the
    snapshot anew even if it was made from the same content. Without `forget`, runs whose directories are gone stay.

    Raises `StoreError` if the database is damaged or the disk refuses, `RunError` if another process ingests for
    longer than `patience` seconds, and `PriceError` if the user's `prices.csv` cannot be used.
    """
    prices = _prices(runs)
    with _working(runs, patience=patience) as work:
        before, paths = _present(work), _paths(runs)
        added = 0
        for batch in _batches(_news(runs, paths, before), BATCH):
            _append(work, batch)
            added += len(batch)
        removed = sorted(before.keys() - set(paths)) if forget else []
        _append(work, [_gone(before[path]) for path in removed])
        measured = list(_live_metrics(work, runs)) if live else None
        published = publish(
            work, runs=runs, beside=_directory(runs) / SNAPSHOT, prices=prices, live=measured, force=force
        )
        problems = tuple(
            Problem(directory=source.path, reason=source.problem or "")
            for source in _present(work).values()
            if source.state == State.DAMAGED
        )
        undeclared = tuple(_undeclared(work))
    return Ingested(
        added=added,
        unchanged=len(paths) - added,
        removed=len(removed),
        problems=problems,
        undeclared=undeclared,
        database=database(runs),
        published=published,
    )


def rebuild(runs: Path, *, live: bool = False, patience: float = PATIENCE) -> Ingested:
    """Forget the database and make it from the run directories. Readers keep the old snapshot until then.

    Raises what `ingest` raises, except that no damage to the database is in its way.
    """
    _prices(runs)  # before anything is forgotten
    if runs.is_dir():
        with rundir.locked(_directory(runs), what="the database", patience=patience):
            remove(_directory(runs) / WORKING)
    return ingest(runs, live=live, patience=patience, force=True)


def _prices(runs: Path) -> tuple[Price, ...]:
    """The shipped prices, and the user's own."""
    return (*load_prices(), *own_prices(runs))


@contextmanager
def _working(runs: Path, *, patience: float) -> Iterator[duckdb.DuckDBPyConnection]:
    """Hold the lock and the working database, attached as `work`; made if there is none."""
    if not runs.is_dir():
        raise StoreError(f"there is no directory {runs}: name the directory that holds the sweeps")
    path = _directory(runs) / WORKING
    with rundir.locked(path.parent, what="the database", patience=patience):
        try:
            if not path.exists():
                _make(path)
            with connect_in_memory(path.parent) as work:
                work.execute(f"ATTACH '{quoted(path)}' AS work (STORAGE_VERSION '{STORAGE_VERSION}')")
                _check_version(work, path)
                yield work
        except duckdb.Error as error:
            free = shutil.disk_usage(path.parent).free
            if free < ROOM:  # DuckDB tells of what it could not do then, and not why
                raise StoreError(
                    f"the disk that holds {path.parent} is full: {free / 2**20:.1f} MiB are free, expected"
                    f" {ROOM >> 20} or more. Make room and try again: no run is lost ({_brief(error)})"
                ) from error
            raise StoreError(
                f"{path}: cannot be used ({_brief(error)}); `explorer store rebuild` makes it anew"
            ) from error
        except OSError as error:
            raise StoreError(f"cannot write {error.filename or path}: {error.strerror or error}") from error


def _make(path: Path) -> None:
    """A new working database, there whole or not at all: a half-made file could not be opened again."""
    fresh = path.with_name(FRESH)
    remove(fresh)
    with connect_in_memory(path.parent) as connection:
        connection.execute(f"ATTACH '{quoted(fresh)}' AS work (STORAGE_VERSION '{STORAGE_VERSION}')")
        connection.execute("USE work")
        connection.execute(f"BEGIN; {schema.WORKING} INSERT INTO schema_version VALUES ({schema.VERSION}); COMMIT")
        connection.execute("USE memory")
        connection.execute("DETACH work")
    remove(path)  # there is none, but perhaps its log
    put_in_place(fresh, path)


def _check_version(work: duckdb.DuckDBPyConnection, path: Path) -> None:
    found = work.execute("FROM work.schema_version").fetchone()
    if found != (schema.VERSION,):
        raise StoreError(
            f"{path}: of schema {found}, expected {schema.VERSION}; `explorer store rebuild` makes it anew"
        )


def _present(work: duckdb.DuckDBPyConnection) -> dict[str, Source]:
    rows = work.execute("SELECT path, kind, version, state, problem FROM work.present ORDER BY path").fetchall()
    names = ("path", "kind", "version", "state", "problem")
    return {row[0]: Source(**dict(zip(names, row, strict=True))) for row in rows}


def _paths(runs: Path) -> list[str]:
    """The run directories, plans and profiles, those of the sweeps and those that were imported, relative to `runs`."""
    found = []
    for sweep in sweeps(runs):
        found += [f"{sweep.name}/{run.name}" for run in candidates(sweep)]
        found += [f"{sweep.name}/{rundir.SWEEP}"] if (sweep / rundir.SWEEP).exists() else []
    for place in (runs, *sweeps(runs)):
        found += [path.relative_to(runs).as_posix() for path in (place / rundir.PROFILES).glob("[!.]*.json")]
    return sorted(found)


def _news(runs: Path, paths: list[str], before: dict[str, Source]) -> Iterator[Found]:
    """The sources that are not in the database as they are now."""
    for path in paths:
        known = before.get(path)
        if known is None or not is_settled(runs, known):
            found = look(runs, path)
            if found.source != known:
                yield found


def _append(work: duckdb.DuckDBPyConnection, batch: Iterable[Found]) -> None:
    """Add sources and what was read from them, in one transaction."""
    work.execute("BEGIN")
    (sequence,) = work.execute("SELECT coalesce(max(sequence), 0) FROM work.sources").fetchone() or (0,)
    batch = list(batch)
    log = [
        (sequence + place, s.path, s.sweep, s.kind, s.version, s.state, s.problem)
        for place, s in enumerate((found.source for found in batch), start=1)
    ]
    insert(work, "work.sources", log)
    for table in TABLES:
        insert(
            work, f"work.{table}", [row for found in batch for row in found.rows.get(table, [])], once="path, version"
        )
    work.execute("COMMIT")


def _gone(source: Source) -> Found:
    return Found(source=dataclasses.replace(source, state="gone", problem=None))


def _undeclared(work: duckdb.DuckDBPyConnection) -> Iterator[Problem]:
    """The finished runs with metrics of which neither their task nor `records.METRICS` says what they mean."""
    found = work.execute(
        "SELECT path, list(metric ORDER BY metric) FROM work.present JOIN work.finals USING (path, version) "
        "WHERE state = 'finished' AND unit IS NULL GROUP BY path ORDER BY path"
    ).fetchall()
    for path, metrics in found:
        names = ", ".join(f"{name!r:.80}" for name in metrics[:5])
        yield Problem(
            directory=path,
            reason=f"metrics that its task does not declare are kept and not shown: {names}"
            + (f" and {len(metrics) - 5} more" if len(metrics) > 5 else ""),
        )


def _live_metrics(work: duckdb.DuckDBPyConnection, runs: Path) -> Iterator[LiveMetric]:
    """What the unfinished runs have measured so far, read from their directories now."""
    unfinished = work.execute(
        "SELECT path, sweep, run_id FROM work.present JOIN work.runs USING (path, version) "
        "WHERE state NOT IN ('finished', 'damaged') ORDER BY path"
    ).fetchall()
    for path, sweep, run_id in unfinished:
        for line in read_metrics(runs / path / rundir.METRICS, unfinished=True):
            yield LiveMetric(sweep=sweep, run_id=run_id, step=line.step, metric=line.metric, value=line.value)


def _batches(items: Iterable[Found], size: int) -> Iterator[list[Found]]:
    rest = iter(items)
    while batch := list(itertools.islice(rest, size)):
        yield batch


def _directory(runs: Path) -> Path:
    return runs.resolve() / DIRECTORY


def _brief(error: Exception) -> str:
    """The first line of a database error, which goes on for pages."""
    return str(error).splitlines()[0][:200]
