"""Examination of a run directory: its records, and whether they contradict each other. Nothing in it is trusted.

The checks need nothing but the directory: the records are well formed; the directory is named for its run; the run's
id ends in the digest of its identity; the steps add up; every file that the result lists has the digest it lists; the
final metrics are the last ones measured. A forger with write access can make all of this agree; only the ledger shows
that.
"""

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from explorer import run_files, rundir
from explorer.canonical import canonical, digest
from explorer.errors import ExplorerError, RunError
from explorer.run_files import OF_A_RUN, FailureRecord, ResultRecord, RunRecord, contradictions
from explorer.store.run_sources import file_digest

MAX_METRICS_BYTES = 256 * 2**20
MAX_LINE_BYTES = 4096
ATTEMPTS = 5


class State(StrEnum):
    """State of a run."""

    FINISHED = "finished"
    RUNNING = "running"  # some process holds its lock now
    INTERRUPTED = "interrupted"  # begun, not finished, and not running: running the sweep again resumes it
    DIVERGED = "diverged"  # a loss, a metric or a weight was not finite
    FAILED = "failed"
    DAMAGED = "damaged"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One contradiction in a run directory."""

    check: str  # a name in CHECKS
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """A line of `metrics.jsonl`."""

    step: int
    metric: str
    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Examined:
    """An examined run directory. Without `record` nothing is known about the run."""

    directory: Path
    version: str
    state: State
    record: RunRecord | None = None
    result: ResultRecord | None = None
    failure: FailureRecord | None = None
    metrics: tuple[Measurement, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def problem(self) -> str | None:
        """Return all faults of the directory in one text; None if there are none."""
        return "; ".join(finding.message for finding in self.findings) or None


CHECKS: dict[str, str] = {
    "records": "the records can be read",
    "name": "the directory is named for its run",
    "identity": "the run's id ends in the digest of its identity, which the other fields agree with",
    "steps": "the steps add up",
    "files": "the files have the digests that the result lists",
    "metrics": "the final metrics are the last ones measured",
}


def examine(directory: Path) -> Examined:
    """Read a directory and check it. A fault is a finding and not an exception.

    Raises `RunError` only if the directory keeps changing, or its records cannot be opened.
    """
    # A run may be written while it is read. Only an examination between two equal versions is of one state.
    for _ in range(ATTEMPTS):
        before = version(directory)
        examined = _examine(directory, before)
        if version(directory) == before:
            return examined
    raise RunError(f"{directory}: its records change faster than they can be read")


def version(directory: Path) -> str:
    """Return the digest of the run's records: while it stays the same, what was read from the directory stays true."""
    names = (rundir.RUN, rundir.RESULT, rundir.FAILURE)
    return digest([file_digest(directory / name) if (directory / name).exists() else None for name in names])


def read_metrics(path: Path, *, unfinished: bool) -> list[Measurement]:
    """Read `metrics.jsonl`. The last line of an `unfinished` run may be cut off and is then left out.

    Raises `RunError` that names file, line and fault.
    """
    if not path.exists():
        return []
    try:
        with path.open("rb") as file:
            content = file.read(MAX_METRICS_BYTES + 1)
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) > MAX_METRICS_BYTES:
        raise RunError(f"{path}: too large: at most {MAX_METRICS_BYTES} bytes are read")
    lines = content.split(b"\n")
    if lines[-1] and not unfinished:
        raise RunError(f"{path}, line {len(lines)}: damaged: cut off")
    return [_measurement(line, where=f"{path}, line {number}") for number, line in enumerate(lines[:-1], start=1)]


def _examine(directory: Path, before: str) -> Examined:
    running = rundir.is_locked(directory)
    try:
        record = run_files.read(RunRecord, directory / rundir.RUN)
        result = _optional(ResultRecord, directory / rundir.RESULT)
        failure = _optional(FailureRecord, directory / rundir.FAILURE)
        for content in (record, result, failure):
            canonical(run_files.to_json(content) if content else None)  # no number or text that a database would refuse
        metrics = tuple(read_metrics(directory / rundir.METRICS, unfinished=result is None))
    except ExplorerError as error:
        findings = (Finding(check="records", message=str(error)),)
        return Examined(directory=directory, version=before, state=State.DAMAGED, findings=findings)
    # A result does not make a run finished while anything in its directory contradicts it.
    findings = tuple(_findings(directory, record, result, metrics))
    return Examined(
        directory=directory,
        version=before,
        state=State.DAMAGED if findings else _state(result, failure, running=running),
        record=record,
        result=result,
        failure=failure,
        metrics=metrics,
        findings=findings,
    )


def _findings(
    directory: Path, record: RunRecord, result: ResultRecord | None, metrics: tuple[Measurement, ...]
) -> list[Finding]:
    faults = [("name", fault) for fault in _name_faults(directory, record)]
    faults += [("identity", fault) for fault in _identity_faults(record)]
    faults += [("steps", fault) for fault in _step_faults(record, result, metrics)]
    if result is not None:
        faults += [("files", fault) for fault in _file_faults(directory, result)]
        faults += [("metrics", fault) for fault in _metric_faults(record, result, metrics)]
    return [Finding(check=check, message=message) for check, message in faults]


