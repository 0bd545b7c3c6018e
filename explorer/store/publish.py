"""The published snapshot: a database file of its own, made whole beside the old one and renamed over it.

A reader opens it, asks, and closes. A connection that stays open goes on seeing the old snapshot, and in its process
so does every later one: DuckDB hands out the open database again. So nobody keeps a connection.
"""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

import duckdb

from explorer.canonical import digest
from explorer.costing import Price, default_price
from explorer.errors import StoreError
from explorer.planned import Described, is_own, standings
from explorer.store import schema
from explorer.store.bulk import insert
from explorer.store.connect import connect_to_file
from explorer.store.outcomes import OUTCOMES
from explorer.store.place import STORAGE_VERSION, database


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

    A snapshot that was made from the same content is left alone unless told to `force`; where only the prices are
    others, nothing else is computed again. `beside` is the temporary file, on the same disk. A crash at any moment
    leaves the old snapshot in place.
    """
    remove(beside)  # a writer that was killed may have left one
    made_from = (schema.VERSION, _content(work))
    mark = (*made_from, digest([list(astuple(price)) for price in prices]), live is not None)
    found = None if force or live is not None else _mark(database(runs))
    if found == mark:
        return False
    same = found is not None and (*found[:2], found[3]) == (*made_from, False)
    if same and _repriced(database(runs), beside, prices=prices, mark=mark):
        put_in_place(beside, database(runs))
        return True
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
    work.execute(_STANDINGS)
    insert(work, "temp.standings", list(_standings(work)))
    work.execute(schema.SNAPSHOT)
    work.execute("DROP TABLE temp.standings")
    work.execute(OUTCOMES)
    insert(work, "metrics", [astuple(metric) for metric in live])
    _price(work, prices=prices, mark=mark)
    work.execute("COMMIT")


# Superseded runs keep their names, and so do those that no plan speaks of.
_STANDINGS = """
CREATE TEMP TABLE standings (
    path VARCHAR, superseded BOOLEAN, recipe VARCHAR, baseline VARCHAR, tuning VARCHAR, has_control BOOLEAN,
    control VARCHAR, control_of VARCHAR
)
"""
_DESCRIBED = """
SELECT s.sweep, r.run_id, r.recipe_digest, r.effective_digest, r.ssr, r.seed, r.device, r.hardware, r.threads,
       r.control, r.identity, d.path IS NOT NULL AS deleted
FROM work.present s JOIN work.runs r USING (path, version)
LEFT JOIN (SELECT DISTINCT path, version FROM work.deletions) d USING (path, version)
WHERE s.sweep IN (SELECT sweep FROM work.present WHERE kind = 'plan' AND state = 'usable')
ORDER BY s.path
"""


def _standings(work: duckdb.DuckDBPyConnection) -> Iterator[tuple[object, ...]]:
    """What the plans say of the runs of their sweeps (`explorer.planned`), a row a run."""
    plans = work.execute(
        "SELECT s.sweep, p.content FROM work.present s JOIN work.plans p USING (path, version)"
    ).fetchall()
    runs: dict[str, list[Described]] = {}
    for sweep, *described, identity, deleted in work.execute(_DESCRIBED).fetchall():
        names = ("name", "recipe_digest", "effective", "ssr", "seed", "device", "hardware", "threads", "control")
        apart = deleted or is_own(json.loads(identity))
        runs.setdefault(sweep, []).append(Described(**dict(zip(names, described, strict=True)), apart=apart))
    for sweep, content in plans:
        plan = json.loads(content)
        for name, standing in standings(plan, runs.get(sweep, ())).items():
            entry = standing.entry or {}
            called = (entry.get("recipe"), plan.get("baseline"), plan.get("tuning")) if entry else (None, None, None)
            control = ("control" in entry, entry.get("control"), "+".join(entry.get("control_of", ())) or None)
            yield f"{sweep}/{name}", standing.superseded, *called, *control


def _repriced(path: Path, beside: Path, *, prices: tuple[Price, ...], mark: tuple[object, ...]) -> bool:
    """Make `beside` from the snapshot `path` by changing nothing but the prices; False if that cannot be done."""
    shutil.copyfile(path, beside)
    try:
        with connect_to_file(beside, read_only=False) as connection:
            connection.execute("BEGIN")
            _price(connection, prices=prices, mark=mark)
            connection.execute("COMMIT")
    except duckdb.Error:  # it is damaged, and is made anew
        remove(beside)
        return False
    return True


def _price(connection: duckdb.DuckDBPyConnection, *, prices: tuple[Price, ...], mark: tuple[object, ...]) -> None:
    """Write prices, and the rates of the hardware that runs and predictions have."""
    connection.execute("DELETE FROM prices; DELETE FROM rates; DELETE FROM schema_version")
    hardware = connection.execute("SELECT hardware FROM runs UNION SELECT hardware FROM outcomes ORDER BY 1").fetchall()
    rates = [_rate(name, price) for (name,) in hardware if name and (price := default_price(name, prices))]
    insert(connection, "prices", [astuple(price) for price in prices])
    insert(connection, "rates", rates)
    insert(connection, "schema_version", [mark])


def _rate(hardware: str, price: Price) -> tuple[object, ...]:
    source = f"{price.provider} {price.instance}, {price.tenancy} ({price.source})"
    return hardware, price.usd_per_accelerator_hour, source, price.as_of


def _content(work: duckdb.DuckDBPyConnection) -> str:
    """The digest of all that is in the working database now."""
    rows = work.execute("SELECT path, version, state, problem FROM work.present ORDER BY path").fetchall()
    return digest([list(row) for row in rows])


def _mark(path: Path) -> tuple[object, ...] | None:
    """What the snapshot was made from; None if there is none that can be read, so that it is made anew."""
    if not path.exists():
        return None
    try:
        with connect_to_file(path) as connection:
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
