"""Removing the run directories that an earlier specification of a sweep left behind.

What is listed is what `explorer.planned` calls superseded. A run is kept, whatever it is, while something rests on it:

- it is being trained, or its budget follows from a profile that is not measured yet
- a ledger names its ledger as a parent, or a deletion went on from it
- the project's ledger, `runs/_audit`, speaks of its ledger: a grant, a read, a deletion, an erasure or an observation
- its model has an attestation, which may have left with the model
- a sweep confirmed its recipe on fresh seeds, next to the runs that found it

A governed run is a record, and is removed only where it is named. Removing is a rename into a directory that no reader
looks at, one run at a time, then the deletion of that directory: a crash leaves each run whole or gone, and what is
left in the directory is deleted the next time. Links are not followed.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from explorer import rundir
from explorer.errors import ExplorerError, LedgerError, RunError, SweepError, unknown
from explorer.ledger.storage import LedgerDirectory
from explorer.planned import describe, read_plan, superseded
from explorer.project import read_project
from explorer.runlog.attested import ATTESTATION
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import read_origin

TRASH = ".pruned"


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """A superseded run that is not removed."""

    directory: Path
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruning:
    """What pruning a sweep removes, and what it keeps."""

    directory: Path  # of the sweep
    removable: tuple[Path, ...]
    kept: tuple[Kept, ...]


def plan_pruning(runs: Path, sweep: str, *, named: Iterable[str] = ()) -> Pruning:
    """Return what can be removed of a sweep in `runs`; of governed runs only those that are `named`. Nothing is
    changed.

    Raises `SweepError` for a sweep that was not started there, and for a name that is none of its superseded runs.
    """
    directory = _sweep(runs, sweep)
    plan = read_plan(directory)
    left = superseded(directory, plan)
    chosen, known = set(named), {path.name for path in left}
    for name in sorted(chosen - known):
        raise SweepError(f"{directory}: {unknown('superseded run', name, known)}")
    if not left:
        return Pruning(directory=directory, removable=(), kept=())
    rests = _Rests(runs, sweep)
    judged = [
        (path, rests.on(path, plan=plan) or _recorded(path, named=path.name in chosen))
        for path in left
        if not chosen or path.name in chosen
    ]
    return Pruning(
        directory=directory,
        removable=tuple(path for path, reason in judged if not reason),
        kept=tuple(Kept(directory=path, reason=reason) for path, reason in judged if reason),
    )


def prune(runs: Path, sweep: str, *, named: Iterable[str] = ()) -> Pruning:
    """Remove what `plan_pruning` lists, as it is now, and return it; what came into use since then is kept.

    Raises what `plan_pruning` raises, and `RunError` while the sweep is executed and where the disk refuses.
    """
    directory = _sweep(runs, sweep)
    read_plan(directory)
    with rundir.locked(directory, what=f"sweep {sweep!r}", patience=0.0):
        _empty(directory / TRASH)
        pruning = plan_pruning(runs, sweep, named=named)
        removed, kept = [], list(pruning.kept)
        for path in pruning.removable:
            try:
                with rundir.locked(path, what=f"run {path.name}", patience=0.0):
                    _discard(path, directory / TRASH)
                removed.append(path)
            except RunError as fault:
                kept.append(Kept(directory=path, reason=str(fault)))
        _empty(directory / TRASH)
    return Pruning(directory=directory, removable=tuple(removed), kept=tuple(kept))


def size_of(directory: Path) -> int:
    """Return the bytes of the files below a directory; links are not followed."""
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):  # it has gone since
                total += (Path(place) / name).lstat().st_size
    return total


def _sweep(runs: Path, sweep: str) -> Path:
    """Return the directory of a sweep, which lies in `runs` itself."""
    known = [path.parent.name for path in runs.glob(f"*/{rundir.SWEEP}") if not path.parent.is_symlink()]
    if sweep not in known:
        raise SweepError(f"{runs}: {unknown('sweep', sweep, known)}")
    return runs / sweep


def _recorded(run: Path, *, named: bool) -> str:
    """Why a governed run is kept."""
    governed = next((name for name in (rundir.LEDGER, rundir.GOVERNANCE, rundir.PRIVATE) if _is_kept(run, name)), None)
    if governed is None or named:
        return ""
    return "governed: its ledger is a record; name the run to remove it"


def _is_kept(run: Path, name: str) -> bool:
    """Return whether the run has it; the private directory of an ungoverned run holds checkpoints and nothing else."""
    path = run / (rundir.SECRETS if name == rundir.PRIVATE else name)
    return path.exists() or path.is_symlink()


class _Rests:
    """What rests on the runs of a sweep, looked up once."""

    def __init__(self, runs: Path, sweep: str) -> None:
        self._sweep = sweep
        self._confirmed = _confirmed(runs, sweep)
        self._runs, self._unread = dict[str, str](), ""
        try:
            for name, words in _named(runs):
                self._runs.setdefault(name, words)
        except ExplorerError as fault:
            self._unread = f"what rests on it cannot be told: {fault}"

    def on(self, run: Path, *, plan: Mapping[str, Any]) -> str:
        """Return what keeps a run; empty if nothing does."""
        described = describe(run)
        if rundir.is_locked(run):
            return "it is being trained"
        if described is None:
            return "its run.json cannot be read"
        if described.control == "rescaled-baseline" and plan.get("waiting", 0):
            return "its budget follows from a profile that is not measured yet"
        if run.name in self._runs:
            return self._runs[run.name]
        if self._unread and (run / rundir.LEDGER).exists():
            return self._unread
        if (run / rundir.MODEL / ATTESTATION).exists():
            return "an attestation vouches for its model"
        if described.recipe_digest in self._confirmed:
            return f"the sweep {self._confirmed[described.recipe_digest]} confirmed its recipe"
        return ""


def _named(runs: Path) -> Iterator[tuple[str, str]]:
    """List the runs that others name, each with the reason. A ledger's origin ends in the run's id."""
    for recorded in read_project(runs):
        for state in (getattr(recorded.entry, name, None) for name in ("ledger", "result")):
            if state is not None:
                yield _run_of(state.origin), f"entry {recorded.index} of {runs.name}/_audit is about its ledger"
    for sweep in sorted(path for path in runs.iterdir() if path.is_dir() and not path.is_symlink()):
        for run in rundir.run_directories(sweep) if sweep.name[0] not in "_." else ():
            if (origin := read_origin(run)) is not None:
                yield origin.run, f"the deletion {sweep.name}/{run.name} went on from it"
            if (run / rundir.LEDGER).is_dir() and _has_entries(run):
                for parent in RunLedger(run).genesis.parents:
                    yield _run_of(parent.ledger.origin), f"the ledger of {sweep.name}/{run.name} names it as a parent"


def _has_entries(run: Path) -> bool:
    """Return whether a ledger was begun: a run that was killed at once has none."""
    try:
        return LedgerDirectory(run / rundir.LEDGER).checkpoint().size > 0
    except LedgerError:
        return any((run / rundir.LEDGER).iterdir())


def _run_of(origin: str) -> str:
    return origin.rpartition("/")[2]


def _confirmed(runs: Path, sweep: str) -> dict[str, str]:
    """Return the recipes of a sweep that another one has run again: its two recipes are both of this sweep, at any
    time."""
    own = {run.recipe_digest for path in rundir.run_directories(runs / sweep) if (run := describe(path)) is not None}
    confirmed: dict[str, str] = {}
    for path in sorted(runs.glob(f"*/{rundir.SWEEP}")):
        if path.parent.name == sweep:
            continue
        try:
            digests = {entry.get("recipe_digest") for entry in read_plan(path.parent)["runs"]}
        except SweepError:
            continue  # a damaged plan confirms nothing
        if len(digests) == 2 and digests <= own:
            confirmed |= dict.fromkeys(digests, path.parent.name)
    return confirmed


def _discard(run: Path, trash: Path) -> None:
    """Take a run out of sight, whole."""
    try:
        trash.mkdir(exist_ok=True)
        run.rename(trash / run.name)
        rundir.flush_directory(trash)
        rundir.flush_directory(run.parent)
    except OSError as error:
        raise RunError(f"cannot remove {run}: {error.strerror or error}") from error


def _empty(trash: Path) -> None:
    """Delete what was taken out of sight. A link in it is removed, and what it leads to is left alone."""
    if trash.is_symlink() or (trash.exists() and not trash.is_dir()):
        raise RunError(f"{trash}: found a link or a file; expected a directory that pruning made; remove it")
    if not trash.exists():
        return
    try:
        shutil.rmtree(trash)
    except OSError as error:
        raise RunError(f"cannot remove {error.filename or trash}: {error.strerror or error}") from error
