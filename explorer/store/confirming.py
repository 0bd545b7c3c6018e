"""Which runs may bear out what a sweep found: those of sweeps that have one of its pairs of recipes and no other."""

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


def confirming(database: Path, sweep: str) -> list[str]:
    """The sweeps that may confirm a recipe of this one, in order; none for a sweep that the database does not hold."""
    return [name for (name,) in queries.select(database, Question(sql=_SWEEPS, parameters=(sweep, sweep))).rows]


def with_confirming(database: Path, sweep: str, *, metric: str | None = None) -> pd.DataFrame:
    """The rows of `results` of a sweep and of those that may confirm one of its recipes.

    Raises `StoreError` for a sweep or metric that the database does not hold.
    """
    names = [sweep, *confirming(database, sweep)]
    return pd.concat([frames.results(database, sweep=name, metric=metric) for name in names], ignore_index=True)
