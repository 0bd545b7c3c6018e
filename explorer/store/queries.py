"""Questions to the published snapshot, answered as plain rows. Nothing here needs pandas, so the command line is quick.

Every question opens the snapshot, asks, and closes it: see `published`.
"""

from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from explorer.errors import StoreError, unknown
from explorer.store.published import opened

_ORDER = "sweep, recipe <> baseline, recipe, device, hardware, threads, world_size, ssr, seed, run_id"
_ORDER_OF_MEANS = _ORDER.replace("seed, run_id", "recipe_digest, methods, policy, control NULLS FIRST")

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows with the names of their columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """An SQL statement with its parameters."""

    sql: str
    parameters: tuple[Any, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """The rows that agree in everything that is not None; there may be none."""

    dataset: str | None = None
    model: str | None = None
    sweep: str | None = None
    hardware: str | None = None
    threads: int | None = None
    world_size: int | None = None

    @property
    def sql(self) -> str:
        """The condition, with a mark for each of the `parameters`."""
        chosen = (field.name for field in fields(self) if getattr(self, field.name) is not None)
        return " AND ".join(f"{name} = ?" for name in chosen) or "true"

    @property
    def parameters(self) -> tuple[Any, ...]:
        return tuple(value for value in astuple(self) if value is not None)


EVERYTHING = Filter()


def select(database: Path, question: Question) -> Table:
    """Ask and close. Raises `StoreError` if the snapshot cannot be read."""
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
    """The view `results`: one row for each hardware that a finished run is shown on, with `metric` in place of its
    quality if one is named, as far as `where` means it. With `every` also the runs that the plans of their sweeps leave
    out, which the column `superseded` tells.

    Raises `StoreError` for a sweep or metric that the database does not hold.
    """
    table = select(database, results_question(sweep=sweep, metric=metric, where=where, every=every))
    if not table.rows:
        check_names(database, sweep=sweep, metric=metric)
    return table


def runs(database: Path, *, sweep: str | None = None) -> Table:
    """The table `runs`: every run directory, whatever its state."""
    table = select(database, table_question("runs", sweep=sweep))
    if not table.rows:
        check_names(database, sweep=sweep)
    return table


def left_out(database: Path, *, sweep: str | None = None) -> dict[str, int]:
    """How many run directories the plan of each sweep leaves out; sweeps that leave out none are not in it."""
    asked = table_question("runs", sweep=sweep)
    counted = f"SELECT sweep, count(*) FROM ({asked.sql}) WHERE superseded GROUP BY sweep ORDER BY sweep"
    return dict(select(database, Question(sql=counted, parameters=asked.parameters)).rows)


def states(database: Path, *, sweep: str | None = None) -> dict[str, int]:
    """How many run directories are in each state that some of them are in; those that a plan leaves out are counted as
    superseded.

    Raises `StoreError` for a sweep that the database does not hold.
    """
    asked = table_question("runs", sweep=sweep)
    state = "CASE WHEN superseded THEN 'superseded' ELSE state END"
    counted = f"SELECT {state}, count(*) FROM ({asked.sql}) GROUP BY ALL ORDER BY 1"
    found = dict(select(database, Question(sql=counted, parameters=asked.parameters)).rows)
    if not found:
        check_names(database, sweep=sweep)
    return found


def sweeps(database: Path) -> list[str]:
    """The names of the sweeps, in order."""
    return _names(database, "SELECT DISTINCT sweep FROM runs ORDER BY 1")


def metrics(database: Path) -> list[str]:
    """The names of the metrics that finished runs have, in order."""
    return _names(database, "SELECT DISTINCT metric FROM facets ORDER BY 1")


def check_names(database: Path, *, sweep: str | None = None, metric: str | None = None) -> None:
    """Say whether an answer without rows comes of a name that is not known: nothing is asked before it is needed.

    Raises `StoreError` with the nearest name.
    """
    if metric is not None and metric not in (known := metrics(database)):
        raise StoreError(f"{database}: {unknown('metric', metric, known)}")
    if sweep is not None and sweep not in (known := sweeps(database)):
        raise StoreError(f"{database}: {unknown('sweep', sweep, known)}")


def results_question(
    *, sweep: str | None = None, metric: str | None = None, where: Filter = EVERYTHING, every: bool = False
) -> Question:
    """What `results` asks."""
    views = ("every_result", "every_result_by_metric") if every else ("results", "results_by_metric")
    asked = _of_sweep(_of_metric(*views, metric=metric, where=where), sweep)
    return Question(sql=f"{asked.sql} ORDER BY {_ORDER}", parameters=asked.parameters)


def means_question(*, metric: str | None = None, where: Filter = EVERYTHING) -> Question:
    """The view `means`, of the metric that runs are judged by unless one is named; in the order of `results`."""
    asked = _of_metric("(FROM means WHERE is_quality)", "means", metric=metric, where=where)
    return Question(
        sql=f"SELECT * EXCLUDE is_quality FROM ({asked.sql}) ORDER BY {_ORDER_OF_MEANS}", parameters=asked.parameters
    )


def table_question(table: str, *, sweep: str | None = None) -> Question:
    """All rows of a table, or those of one sweep."""
    return _of_sweep(Question(sql=f"SELECT * FROM {table}"), sweep)


def schedules_question(*, sweep: str | None = None) -> Question:
    """The phases of each recipe at each budget, with the steps and the profiled step time of each: of one of its runs,
    for the others have the same. Unknown step times are null."""
    asked = _of_sweep(Question(sql=_SCHEDULES), sweep)
    return Question(sql=f"{asked.sql} ORDER BY sweep, recipe, ssr, phase", parameters=asked.parameters)


def _of_metric(table: str, by_metric: str, *, metric: str | None, where: Filter) -> Question:
    """The rows that a filter means, of a table that has the own metric of runs or of one that has all of them."""
    if metric is None:
        return Question(sql=f"SELECT * FROM {table} WHERE {where.sql}", parameters=where.parameters)
    sql = f"SELECT * FROM {by_metric} WHERE metric = ? AND {where.sql}"
    return Question(sql=sql, parameters=(metric, *where.parameters))


def _of_sweep(asked: Question, sweep: str | None) -> Question:
    if sweep is None:
        return asked
    return Question(sql=f"SELECT * FROM ({asked.sql}) WHERE sweep = ?", parameters=(*asked.parameters, sweep))


def _names(database: Path, sql: str) -> list[str]:
    return [name for (name,) in select(database, Question(sql=sql)).rows]
