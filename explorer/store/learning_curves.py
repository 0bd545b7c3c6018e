"""Learning curves: what runs measured while they trained, thinned for drawing, over steps, examples or seconds.

A frame of curves has a row for each drawn point:

    recipe, run_id, directory, seed, ssr, is_baseline, state    of the run
    step        optimiser steps done
    examples    training examples seen by then, with repetition
    seconds     uncontended training time by then: profiled, or else measured in the run; NaN: unknown
    value       the measurement
    mean        the mean of all measurements of the same part of the curve: what is smoothed
    loss_unit   of the run: the unit of its training loss

A curve of more points than asked for is cut into equal parts of its steps. Of each part the least and the greatest
value stay, as they were measured and where they were measured, so that no spike is lost; so do the first and the last
point of a run.

Runs that are training are read from their files, which another process appends to: nothing else knows them yet.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from explorer import run_files, rundir
from explorer.errors import ExplorerError, StoreError, unknown
from explorer.planned import read_plan
from explorer.run_files import TRAIN_LOSS, RunRecord
from explorer.store import published, queries
from explorer.store.examine import State, read_metrics
from explorer.store.published import opened

POINTS = 400  # of one curve: as many as a chart has columns of pixels, nearly
LEAST_POINTS = 20
ROWS = 4800  # of all curves together; altair refuses 5,000
MOST_RUNS = ROWS // LEAST_POINTS
ONE_BY_ONE = 16  # runs; so few that lie far apart are asked for one by one: each answer reads only its own part
APART = 2_000  # runs from the first to the last; a table is read in parts of about as many

COLUMNS = ("recipe", "run_id", "directory", "seed", "ssr", "is_baseline", "state")
NUMBERS = ("step", "examples", "seconds", "value", "mean")
UNIT = "loss_unit"
EVERY = (*COLUMNS, *NUMBERS, UNIT, "searched")

_RUNS = """
SELECT recipe, run_id, directory, seed, ssr, coalesce(is_baseline, false) AS is_baseline, state, number, steps,
       batch_size, examples, map_keys(phases) AS phases, map_values(phases) AS phase_steps,
       loss_unit, searched
FROM runs
WHERE NOT superseded AND run_id IS NOT NULL AND steps > 0 AND (? IS NULL OR sweep = ?)
  AND (? IS NULL OR directory IN (SELECT unnest(?::VARCHAR[])))
