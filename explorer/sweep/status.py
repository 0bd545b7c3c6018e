"""Where a sweep stands, read from its directory alone: no training code, no notebook code, a few milliseconds.

A run is
    done          it has its result
    running       a process holds its lock
    failed        its last attempt raised, or died more often than it is retried
    interrupted   it was stopped or killed, and goes on from its checkpoint
    planned       it has not started
    damaged       it has a result that cannot be read; remove its directory to repeat it
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from explorer import rundir
from explorer.errors import RunError, SweepError

State = Literal["done", "running", "failed", "interrupted", "planned", "damaged"]
STATES: tuple[State, ...] = ("done", "running", "failed", "interrupted", "planned", "damaged")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStatus:
    """Where one run stands."""

    run_id: str
    recipe: str
    ssr: float
    seed: int
    state: State
    message: str = ""  # why it failed
    control: str | None = None  # what it is made for, if it is to be compared with others


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepStatus:
    """Where a sweep stands. Runs are in the order in which they are executed."""

    name: str
    directory: Path
    active: bool  # a process executes the sweep now
    runs: tuple[RunStatus, ...]
    waiting: int  # controls whose budgets no profile tells yet
    not_run: tuple[tuple[str, str], ...]  # what was asked for and cannot be run, and why
    strangers: tuple[str, ...]  # run directories of an earlier specification or profile; kept and not executed
    spec_changed: bool | None  # since the sweep was last started; None: no specification to compare with

    @property
    def counts(self) -> dict[str, int]:
        """How many runs are in each state, in the order of `STATES`; states without a run are left out."""
        counts = Counter(run.state for run in self.runs)
        return {state: counts[state] for state in STATES if counts[state]}


def sweep_status(directory: Path, *, content: Mapping[str, Any] | None = None) -> SweepStatus:
    """The status of the sweep in `directory`; `content` is its specification now, as `read_document(path).value`.

    Raises `SweepError` when no sweep was started there, or its plan is damaged.
    """
    plan = read_plan(directory)
    runs = tuple(_run_status(directory, entry) for entry in plan["runs"])
    known = {run.run_id for run in runs}
    return SweepStatus(
        name=plan["name"],
        directory=directory,
        active=rundir.is_locked(directory),
        runs=runs,
        waiting=plan.get("waiting", 0),
        not_run=tuple((each["name"], each["reason"]) for each in plan.get("not_run", ())),
        strangers=tuple(path.name for path in rundir.run_directories(directory) if path.name not in known),
        spec_changed=None if content is None else content != plan["spec"],
    )


def read_plan(directory: Path) -> dict[str, Any]:
    """The content of `sweep.json`. Raises `SweepError` when it is absent or damaged."""
    path = directory / rundir.SWEEP
    if not path.exists():
        raise SweepError(f"{directory}: no sweep was started here; expected {rundir.SWEEP}")
    try:
        plan = rundir.read_json(path)
        for entry in plan["runs"]:
            if not _is_plain(entry["run_id"]):
                raise ValueError(f"{entry['run_id']!r:.80} is not the name of a run directory")
            if not isinstance(entry["ssr"], int | float) or not isinstance(entry["seed"], int):
                raise ValueError(f"run {entry['run_id']}: ssr and seed must be numbers")
            if not isinstance(entry["recipe"], str):
                raise ValueError(f"run {entry['run_id']}: the recipe must be a name")
            if not isinstance(entry.get("control"), str | None):
                raise ValueError(f"run {entry['run_id']}: the control must be a name")
        if not isinstance(plan["name"], str) or not isinstance(plan["spec"], dict):
            raise ValueError("name must be text and spec a mapping")
        if not isinstance(plan.get("waiting", 0), int):
            raise ValueError("waiting must be a number")
        for each in plan.get("not_run", ()):
            if not isinstance(each["name"], str) or not isinstance(each["reason"], str):
                raise ValueError("what is not run must have a name and a reason")
    except (RunError, KeyError, TypeError, ValueError) as error:
        raise SweepError(f"{path}: damaged ({error}); `explorer sweep run` writes it again") from error
    return plan


def _is_plain(name: Any) -> bool:
    """A file name that leads nowhere else."""
    return isinstance(name, str) and bool(name) and name == Path(name).name and name[0] not in "._"


def _run_status(directory: Path, entry: Mapping[str, Any]) -> RunStatus:
    state, message = state_of(directory / entry["run_id"])
    return RunStatus(
        run_id=entry["run_id"],
        recipe=entry["recipe"],
        ssr=entry["ssr"],
        seed=entry["seed"],
        state=state,
        message=message,
        control=entry.get("control"),
    )


def state_of(directory: Path) -> tuple[State, str]:
    """The state of the run in `directory`, and what there is to say about it."""
    if (directory / rundir.RESULT).exists():
        fault = _result_fault(directory)
        return ("damaged", fault) if fault else ("done", "")
    if rundir.is_locked(directory):
        return "running", ""
    if (directory / rundir.FAILURE).exists():
        kind, message = _failure(directory / rundir.FAILURE)
        return ("interrupted" if kind == "interrupted" else "failed"), message
    started = (directory / rundir.ENVIRONMENT).exists()
    return ("interrupted", "killed") if started else ("planned", "")


def _result_fault(directory: Path) -> str:
    try:
        result = rundir.read_json(directory / rundir.RESULT)
    except RunError as error:
        return str(error)
    if isinstance(result, dict) and result.get("run_id") == directory.name:
        return ""
    return f"{directory / rundir.RESULT}: is not the result of this run"


def _failure(path: Path) -> tuple[str, str]:
    try:
        failure = rundir.read_json(path)
        return str(failure["kind"]), str(failure["message"])
    except (RunError, KeyError, TypeError) as error:
        return "unknown", f"{path}: damaged ({error})"
