"""Reports of a training program (`explorer.track`): reading its records, over all attempts of a run.

A run directory has them in `tracked.jsonl`, in order. An attempt begins with a record of ours, `start`. An attempt that
resumes has what was reported up to the last checkpoint; what came after it is trained, and reported, once more.

Seconds are those of training as the program reports them. Where it reports none, they are those of the clock from the
start of the program to `done`, with its imports, its data and its evaluations, and the result says so.
"""

import json
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from explorer import rundir, track
from explorer.errors import RunError

MAX_BYTES = 64 * 2**20  # of the records of a run; 500,000 of them fit
MAX_LINE = 4096  # bytes of a record
MAX_STEPS = 10**12
START = "start"
FIELDS = ("step", "steps", "examples", "seconds", "at", "path", track.KIND)  # no metrics
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.@+-]{0,63}")  # of a metric, as `run_files.Metric` has it


@dataclass(frozen=True, kw_only=True, slots=True)
class Tracked:
    """The reports of a run up to some record."""

    measured: tuple[tuple[int, str, float], ...] = ()  # step, metric, value
    step: int = 0
    examples: int | None = None
    reported: float | None = None  # seconds of training; None: the program reports none
    wall: float = 0.0  # seconds from the start of each attempt to the last record that counts
    attempts: int = 0
    checkpoint: str | None = None  # the name of the last one
    checkpoints: int = 0  # how many led to it
    final: Mapping[str, float] = field(default_factory=dict)
    done: bool = False


def read_tracked(run: Path) -> Tracked:
    """Return what the program of a run has reported. The last line may be cut off, and is then left out.

    Raises `RunError` that names file, line and fault.
    """
    path = run / track.FILE
    if not path.exists():
        return Tracked()
    lines = rundir.read_bytes(path, max_bytes=MAX_BYTES, error=RunError).split(b"\n")[:-1]
    return fold([parse_line(line, where=f"{path}, line {at}") for at, line in enumerate(lines, start=1)])


def fold(records: list[dict[str, Any]]) -> Tracked:
    """Return the reports of all attempts, where each continues from the last checkpoint before it."""
    measured: list[tuple[int, str, float]] = []
    now = kept = Tracked()
    count = 0  # measurements that the last checkpoint has
    begun = before = 0.0  # the moment at which this attempt began, and the seconds of those before
    base: float | None = None
    for record in records:
        kind = record[track.KIND]
        if kind == START:
            del measured[count:]
            now = replace(kept, attempts=now.attempts + 1, done=False, final={})
            begun, before, base = record["at"], kept.wall, kept.reported
            continue
        if now.done:
            continue  # what an attempt reports after its end is not training
        seconds = record.get("seconds")
        now = replace(
            now,
            step=max(now.step, record.get("step", 0), record.get("steps", 0)),
            examples=record.get("examples", now.examples),
            reported=now.reported if seconds is None else (base or 0.0) + seconds,
            wall=before + max(0.0, record["at"] - begun),
        )
        if kind == "checkpoint":
            now = kept = replace(now, checkpoint=record["path"], checkpoints=now.checkpoints + 1)
            count = len(measured)
        elif kind == "done":
            now = replace(now, final=dict(numbers_of(record)), done=True)
        else:
            measured += [(now.step, name, value) for name, value in numbers_of(record) if math.isfinite(value)]
    return replace(now, measured=tuple(measured))


def parse_line(line: bytes, *, where: str) -> dict[str, Any]:
    """Return a record. Raises `RunError` that says what was expected."""
    try:
        if len(line) > MAX_LINE:
            raise ValueError(f"{len(line)} bytes, at most {MAX_LINE} are read")
        return check_record(json.loads(line))
    except (ValueError, RecursionError) as error:
        raise RunError(f"{where}: not a record: {error}") from error


def check_record(record: Any) -> dict[str, Any]:
    """Return a record whose fields have their types. Raises `ValueError`."""
    if not isinstance(record, dict) or record.get(track.KIND) not in (START, "log", "checkpoint", "done"):
        raise ValueError(f"found {record!r:.80}, expected an object whose {track.KIND!r} is log, checkpoint or done")
    for name, value in record.items():
        if name in (track.KIND, "path"):
            if not isinstance(value, str):
                raise ValueError(f"{name}: found {value!r:.80}, expected text")
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{name}: found {value!r:.80}, expected a number")
        elif name in ("step", "steps", "examples"):
            if not isinstance(value, int) or not 0 <= value <= MAX_STEPS:
                raise ValueError(f"{name}: found {value!r:.80}, expected a whole number from 0")
        elif name in ("seconds", "at"):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name}: found {value!r:.80}, expected a number from 0")
        elif not NAME.fullmatch(name):
            raise ValueError(f"found the metric {name!r:.80}, expected letters, digits and any of _ . @ + -")
    if record[track.KIND] == "checkpoint" and Path(record.get("path", "")).name != record.get("path"):
        raise ValueError(f"path: found {record.get('path')!r:.80}, expected the name of a kept checkpoint")
    if record[track.KIND] == "log" and "step" not in record:
        raise ValueError("step: missing: expected the number of steps so far")
    record.setdefault("at", time.time())
    return record


def numbers_of(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the metrics of a record."""
    for name, value in record.items():
        if name not in FIELDS:
            yield name, float(value)


def lines_of(measured: Iterable[tuple[int, str, float]]) -> str:
    """Return measurements as lines of `metrics.jsonl`."""
    return "".join(
        json.dumps({"step": step, "metric": metric, "value": value}) + "\n" for step, metric, value in measured
    )
