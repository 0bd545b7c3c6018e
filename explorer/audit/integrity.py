"""Integrity of run directories: check that the files of each agree with the digests that it records.

Every check is done again from the directory itself, and nothing is taken from the database. A finding is a
contradiction within a directory. Without findings, all of it may still have been rewritten: only the ledger of a
governed run excludes that.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from explorer.errors import ExplorerError, RunError, unknown
from explorer.store.examine import CHECKS, Finding, State, examine
from explorer.store.run_sources import candidates, sweeps


@dataclass(frozen=True, kw_only=True, slots=True)
class RunIntegrity:
    """Result of checking one run directory."""

    directory: Path
    state: State
    checks: tuple[str, ...]  # names in CHECKS that could be made
    files: int  # files whose digests were recomputed
    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        return not self.findings


@dataclass(frozen=True, kw_only=True, slots=True)
class Integrity:
    """Result of checking many run directories."""

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
        """Return a summary: "75 of 75 runs match the digests they recorded"."""
        good = sum(run.sound for run in self.finished)
        count = len(self.finished)
        return f"{good} of {count} run{'s' * (count != 1)} match{'es' * (count == 1)} the digests they recorded"


def check_run(directory: Path) -> RunIntegrity:
    """Examine one run directory. Raises `RunError` if there is none."""
    directory = directory.resolve()
    if not directory.is_dir():
        raise RunError(f"there is no run directory {directory}")
    try:
        examined = examine(directory)
    except ExplorerError as error:
        finding = Finding(check="records", message=str(error))
        return RunIntegrity(directory=directory, state=State.DAMAGED, checks=("records",), files=0, findings=(finding,))
    return RunIntegrity(
        directory=directory,
        state=examined.state,
        checks=_made(examined.record is not None, examined.result is not None),
        files=len(examined.result.files) if examined.result else 0,
        findings=examined.findings,
    )


def check_runs(runs: Path, *, sweep: str | None = None) -> Integrity:
    """Examine all runs below `runs`, or those of one sweep. Raises `RunError` for an unknown sweep."""
    known = {directory.name: directory for directory in sweeps(runs)}
    if sweep is not None and sweep not in known:
        raise RunError(f"{runs}: {unknown('sweep', sweep, known)}")
    chosen: Iterable[Path] = known.values() if sweep is None else [known[sweep]]
    return Integrity(runs=tuple(check_run(run) for directory in chosen for run in candidates(directory)))


def _made(has_record: bool, has_result: bool) -> tuple[str, ...]:
    """Return the checks that can be made with the records that could be read."""
    if not has_record:
        return ("records",)
    return tuple(name for name in CHECKS if has_result or name not in ("files", "metrics"))
