"""Questions to the published snapshot, answered as DataFrames: for notebooks, views and reports.

The columns of `results` are those of the view of that name in `published`; unknown numbers are NaN, an unknown text
is NaN or None, and a column of truth values in which nothing is unknown is of type bool.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from explorer.store import queries
from explorer.store.published import opened
from explorer.store.queries import EVERYTHING, Filter, Question


def results(
    database: Path, *, sweep: str | None = None, metric: str | None = None, where: Filter = EVERYTHING
) -> pd.DataFrame:
    """Return one row for each finished run and hardware that it is shown on.

    `metric` takes the place of each run's quality; `where` selects rows.
    Raises `StoreError` for a sweep or metric that the database does not hold.
    """
    question = queries.results_question(sweep=sweep, metric=metric, where=where)
    return _frame(database, question, sweep=sweep, metric=metric)


def means(database: Path, *, metric: str | None = None, where: Filter = EVERYTHING) -> pd.DataFrame:
    """Return one row for each setting, recipe and budget: `n` seeds, their mean quality, and medians of their costs.

    A number is NaN where it is known of none of them.

    Raises `StoreError` for a metric that the database does not hold.
    """
    return _frame(database, queries.means_question(metric=metric, where=where), metric=metric)


def facets(database: Path) -> pd.DataFrame:
    """Return what can be selected: one row for each dataset, model, sweep, hardware and metric.

    Columns: the metric's unit and direction, `is_quality` (runs there are judged by it), and the number of rows that
    `results` has: `runs`, of which `predicted`. `tunes`: the sweep is the tuning of another.
    """
    return _frame(database, queries.table_question("facets"))


def runs(database: Path, *, sweep: str | None = None) -> pd.DataFrame:
    """Return one row for each run directory, in any `state`; a damaged one has its `problem` and little else."""
    return _frame(database, queries.table_question("runs", sweep=sweep), sweep=sweep)


def unfinished(database: Path, *, sweep: str | None = None) -> pd.DataFrame:
    """Return one row for each run of the present plans that did not finish: `state` and `message` say why.

    `train_seconds`, `cost_usd`, `steps` and `examples` are those of its whole budget; unknown ones are NaN.
    """
    question = queries.table_question("unfinished", sweep=sweep)
    return _frame(database, Question(sql=f"{question.sql} ORDER BY directory", parameters=question.parameters))


def qualities(database: Path, *, sweep: str | None = None) -> pd.DataFrame:
    """Return one row for each finished run and declared final metric.

    Columns: sweep, run_id, metric, value, unit, higher_is_better, format.
    """
    return _frame(database, queries.table_question("qualities", sweep=sweep), sweep=sweep)


def metrics(database: Path, *, sweep: str | None = None, run_id: str | None = None) -> pd.DataFrame:
    """Return what was measured during training: sweep, run_id, step, metric, value, run (the run's number).

    Runs that are training are there only after a live ingest; `learning_curves.growing` reads them from their files.
    """
    return _of_run(database, "metrics", sweep, run_id)


def timings(database: Path, *, sweep: str | None = None) -> pd.DataFrame:
    """Return wall time of each finished run by part: sweep, run_id, part, seconds."""
    return _frame(database, queries.table_question("timings", sweep=sweep), sweep=sweep)


def profiles(database: Path, *, sweep: str | None = None) -> pd.DataFrame:
    """Return uncontended step times: one row for each recipe, hardware and phase."""
    return _frame(database, queries.table_question("profiles", sweep=sweep), sweep=sweep)


def schedules(database: Path, *, sweep: str | None = None) -> pd.DataFrame:
    """Return one row for each recipe, hardware, budget and phase: identity, steps, profiled step time.

    A step time has its quartiles and its parts. Unknown times are NaN.
    """
    return _frame(database, queries.schedules_question(sweep=sweep), sweep=sweep)


def contributions(database: Path, *, sweep: str | None = None, run_id: str | None = None) -> pd.DataFrame:
    """Return sums over each segment of a governed run, by layer and class.

    They are numerators and denominators: add them up first, and divide last.
    """
    return _of_run(database, "contributions", sweep, run_id)


def entropy(database: Path, *, sweep: str | None = None, run_id: str | None = None) -> pd.DataFrame:
    """Return entropy profiles, by step, layer and class; the class * is all classes together."""
    return _of_run(database, "entropy", sweep, run_id)


def decisions(database: Path, *, sweep: str | None = None, run_id: str | None = None) -> pd.DataFrame:
    """Return the decisions of governed runs, in order, with the numbers of their ledger entries."""
    return _of_run(database, "decisions", sweep, run_id)


def ledger_heads(database: Path, *, sweep: str | None = None, run_id: str | None = None) -> pd.DataFrame:
    """Return the head of each governed run's ledger as it was read: origin, size, root. It is not verified."""
    return _of_run(database, "ledger_heads", sweep, run_id)


def deletion_forecasts(database: Path, *, sweep: str | None = None, run_id: str | None = None) -> pd.DataFrame:
    """Return what deleting each class of a governed run would take.

    Columns: level, the first step that it influenced, the step to start from, steps, seconds with their interval.
    Unknown seconds are NaN.
    """
    return _of_run(database, "deletion_forecasts", sweep, run_id)


def deletions(database: Path, *, sweep: str | None = None, run_id: str | None = None) -> pd.DataFrame:
    """Return the runs that deletions made: level, the run that had the target, and the target. Not verified."""
    return _of_run(database, "deletions", sweep, run_id)


def prices(database: Path) -> pd.DataFrame:
    """Return the price table as it was at the last ingest."""
    return _frame(database, queries.table_question("prices"))


def _of_run(database: Path, table: str, sweep: str | None, run_id: str | None) -> pd.DataFrame:
    """Return the rows of a table, of one sweep or of one run."""
    question = queries.table_question(table, sweep=sweep)
    if run_id is not None:
        question = Question(
            sql=f"SELECT * FROM ({question.sql}) WHERE run_id = ?", parameters=(*question.parameters, run_id)
        )
    return _frame(database, question, sweep=sweep)


def _frame(database: Path, question: Question, *, sweep: str | None = None, metric: str | None = None) -> pd.DataFrame:
    """Return the answer to a question. Raises `StoreError` if it has no rows because of an unknown name."""
    with opened(database) as connection:
        frame = connection.execute(question.sql, question.parameters).df()
    if frame.empty:
        queries.check_names(database, sweep=sweep, metric=metric)
    return frame


# --- sweeps that may confirm a sweep, and sweeps that it may confirm ---

# Two recipes, both of which this sweep has. A random subset of examples is a control and no third choice. The runs that
# tuned a recipe chose its values, so a sweep of them neither confirms nor is confirmed.
_SWEEPS = """
SELECT sweep FROM runs
WHERE state = 'finished' AND NOT superseded AND sweep <> ? AND control IS DISTINCT FROM 'random-subset'
  AND NOT EXISTS (SELECT * FROM plans p WHERE p.tunes IS NOT NULL AND p.sweep IN (runs.sweep, ?))
GROUP BY sweep
HAVING count(DISTINCT recipe_digest) = 2
   AND bool_and(recipe_digest IN (
       SELECT recipe_digest FROM runs WHERE sweep = ? AND NOT superseded AND recipe_digest IS NOT NULL
   ))
ORDER BY sweep
"""


# If this sweep has two recipes itself: the sweeps that have both, and more.
_CONFIRMED = """
WITH here AS (
    SELECT DISTINCT recipe_digest FROM runs
    WHERE state = 'finished' AND sweep = ? AND control IS DISTINCT FROM 'random-subset'
)
SELECT sweep FROM runs
WHERE state = 'finished' AND sweep <> ? AND control IS DISTINCT FROM 'random-subset'
  AND (SELECT count(*) FROM here) = 2
  AND NOT EXISTS (SELECT * FROM plans p WHERE p.tunes IS NOT NULL AND p.sweep IN (runs.sweep, ?))
GROUP BY sweep
HAVING count(DISTINCT recipe_digest) > 2
   AND count(DISTINCT recipe_digest) FILTER (recipe_digest IN (SELECT recipe_digest FROM here)) = 2
ORDER BY sweep
"""


def tuned(database: Path, *, sweep: str) -> Any | None:
    """Return the tuning that the plan of a sweep records, a JSON value that nothing has checked; None without one."""
    question = Question(sql="SELECT tuned FROM plans WHERE sweep = ? AND tuned IS NOT NULL", parameters=(sweep,))
    rows = queries.select(database, question).rows
    return json.loads(rows[0][0]) if rows else None


def confirming(database: Path, sweep: str) -> list[str]:
    """Return the sweeps that may confirm a recipe of this one, then those that this one may confirm.

    None for a sweep that the database does not have.
    """
    questions = [Question(sql=sql, parameters=(sweep, sweep, sweep)) for sql in (_SWEEPS, _CONFIRMED)]
    return [name for question in questions for (name,) in queries.select(database, question).rows]


def with_confirming(database: Path, sweep: str, *, metric: str | None = None) -> pd.DataFrame:
    """Return the rows of `results` of a sweep, of those that may confirm it, and of those that it may confirm.

    Raises `StoreError` for a sweep or metric that the database does not hold.
    """
    names = [sweep, *confirming(database, sweep)]
    return pd.concat([results(database, sweep=name, metric=metric) for name in names], ignore_index=True)
