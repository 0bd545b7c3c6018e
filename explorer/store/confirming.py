"""Which runs may bear out what a sweep found: those of sweeps that have one of its pairs of recipes and no other; and
which sweeps such a sweep may bear out itself."""

from pathlib import Path

import pandas as pd

from explorer.store import frames, queries
from explorer.store.queries import Question

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
    return pd.concat([frames.results(database, sweep=name, metric=metric) for name in names], ignore_index=True)
