"""The spool of a governed run: Parquet files next to the ledger, for quick questions over many steps.

    contributions/segment-<first step>.parquet    a row for each step, layer and class
    entropy/step-<step>.parquet                   a row for each layer and class; the class * is all of them together

No signature covers them: the ledger decides, and `explorer.audit` compares both. The files come from outside, so their
columns and numbers of rows are checked before they are read, and reading is bounded in memory. Where a gradient was not
finite, the sums with it are not finite either.
"""

import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from explorer import rundir
from explorer.errors import StoreError
from explorer.store.connect import connect_in_memory

CONTRIBUTIONS: Mapping[str, str] = {
    "step": "BIGINT",
    "layer": "VARCHAR",
    "class": "VARCHAR",
    "examples": "INTEGER",
    "weight": "FLOAT",
    "norm": "FLOAT",
    "share_num": "FLOAT",
    "share_den": "FLOAT",
    "update_num": "FLOAT",
    "update_sq": "FLOAT",
    "exact_num": "FLOAT",
}
ENTROPY: Mapping[str, str] = {
    "step": "BIGINT",
    "layer": "VARCHAR",
    "class": "VARCHAR",
    "examples": "INTEGER",
    "entropy": "DOUBLE",
    "effective_rank": "DOUBLE",
    "renyi2": "DOUBLE",
    "chi": "DOUBLE",
    "chi_null": "DOUBLE",
    "p_value": "DOUBLE",
    "entropy_centred": "DOUBLE",
    "effective_rank_centred": "DOUBLE",
    "renyi2_centred": "DOUBLE",
    "told_apart": "DOUBLE",
    "told_low": "DOUBLE",
    "told_high": "DOUBLE",
    "told_chance": "DOUBLE",
    "told_p_value": "DOUBLE",
}
_LATER = frozenset(list(ENTROPY)[10:])  # columns that files of earlier versions lack
ALL = "*"  # the class of an entropy row that is about all classes together

MAX_FILES = 100_000
_LIMITS = {"memory_limit": "1GiB", "temp_directory": ""}


@dataclass(frozen=True, kw_only=True, slots=True)
class RowLimit:
    """Limit of rows for files of one kind.

    A column that repeats one value takes no room in Parquet: 9 MB can claim 260 million rows, and reading a small file
    from outside must not cost more than its size suggests.
    """

    free: int  # rows that any files may have
    a_byte: float  # further rows for each byte

    def of(self, size: int) -> int:
        """Return the limit for files of `size` bytes together."""
        return self.free + int(self.a_byte * size)


# Measured of our own files: 18 bytes a row of contributions, and 0.27 where 99% of the cells are denied and the joint
# columns empty; 68 of entropy. Contributions are added up by DuckDB; rows of entropy become Python objects.
MAX_ROWS: Mapping[str, RowLimit] = {
    rundir.CONTRIBUTIONS: RowLimit(free=2**20, a_byte=8),
    rundir.ENTROPY: RowLimit(free=2**16, a_byte=0.25),
}

# Sums, never ratios: a share over many steps is the sum of numerators over the sum of denominators.
_SUMS = """
    sum(examples)::BIGINT, sum(share_num::DOUBLE), sum(share_den::DOUBLE), sum(update_num::DOUBLE),
    sum(update_sq::DOUBLE), sum(exact_num::DOUBLE)
"""

_CHOSEN = "step >= $first AND step < $first + $count AND ($layer IS NULL OR layer = $layer)"

Row = tuple[Any, ...]


def segment_sums(run: Path, steps: range | None = None) -> list[Row]:
    """Return sums of contributions by segment, layer and class; none for a run without contributions.

    Columns: first_step, last_step, layer, class, steps, examples, share_num, share_den, update_num, update_sq,
    exact_num. `steps` selects steps. Raises `StoreError` for files that are not what they should be.
    """
    first, stop = (0, 2**63 - 1) if steps is None else (steps.start, steps.stop)
    return select(
        run / rundir.CONTRIBUTIONS,
        CONTRIBUTIONS,
        f"""SELECT min(step), max(step), layer, class, count(*), {_SUMS} FROM spool
        WHERE step >= $first AND step < $stop GROUP BY file, layer, class ORDER BY file, layer, class""",
        {"first": first, "stop": stop},
    )


def binned_sums(run: Path, steps: range, *, bins: int, layer: str | None = None) -> list[Row]:
    """Return sums of contributions over `bins` equal parts of some steps, by part, layer and class.

    Columns: part, layer, class, steps, greatest weight, examples, share_num, share_den, update_num, update_sq,
    exact_num. `layer` selects one layer. Raises `StoreError`.
    """
    return select(
        run / rundir.CONTRIBUTIONS,
        CONTRIBUTIONS,
        f"""SELECT ((step - $first) * $bins // $count)::INTEGER AS part, layer, class, count(*), max(weight), {_SUMS}
        FROM spool WHERE {_CHOSEN} GROUP BY part, layer, class ORDER BY ALL""",
        {"first": steps.start, "count": len(steps), "bins": bins, "layer": layer},
    )


