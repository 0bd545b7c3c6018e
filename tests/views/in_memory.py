"""Results that come from a table in memory, where a test changes what a database would hold."""

from dataclasses import dataclass, fields

import pandas as pd

from explorer.costing import Price
from explorer.store.means import Filter


@dataclass(frozen=True, kw_only=True)
class InMemory:
    """What `settle` reads, made of rows of `results`."""

    frame: pd.DataFrame
    metrics: tuple[str, ...] = ("accuracy",)
    prices: tuple[Price, ...] = ()

    @property
    def facets(self) -> pd.DataFrame:
        keys = ["dataset", "model", "sweep", "device", "hardware", "threads", "world_size", "metric"]
        return self.frame.groupby(keys).size().rename("runs").reset_index()

    def rows(self, where: Filter, *, metric: str) -> pd.DataFrame:
        wanted = {field.name: getattr(where, field.name) for field in fields(where)}
        rows = self.frame
        for name, value in wanted.items():
            rows = rows if value is None else rows[rows[name] == value]
        return rows

    def means(self, where: Filter, *, metric: str) -> pd.DataFrame:
        rows = self.rows(where, metric=metric)
        keys = ["sweep", "dataset", "model", "hardware", "recipe", "recipe_digest", "ssr"]
        return rows.groupby(keys, as_index=False).first().assign(n=1)
