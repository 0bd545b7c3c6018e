"""MLflow's file store as a source: `mlruns/EXPERIMENT/RUN/`, read without MLflow.

    meta.yaml        run_id, run_name, status (3: finished), start_time and end_time in milliseconds, lifecycle_stage
    params/NAME      the value of a parameter
    metrics/NAME     a line for each measurement: milliseconds, value, step
    tags/NAME        the value of a tag; only `mlflow.runName` is read

A name with a slash is a file in a directory. A table of `search_runs`, written as CSV, is read by `csv_rows`.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from explorer.errors import RunError
from explorer.imports.files_read import Reading
from explorer.imports.mapping import Cell, Source, SourceRow
from explorer.yaml_document import parse_document

META = "meta.yaml"
FINISHED = 3
STATES = {1: "running", 2: "scheduled", 4: "failed", 5: "killed"}
MAX_META = 2**16
MAX_PARAMETER = 2**16
MAX_METRIC = 2**27


def read_mlflow(path: Path) -> Source:
    """Open MLflow's directory `mlruns`, or one experiment of it. Raises `RunError` that names file, line and fault."""
    reading = Reading(path)
    # An experiment has a meta.yaml as its runs do; only a run has metrics and parameters next to it.
    rows = [row for meta in reading.find(META) if (row := _row(meta, reading)) is not None]
    if not rows:
        raise RunError(f"{path}: no run of MLflow in it; expected its directory `mlruns`, or a CSV file of its runs")
    return reading.source("mlflow", rows)


def _row(meta: Path, reading: Reading) -> SourceRow | None:
    """Return a run; None for an experiment, and for a run that was deleted."""
    content = reading.read(meta, max_bytes=MAX_META)
    value = parse_document(_utf8(content, meta), where=str(meta)).value
    if not isinstance(value, dict) or "run_id" not in value or value.get("lifecycle_stage") == "deleted":
        return None
    directory, cells = meta.parent, dict[str, Cell]()
    if isinstance(name := value.get("run_name"), str):
        cells["name"] = name
    start, end = value.get("start_time"), value.get("end_time")
    if isinstance(start, int) and isinstance(end, int) and end > start:
        cells["duration"] = (end - start) / 1000
    for name, path in _files(directory / "params", reading):
        cells[name] = _utf8(reading.read(path, max_bytes=MAX_PARAMETER), path).strip()
    curves = dict[str, tuple[list[int], list[float]]]()
    for name, path in _files(directory / "metrics", reading):
        steps, values = _points(_utf8(reading.read(path, max_bytes=MAX_METRIC), path), path)
        if values:
            cells[name if name not in cells else f"metrics.{name}"] = values[-1]
        finite = [(step, value) for step, value in zip(steps, values, strict=True) if math.isfinite(value)]
        if len(finite) > 1:  # one measurement is a number and no curve
            curves[name] = ([step for step, _ in finite], [value for _, value in finite])
    return SourceRow(
        where=str(directory), run_id=directory.name, cells=cells, curves=curves, fault=_fault(value.get("status"))
    )


def _fault(status: Any) -> str:
    if status in (FINISHED, "FINISHED"):
        return ""
    return f"its status is {STATES.get(status, str(status)[:40]) if isinstance(status, int) else str(status)[:40]}"


def _files(directory: Path, reading: Reading) -> Iterator[tuple[str, Path]]:
    if directory.is_dir() and not directory.is_symlink():
        for path in reading.files(directory):
            yield path.relative_to(directory).as_posix(), path


def _points(text: str, path: Path) -> tuple[list[int], list[float]]:
    """Return steps and values of a metric, by step; of several at one step the last counts."""
    points = dict[int, float]()
    for number, line in enumerate(text.splitlines(), start=1):
        parts = line.split()
        if not parts:
            continue
        try:
            if len(parts) < 2:
                raise ValueError(line)
            step = int(parts[2]) if len(parts) > 2 else 0
            if not 0 <= step < 2**53:
                raise ValueError(line)
            points[step] = float(parts[1])
        except ValueError:
            raise RunError(
                f"{path}, line {number}: found {line!r:.80}; expected milliseconds, a value and a step"
            ) from None
    steps = sorted(points)
    return steps, [points[step] for step in steps]


def _utf8(content: bytes, path: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise RunError(f"{path}: not text in UTF-8: {error.reason}") from error
