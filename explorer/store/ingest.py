"""The one writer of the database: brings it up to the run directories, then publishes a snapshot for readers.

The directories decide what is there, and the plan of each sweep what of it counts (`explorer.planned`). A new run is
read, checked and added; one that changed, because it was continued or run again, is added in its new version; one that
is gone is marked as gone. A directory that cannot be read or contradicts itself is reported, stays visible as damaged,
and does not stop the others. A second ingest changes nothing, and one from nothing gives the same snapshot.

The files that a finished run lists are read once, when the run is added; `explorer.audit.integrity` reads them again.
"""

import dataclasses
import itertools
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import duckdb

from explorer import run_files, rundir
from explorer.canonical import canonical, digest
from explorer.entries.fields import read_float
from explorer.entries.kinds import Decision, decode
from explorer.errors import ExplorerError, RunError, StoreError
from explorer.imports.imported_file import About, ImportedRun, read_import
from explorer.ledger.storage import LedgerDirectory
from explorer.planned import read_plan
from explorer.run_files import TRAIN_LOSS, ResultRecord
from explorer.runlog.documents import read_policy
from explorer.runlog.forecast import STRUCTURAL, overhead_of, route_of
from explorer.runlog.influence import Presence, reach_of
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target, read_origin
from explorer.store.connect import connect_in_memory
from explorer.store.examine import Examined, State, examine, read_metrics, version
from explorer.store.published import VERSION, database, is_copy
from explorer.store.run_sources import PROFILE_FILES, candidates, file_digest, known_prices, sweeps
from explorer.store.snapshot_tables import STORAGE_VERSION, LiveMetric, insert, publish, put_in_place, quoted, remove
from explorer.store.snapshot_tables import WORKING as SCHEMA
from explorer.store.spool_reader import entropy_rows, segment_sums

