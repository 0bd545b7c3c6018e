"""CSV files as a source: one row a run, or, with a column `step`, one row a measurement.

W&B's table of runs and MLflow's `search_runs` are such files. With a column for the step, rows of one run follow each
other, and its last row has the final numbers; the numeric columns are then its learning curves.
"""

import csv
import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from explorer.errors import RunError
from explorer.imports.mapping import GUESSES, Cell, Source, SourceRow, parsed, plain

MAX_BYTES = 2**31
MAX_ROWS = 5_000_000
MAX_COLUMNS = 2000
STATES = {"wandb": "State", "mlflow": "status"}  # the column that says whether a run is finished


def read_csv(path: Path, *, tool: str = "csv", step: str | None = None) -> Source:
    """Open a CSV file. `step` names the column that makes rows of one run measurements of it.

    Raises `RunError` that names file, row and fault.
    """
    digest = _digest(path)
    header = next(_lines(path), None)
    if header is None or not any(name.strip() for name in header[1]):
        raise RunError(f"{path}: no header; expected the names of columns in its first row")
    columns = [name.strip() for name in header[1]]
    twice = next((name for at, name in enumerate(columns) if name and name in columns[:at]), None)
    if twice is not None:
        raise RunError(f"{path}, row 1: the column {twice!r:.80} is there twice")
    if step is not None and step not in columns:
        raise RunError(f"{path}: no column {step!r:.80} for the step; columns: {', '.join(columns[:40])}")
    # Runs are told apart by what stays the same from row to row, which a reader of the file sees in these columns.
    return Source(
        tool=tool,
        name=path.name,
        sha256=digest,
        columns=tuple(name for name in columns if name),
        rows=lambda: _rows(path, columns, tool) if step is None else _curves(path, columns, step),
    )


def _rows(path: Path, columns: Sequence[str], tool: str) -> Iterator[SourceRow]:
    state = next((at for at, name in enumerate(columns) if name == STATES.get(tool)), None)
    for number, cells in _body(path, columns):
        unfinished = state is not None and cells[state].lower() != "finished"
        # Formulas are texts like all others here; whatever shows them escapes them.
        yield SourceRow(
            where=f"{path}, row {number}",
            run_id=f"row-{number}",
            cells=dict(zip(columns, cells, strict=True)),
            fault=f"its state is {cells[state]!r:.40}" if unfinished and state is not None else "",
        )


# Columns that tell runs apart in a table of measurements, by their plain names.
_NAMES = [name for meaning in ("run", "recipe", "budget", "seed", "hardware") for name in GUESSES[meaning]]


def _curves(path: Path, columns: Sequence[str], step: str) -> Iterator[SourceRow]:
    """Yield runs whose rows are measurements, ordered by step within each run."""
    keys = [at for at, name in enumerate(columns) if plain(name) in _NAMES and name != step]
    if not keys:
        raise RunError(f"{path}: no column tells runs apart; expected one such as run, recipe or seed")
    at_step, done = columns.index(step), set[tuple[str, ...]]()
    current: tuple[str, ...] | None = None
    first, cells, points = 0, dict[str, Cell](), dict[str, tuple[list[int], list[float]]]()
    for number, row in _body(path, columns):
        key = tuple(row[at] for at in keys)
        if key != current:
            if current is not None:
                yield SourceRow(where=f"{path}, row {first}", run_id=f"row-{first}", cells=cells, curves=points)
            if key in done:
                raise RunError(f"{path}, row {number}: the rows of one run do not follow each other: sort them")
            done.add(key)
            current, first, cells, points = key, number, {}, {}
        at = _step(row[at_step], where=f"{path}, row {number}, column {step!r:.80}")
        for place, (name, cell) in enumerate(zip(columns, row, strict=True)):
            if cell:
                cells[name] = cell
            if place in keys or place == at_step or not cell:
                continue
            try:
                value = parsed(cell)
            except ValueError:
                continue
            if math.isfinite(value):
                steps, values = points.setdefault(name, ([], []))
                steps.append(at)
                values.append(value)
    if current is not None:
        yield SourceRow(where=f"{path}, row {first}", run_id=f"row-{first}", cells=cells, curves=points)


def _step(cell: str, *, where: str) -> int:
    try:
        step = parsed(cell)
        if step != int(step) or not 0 <= step < 2**53:
            raise ValueError(cell)
    except (ValueError, OverflowError):
        raise RunError(f"{where}: found {cell!r:.60}; expected a step, a whole number of 0 or more") from None
    return int(step)


def _body(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows below the header with their numbers; rows without any text are passed over."""
    for number, cells in _lines(path):
        if number == 1 or not any(cells):
            continue
        if len(cells) != len(columns):
            raise RunError(f"{path}, row {number}: {len(cells)} cells; expected {len(columns)}, as in the header")
        yield number, cells


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    number = 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for number, cells in enumerate(csv.reader(file, strict=True), start=1):
                if number > MAX_ROWS:
                    raise RunError(f"{path}: more than {MAX_ROWS:,} rows; import a part of it")
                if len(cells) > MAX_COLUMNS:
                    raise RunError(f"{path}, row {number}: {len(cells):,} cells; expected {MAX_COLUMNS:,} or fewer")
                yield number, cells
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RunError(f"{path}, row {number + 1}: not text in UTF-8: {error.reason}") from error
    except csv.Error as error:
        raise RunError(f"{path}, row {number + 1}: not CSV: {error}") from error


def _digest(path: Path) -> str:
    try:
        if not path.is_file():
            raise RunError(f"{path}: expected a CSV file" if path.exists() else f"there is no file {path}")
        if path.stat().st_size > MAX_BYTES:
            raise RunError(f"{path}: {path.stat().st_size:,} bytes; expected {MAX_BYTES:,} or fewer")
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error
