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

import contextlib
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from explorer import rundir
from explorer.errors import RunError
from explorer.planned import read_plan, superseded

State = Literal["done", "running", "diverged", "failed", "set aside", "interrupted", "planned", "damaged"]
MARK = 400  # bytes that are read of what names a worker
STATES: tuple[State, ...] = ("done", "running", "diverged", "failed", "set aside", "interrupted", "planned", "damaged")


class Mark(NamedTuple):
    """A worker that took a run."""

    begun: float  # seconds since 1970
    host: str


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
    marks: tuple[Mark, ...] = ()  # of workers that have it, or died with it, oldest first
    ended: float | None = None  # when its result was there, in seconds since 1970
    seconds: float | None = None  # that it took, evaluations and checkpoints included


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepStatus:
    """State of a sweep. Runs are in the order in which they are executed."""

    name: str
    directory: Path
    machine: str  # the classes that it is for, in words; empty in a plan of an older version
    hardware: str  # of its runs; empty where that is not the same for all, or not known
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
    several = [machine["hardware"] for machine in plan.get("machines", ())]
    machines = several or [plan[key] for key in ("hardware",) if key in plan]
    digests = {entry["recipe_digest"] for entry in plan["runs"] if isinstance(entry.get("recipe_digest"), str)}
    return SweepStatus(
        name=plan["name"],
        directory=directory,
        machine=" and ".join(f"{machine['name']} ({machine['device']})" for machine in machines),
        hardware=machines[0]["name"] if len(machines) == 1 else "",
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
    facts = _Facts(directory / entry["run_id"])
    return RunStatus(
        run_id=entry["run_id"],
        recipe=entry["recipe"],
        ssr=entry["ssr"],
        seed=entry["seed"],
        state=facts.state,
        message=facts.message,
        control=entry.get("control"),
        marks=facts.marks,
        ended=facts.ended,
        seconds=facts.seconds,
    )


def state_of(directory: Path) -> tuple[State, str]:
    """Return the state of the run in `directory`, and the reason if it diverged, failed or is damaged."""
    facts = _Facts(directory)
    return facts.state, facts.message


class _Facts:
    """The facts that a run directory tells of its run."""

    def __init__(self, directory: Path) -> None:
        self.message = ""
        self.marks: tuple[Mark, ...] = ()
        self.ended: float | None = None
        self.seconds: float | None = None
        self.state: State = self._state(directory)

    def _state(self, directory: Path) -> State:
        # The result decides, because a run writes it last; a lock comes before an old failure, which a retry leaves
        # there.
        if (directory / rundir.RESULT).exists():
            return self._read_result(directory)
        if not directory.is_dir():
            return "planned"
        self.marks = _marks(directory)
        if rundir.is_locked(directory):
            return "running"
        if (directory / rundir.FAILURE).exists():
            kind, self.message = _failure(directory / rundir.FAILURE)
            return _OF_KIND.get(kind, "failed")
        if (directory / rundir.ENVIRONMENT).exists():
            self.message = "killed"
            return "interrupted"
        return "planned"

    def _read_result(self, directory: Path) -> State:
        try:
            result = rundir.read_json(directory / rundir.RESULT)
        except RunError as error:
            self.message = str(error)
            return "damaged"
        if not isinstance(result, dict) or result.get("run_id") != directory.name:
            self.message = f"{directory / rundir.RESULT}: not the result of this run"
            return "damaged"
        # Of the rest nothing decides whether the run is done, so what is not as it should be is left out.
        with contextlib.suppress(AttributeError, LookupError, TypeError, ValueError, OverflowError):
            self.ended = datetime.fromisoformat(result["finished_at"]).timestamp()
            self.seconds = max(0.0, math.fsum(result["timings"].values()))
        return "done"


def _marks(directory: Path) -> tuple[Mark, ...]:
    marks = []
    for path in directory.glob(f"{rundir.BEGUN}*"):
        with contextlib.suppress(OSError), path.open("rb") as file:  # a worker that ends its call removes its mark
            words = file.read(MARK).decode(errors="replace")
            marks.append(Mark(path.stat().st_mtime, words.rpartition(", process ")[0]))
    return tuple(sorted(marks))


def _failure(path: Path) -> tuple[str, str]:
    try:
        failure = rundir.read_json(path)
        return str(failure["kind"]), str(failure["message"])
    except (RunError, KeyError, TypeError) as error:
        return "unknown", f"{path}: damaged ({error})"