DIRECTORY = "_store"
WORKING = "store.duckdb"
FRESH = "fresh.duckdb"  # the working database, while it is made
SNAPSHOT = "snapshot.duckdb"  # the next snapshot, while it is made
EXTRACTS = "extracts"  # directory of snapshots of one sweep each
PART = "part.duckdb"  # the rows of one sweep, while its snapshot is made
ROOM = 16 * 2**20  # free bytes; with less, an error of the database is reported as a full disk
BATCH = 100  # sources in a transaction: a killed ingest loses no more work than that
PATIENCE = 60.0  # seconds to wait for another ingest, which takes much less


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A run or profile that cannot be used."""

    directory: str  # relative to the directory of runs
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Ingested:
    """Result of an ingest."""

    added: int  # runs and profiles in a new version, among them the first
    unchanged: int
    removed: int
    problems: tuple[Problem, ...]  # all present ones, not only new ones
    undeclared: tuple[Problem, ...]  # finished runs with undeclared metrics, which are kept and not shown
    database: Path
    published: bool  # False: the snapshot was up to date


GOVERNED = ("contributions", "entropy", "decisions", "ledger_heads", "deletion_routes", "deletions")
TABLES = ("runs", "finals", "metrics", "timings", "profiles", "plans", "imports", "imported", *GOVERNED)

Row = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A run directory, a profile, a plan or an import, with its state."""

    path: str  # relative to the directory of runs
    kind: str  # "run", "profile", "plan" or "import"
    version: str
    state: str  # a run's `State`; of the others "usable" or "damaged"; "gone"
    problem: str | None = None

    @property
    def sweep(self) -> str | None:
        """Return its sweep; None for an imported profile."""
        first = self.path.split("/")[0]
        return None if first == rundir.PROFILES else first


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A source with what was read from it, as rows by table."""

    source: Source
    rows: dict[str, list[Row]] = field(default_factory=dict)


def ingest(
    runs: Path, *, live: bool = False, patience: float = PATIENCE, force: bool = False, forget: bool = True
) -> Ingested:
    """Bring database and snapshot up to the run directories below `runs`.

    Args:
        runs: the directory of runs.
        live: add the measurements of the runs that are training to the snapshot, and to nothing else.
        patience: seconds to wait for another ingest.
        force: make the snapshot again even if it was made from the same content.
        forget: forget runs whose directories are gone.

    Raises `StoreError` if the database is damaged or the disk refuses, `RunError` if another process ingests for
    longer than `patience` seconds, and `PriceError` if the user's `prices.csv` cannot be used.
    """
    if is_copy(runs):
        raise StoreError(f"{runs}: a copy of what a place has published, which is not written to")
    prices = known_prices(runs)
    # Prices are read before the lock is taken: a mistake in them must not be found after the work.
    with _working(runs, patience=patience) as work:
        # --- what is there now, compared with the last time ---
        before, paths = _present(work), _paths(runs)
        added = 0
        # --- what is new, in batches: each is committed, so that a killed ingest resumes where it was ---
        for batch in _batches(_news(runs, paths, before), BATCH):
            _append(work, batch)
            added += len(batch)
        # --- what is gone: marked, never deleted ---
        gone = sorted(before.keys() - set(paths))
        removed = gone if forget else [path for path in gone if _is_deleted_import(runs, path)]
        _append(work, [_gone(before[path]) for path in removed])
        # --- the snapshot for readers ---
        measured = list(_live_metrics(work, runs)) if live else None
        published = publish(
            work, runs=runs, fresh=_directory(runs) / SNAPSHOT, prices=prices, live=measured, force=force
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
    """Remove the database and make it again from the run directories. Readers keep the old snapshot until then.

    Raises what `ingest` raises, except for damage to the database.
    """
    known_prices(runs)  # before anything is forgotten
    if runs.is_dir():
        with rundir.locked(_directory(runs), what="the database", patience=patience):
            remove(_directory(runs) / WORKING)
    return ingest(runs, live=live, patience=patience, force=True)


def extract(runs: Path, sweep: str) -> Path:
    """Make a snapshot of one sweep as the database has it, with shipped prices, and return its path.

    It holds no row, and no price, that is not of this sweep or in the package. Raises what `ingest` raises.
    """
    directory, part = _directory(runs) / EXTRACTS / sweep, _directory(runs) / PART
    with _working(runs, patience=PATIENCE) as connection:
        rundir.make_directory(directory)
        remove(part)
        connection.execute(f"ATTACH '{quoted(part)}' AS part (STORAGE_VERSION '{STORAGE_VERSION}')")
        connection.execute("USE part")
        connection.execute(f"BEGIN; {SCHEMA}")
        connection.execute("INSERT INTO part.sources SELECT * FROM work.sources WHERE sweep = ?", [sweep])
        for table in TABLES:
            sql = f"INSERT INTO part.{table} SELECT * FROM work.{table} WHERE starts_with(path, ?)"
            connection.execute(sql, [f"{sweep}/"])
        connection.execute("COMMIT; USE memory; DETACH part; DETACH work")
        connection.execute(f"ATTACH '{quoted(part)}' AS work (READ_ONLY)")
        prices = known_prices(directory)  # those of the user are the user's own
        fresh = directory / SNAPSHOT
        publish(connection, runs=directory, fresh=fresh, prices=prices, live=None, force=False)
        connection.execute("DETACH work")
        remove(part)
    return database(directory)


@contextmanager
def _working(runs: Path, *, patience: float) -> Iterator[duckdb.DuckDBPyConnection]:
    """Hold the lock and the working database, attached as `work`; make it if there is none."""
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
            if free < ROOM:  # DuckDB then reports what it could not do, and not why
                raise StoreError(
                    f"the disk that holds {path.parent} is full: {free / 2**20:.1f} MiB are free, expected"
                    f" {ROOM >> 20} or more. Make room and try again: no run is lost ({_brief(error)})"
                ) from error
            raise StoreError(
                f"{path}: cannot be used ({_brief(error)}); `explorer store rebuild` makes it again"
            ) from error
        except OSError as error:
            raise StoreError(f"cannot write {error.filename or path}: {error.strerror or error}") from error


def _make(path: Path) -> None:
    """Make a working database, completely or not at all: a half-made file could not be opened again."""
    fresh = path.with_name(FRESH)
    remove(fresh)
    with connect_in_memory(path.parent) as connection:
        connection.execute(f"ATTACH '{quoted(fresh)}' AS work (STORAGE_VERSION '{STORAGE_VERSION}')")
        connection.execute("USE work")
        connection.execute(f"BEGIN; {SCHEMA} INSERT INTO schema_version VALUES ({VERSION}); COMMIT")
        connection.execute("USE memory")
        connection.execute("DETACH work")
    remove(path)  # there is no database, but perhaps the log of one: see `remove`
    put_in_place(fresh, path)


def _check_version(work: duckdb.DuckDBPyConnection, path: Path) -> None:
    versions = work.execute("FROM work.schema_version").fetchone()
    if versions != (VERSION,):
        raise StoreError(f"{path}: of schema {versions}, expected {VERSION}; `explorer store rebuild` makes it again")


def _present(work: duckdb.DuckDBPyConnection) -> dict[str, Source]:
    rows = work.execute("SELECT path, kind, version, state, problem FROM work.present_sources ORDER BY path").fetchall()
    names = ("path", "kind", "version", "state", "problem")
    return {row[0]: Source(**dict(zip(names, row, strict=True))) for row in rows}


def _paths(runs: Path) -> list[str]:
    """Return the paths of run directories, plans, and profiles of sweeps and imports, relative to `runs`."""
    paths = []
    for sweep in sweeps(runs):
        paths += [f"{sweep.name}/{run.name}" for run in candidates(sweep)]
        paths += [f"{sweep.name}/{name}" for name in (rundir.SWEEP, rundir.IMPORTED) if (sweep / name).exists()]
    for place in (runs, *sweeps(runs)):
        paths += [path.relative_to(runs).as_posix() for path in (place / rundir.PROFILES).glob(PROFILE_FILES)]
    return sorted(paths)


def _news(runs: Path, paths: list[str], before: dict[str, Source]) -> Iterator[Found]:
    """Yield the sources that the database does not have in their present state."""
    for path in paths:
        known = before.get(path)
        if known is None or not is_settled(runs, known):
            looked = look(runs, path)
            if looked.source != known:
                yield looked


def _append(work: duckdb.DuckDBPyConnection, batch: Iterable[Found]) -> None:
    """Add sources and what was read from them, in one transaction."""
    work.execute("BEGIN")
    (sequence,) = work.execute("SELECT coalesce(max(sequence), 0) FROM work.sources").fetchone() or (0,)
    batch = list(batch)
    log = [
        (sequence + place, s.path, s.sweep, s.kind, s.version, s.state, s.problem)
        for place, s in enumerate((looked.source for looked in batch), start=1)
    ]
    insert(work, "work.sources", log)
    for table in TABLES:
        insert(
            work, f"work.{table}", [row for looked in batch for row in looked.rows.get(table, [])], once="path, version"
        )
    work.execute("COMMIT")


def _gone(source: Source) -> Found:
    return Found(source=dataclasses.replace(source, state="gone", problem=None))


def _undeclared(work: duckdb.DuckDBPyConnection) -> Iterator[Problem]:
    """Yield the finished runs with metrics that neither their task nor `run_files.METRICS` declares."""
    rows = work.execute(
        "SELECT path, list(metric ORDER BY metric) FROM work.present JOIN work.finals USING (path, version) "
        "WHERE state = 'finished' AND unit IS NULL GROUP BY path ORDER BY path"
    ).fetchall()
    for path, metrics in rows:
        names = ", ".join(f"{name!r:.80}" for name in metrics[:5])
        yield Problem(
            directory=path,
            reason=f"metrics that its task does not declare are kept and not shown: {names}"
            + (f" and {len(metrics) - 5} more" if len(metrics) > 5 else ""),
        )


def _live_metrics(work: duckdb.DuckDBPyConnection, runs: Path) -> Iterator[LiveMetric]:
    """Yield the measurements of the runs that are training, read from their directories now."""
    training = work.execute(
        "SELECT path, sweep, run_id FROM work.present JOIN work.runs USING (path, version) "
        "WHERE state = 'running' ORDER BY path"
    ).fetchall()
    for path, sweep, run_id in training:
        for line in read_metrics(runs / path / rundir.METRICS, unfinished=True):
            yield LiveMetric(sweep=sweep, run_id=run_id, step=line.step, metric=line.metric, value=line.value)


def _batches(items: Iterable[Found], size: int) -> Iterator[list[Found]]:
    rest = iter(items)
    while batch := list(itertools.islice(rest, size)):
        yield batch


def _directory(runs: Path) -> Path:
    return runs.resolve() / DIRECTORY


def _brief(error: Exception) -> str:
    """Return the first line of a database error, which may have pages."""
    return str(error).splitlines()[0][:200]


# --- from a run directory, a profile or the plan of a sweep to rows of the working database ---


def is_settled(runs: Path, known: Source) -> bool:
    """Return whether a source certainly is as the database has it: complete, sound, and in the same version.

    Unfinished and damaged sources are always read again: they may have changed without a new version.
    """
    if known.state not in (State.FINISHED, "usable"):
        return False
    try:
        return _version(runs / known.path, known.kind) == known.version
    except RunError:
        return False


def look(runs: Path, path: str) -> Found:
    """Read a source. One that cannot be used is returned as damaged, with the reason."""
    kind = _kind(path)
    try:
        return _READERS[kind](path, runs / path)
    except ExplorerError as error:
        return Found(source=Source(path=path, kind=kind, version="", state=State.DAMAGED, problem=str(error)))


def _kind(path: str) -> str:
    place = PurePosixPath(path)
    if place.parent.name == rundir.PROFILES:
        return "profile"
    return {rundir.SWEEP: "plan", rundir.IMPORTED: "import"}.get(place.name, "run")


def _version(path: Path, kind: str) -> str:
    return version(path) if kind == "run" else file_digest(path)


def _run(path: str, directory: Path) -> Found:
    run = examine(directory)
    measured = [(line.step, line.metric, line.value) for line in run.metrics]
    stopped = run.state not in (State.FINISHED, State.RUNNING, State.DAMAGED)
    # No record of a run that stopped lists its measurements, and its next attempt adds to them: they are part of the
    # version, because what was read is kept once for each version.
    seen = digest([run.version, measured]) if stopped else run.version
    source = Source(path=path, kind="run", version=seen, state=run.state, problem=run.problem)
    if run.state == State.DAMAGED:
        return Found(source=source)
    key = (path, seen)
    rows = {"runs": [key + _run_columns(run)]}
    if run.result is not None or stopped:
        rows["metrics"] = [(*key, *line) for line in measured]
    if run.result is not None:
        rows["finals"] = [(*key, *final) for final in _finals(run)]
        rows["timings"] = [(*key, part, seconds) for part, seconds in dataclasses.asdict(run.result.timings).items()]
        rows |= governed_rows(run.directory, key)
    return Found(source=source, rows=rows)


def _finals(run: Examined) -> Iterator[Row]:
    """Yield each final metric: name, value, unit, direction, format; the last three None if it is not declared."""
    assert run.record is not None and run.result is not None
    for name, value in run.result.metrics.items():
        kind = run.record.metric(name)
        yield (name, value, *((kind.unit, kind.higher_is_better, kind.format) if kind else (None,) * 3))


def _run_columns(run: Examined) -> Row:
    record, result, failure = run.record, run.result, run.failure
    assert record is not None
    hardware = record.hardware
    # A command has no steps before it ends, no batches that we know of, and perhaps no examples: unknown, and not 0.
    examples = result.examples or None if result else None
    return (
        *(record.run_id, record.recipe, record.baseline, record.tuning, record.recipe_digest),
        *(canonical(record.identity).decode(), record.dataset, record.model, "+".join(record.methods)),
        *(record.ssr, record.seed, record.steps or None, record.batch_size or None, record.precision),
        *(hardware.device, hardware.name, hardware.threads, hardware.world_size),
        *(record.quality, record.phases),
        *((examples, result.timed_steps, result.contended, result.resumed) if result else (None,) * 4),
        *((result.state_digest, result.finished_at) if result else (None,) * 2),
        *((failure.kind, failure.message, failure.attempts) if failure else (None,) * 3),
        *(record.control, "+".join(record.control_of) or None, record.effective_digest),
        *(result.peak_memory if result else None, None, None, result.clock if result else None),
        loss.unit if (loss := record.metric(TRAIN_LOSS)) else None,
        *(_counted(result) if result else (None, None, None)),
    )


def _counted(result: ResultRecord) -> Row:
    """Return operations, utilisation and energy."""
    return (None if result.flops is None else result.flops.total, result.utilisation, result.energy_kwh)


def _profile(path: str, file: Path) -> Found:
    seen = file_digest(file)
    profile = run_files.read_profile(file)
    canonical(run_files.to_json(profile))  # no number or text that a database would refuse
    if file.name != f"{profile.key}.json":
        raise RunError(f"{file}: holds the profile {profile.key!r}, not the one that the file is named for")
    hardware = profile.hardware
    head = (path, seen, profile.key, profile.recipe_digest, profile.recipe)
    place = (hardware.device, hardware.name, hardware.threads, hardware.world_size, profile.torch)
    end = (profile.inference_seconds, profile.made_at, profile.effective)
    busy = None if profile.watch is None else "; ".join(profile.watch.reasons)
    rows = [
        (
            *(*head, *place, phase, step.seconds, step.low, step.high, step.windows, step.split, *end),
            *(list(step.rounds) or None, profile.profile_pass or None, busy, list(profile.inference_rounds) or None),
        )
        for phase, step in profile.phases.items()
    ]
    return Found(source=Source(path=path, kind="profile", version=seen, state="usable"), rows={"profiles": rows})


def _plan(path: str, file: Path) -> Found:
    """Return what a plan says about its runs, without its specification, which only planning needs."""
    seen = file_digest(file)
    kept = ("name", "baseline", "tuning", "source", "hardware", "runs", "spec", "until", "searched")
    whole = read_plan(file.parent)
    plan = {name: value for name, value in whole.items() if name in kept} | {"spec": {}}
    tuned = whole.get("tuned")
    row = (
        path,
        seen,
        canonical(plan).decode(),
        whole.get("tunes"),
        None if tuned is None else canonical(tuned).decode(),
    )
    return Found(source=Source(path=path, kind="plan", version=seen, state="usable"), rows={"plans": [row]})


def _import(path: str, file: Path) -> Found:
    """Return the runs of an import. Each has a path in its sweep, at which no directory is."""
    seen = file_digest(file)
    about, runs = read_import(file)
    sweep = file.parent.name
    rows: dict[str, list[Row]] = {"imports": [(path, seen, about.words, len(runs))]}
    for name in ("imported", "runs", "finals", "metrics"):
        rows[name] = []
    kind = about.metric
    for run in runs:
        key = (f"{sweep}/{run.run_id}", seen)
        rows["imported"].append((path, seen, key[0]))
        rows["runs"].append(key + _imported_columns(run, about))
        rows["finals"].append((*key, kind.name, run.quality, kind.unit, kind.higher_is_better, kind.format))
        for metric, (steps, values) in run.curves.items():
            rows["metrics"] += [(*key, step, metric, value) for step, value in zip(steps, values, strict=True)]
    return Found(source=Source(path=path, kind="import", version=seen, state="usable"), rows=rows)


def _imported_columns(run: ImportedRun, about: About) -> Row:
    # Its digest is of its name only: no run of one's own can have it, and no profile can lend it a time.
    recipe = digest({"imported": about.sha256, "recipe": run.recipe})
    identity = canonical({"imported": about.tool, "recipe": {"name": run.recipe}}).decode()
    return (
        *(run.run_id, run.recipe, about.baseline, None, recipe, identity, about.dataset, about.model, ""),
        *(run.ssr, run.seed, run.steps, None, None, "unknown", run.hardware, 1, 1, about.metric.name, {}),
        *(run.examples, None, None, None, None, about.made_at, None, None, None, None, None, recipe),
        *(None, about.words, run.seconds, None, None, None, None, None),
    )


def _is_deleted_import(runs: Path, path: str) -> bool:
    """Return whether an import was deleted. A disk that is not mounted has not even its directory."""
    return _kind(path) == "import" and (runs / path).parent.is_dir()


_READERS = {"run": _run, "profile": _profile, "plan": _plan, "import": _import}


# --- governed runs: contributions, entropy, decisions, the head of the ledger, deletability ---
#
# Contributions are summed over each segment, so that a database stays small however many steps there were; the spool in
# the run directory has every step. The ledger is read here and not verified: `explorer.audit` does that. Forecasts of
# deletion are stored without the time of a step. That is joined in the snapshot, from the profile of the run's recipe,
# so that later profiles and other prices count.

_DECISION = b'"kind":"decision"'  # in canonical JSON these bytes are nothing but an entry's kind


def governed_rows(run: Path, key: Row) -> dict[str, list[Row]]:
    """Return the rows of a run by table, each beginning with `key`; none for a run without a ledger.

    Raises `StoreError`, `LedgerError`, `ProvenanceError` or `RunError` for files that are damaged.
    """
    if not (run / rundir.LEDGER).is_dir():
        return {}
    opened = RunLedger(run)
    checkpoint = opened.ledger.checkpoint()
    return {
        "contributions": [(*key, *row) for row in segment_sums(run)],
        "entropy": [(*key, *row) for row in entropy_rows(run)],
        "decisions": [(*key, *row) for row in _decisions(opened.ledger)],
        "ledger_heads": [(*key, checkpoint.origin, checkpoint.size, checkpoint.root.hex(), _policy(opened))],
        "deletion_routes": [(*key, *row) for row in route_rows(opened)],
        "deletions": [(*key, *row) for row in deletion_rows(run)],
    }


def _policy(run: RunLedger) -> str | None:
    """Return the name of the run's routing policy; None if it has none."""
    policy = read_policy(run)
    return None if policy is None else f"{policy.name} version {policy.version}"


