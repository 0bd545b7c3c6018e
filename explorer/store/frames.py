"""Questions to the published snapshot, answered as DataFrames: for notebooks, views and reports.

The columns of `results` are those of the view of that name in `published`; unknown numbers are NaN, an unknown text
is NaN or None, and a column of truth values in which nothing is unknown is of type bool.
"""

from pathlib import Path

import pandas as pd

from explorer.store import queries
from explorer.store.published import opened
from explorer.store.queries import EVERYTHING, Filter, Question


def results(
    database: Path, *, sweep: str | None = None, metric: str | None = None, where: Filter = EVERYTHING
) -> pd.DataFrame:
    """One row for each hardware that a finished run is shown on, with `metric` in place of its quality if one is named,
    as far as `where` means it.

    Raises `StoreError` for a sweep or metric that the database does not hold.
    """
    asked = queries.results_question(sweep=sweep, metric=metric, where=where)
    return _frame(database, asked, sweep=sweep, metric=metric)


def means(database: Path, *, metric: str | None = None, where: Filter = EVERYTHING) -> pd.DataFrame:
    """One row for each setting, recipe and budget: `n` seeds, their mean quality, and medians of what they took. A
    number is NaN where it is known of none of them.

    Raises `StoreError` for a metric that the database does not hold.
    """
    return _frame(database, queries.means_question(metric=metric, where=where), metric=metric)


def facets(database: Path) -> pd.DataFrame:
    """What can be asked for: one row for each dataset, model, sweep, hardware and metric, with the metric's unit and
    direction, `is_quality` (whether runs there are judged by it), and how many rows `results` has: `runs`, and how many
    of them are `predicted`."""
    return _frame(database, queries.table_question("facets"))


def runs(database: Path, *, sweep: str | None = None) -> pd.DataFrame:
    """One row for each run directory, whatever its `state`; a damaged one has its `problem` and little else."""
    return _frame(database, queries.table_question("runs", sweep=sweep), sweep=sweep)


def qualities(database: Path, *, sweep: str | None = None) -> pd.DataFrame:
    """One row for each finished run and final metric: sweep, run_id, metric, value, unit, higher_is_better, format.
    A metric that is declared nowhere has no row."""
    return _frame(database, queries.table_question("qualities", sweep=sweep), sweep=sweep)


def metrics(database: Path, *, sweep: str | None = None, run_id: str | None = None) -> pd.DataFrame:
    """What was measured on the way: sweep, run_id, step, metric, value. Unfinished runs only after a live ingest."""
    return _of_run(database, "metrics", sweep, run_id)


def timings(database: Path, *, sweep: str | None = None) -> pd.DataFrame:
    """Wall time of each finished run by what it was spent on: sweep, run_id, part, seconds."""
    return _frame(database, queries.table_question("timings", sweep=sweep), sweep=sweep)


def profiles(database: Path, *, sweep: str | None = None) -> pd.DataFrame:
    """Uncontended step times: one row for each recipe, hardware and phase."""
    return _frame(database, queries.table_question("profiles", sweep=sweep), sweep=sweep)


def schedules(database: Path, *, sweep: str | None = None) -> pd.DataFrame:
    """One row for each recipe, hardware, budget and phase: identity, steps, and the profiled time of a step with its
    quartiles and what it is spent on. Unknown times are NaN."""
    return _frame(database, queries.schedules_question(sweep=sweep), sweep=sweep)


def contributions(database: Path, *, sweep: str | None = None, run_id: str | None = None) -> pd.DataFrame:
    """Sums over each segment of a governed run, by layer and class: numerators and denominators, to be added up before
    they are divided."""
    return _of_run(database, "contributions", sweep, run_id)


def entropy(database: Path, *, sweep: str | None = None, run_id: str | None = None) -> pd.DataFrame:
    """Entropy profiles, by step, layer and class; the class * is all of them together."""
    return _of_run(database, "entropy", sweep, run_id)


def decisions(database: Path, *, sweep: str | None = None, run_id: str | None = None) -> pd.DataFrame:
    """What governed runs decided, in order, with the number of the ledger's entry."""
    return _of_run(database, "decisions", sweep, run_id)


