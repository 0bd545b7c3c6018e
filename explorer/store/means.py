"""What the seeds of a recipe come to at each budget, averaged in the database.

A hundred thousand runs are a few thousand means: charts are made of these, and single runs are asked for where somebody
looks at one setting.
"""

from pathlib import Path

from explorer.store.filter import EVERYTHING, Filter
from explorer.store.queries import Question, rows_question

SETTING = "sweep, dataset, model, metric, unit, higher_is_better, device, hardware, threads, world_size"
RECIPE = "recipe, recipe_digest, methods, policy, is_baseline, baseline, control, ssr"
MEDIANS = (
    *("train_seconds", "steps", "examples", "usd_per_hour", "cost_usd", "inference_seconds"),
    *("deletion_seconds", "deletion_usd", "chi", "ledger_overhead"),
)


def means_question(database: Path, *, metric: str | None = None, where: Filter = EVERYTHING) -> Question:
    """One row for each setting, recipe and budget: how many seeds, their mean quality, and the medians of what they
    took as far as it is known; in the order of `results`.

    Raises `StoreError` for a metric that the database does not hold.
    """
    rows = rows_question(database, metric=metric, where=where)
    medians = ", ".join(f"median({name}) AS {name}" for name in MEDIANS)
    return Question(
        sql=f"""SELECT {SETTING}, {RECIPE}, count(DISTINCT seed) AS n, avg(quality) AS quality, {medians},
        coalesce(string_agg(DISTINCT time_source, '+' ORDER BY time_source), '') AS time_source
        FROM ({rows.sql}) GROUP BY {SETTING}, {RECIPE}
        ORDER BY {SETTING}, recipe <> baseline, recipe, recipe_digest, control NULLS FIRST, ssr""",
        parameters=rows.parameters,
    )
