"""Results that come from a table in memory, where a test changes what a database would hold."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import pandas as pd

from explorer.analysis.confirmed import Confirmation
from explorer.analysis.equal_quality import EqualQuality
from explorer.costing import Price
from explorer.store.queries import Filter

Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class InMemory:
    """What `settle` reads, made of rows of `results`."""

    frame: pd.DataFrame
    others: tuple[str, ...] = ()  # metrics beside the one that runs are judged by
    prices: tuple[Price, ...] = ()

    @property
    def facets(self) -> pd.DataFrame:
        keys = ["dataset", "model", "sweep", "device", "hardware", "threads", "world_size", "metric"]
        predicted = self.frame.assign(predicted=self.frame["time_source"] == "predicted").groupby(keys)["predicted"]
        found = predicted.agg(runs="size", predicted="sum").reset_index().assign(is_quality=True, tunes=False)
        others = [found.assign(metric=name, is_quality=False) for name in self.others]
        return pd.concat([found, *others], ignore_index=True)

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

    def confirmations(self, results: Sequence[EqualQuality]) -> list[Confirmation]:
        return []

    def unfinished(self, sweep: str) -> pd.DataFrame:
        return pd.DataFrame(columns=["state", "recipe", "ssr", "message", "directory", "device", "hardware", "threads"])

    def remember(self, key: Hashable, make: Callable[[], Found]) -> Found:
        return make()