def binned_updates(run: Path, steps: range, *, bins: int, layer: str | None = None) -> list[Row]:
    """Return the squares of each layer's updates, summed over such parts: part, layer, update_sq."""
    return select(
        run / rundir.CONTRIBUTIONS,
        CONTRIBUTIONS,
        f"""SELECT part, layer, sum(square) FROM (
            SELECT ((step - $first) * $bins // $count)::INTEGER AS part, layer, any_value(update_sq)::DOUBLE AS square
            FROM spool WHERE {_CHOSEN} GROUP BY step, layer
        ) GROUP BY part, layer ORDER BY ALL""",
        {"first": steps.start, "count": len(steps), "bins": bins, "layer": layer},
    )


def entropy_rows(run: Path) -> list[Row]:
    """Return all entropy rows, with the columns of `ENTROPY`; none for a run without. Raises `StoreError`."""
    return select(run / rundir.ENTROPY, ENTROPY, "SELECT * EXCLUDE file FROM spool ORDER BY step, layer, class")


def select(
    directory: Path, columns: Mapping[str, str], sql: str, parameters: Mapping[str, Any] | None = None
) -> list[Row]:
    """Query the files of a directory, as a table `spool` with an additional column `file`. No files: no rows.

    Raises `StoreError` that names the directory or the file.
    """
    files = _files(directory.resolve())
    if not files:
        return []
    with _connected(directory) as connection:
        there = _check(connection, directory, files, columns)
        names = ", ".join(
            f"{f't.{name}' if name in there else 'NULL'}::{kind} AS {name}" for name, kind in columns.items()
        )
        # Columns that an older file lacks are null; names of files come in as a variable, never as part of the SQL.
        connection.execute("SET VARIABLE files = ?", [files])
        read = f"filename = true, union_by_name = {bool(_LATER & columns.keys())}"
        connection.execute(
            f"CREATE TEMP VIEW spool AS SELECT {names}, t.filename AS file "
            f"FROM read_parquet(getvariable('files'), {read}) t"
        )
        return connection.execute(sql, parameters).fetchall()


@contextmanager
def _connected(directory: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Make an empty database in memory that can read the files of a directory."""
    try:
        with connect_in_memory(directory, limits=_LIMITS) as connection:
            yield connection
    except duckdb.Error as error:
        raise StoreError(f"{directory}: cannot be read: {str(error).splitlines()[0]:.300}") from error


def _files(directory: Path) -> list[str]:
    """Return the Parquet files of a directory, in the order of their steps. Links are refused."""
    if not directory.is_dir():
        return []
    paths = sorted(directory.glob("[!.]*.parquet"), key=lambda path: (len(path.name), path.name))
    if len(paths) > MAX_FILES:
        raise StoreError(f"{directory}: {len(paths)} files; at most {MAX_FILES} are read")
    for path in paths:
        # A pipe would block the reader, and a link could name any file of the user.
        if not stat.S_ISREG(path.lstat().st_mode):
            raise StoreError(f"{path}: not a regular file")
    return [str(path) for path in paths]


def _check(
    connection: duckdb.DuckDBPyConnection, directory: Path, files: list[str], columns: Mapping[str, str]
) -> set[str]:
    """Check the number of rows and the names of the columns in the footers; return these names."""
    (rows,) = connection.execute("SELECT sum(num_rows) FROM parquet_file_metadata(?)", [files]).fetchall()[0]
    size = sum(Path(path).stat().st_size for path in files)
    most = MAX_ROWS[directory.name].of(size)
    if not 0 <= rows <= most:
        raise StoreError(f"{directory}: {rows} rows in {size} bytes; at most {most} are read from files of that size")
    described = (
        "SELECT file_name, list(name) FROM parquet_schema(?) WHERE num_children IS NULL GROUP BY ALL ORDER BY ALL"
    )
    # Only a table that has grown since the first version is asked file by file: the others have many.
    several = files if _LATER & columns.keys() else files[:1]
    columns_of = {path: set(names) for path, names in connection.execute(described, [several]).fetchall()}
    for path, names in columns_of.items():
        if not columns.keys() - _LATER <= names <= columns.keys():
            raise StoreError(f"{path}: found columns {', '.join(sorted(names)):.300}; expected {', '.join(columns)}")
    return set[str]().union(*columns_of.values())
