"""Questions to the published snapshot, answered as plain rows. Nothing here needs pandas, so the command line is quick.

Each question opens the snapshot, asks, and closes it; `published` says why.
"""

from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from explorer.errors import StoreError, unknown
from explorer.store.published import opened

_ORDER = "sweep, recipe <> baseline, recipe, device, hardware, threads, world_size, ssr, seed, run_id"
_ORDER_OF_MEANS = _ORDER.replace("seed, run_id", "recipe_digest, methods, policy, control NULLS FIRST")

# One run of each recipe, budget and machine speaks for the others: seeds have the same phases.
_SCHEDULES = """
SELECT o.sweep, o.recipe, o.recipe_digest, o.device, o.hardware, o.threads, o.world_size, o.ssr, r.identity, s.phase,
       s.steps, p.seconds, p.low, p.high, p.windows, p.split
FROM (
    SELECT * FROM outcomes WHERE NOT superseded QUALIFY row_number() OVER (
        PARTITION BY sweep, recipe_digest, device, hardware, threads, world_size, ssr ORDER BY seed, run_id
    ) = 1
) o
JOIN runs r USING (sweep, directory)
JOIN run_phases s USING (sweep, directory)
LEFT JOIN profiles p ON p.source = o.profile AND p.phase = s.phase
WHERE s.steps > 0
"""


LATER = ("peak_memory", "added", "searched", "flops", "utilisation", "energy_kwh", "network")
"""Columns that `results` got after version 0.1.0: a table of older runs is written as it was then, without them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows with the names of their columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """An SQL statement with its parameters."""

    sql: str
    parameters: tuple[Any, ...] | dict[str, Any] = ()  # for its question marks, or by name


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """A selection of rows: those that agree in everything that is not None."""

    dataset: str | None = None
    model: str | None = None
    sweep: str | None = None
    hardware: str | None = None
    threads: int | None = None
    world_size: int | None = None

    @property
    def sql(self) -> str:
        """Return the condition, with a mark for each of the `parameters`."""
        chosen = (field.name for field in fields(self) if getattr(self, field.name) is not None)
        return " AND ".join(f"{name} = ?" for name in chosen) or "true"

    @property
    def parameters(self) -> tuple[Any, ...]:
        return tuple(value for value in astuple(self) if value is not None)


EVERYTHING = Filter()


def select(database: Path, question: Question) -> Table:
    """Return the answer to a question. Raises `StoreError` if the snapshot cannot be read."""
    with opened(database) as connection:
        answer = connection.execute(question.sql, question.parameters)
        columns = tuple(column[0] for column in answer.description or ())
        return Table(columns=columns, rows=tuple(answer.fetchall()))


def results(
    database: Path,
    *,
    sweep: str | None = None,
    metric: str | None = None,
    where: Filter = EVERYTHING,
    every: bool = False,
) -> Table:
    """Return the view `results`: one row for each finished run and hardware that it is shown on.

    A column of `LATER` is there if some row has a value in it.

    Args:
        database: the published snapshot.
        sweep: one sweep; by default all of them.
        metric: the metric in place of each run's quality.
        where: only these rows.
        every: include runs that the plans of their sweeps leave out, marked in a column `superseded`.

    Raises `StoreError` for a sweep or metric that the database does not hold.
    """
    table = select(database, results_question(sweep=sweep, metric=metric, where=where, every=every))
    if not table.rows:
        check_names(database, sweep=sweep, metric=metric)
    unknown_ones = {name for name in LATER if all(row[table.columns.index(name)] is None for row in table.rows)}
    kept = [place for place, name in enumerate(table.columns) if name not in unknown_ones]
    return Table(
        columns=tuple(table.columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in table.rows),
    )


def runs(database: Path, *, sweep: str | None = None) -> Table:
    """Return the table `runs`: every run directory, in any state."""
    table = select(database, table_question("runs", sweep=sweep))
    if not table.rows:
        check_names(database, sweep=sweep)
    return table


def left_out(database: Path, *, sweep: str | None = None) -> dict[str, int]:
    """Return the number of run directories that the plan of each sweep leaves out, for sweeps that leave out some."""
    question = table_question("runs", sweep=sweep)
    counted = f"SELECT sweep, count(*) FROM ({question.sql}) WHERE superseded GROUP BY sweep ORDER BY sweep"
    return dict(select(database, Question(sql=counted, parameters=question.parameters)).rows)


def states(database: Path, *, sweep: str | None = None) -> dict[str, int]:
    """Return the number of run directories by state; those that a plan leaves out count as superseded.

    Raises `StoreError` for a sweep that the database does not hold.
    """
    question = table_question("runs", sweep=sweep)
    state = "CASE WHEN superseded THEN 'superseded' ELSE state END"
    counted = f"SELECT {state}, count(*) FROM ({question.sql}) GROUP BY ALL ORDER BY 1"
    counts = dict(select(database, Question(sql=counted, parameters=question.parameters)).rows)
    if not counts:
        check_names(database, sweep=sweep)
    return counts


def tuned_by(database: Path, sweep: str) -> str | None:
    """Return the sweep whose recipes the runs of this one tuned; None if that is not its purpose."""
    question = Question(sql="SELECT tunes FROM plans WHERE sweep = ? AND tunes IS NOT NULL", parameters=(sweep,))
    return next((name for (name,) in select(database, question).rows), None)


def sweeps(database: Path) -> list[str]:
    """Return the names of the sweeps, in order."""
    return _names(database, "SELECT DISTINCT sweep FROM runs ORDER BY 1")


def metrics(database: Path) -> list[str]:
    """Return the names of the metrics that finished runs have, in order."""
    return _names(database, "SELECT DISTINCT metric FROM facets ORDER BY 1")


def check_names(database: Path, *, sweep: str | None = None, metric: str | None = None) -> None:
    """Raise `StoreError`, with the nearest name, if an answer has no rows because a name is unknown.

    Called only for empty answers, so that the usual question costs nothing more.
    """
    if metric is not None and metric not in (known := metrics(database)):
        raise StoreError(f"{database}: {unknown('metric', metric, known)}")
    if sweep is not None and sweep not in (known := sweeps(database)):
        raise StoreError(f"{database}: {unknown('sweep', sweep, known)}")


def results_question(
    *, sweep: str | None = None, metric: str | None = None, where: Filter = EVERYTHING, every: bool = False
) -> Question:
    """Return the question behind `results`; its arguments are the same."""
    views = ("every_result", "every_result_by_metric") if every else ("results", "results_by_metric")
    question = _of_sweep(_of_metric(*views, metric=metric, where=where), sweep)
    return Question(sql=f"{question.sql} ORDER BY {_ORDER}", parameters=question.parameters)


def means_question(*, metric: str | None = None, where: Filter = EVERYTHING) -> Question:
    """Return a question for the view `means`, of each run's own metric by default, in the order of `results`."""
    question = _of_metric("(FROM means WHERE is_quality)", "means", metric=metric, where=where)
    return Question(
        sql=f"SELECT * EXCLUDE is_quality FROM ({question.sql}) ORDER BY {_ORDER_OF_MEANS}",
        parameters=question.parameters,
    )


