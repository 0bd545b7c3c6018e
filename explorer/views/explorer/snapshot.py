"""Published database as the explorer has it: its facets at one moment, and its rows on demand.

Only the chosen rows are read, so that a hundred thousand runs are never in memory at once. They are kept for a few
questions, so that a control that changes only the picture reads nothing.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from explorer.analysis.confirmed import Confirmation
from explorer.analysis.equal_quality import EqualQuality
from explorer.analysis.reprice import DELETION, of_class, prices_of, with_deletion_costs
from explorer.analysis.verdict import confirming as confirmations_of
from explorer.costing import Price
from explorer.store import frames, published
from explorer.store.frames import confirming, with_confirming
from explorer.store.queries import Filter
from explorer.sweep.tuned import TunedRecord, tuned_of

KEPT = 24  # results that are remembered: about eight for each of the last questions

Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Snapshot:
    """Database file, with the choices that it offers."""

    runs: Path  # the directory of runs, which the column `directory` is relative to
    database: Path
    sha256: str  # of the database file
    facets: pd.DataFrame  # see `frames.facets`
    prices: tuple[Price, ...]
    _kept: OrderedDict[Hashable, Any] = field(default_factory=OrderedDict, repr=False)

    def rows(self, where: Filter, *, metric: str) -> pd.DataFrame:
        """Return rows of `results` with that metric as their quality, and a column for the deletion of each class.

        Raises `StoreError` if the database can no longer be read.
        """
        return self.remember(("rows", where, metric), lambda: self._rows(where, metric))

    def means(self, where: Filter, *, metric: str) -> pd.DataFrame:
        """Return a row for each recipe and budget of each setting: see `frames.means`. Raises as `rows` does."""
        return self.remember(("means", where, metric), lambda: frames.means(self.database, metric=metric, where=where))

    def schedules(self, sweep: str) -> pd.DataFrame:
        """Return the phases of a sweep's recipes at each budget, with their step times. Raises as `rows` does."""
        return self.remember(("schedules", sweep), lambda: frames.schedules(self.database, sweep=sweep))

    def unfinished(self, sweep: str) -> pd.DataFrame:
        """Return the runs of a sweep that did not finish: see `frames.unfinished`. Raises as `rows` does."""
        return self.remember(("unfinished", sweep), lambda: frames.unfinished(self.database, sweep=sweep))

    def tuned(self, sweep: str) -> TunedRecord | None:
        """Return the tuning of a sweep's recipes; None if the sweep did none. Raises `SweepError` for a damaged one."""
        value = self.remember(("tuned", sweep), lambda: frames.tuned(self.database, sweep=sweep))
        return None if value is None else tuned_of(value, where=f"the plan of {sweep}")

    def confirmations(self, results: Sequence[EqualQuality]) -> list[Confirmation]:
        """Return the confirmations of comparisons, all of one sweep and metric. Raises as `rows` does."""
        if not results:
            return []
        # Most sweeps were never confirmed: a query for the names of confirming sweeps saves reading their rows.
        setting = results[0].setting
        if not self.remember(("confirming", setting.sweep), lambda: confirming(self.database, setting.sweep)):
            return []
        rows = with_confirming(self.database, setting.sweep, metric=setting.metric)
        return confirmations_of(rows, results)

    def remember(self, key: Hashable, make: Callable[[], Found]) -> Found:
        """Return the value that was made for this key before, or make it now."""
        if key not in self._kept:
            self._kept[key] = make()
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)  # the one that was used longest ago
        self._kept.move_to_end(key)
        return self._kept[key]

    def _rows(self, where: Filter, metric: str) -> pd.DataFrame:
        rows = frames.results(self.database, metric=metric, where=where)
        if rows["deletion_level"].isna().all():
            return rows
        seconds = self.remember(("class seconds", where.sweep), lambda: _class_seconds(self.database, where.sweep))
        return _with_classes(rows, seconds)


def read_snapshot(runs: Path) -> Snapshot:
    """Read the published snapshot of a directory of runs. Raises `StoreError` if there is none or it is damaged."""
    database = published.database(runs)
    facets = frames.facets(database)
    with database.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return Snapshot(
        runs=runs,
        database=database,
        sha256=sha256,
        facets=facets,
        prices=prices_of(frames.prices(database)),
    )


def _class_seconds(database: Path, sweep: str | None) -> pd.DataFrame:
    """Return the seconds of deleting each class, with a row for each governed run and a column for each class."""
    forecasts = frames.deletion_forecasts(database, sweep=sweep)
    seconds = forecasts.pivot(index="directory", columns="class", values="seconds")
    seconds.columns = [of_class(DELETION, str(name)) for name in seconds.columns]
    return seconds


def _with_classes(results: pd.DataFrame, seconds: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the seconds and the cost of deleting each class; NaN for a class that a run lacks."""
    mine = seconds.reindex(results["directory"].tolist()).set_axis(results.index)
    # The time of a deletion is known for the machine that trained, not for one whose times are predicted.
    mine[results["time_source"] == "predicted"] = float("nan")
    return with_deletion_costs(pd.concat([results, mine], axis="columns"))
