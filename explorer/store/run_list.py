"""The runs of a sweep as a list, in any state: searched, sorted, grouped and paged by the database.

A row is a run directory. What only a finished run has (quality, time, cost) is null in the others, and nulls come last
in either direction. Times are those of the machine that the run was trained on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from explorer.errors import StoreError
from explorer.store.queries import Question, Table, select

SORTS: Mapping[str, str] = {
    "recipe": "recipe",
    "state": "state",
    "ssr": "ssr",
    "seed": "seed",
    "quality": "quality",
    "time": "train_seconds",
    "cost": "cost_usd",
    "memory": "peak_memory",
    "energy": "energy_kwh",
    "steps": "steps",
    "methods": "methods",
    "hardware": "hardware",
    "ended": "ended",
}
"""The columns to sort by: of `RunList`."""

GROUPS: Mapping[str, str] = {"recipe": "recipe", "state": "state", "ssr": "ssr", "methods": "methods"}
"""The columns to group by."""

# A run is shown with the metric that is asked for. Only its own machine's row counts: predictions are other rows. The
# tables are read and not the views over them, whose joins would be made for all runs to show fifty.
_LIST = """
SELECT r.directory, r.run_id, CASE WHEN r.superseded THEN 'superseded' ELSE r.state END AS state,
       coalesce(r.failure_message, r.problem) AS message, r.recipe, r.is_baseline, r.methods, r.ssr, r.seed, r.steps,
       r.batch_size, r.hardware, coalesce(r.finished_at, '') AS ended, f.value AS quality,
       o.train_seconds, o.time_source, o.train_seconds / 3600 * u.usd_per_accelerator_hour * r.world_size AS cost_usd,
       r.peak_memory, r.energy_kwh, r.imported
FROM (SELECT * FROM runs WHERE sweep = $sweep) r
LEFT JOIN (SELECT * FROM finals WHERE sweep = $sweep AND metric = $metric AND unit IS NOT NULL) f USING (run_id)
LEFT JOIN (SELECT * FROM outcomes WHERE sweep = $sweep AND time_source IS DISTINCT FROM 'predicted') o USING (directory)
LEFT JOIN rates u ON u.hardware = r.hardware
"""
_METRIC = """
SELECT unit, higher_is_better, format FROM facets WHERE sweep = $sweep AND metric = $metric LIMIT 1
"""
_PLAIN_ORDER = "is_baseline DESC NULLS LAST, recipe, ssr, seed, directory"
_SEARCHED = "lower(concat_ws(' ', run_id, recipe, methods, state, message, 'budget', ssr, 'seed', seed, hardware))"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunList:
    """The runs of a sweep, with `metric` as their quality. `only` are directories to show; None: all."""

    database: Path
    sweep: str
    metric: str
    only: Sequence[str] | None = None

    def counts(self, *, group: str = "", search: str = "") -> list[tuple[str, int]]:
        """Return the groups with the number of their runs, in order; without `group` one of the empty name.

        Raises `StoreError` if the database cannot be read.
        """
        by = _column(GROUPS, group)
        # Budgets are in the order of numbers, not of their words.
        order = f"min({by})" if by else "name"
        sql = f"SELECT {_named(by)} AS name, count(*) FROM listed GROUP BY name ORDER BY {order}"
        rows = self._ask(sql, search=search).rows
        return [(str(name), int(count)) for name, count in rows] or ([] if by else [("", 0)])

    def page(
        self,
        *,
        first: int = 0,
        count: int,
        sort: str = "",
        descending: bool = False,
        search: str = "",
        group: str = "",
        of_group: str = "",
    ) -> list[dict[str, Any]]:
        """Return rows from the place `first` on, of one group if there are groups. Raises as `counts` does."""
        by, order = _column(GROUPS, group), _column(SORTS, sort)
        towards = f"{order} {'DESC' if descending else 'ASC'} NULLS LAST, " if order else ""
        where = f"WHERE {_named(by)} = $of_group" if by else ""
        sql = f"SELECT * FROM listed {where} ORDER BY {towards}{_PLAIN_ORDER} LIMIT $count OFFSET $first"
        more = {"count": count, "first": first} | ({"of_group": of_group} if by else {})
        return self._rows(sql, search=search, **more)

    def rows(self, directories: Sequence[str]) -> list[dict[str, Any]]:
        """Return the rows of these runs, in this order, with their `identity`; runs that the sweep does not have are
        left out."""
        sql = (
            "SELECT l.*, r.identity FROM listed l JOIN runs r USING (directory) WHERE list_contains($wanted, directory)"
        )
        by_directory = {row["directory"]: row for row in self._rows(sql, wanted=list(directories))}
        return [by_directory[name] for name in directories if name in by_directory]

    def known(self) -> frozenset[str]:
        """Return which of the columns time, cost, memory and energy some run has."""
        sql = "SELECT count(train_seconds), count(cost_usd), count(peak_memory), count(energy_kwh) FROM listed"
        (counts,) = self._ask(sql).rows
        names = ("time", "cost", "memory", "energy")
        return frozenset(name for name, count in zip(names, counts, strict=True) if count)

    def _rows(self, sql: str, **parameters: Any) -> list[dict[str, Any]]:
        """Return the answer as rows, each with what its quality is; `metric` is None for a row without one."""
        table = self._ask(sql, **parameters)
        kinds = select(self.database, Question(sql=_METRIC, parameters={"sweep": self.sweep, "metric": self.metric}))
        kind = dict(zip(kinds.columns, kinds.rows[0], strict=True)) if kinds.rows else {}
        rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        return [row | kind | {"metric": None if row["quality"] is None else self.metric} for row in rows]

    def _ask(self, sql: str, *, search: str = "", **parameters: Any) -> Table:
        words = search.lower().split()
        conditions = [f"contains({_SEARCHED}, $word{at})" for at in range(len(words))]
        parameters |= {f"word{at}": word for at, word in enumerate(words)}
        if self.only is not None:
            conditions.append("directory IN (SELECT unnest($only))")
            parameters["only"] = list(self.only)
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        whole = f"WITH listed AS (SELECT * FROM ({_LIST}) {where}) {sql}"
        return select(
            self.database,
            Question(sql=whole, parameters={"sweep": self.sweep, "metric": self.metric, **parameters}),
        )


def _column(known: Mapping[str, str], name: str) -> str:
    """Return the SQL column of a name; empty for no name."""
    if name and name not in known:
        raise StoreError(f"runs cannot be ordered by {name!r:.60}; expected one of {', '.join(known)}")
    return known.get(name, "")


def _named(by: str) -> str:
    return f"coalesce({by}::VARCHAR, '')" if by else "''"
