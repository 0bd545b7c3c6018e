"""MLflow's runs as a source, read without MLflow: its database, or the files that it kept before version 3.

`mlflow.db` is a file of SQLite; of its tables these are read, which have been the same since version 1.0:

    experiments      experiment_id, name, lifecycle_stage
    runs             run_uuid, name (or the tag mlflow.runName), status, start_time and end_time in milliseconds
    params           key, value, run_uuid
    metrics          key, value, timestamp, step, is_nan, run_uuid; infinity is the largest float

The file store is `mlruns/EXPERIMENT/RUN/`, where a name with a slash is a file in a directory:

    meta.yaml        run_id, run_name, status (3: finished), start_time and end_time in milliseconds, lifecycle_stage
    params/NAME      the value of a parameter
    metrics/NAME     a line for each measurement: milliseconds, value, step

A table of `search_runs`, written as CSV, is read by `csv_rows`.
"""

import math
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from explorer.errors import RunError, unknown
from explorer.imports.files_read import Reading
from explorer.imports.imported_file import MAX_POINTS, MAX_RUNS
from explorer.imports.mapping import Cell, Source, SourceRow
from explorer.yaml_document import parse_document

META = "meta.yaml"
DATABASE = "mlflow.db"
SQLITE = b"SQLite format 3\0"
FINISHED = 3
STATES = {1: "running", 2: "scheduled", 4: "failed", 5: "killed"}
MAX_META = 2**16
MAX_PARAMETER = 2**16
MAX_METRIC = 2**27
MAX_CELL = 2**20  # bytes of a value in the database

Points = tuple[list[int], list[float]]
"""Steps and values of a metric, by step."""


@dataclass(slots=True)
class _Run:
    """What MLflow recorded of a run."""

    where: str
    run_id: str
    experiment: str
    name: object
    status: object
    start: object  # milliseconds
    end: object
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, Points] = field(default_factory=dict)


def read_mlflow(path: Path, *, experiment: str | None = None) -> Source:
    """Open MLflow's database, its directory `mlruns`, or one experiment of that.

    `experiment` is the name of one experiment, needed where there are several. Raises `RunError` that names file, line
    and fault.
    """
    reading = Reading(path)
    runs = list(_in_database(path, reading) if path.is_file() else _in_files(path, reading))
    names = sorted({run.experiment for run in runs})
    if experiment is not None and experiment not in names:
        raise RunError(f"{path}: {unknown('experiment', experiment, names)}")
    if experiment is None and len(names) > 1:
        # Runs of two experiments may differ in data and model, which nothing here could tell.
        raise RunError(f"{path}: found {len(names)} experiments; choose one with --experiment: {', '.join(names[:40])}")
    if not runs:
        raise RunError(f"{path}: no run of MLflow in it; expected {_expected(path)}")
    return reading.source("mlflow", [_row(run) for run in runs if experiment in (None, run.experiment)])


def _expected(path: Path) -> str:
    """Return where runs may be: since version 3 `mlruns` may hold nothing but the files that runs saved."""
    near = [place for place in (path / DATABASE, path.parent / DATABASE) if path.is_dir() and place.is_file()]
    if near:
        return f"the database {near[0]}, where MLflow 3 keeps them"
    return f"its database `{DATABASE}`, its directory `mlruns`, or a CSV file of its runs"


def _row(run: _Run) -> SourceRow:
    cells = dict[str, Cell]()
    if isinstance(run.name, str) and run.name:
        cells["name"] = run.name
    if isinstance(run.start, int) and isinstance(run.end, int) and run.end > run.start:
        cells["duration"] = (run.end - run.start) / 1000
    cells |= run.params
    curves = dict[str, Points]()
    for name, (steps, values) in run.metrics.items():
        if values:
            cells[name if name not in cells else f"metrics.{name}"] = values[-1]
        finite = [(step, value) for step, value in zip(steps, values, strict=True) if math.isfinite(value)]
        if len(finite) > 1:  # one measurement is a number and no curve
            curves[name] = ([step for step, _ in finite], [value for _, value in finite])
    return SourceRow(where=run.where, run_id=run.run_id, cells=cells, curves=curves, fault=_fault(run.status))


def _fault(status: Any) -> str:
    if status in (FINISHED, "FINISHED"):
        return ""
    words = STATES.get(status) if isinstance(status, int) else None
    return f"its status is {words or str(status)[:40].lower()}"


# --- the database ---


def _in_database(path: Path, reading: Reading) -> Iterator[_Run]:
    """Yield the runs of a database that may come from a stranger: nothing in it is executed, or written."""
    with path.open("rb") as file:
        if file.read(len(SQLITE)) != SQLITE:
            raise RunError(f"{path}: not a database of SQLite; expected {_expected(path)}")
    for ending in ("-wal", "-journal"):
        pending = path.with_name(path.name + ending)
        if pending.is_file() and pending.stat().st_size:
            raise RunError(f"{pending} holds changes that are not in {path.name} yet: stop MLflow, then import it")
    reading.digest(path)
    try:
        # Immutable: no lock, no file next to it, so that a database on a read-only disk can be read too.
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_CELL)
            database.execute("PRAGMA trusted_schema = OFF")
            _refuse_other_tables(database, path)
            runs = _runs(database, path)
            _add_params(database, runs, path)
            _add_metrics(database, runs, path)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise RunError(f"{path}: cannot be read: {str(error)[:200]}") from error
    yield from runs.values()


