"""The state of a sweep, read from its directory in a few milliseconds, without training code or notebook code.

A run is
    done          it has its result
    running       a process holds its lock
    diverged      its last attempt ended because a loss, a metric or a weight was not finite
    failed        its last attempt raised, or took too long more often than it is retried
    set aside     its kernel or worker died more often than it is retried
    interrupted   it was stopped or killed, and continues from its checkpoint
    planned       it has not started
    damaged       its result cannot be read; remove its directory to repeat it
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from explorer import rundir
from explorer.errors import RunError
from explorer.planned import read_plan, superseded

State = Literal["done", "running", "diverged", "failed", "set aside", "interrupted", "planned", "damaged"]
STATES: tuple[State, ...] = ("done", "running", "diverged", "failed", "set aside", "interrupted", "planned", "damaged")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStatus:
    """State of one run."""

    run_id: str
    recipe: str
    ssr: float
    seed: int
    state: State
    message: str = ""  # why it diverged or failed
    control: str | None = None  # the kind of control that it is; None: it is none


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepStatus:
    """State of a sweep. Runs are in the order in which they are executed."""

    name: str
    directory: Path
    active: bool  # a process executes the sweep now
    runs: tuple[RunStatus, ...]
    waiting: int  # controls whose budgets need a profile
    not_run: tuple[tuple[str, str], ...]  # recipes and controls that cannot be run, and why
    superseded: tuple[str, ...]  # run directories of an earlier specification or profile, which are left out
    recipes: frozenset[str]  # the digests of its recipes
    may_add: int  # seeds of some recipes, at most, whose number these runs decide
    spec_changed: bool | None  # since the sweep was last started; None: no specification to compare with

    @property
    def counts(self) -> dict[str, int]:
        """The number of runs in each state, in the order of `STATES`, without states that no run is in."""
        counts = Counter(run.state for run in self.runs)
        return {state: counts[state] for state in STATES if counts[state]}


def sweep_status(directory: Path, *, content: Mapping[str, Any] | None = None) -> SweepStatus:
    """Return the status of the sweep in `directory`.

    `content` is its present specification, from `read_document(path).value`. Raises `SweepError` when no sweep was
    started there, or its plan is damaged.
    """
    plan = read_plan(directory)
    runs = tuple(_run_status(directory, entry) for entry in plan["runs"])
    digests = {entry["recipe_digest"] for entry in plan["runs"] if isinstance(entry.get("recipe_digest"), str)}
    return SweepStatus(
        name=plan["name"],
        directory=directory,
        active=rundir.is_locked(directory),
        runs=runs,
        waiting=plan.get("waiting", 0),
        not_run=tuple((control["name"], control["reason"]) for control in plan.get("not_run", ())),
        superseded=tuple(path.name for path in superseded(directory, plan)),
        recipes=frozenset(digests),
        may_add=_may_add(plan.get("until")),
        spec_changed=None if content is None else content != plan["spec"],
    )


def _may_add(until: Mapping[str, Any] | None) -> int:
    return 0 if until is None or until["added"] is not None else until["at_most"] - len(until["first"])


_OF_KIND: dict[str, State] = {
    "interrupted": "interrupted",
    "diverged": "diverged",
    "lost worker": "set aside",
    "dead kernel": "set aside",
}


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
    """Return the state of the run in `directory`, and the reason if it diverged, failed or is damaged."""
    # The result decides, because a run writes it last; a lock comes before an old failure, which a retry leaves there.
    if (directory / rundir.RESULT).exists():
        fault = _result_fault(directory)
        return ("damaged", fault) if fault else ("done", "")
    if rundir.is_locked(directory):
        return "running", ""
    if (directory / rundir.FAILURE).exists():
        kind, message = _failure(directory / rundir.FAILURE)
        return _OF_KIND.get(kind, "failed"), message
    started = (directory / rundir.ENVIRONMENT).exists()
    return ("interrupted", "killed") if started else ("planned", "")


def _result_fault(directory: Path) -> str:
    try:
        result = rundir.read_json(directory / rundir.RESULT)
    except RunError as error:
        return str(error)
    if isinstance(result, dict) and result.get("run_id") == directory.name:
        return ""
    return f"{directory / rundir.RESULT}: not the result of this run"


def _failure(path: Path) -> tuple[str, str]:
    try:
        failure = rundir.read_json(path)
        return str(failure["kind"]), str(failure["message"])
    except (RunError, KeyError, TypeError) as error:
        return "unknown", f"{path}: damaged ({error})"
