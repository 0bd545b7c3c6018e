"""Whether run directories are what they say they are, found out from the directories alone.

Every check is done again and nothing is taken from the database. What is found is a contradiction within a directory;
that there is none does not prove that nobody rewrote all of it, which takes the ledger.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from explorer.errors import ExplorerError, RunError, unknown
from explorer.store.examine import CHECKS, Finding, State, examine
from explorer.store.run_sources import candidates, sweeps


@dataclass(frozen=True, kw_only=True, slots=True)
class RunIntegrity:
    """What was found in one run directory."""

    directory: Path
    state: State
    checks: tuple[str, ...]  # the names in CHECKS that could be made
    files: int  # how many files' digests were recomputed
    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        return not self.findings


@dataclass(frozen=True, kw_only=True, slots=True)
class Integrity:
    """What was found in many run directories."""

    runs: tuple[RunIntegrity, ...]

    @property
    def finished(self) -> tuple[RunIntegrity, ...]:
        """Return the runs that have a result, or should have one."""
        return tuple(run for run in self.runs if run.state in (State.FINISHED, State.DAMAGED))

    @property
    def sound(self) -> bool:
        return all(run.sound for run in self.runs)

    @property
    def sentence(self) -> str:
        """In words: "75 of 75 runs match the digests they recorded"."""
        good = sum(run.sound for run in self.finished)
        count = len(self.finished)
        return f"{good} of {count} run{'s' * (count != 1)} match{'es' * (count == 1)} the digests they recorded"


def check_run(directory: Path) -> RunIntegrity:
    """Examine one run directory. Raises `RunError` if there is none."""
    directory = directory.resolve()
    if not directory.is_dir():
        raise RunError(f"there is no run directory {directory}")
    try:
        found = examine(directory)
    except ExplorerError as error:
        finding = Finding(check="records", message=str(error))
        return RunIntegrity(directory=directory, state=State.DAMAGED, checks=("records",), files=0, findings=(finding,))
    return RunIntegrity(
        directory=directory,
        state=found.state,
        checks=_made(found.record is not None, found.result is not None),
        files=len(found.result.files) if found.result else 0,
        findings=found.findings,
    )


def check_runs(runs: Path, *, sweep: str | None = None) -> Integrity:
    """Examine all runs below `runs`, or those of one sweep. Raises `RunError` for a sweep that is not there."""
    found = {directory.name: directory for directory in sweeps(runs)}
    if sweep is not None and sweep not in found:
        raise RunError(f"{runs}: {unknown('sweep', sweep, found)}")
    chosen: Iterable[Path] = found.values() if sweep is None else [found[sweep]]
    return Integrity(runs=tuple(check_run(run) for directory in chosen for run in candidates(directory)))


def _made(has_record: bool, has_result: bool) -> tuple[str, ...]:
    """Return the checks that can be made with the records that could be read."""
    if not has_record:
        return ("records",)
    return tuple(name for name in CHECKS if has_result or name not in ("files", "metrics"))