def ledger_heads(database: Path, *, sweep: str | None = None, run_id: str | None = None) -> pd.DataFrame:
    """The ledger of each governed run as it was when it was read: origin, size, root. Nobody has verified it."""
    return _of_run(database, "ledger_heads", sweep, run_id)


def deletion_forecasts(database: Path, *, sweep: str | None = None, run_id: str | None = None) -> pd.DataFrame:
    """What deleting each class of a governed run would take: level, the first step that it influenced, the step to go
    on from, steps, seconds with their interval. Unknown seconds are NaN."""
    return _of_run(database, "deletion_forecasts", sweep, run_id)


def deletions(database: Path, *, sweep: str | None = None, run_id: str | None = None) -> pd.DataFrame:
    """The runs that deletions made: level, the run that had the target, and the target. Nobody has verified them."""
    return _of_run(database, "deletions", sweep, run_id)


def prices(database: Path) -> pd.DataFrame:
    """The price table as it was at the last ingest."""
    return _frame(database, queries.table_question("prices"))


def _of_run(database: Path, table: str, sweep: str | None, run_id: str | None) -> pd.DataFrame:
    """The rows of a table, of one sweep or of one run."""
    asked = queries.table_question(table, sweep=sweep)
    if run_id is not None:
        asked = Question(sql=f"SELECT * FROM ({asked.sql}) WHERE run_id = ?", parameters=(*asked.parameters, run_id))
    return _frame(database, asked, sweep=sweep)


def _frame(database: Path, asked: Question, *, sweep: str | None = None, metric: str | None = None) -> pd.DataFrame:
    """The answer to a question. Raises `StoreError` where it has no rows because of a name that is not known."""
    with opened(database) as connection:
        frame = connection.execute(asked.sql, asked.parameters).df()
    if frame.empty:
        queries.check_names(database, sweep=sweep, metric=metric)
    return frame


# ---- runs that may bear out what a sweep measured, and sweeps that it may bear out itself

# A random subset of examples is there to be compared with, so it leaves nothing to choose.
_SWEEPS = """
SELECT sweep FROM runs
WHERE state = 'finished' AND NOT superseded AND sweep <> ? AND control IS DISTINCT FROM 'random-subset'
GROUP BY sweep
HAVING count(DISTINCT recipe_digest) = 2
   AND bool_and(recipe_digest IN (
       SELECT recipe_digest FROM runs WHERE sweep = ? AND NOT superseded AND recipe_digest IS NOT NULL
   ))
ORDER BY sweep
"""


# Where this sweep has two recipes: those that have both, and more.
_CONFIRMED = """
WITH here AS (
    SELECT DISTINCT recipe_digest FROM runs
    WHERE state = 'finished' AND sweep = ? AND control IS DISTINCT FROM 'random-subset'
)
SELECT sweep FROM runs
WHERE state = 'finished' AND sweep <> ? AND control IS DISTINCT FROM 'random-subset'
  AND (SELECT count(*) FROM here) = 2
GROUP BY sweep
HAVING count(DISTINCT recipe_digest) > 2
   AND count(DISTINCT recipe_digest) FILTER (recipe_digest IN (SELECT recipe_digest FROM here)) = 2
ORDER BY sweep
"""


def confirming(database: Path, sweep: str) -> list[str]:
    """The sweeps that may confirm a recipe of this one, and those that it may confirm itself, in order; none for a
    sweep that the database does not hold."""
    asked = [Question(sql=sql, parameters=(sweep, sweep)) for sql in (_SWEEPS, _CONFIRMED)]
    return [name for question in asked for (name,) in queries.select(database, question).rows]


def with_confirming(database: Path, sweep: str, *, metric: str | None = None) -> pd.DataFrame:
    """The rows of `results` of a sweep, of those that may confirm one of its recipes, and of those that it may confirm.

    Raises `StoreError` for a sweep or metric that the database does not hold.
    """
    names = [sweep, *confirming(database, sweep)]
    return pd.concat([results(database, sweep=name, metric=metric) for name in names], ignore_index=True)