def _name_faults(directory: Path, record: RunRecord) -> list[str]:
    if directory.name == record.run_id:
        return []
    return [f"{directory}: run.json is of the run {record.run_id!r}, not of the run that the directory is named for"]


def _identity_faults(record: RunRecord) -> list[str]:
    expected = digest(record.identity)[:8]
    ending = record.run_id.rsplit("-", maxsplit=1)[-1]
    if ending == expected:
        return [*contradictions(record)]
    return [f"run {record.run_id}: the id ends in {ending!r}, but the identity's digest starts with {expected!r}"]


def _step_faults(record: RunRecord, result: ResultRecord | None, metrics: tuple[Measurement, ...]) -> list[str]:
    faults = []
    if sum(record.phases.values()) != record.steps or min(record.phases.values(), default=0) < 0:
        faults.append(f"run {record.run_id}: its phases {record.phases} do not add up to {record.steps} steps")
    if result is not None and result.steps != record.steps:
        faults.append(f"run {record.run_id}: planned {record.steps} steps, the result reports {result.steps}")
    if result is not None and not 0 <= result.timed_steps <= result.steps:
        faults.append(f"run {record.run_id}: {result.timed_steps} timed steps of {result.steps}")
    energy = None if result is None else result.energy
    if result is not None and energy is not None and not 0 <= energy.steps <= result.timed_steps:
        faults.append(f"run {record.run_id}: energy of {energy.steps} steps, of {result.timed_steps} timed ones")
    trunk = None if result is None else result.trunk
    if result is not None and trunk is not None and not 0 < trunk.step <= result.steps - result.timed_steps:
        timed = f"{result.timed_steps} timed steps of {result.steps}"
        faults.append(f"run {record.run_id}: {timed}, of which it did not make the first {trunk.step}")
    # How many steps a command makes is known when it has made them: its record has none until then.
    unknown = result is None and not record.phases
    beyond = None if unknown else next((line for line in metrics if line.step > record.steps), None)
    if beyond is not None:
        faults.append(f"run {record.run_id}: {beyond.metric} was measured at step {beyond.step} of {record.steps}")
    return faults


def _file_faults(directory: Path, result: ResultRecord) -> list[str]:
    faults = []
    for name, expected in result.files.items():
        try:
            seen = file_digest(_inside(directory, name))
        except RunError as error:
            faults.append(str(error))
            continue
        if seen != expected:
            faults.append(f"{directory / name}: changed: digest {seen[:12]}..., the result lists {expected[:12]}...")
    return faults


def _metric_faults(record: RunRecord, result: ResultRecord, metrics: tuple[Measurement, ...]) -> list[str]:
    if result.run_id != record.run_id:
        return [f"run {record.run_id}: result.json is of the run {result.run_id!r}"]
    if record.quality not in result.metrics:
        return [f"run {record.run_id}: the result has no {record.quality!r}, which is its quality"]
    faults = []
    last = {line.metric: line for line in metrics}
    for name in sorted(result.metrics.keys() - OF_A_RUN):
        value, measured = result.metrics[name], last.get(name)
        if measured is None or (measured.step, measured.value) != (result.steps, value):
            measured_words = f"{measured.value} at step {measured.step}" if measured else "nothing"
            faults.append(
                f"run {record.run_id}: the result says {name} {value} after {result.steps} steps, "
                f"the last measurement is {measured_words}"
            )
    return faults


def _state(result: ResultRecord | None, failure: FailureRecord | None, *, running: bool) -> State:
    if result is not None:
        return State.FINISHED
    if running:
        return State.RUNNING
    if failure is None or failure.kind == "interrupted":
        return State.INTERRUPTED
    return State.DIVERGED if failure.kind == "diverged" else State.FAILED


def _measurement(line: bytes, *, where: str) -> Measurement:
    try:
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"{len(line)} bytes")
        value: Any = json.loads(line, parse_constant=_refuse)
        step, metric, number = value.pop("step"), value.pop("metric"), value.pop("value")
        if value or type(step) is not int or step < 0 or type(metric) is not str or type(number) not in (int, float):
            raise ValueError("other keys or types")
        metric.encode()  # refuses half a surrogate pair
        return Measurement(step=step, metric=metric, value=float(number))
    except (ValueError, KeyError, AttributeError, TypeError, OverflowError, RecursionError) as error:
        expected = '{"step": 12, "metric": "train_loss", "value": 1.9}'
        raise RunError(f"{where}: damaged ({error}); expected {expected}") from error


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _optional(kind: type[run_files.Record], path: Path) -> run_files.Record | None:
    return run_files.read(kind, path) if path.exists() else None


def _inside(directory: Path, name: str) -> Path:
    """Return the file of that name, which must lie in the directory itself, with links resolved."""
    path = directory / PurePosixPath(name)
    if "\0" in name or not path.resolve().is_relative_to(directory.resolve()):
        raise RunError(f"{directory}: the result lists {name!r}, which lies outside the run directory")
    return path
