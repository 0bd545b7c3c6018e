"""The published database as the explorer has it: read at one moment, with the digest that names it."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from explorer.analysis.reprice import DELETION, of_class, prices_of, with_deletion_costs
from explorer.costing import Price
from explorer.store import frames, place, queries


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A database file and the runs in it that are finished."""

    runs: Path  # the directory of runs, which the column `directory` is relative to
    database: Path
    sha256: str  # of the database file
    results: pd.DataFrame  # with a column more for the deletion of each class: `reprice.of_class`
    schedules: pd.DataFrame  # the phases of each recipe at each budget, with their step times
    metrics: tuple[str, ...]
    prices: tuple[Price, ...]

    def with_metric(self, metric: str) -> pd.DataFrame:
        """The rows of `results` with another metric as their quality. Reads the database again.

        Raises `StoreError` if it cannot be read any more.
        """
        return _with_classes(frames.results(self.database, metric=metric), self.database)


def read_snapshot(runs: Path) -> Snapshot:
    """Read the published snapshot of a directory of runs. Raises `StoreError` if there is none or it is damaged."""
    database = place.database(runs)
    results = _with_classes(frames.results(database), database)
    with database.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return Snapshot(
        runs=runs,
        database=database,
        sha256=sha256,
        results=results,
        schedules=frames.schedules(database),
        metrics=tuple(queries.metrics(database)),
        prices=prices_of(frames.prices(database)),
    )


def _with_classes(results: pd.DataFrame, database: Path) -> pd.DataFrame:
    """The rows with the seconds and the cost of deleting each class; unknown where a run does not have it."""
    forecasts = frames.deletion_forecasts(database)
    if forecasts.empty:
        return results
    seconds = forecasts.pivot(index="directory", columns="class", values="seconds")
    seconds.columns = [of_class(DELETION, str(name)) for name in seconds.columns]
    return with_deletion_costs(results.merge(seconds, how="left", left_on="directory", right_index=True))
