"""The published snapshot: a database file of its own, made whole beside the old one and renamed over it.

A reader opens it, asks, and closes. A connection that stays open goes on seeing the old snapshot, and in its process
so does every later one: DuckDB hands out the open database again. So nobody keeps a connection.
"""

import os
from dataclasses import astuple, dataclass
from pathlib import Path

import duckdb

from explorer.canonical import digest
from explorer.costing import Price, default_price
from explorer.errors import StoreError
from explorer.records import METRICS
from explorer.store import schema
from explorer.store.bulk import insert
from explorer.store.place import CONFIG, STORAGE_VERSION, database


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveMetric:
    """A measurement of a run that is not finished."""

    sweep: str
    run_id: str
    step: int
    metric: str
    value: float


def publish(
    work: duckdb.DuckDBPyConnection,
    *,
    runs: Path,
    beside: Path,
    prices: tuple[Price, ...],
    live: list[LiveMetric] | None,
    force: bool,
) -> bool:
    """Make a snapshot of the working database, which is attached as `work`; return whether that was done.

    A snapshot that was made from the same content is left alone unless told to `force`. `beside` is the temporary file,
    on the same disk. A crash at any moment leaves the old snapshot in place.
    """
    remove(beside)  # a writer that was killed may have left one
    mark = (schema.VERSION, _content(work), digest([list(astuple(price)) for price in prices]), live is not None)
    if not force and live is None and _mark(database(runs)) == mark:
        return False
    work.execute(f"ATTACH '{quoted(beside)}' AS snapshot (STORAGE_VERSION '{STORAGE_VERSION}')")
    work.execute("USE snapshot")
    _fill(work, prices=prices, live=live or [], mark=mark)
    work.execute("USE memory")
    work.execute("DETACH snapshot")
    put_in_place(beside, database(runs))
    return True


def _fill(
    work: duckdb.DuckDBPyConnection, *, prices: tuple[Price, ...], live: list[LiveMetric], mark: tuple[object, ...]
) -> None:
    work.execute("BEGIN")
    work.execute(schema.SNAPSHOT)
    hardware = [name for (name,) in work.execute("SELECT DISTINCT hardware FROM runs ORDER BY 1").fetchall() if name]
    insert(work, "metric_kinds", [astuple(metric) for metric in METRICS.values()])
    insert(work, "prices", [astuple(price) for price in prices])
    insert(work, "rates", [_rate(name, price) for name in hardware if (price := default_price(name, prices))])
    insert(work, "metrics", [astuple(metric) for metric in live])
    insert(work, "schema_version", [mark])
    work.execute("COMMIT")


def _rate(hardware: str, price: Price) -> tuple[object, ...]:
    source = f"{price.provider} {price.instance}, {price.tenancy} ({price.source})"
    return hardware, price.usd_per_accelerator_hour, source, price.retrieved or price.effective


def _content(work: duckdb.DuckDBPyConnection) -> str:
    """The digest of all that is in the working database now."""
    rows = work.execute("SELECT path, version, state, problem FROM work.present ORDER BY path").fetchall()
    return digest([list(row) for row in rows])


def _mark(path: Path) -> tuple[object, ...] | None:
    """What the snapshot was made from; None if there is none that can be read, so that it is made anew."""
    if not path.exists():
        return None
    try:
        with duckdb.connect(path, read_only=True, config=CONFIG) as connection:
            return connection.execute("FROM schema_version").fetchall()[0]
    except (duckdb.Error, IndexError):
        return None


def remove(path: Path) -> None:
    """Remove a database file, after the write-ahead log that a killed process left beside it: a log that outlives its
    database would be replayed into the next one of that name."""
    for left in (path.with_name(path.name + ".wal"), path):
        left.unlink(missing_ok=True)


def put_in_place(path: Path, target: Path) -> None:
    """Rename a database file that is closed; it is on the disk before its name is."""
    try:
        with path.open("rb") as file:
            os.fsync(file.fileno())
        path.replace(target)
    except OSError as error:
        raise StoreError(f"cannot write {target}: {error.strerror or error}") from error


def quoted(path: Path) -> str:
    """The path as it stands inside an SQL string."""
    return str(path).replace("'", "''")