def table_question(table: str, *, sweep: str | None = None) -> Question:
    """Return a question for all rows of a table, or those of one sweep."""
    return _of_sweep(Question(sql=f"SELECT * FROM {table}"), sweep)


def schedules_question(*, sweep: str | None = None) -> Question:
    """Return a question for the phases of each recipe and budget, with their steps and profiled step times.

    Unknown step times are null.
    """
    question = _of_sweep(Question(sql=_SCHEDULES), sweep)
    return Question(sql=f"{question.sql} ORDER BY sweep, recipe, ssr, phase", parameters=question.parameters)


def _of_metric(table: str, by_metric: str, *, metric: str | None, where: Filter) -> Question:
    """Select rows by a filter, from a table with each run's own metric, or from one with all metrics."""
    if metric is None:
        return Question(sql=f"SELECT * FROM {table} WHERE {where.sql}", parameters=where.parameters)
    sql = f"SELECT * FROM {by_metric} WHERE metric = ? AND {where.sql}"
    return Question(sql=sql, parameters=(metric, *where.parameters))


def _of_sweep(question: Question, sweep: str | None) -> Question:
    if sweep is None:
        return question
    return Question(sql=f"SELECT * FROM ({question.sql}) WHERE sweep = ?", parameters=(*question.parameters, sweep))


def _names(database: Path, sql: str) -> list[str]:
    return [name for (name,) in select(database, Question(sql=sql)).rows]