ORDER BY number
"""

# Parts are numbered by step. A step belongs to one part, so that the order within a curve is kept.
_THINNED = """
WITH points AS (SELECT run, step, value FROM metrics WHERE metric = ? AND {runs}),
spans AS (SELECT run, count(*) AS n, min(step) AS first, max(step) AS last FROM points GROUP BY run),
parts AS (
    SELECT p.run, CASE WHEN s.n <= ? THEN p.step ELSE (p.step - s.first) * ? // (s.last - s.first + 1) END AS part,
           avg(value) AS mean, any_value(s.first) AS first, any_value(s.last) AS last,
           {{step: arg_min(step, value), value: min(value)}} AS least,
           {{step: arg_max(step, value), value: max(value)}} AS most,
           {{step: min(step), value: arg_min(value, step)}} AS start,
           {{step: max(step), value: arg_max(value, step)}} AS stop
    FROM points p JOIN spans s USING (run) GROUP BY ALL
),
kept AS (
    SELECT run, mean, unnest(list_distinct(
        [least, most] || if(start.step = first, [start], []) || if(stop.step = last, [stop], [])
    )) AS point
    FROM parts
)
SELECT run, point.step AS step, point.value AS value, mean FROM kept
ORDER BY run, step
"""

# A run has one profile of its own machine. Without one, the time that was measured is spread evenly over its steps.
_STEP_TIMES = """
SELECT c.directory, p.phase, p.seconds FROM run_profiles c JOIN profiles p USING (source)
WHERE NOT c.predicted AND c.directory IN (SELECT unnest(?::VARCHAR[]))
"""
_TIMES = """
SELECT directory, train_seconds FROM outcomes
WHERE time_source <> 'predicted' AND train_seconds IS NOT NULL AND directory IN (SELECT unnest(?::VARCHAR[]))
"""

_ENDED = """
SELECT directory FROM runs WHERE sweep = ? AND state = 'finished' AND NOT superseded
ORDER BY finished_at DESC, number LIMIT ?
"""

_METRICS = """
SELECT DISTINCT metric FROM metrics
WHERE run BETWEEN (SELECT min(number) FROM runs WHERE sweep = ?) AND (SELECT max(number) FROM runs WHERE sweep = ?)
ORDER BY 1
"""


def learning_curves(
    database: Path,
    metric: str,
    *,
    sweep: str | None = None,
    directories: Sequence[str] | None = None,
    points: int = POINTS,
    timed: bool = True,
) -> pd.DataFrame:
    """Return the curves of a metric, a row for each drawn point; none for runs that did not measure it.

    Args:
        database: the published snapshot.
        metric: what was measured, such as `train_loss`.
        sweep: one sweep; by default all of them.
        directories: the runs, by their directories below the directory of runs; by default all of them.
        points: of one curve, about.
        timed: read the times of the runs; without them `seconds` is NaN.

    Raises `StoreError` for a sweep or metric that the database does not hold.
    """
    with opened(database) as connection:
        listed = None if directories is None else list(directories)
        runs = connection.execute(_RUNS, [sweep, sweep, listed, listed]).df()
        thinned = _thinned(connection, metric, list(runs["number"]), points=points)
        if thinned.empty and directories is None:
            _check_names(database, connection, metric, sweep)
        runs = runs[runs["number"].isin(thinned["run"])]
        times = _times(connection, runs["directory"].tolist()) if timed else {}
    frame = thinned.merge(runs, left_on="run", right_on="number")
    return _with_amounts(frame, times)


def recorded_metrics(database: Path, sweep: str) -> list[str]:
    """Return the names of what the runs of a sweep measured while they trained, in order."""
    question = queries.Question(sql=_METRICS, parameters=(sweep, sweep))
    return [name for (name,) in queries.select(database, question).rows]


def _check_names(database: Path, connection: duckdb.DuckDBPyConnection, metric: str, sweep: str | None) -> None:
    queries.check_names(database, sweep=sweep)
    known = [name for (name,) in connection.execute("SELECT DISTINCT metric FROM metrics ORDER BY 1").fetchall()]
    if known and metric not in known:
        raise StoreError(f"{database}: {unknown('metric', metric, known)}")


def _thinned(connection: duckdb.DuckDBPyConnection, metric: str, numbers: list[int], *, points: int) -> pd.DataFrame:
    """Return run, step, value and mean of the points that are drawn, in the order of runs and steps."""
    amounts = [points, max(1, points // 2)]
    if not numbers or (len(numbers) <= ONE_BY_ONE and max(numbers) - min(numbers) > APART):
        parts = [
            connection.execute(_THINNED.format(runs="run = ?"), [metric, number, *amounts]).df() for number in numbers
        ]
        return pd.concat(parts, ignore_index=True) if parts else _empty(("run", "step", "value", "mean"))
    wanted = "run BETWEEN ? AND ? AND run IN (SELECT unnest(?::BIGINT[]))"
    return connection.execute(
        _THINNED.format(runs=wanted), [metric, min(numbers), max(numbers), numbers, *amounts]
    ).df()


def _times(connection: duckdb.DuckDBPyConnection, directories: list[str]) -> dict[str, dict[str, float] | float]:
    """Return the seconds of a step by phase, or of the whole training, of each run of which they are known."""
    times: dict[str, dict[str, float] | float] = dict(connection.execute(_TIMES, [directories]).fetchall())
    profiled: dict[str, dict[str, float]] = {}
    for directory, phase, seconds in connection.execute(_STEP_TIMES, [directories]).fetchall():
        profiled.setdefault(directory, {})[phase] = seconds
    return times | profiled


def _with_amounts(frame: pd.DataFrame, times: Mapping[str, dict[str, float] | float]) -> pd.DataFrame:
    """Return points, run behind run, with what they took: `examples` and `seconds`."""
    steps_N, seen_N, seconds_N = frame["step"].to_numpy(float), np.empty(len(frame)), np.full(len(frame), np.nan)
    starts = np.flatnonzero(np.diff(frame["run"].to_numpy(np.int64), prepend=-1)).tolist()
    runs = frame.iloc[starts].to_dict("records")
    for (start, end), run in zip(itertools.pairwise([*starts, len(frame)]), runs, strict=True):
        # An imported run has no phases, and perhaps no batch size: all its steps count alike. Nor have a command's.
        steps, at = int(run["steps"]), steps_N[start:end]
        phases = dict(zip(run["phases"], map(int, run["phase_steps"]), strict=True)) or {"": steps}
        batch = run["batch_size"]
        if pd.isna(batch) and pd.notna(run["examples"]):
            batch = run["examples"] / steps
        batch = np.nan if pd.isna(batch) else float(batch)  # NA has no float
        seen_N[start:end] = _amount(at, phases, {name: _batch(name, batch) for name in phases})
        known = times.get(str(run["directory"]))
        if isinstance(known, dict):
            seconds_N[start:end] = _amount(at, phases, known)
        elif known is not None:
            seconds_N[start:end] = at / steps * known
    return frame.assign(examples=seen_N, seconds=seconds_N)[[*EVERY]]


def _amount(step: np.ndarray, phases: Mapping[str, int], one: Mapping[str, float]) -> np.ndarray:
    """Return what a number of steps took, given what `one` step of each phase takes; NaN if one of them is unknown.

    A run's phases are in the order in which they begin, so each is taken to end before the next.
    """
    lengths = np.array([steps for steps in phases.values()], float)
    rates = np.array([one.get(name, np.nan) for name in phases], float)
    ends = np.concatenate([[0.0], np.cumsum(lengths)])
    return np.interp(step, ends, np.concatenate([[0.0], np.cumsum(np.where(lengths > 0, lengths * rates, 0.0))]))


def _batch(phase: str, batch_size: float) -> float:
    """Return the batch size of a phase, which is part of its name where it changes: "batch 16"."""
    named = re.search(r"\bbatch (\d{1,9})\b", phase)
    return float(named[1]) if named else batch_size


def _empty(columns: Sequence[str]) -> pd.DataFrame:
    return pd.DataFrame(
        {name: pd.Series(dtype=object if name in (*COLUMNS, UNIT, "searched") else float) for name in columns}
    )


# --- runs that are training now ---


def is_training(runs: Path, sweep: str) -> bool:
    """Return whether any process executes the sweep now. It takes one attempt to lock a file."""
    return rundir.is_locked(runs / sweep)


def latest(runs: Path, sweep: str, metric: str, *, most: int, points: int = POINTS) -> pd.DataFrame:
    """Return the curves of the runs of a sweep that are training, and of those that finished last, up to `most` runs.

    They come from the files and the published snapshot; a sweep that neither has gives no row.
    """
    live = growing(runs, sweep, metric, points=points)
    room = max(0, most - live["directory"].nunique())
    where = published.database(runs)
    if not where.exists() or not room:
        return live
    ended = queries.Question(sql=_ENDED, parameters=(sweep, room))
    directories = [directory for (directory,) in queries.select(where, ended).rows]
    parts = [learning_curves(where, metric, directories=directories, points=points), live]
    drawn = [part for part in parts if len(part)]
    return pd.concat(drawn, ignore_index=True) if drawn else live


def growing(runs: Path, sweep: str, metric: str, *, points: int = POINTS) -> pd.DataFrame:
    """Return the curves of the runs of a sweep that are training, as far as they have come.

    A run whose files cannot be read, because it has just begun or is damaged, is left out: the next ingest reports it.
    """
    parts = []
    for record, searched in _training(runs, sweep):
        try:
            curve = curves_of_run(runs / sweep / record.run_id, record, metric, state=State.RUNNING, points=points)
        except ExplorerError:
            continue
        parts.append(curve.assign(searched=searched))
    drawn = [part for part in parts if len(part)]
    return pd.concat(drawn, ignore_index=True) if drawn else _empty(EVERY)


def curves_of_run(
    run: Path, record: RunRecord, metric: str, *, state: str = State.FINISHED, points: int = POINTS
) -> pd.DataFrame:
    """Return the curve of one run from its directory, without a database; its seconds are unknown.

    Raises `RunError` for measurements that cannot be read.
    """
    lines = read_metrics(run / rundir.METRICS, unfinished=state != State.FINISHED)
    measured = [(line.step, line.value) for line in lines if line.metric == metric]
    if not measured:
        return _empty(EVERY)
    return _measured(record, f"{record.sweep}/{record.run_id}", measured, state=state, points=points)


def _training(runs: Path, sweep: str) -> Iterator[tuple[RunRecord, bool]]:
    """Yield the records of the runs of a plan that some process trains now, and whether a search chose them."""
    try:
        plan = read_plan(runs / sweep)
    except ExplorerError:
        return
    for entry in plan["runs"]:
        directory = runs / sweep / PurePosixPath(str(entry["run_id"])).name
        if (directory / rundir.RESULT).exists() or not rundir.is_locked(directory):
            continue
        try:
            yield run_files.read(RunRecord, directory / rundir.RUN), plan.get("searched") is True
        except ExplorerError:
            continue


def _measured(
    record: RunRecord, directory: str, measured: list[tuple[int, float]], *, state: str, points: int
) -> pd.DataFrame:
    run: dict[str, Any] = {
        "recipe": record.recipe,
        "run_id": record.run_id,
        "directory": directory,
        "seed": record.seed,
        "ssr": record.ssr,
        "is_baseline": record.recipe == record.baseline,
        "state": str(state),
        UNIT: loss.unit if (loss := record.metric(TRAIN_LOSS)) else None,
        "searched": None,  # one run has no band
    }
    steps, values = (np.array(column, float) for column in zip(*measured, strict=True))
    kept = _extremes(values, points=points)
    steps, values = steps[kept], values[kept]
    frame = pd.DataFrame({"step": steps, "value": values, "mean": values})
    return frame.assign(
        **run,
        # Batches of a command are unknown, and so are its phases until it ends.
        examples=_amount(steps, record.phases, {name: _batch(name, record.batch_size) for name in record.phases})
        if record.batch_size
        else np.nan,
        seconds=np.nan,
    )[[*EVERY]]


def _extremes(values: np.ndarray, *, points: int) -> np.ndarray:
    """Return the places of the first and the last value, and of the extremes of equal parts, in order."""
    if len(values) <= points:
        return np.arange(len(values))
    places, start = {0, len(values) - 1}, 0
    for part in np.array_split(values, max(1, points // 2)):
        places |= {start + int(part.argmin()), start + int(part.argmax())}
        start += len(part)
    return np.array(sorted(places))
