"""`runs/NAME/imported.jsonl`: an import as one file, so that it is there whole or not at all, and deleted at once.

The first line is about the import: where it comes from, with its digest, and what its columns were taken for. Every
further line is a run with its learning curves:

    {"baseline":"sgd","columns":{"quality":"val_acc",...},"format":1,"made_at":"...","metric":{...},...}
    {"curves":{"train_loss":[[1,2],[2.3,1.9]]},"quality":0.93,"recipe":"sgd","run_id":"row-2","seconds":61.5,"seed":0,...}
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from explorer import run_files, rundir
from explorer.errors import RunError
from explorer.run_files import Metric

FORMAT = 1
MAX_BYTES = 2**30
MAX_RUNS = 100_000
MAX_POINTS = 10**7  # of all curves together
MAX_NAME = 200  # characters of a name
UNKNOWN = "unknown hardware"
TOOLS = ("csv", "wandb", "mlflow")

Curves = Mapping[str, tuple[Sequence[int], Sequence[float]]]
"""Steps and values, by metric."""


@dataclass(frozen=True, kw_only=True, slots=True)
class About:
    """Where an import comes from, and what its columns were taken for."""

    tool: str  # one of TOOLS
    source: str  # name of the file or directory, without its path
    sha256: str  # of everything that was read
    made_at: str
    baseline: str
    dataset: str
    model: str
    metric: Metric  # of the qualities
    columns: Mapping[str, str]  # the column of each meaning
    unused: tuple[str, ...]  # columns without a meaning

    @property
    def words(self) -> str:
        """Return the source in words: "imported, unverified: wandb, offline-runs, sha256 0123456789ab"."""
        return f"imported, unverified: {self.tool}, {self.source}, sha256 {self.sha256[:12]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedRun:
    """A run of another tool. None where it says nothing."""

    run_id: str
    recipe: str
    ssr: float  # budget, as a fraction of the full one
    seed: int
    quality: float
    seconds: float | None = None
    steps: int | None = None
    examples: int | None = None
    hardware: str = UNKNOWN
    curves: Curves = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, float, int, str]:
        """The fields that no two runs of an import have in common."""
        return self.recipe, self.ssr, self.seed, self.hardware


def write_import(path: Path, about: About, runs: Sequence[ImportedRun]) -> None:
    """Write an import, whole or not at all. Raises `RunError` if it is too large, or the disk refuses."""
    head = {**asdict(about), "metric": run_files.to_json(about.metric), "format": FORMAT}
    lines = [_line(head), *(_line(asdict(run)) for run in runs)]
    content = "".join(lines).encode()
    if len(content) > MAX_BYTES:
        raise RunError(f"{path}: {len(content):,} bytes; expected {MAX_BYTES:,} or fewer: import fewer runs or curves")
    rundir.write_bytes(path, content)


def read_import(path: Path) -> tuple[About, list[ImportedRun]]:
    """Read an import, which may have been edited or forged. Raises `RunError` that names line and fault."""
    content = rundir.read_bytes(path, max_bytes=MAX_BYTES, error=RunError)
    lines = content.split(b"\n")
    if lines.pop() or not lines:
        raise RunError(f"{path}, line {len(lines) + 1}: damaged: cut off")
    if len(lines) > MAX_RUNS + 1:
        raise RunError(f"{path}: {len(lines) - 1:,} runs; expected {MAX_RUNS:,} or fewer")
    about = _about(_parsed(lines[0], f"{path}, line 1"), f"{path}, line 1")
    runs, keys, names, points = list[ImportedRun](), dict[Any, int](), set[str](), 0
    for number, line in enumerate(lines[1:], start=2):
        where = f"{path}, line {number}"
        run = _run(_parsed(line, where), where)
        if run.run_id in names or run.key in keys:
            raise RunError(f"{where}: the run is there twice")
        names.add(run.run_id)
        keys[run.key] = number
        points += sum(len(steps) for steps, _ in run.curves.values())
        if points > MAX_POINTS:
            raise RunError(f"{where}: more than {MAX_POINTS:,} points of curves")
        runs.append(run)
    return about, runs


def name_fault(text: object) -> str | None:
    """Return why a text cannot be a name of a recipe or a run; None if it can."""
    if not isinstance(text, str) or not text.strip():
        return "it is empty"
    if len(text) > MAX_NAME:
        return f"it has {len(text):,} characters, expected {MAX_NAME} or fewer"
    if not text.isprintable():
        return "it has characters that cannot be printed"
    return None


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n"


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{where}: damaged: {str(error)[:200]}") from error
    if not isinstance(value, dict):
        raise RunError(f"{where}: damaged: expected an object")
    return value


def _refused(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _about(value: dict[str, Any], where: str) -> About:
    if value.pop("format", None) != FORMAT:
        raise RunError(f"{where}: of another version of explorer; import it again")
    try:
        metric = run_files.from_json(Metric, value["metric"], where=where)
        about = About(**{**value, "metric": metric, "unused": tuple(value["unused"])})
        texts = [about.tool, about.source, about.sha256, about.made_at, about.baseline, about.dataset, about.model]
        names = [*about.columns.values(), *about.columns, *about.unused]
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{where}: damaged: {str(error)[:200]}") from error
    if about.tool not in TOOLS or any(name_fault(text) for text in texts) or not all(map(_text, names)):
        raise RunError(f"{where}: damaged: not about an import")
    return about


def _text(value: object) -> bool:
    return isinstance(value, str)


def _run(value: dict[str, Any], where: str) -> ImportedRun:
    try:
        run = ImportedRun(**value)
        curves = {name: (list(steps), list(values)) for name, (steps, values) in run.curves.items()}
    except (TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{where}: damaged: {str(error)[:200]}") from error
    names = (run.run_id, run.recipe, run.hardware, *curves)
    sound = (
        not any(map(name_fault, names))
        and "/" not in run.run_id
        and _number(run.ssr, above=0.0)
        and _whole(run.seed)
        and _number(run.quality)
        and (run.seconds is None or _number(run.seconds, above=0.0))
        and all(count is None or (_whole(count) and count > 0) for count in (run.steps, run.examples))
        and all(
            len(steps) == len(values) and all(map(_whole, steps)) and all(map(_number, values))
            for steps, values in curves.values()
        )
    )
    if not sound:
        raise RunError(f"{where}: damaged: not a run, or a number that cannot be: {str(value)[:120]}")
    return run


def _number(value: object, above: float = -math.inf) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > above


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