def _decisions(ledger: LedgerDirectory) -> list[Row]:
    """Return all decisions, in order; a re-execution from a step supersedes those taken since that step."""
    decisions: list[tuple[int, Decision]] = []
    superseded: set[int] = set()
    for index, leaf in enumerate(ledger.entries()):
        entry = decode(leaf) if _DECISION in leaf else None
        if isinstance(entry, Decision):
            if entry.action == "re-execution":
                superseded |= {
                    at for at, decision in decisions if decision.action != entry.action and decision.step >= entry.step
                }
            decisions.append((index, entry))
    return [
        (
            *(index, decision.step, decision.action, decision.rule),
            {name: read_float(text) for name, text in decision.parameters.items()},
            *(list(decision.subjects), list(decision.layers), sorted(decision.evidence), index in superseded),
        )
        for index, decision in decisions
    ]


def route_rows(run: RunLedger) -> list[Row]:
    """Return the route of deletion for each class that the run did not leave out; none for a run that did not end.

    Columns: class, level, first_step, start_step, steps, share, rest, rest_low, rest_high, own_step.

    Raises `LedgerError` for a ledger that is damaged, `ProvenanceError` for a policy that is not the run's.
    """
    if run.outline.end is None:
        return []
    presence, rows = Presence(run), list[Row]()
    for path in run.genesis.classes:
        if path not in presence.absent.classes:
            reached = reach_of(presence, Target(classes=(path,)))
            route = route_of(run, reached)
            head = (path, route.level, reached.first, route.start, route.steps, route.share)
            rows.append((*head, *_rest(run, route.level, route.steps)))
    return rows


def deletion_rows(run: Path) -> list[Row]:
    """Return the row of a run that a deletion made; none for other runs. Raises `RunError` for a damaged file.

    Columns: level, origin_run, origin, origin_size, origin_root, classes, authorities, records, begins.
    """
    origin = read_origin(run)
    if origin is None:
        return []
    ledger, target = origin.ledger, origin.target
    who = (list(target.classes), list(target.authorities), len(target.records))
    return [(origin.level, origin.run, ledger.origin, ledger.size, ledger.root, *who, origin.begins)]


def _rest(run: RunLedger, level: str, steps: int) -> tuple[float | None, ...]:
    """Return the seconds of a deletion without its steps, with their interval, and the run's seconds a step."""
    if level == "G2":
        return STRUCTURAL.seconds, STRUCTURAL.low, STRUCTURAL.high, None
    besides = overhead_of(run.run, steps=steps, of=run.steps)
    return besides.rest.seconds, besides.rest.low, besides.rest.high, besides.step