def _refuse_other_tables(database: sqlite3.Connection, path: Path) -> None:
    """Raise `RunError` unless what is read are plain tables: a view could be any program."""
    for table in ("experiments", "runs", "params", "metrics"):
        made = database.execute("SELECT type, sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        if made is None or made[0] != "table" or not str(made[1]).upper().startswith("CREATE TABLE"):
            raise RunError(f"{path}: no table {table!r}; expected a database of MLflow")


def _runs(database: sqlite3.Connection, path: Path) -> dict[str, _Run]:
    rows = database.execute(
        "SELECT r.run_uuid, e.name, r.name, r.status, r.start_time, r.end_time"
        " FROM runs r JOIN experiments e ON e.experiment_id = r.experiment_id"
        " WHERE r.lifecycle_stage = 'active' AND e.lifecycle_stage = 'active' ORDER BY r.start_time, r.run_uuid"
    )
    runs = dict[str, _Run]()
    for run_id, experiment, name, status, start, end in rows:
        where = f"{path}, run {run_id!r:.50}"
        _check(where, (run_id, str), (experiment, str))
        runs[run_id] = _Run(where, run_id, experiment, name, status, start, end)
        if len(runs) > MAX_RUNS:
            raise RunError(f"{path}: more than {MAX_RUNS:,} runs; import a part of it")
    return runs


def _add_params(database: sqlite3.Connection, runs: Mapping[str, _Run], path: Path) -> None:
    for run_id, key, value in database.execute("SELECT run_uuid, key, value FROM params ORDER BY run_uuid, key"):
        if run_id in runs:
            _check(f"{path}, table params, run {run_id!r:.50}", (key, str), (value, str))
            runs[run_id].params[key] = value.strip()


def _add_metrics(database: sqlite3.Connection, runs: Mapping[str, _Run], path: Path) -> None:
    rows = database.execute(
        "SELECT run_uuid, key, step, value, is_nan FROM metrics ORDER BY run_uuid, key, step, timestamp, value"
    )
    count = 0
    for run_id, key, step, value, is_nan in rows:
        if run_id not in runs:
            continue
        where = f"{path}, table metrics, run {run_id!r:.50}"
        _check(where, (key, str), (step, int), (value, (int, float)))
        if not 0 <= step < 2**53:
            raise RunError(f"{where}: found the step {step}; expected 0 or more")
        if abs(value) >= sys.float_info.max:
            value = math.copysign(math.inf, value)
        steps, values = runs[run_id].metrics.setdefault(key, ([], []))
        if steps and steps[-1] == step:  # of several at one step the last counts
            values.pop()
        else:
            steps.append(step)
        values.append(math.nan if is_nan else float(value))
        count += 1
        if count > MAX_POINTS:
            raise RunError(f"{path}: more than {MAX_POINTS:,} measurements; import a part of it")


def _check(where: str, *typed: tuple[object, type | tuple[type, ...]]) -> None:
    """Raise `RunError` for a value of another type: any column of SQLite can hold any."""
    for value, kind in typed:
        if not isinstance(value, kind):
            raise RunError(f"{where}: found {value!r:.60}; expected {'a text' if kind is str else 'a number'}")


# --- the file store ---


def _in_files(path: Path, reading: Reading) -> Iterator[_Run]:
    # An experiment has a meta.yaml as its runs do; only a run has metrics and parameters next to it.
    metas = {meta.parent: _meta(meta, reading) for meta in reading.find(META)}
    for directory, value in metas.items():
        experiment = metas.get(directory.parent, {})
        if "run_id" in value and "deleted" not in (value.get("lifecycle_stage"), experiment.get("lifecycle_stage")):
            run = _Run(
                where=str(directory),
                run_id=directory.name,
                experiment=str(experiment.get("name", directory.parent.name))[:200],
                name=value.get("run_name"),
                status=value.get("status"),
                start=value.get("start_time"),
                end=value.get("end_time"),
            )
            for name, file in _files(directory / "params", reading):
                run.params[name] = _utf8(reading.read(file, max_bytes=MAX_PARAMETER), file).strip()
            for name, file in _files(directory / "metrics", reading):
                run.metrics[name] = _points(_utf8(reading.read(file, max_bytes=MAX_METRIC), file), file)
            yield run


def _meta(path: Path, reading: Reading) -> dict[Any, Any]:
    value = parse_document(_utf8(reading.read(path, max_bytes=MAX_META), path), where=str(path)).value
    return value if isinstance(value, dict) else {}


def _files(directory: Path, reading: Reading) -> Iterator[tuple[str, Path]]:
    if directory.is_dir() and not directory.is_symlink():
        for path in reading.files(directory):
            yield path.relative_to(directory).as_posix(), path


def _points(text: str, path: Path) -> Points:
    """Return steps and values of a metric, by step; of several at one step the last counts."""
    points = dict[int, float]()
    for number, line in enumerate(text.splitlines(), start=1):
        parts = line.split()
        if not parts:
            continue
        try:
            if len(parts) < 2:
                raise ValueError(line)
            step = int(parts[2]) if len(parts) > 2 else 0
            if not 0 <= step < 2**53:
                raise ValueError(line)
            points[step] = float(parts[1])
        except ValueError:
            raise RunError(
                f"{path}, line {number}: found {line!r:.80}; expected milliseconds, a value and a step"
            ) from None
    steps = sorted(points)
    return steps, [points[step] for step in steps]


def _utf8(content: bytes, path: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise RunError(f"{path}: not text in UTF-8: {error.reason}") from error
