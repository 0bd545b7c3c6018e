"""Removal of run directories that an earlier specification of a sweep left behind.

Candidates are the runs that `explorer.planned` calls superseded. A run is kept while something depends on it:

- it is being trained, or its budget follows from a profile that is not measured yet
- a ledger names its ledger as a parent, or a deletion continued from it
- the project's ledger, `runs/_audit`, has an entry about its ledger: a grant, a read, a deletion, an erasure or an
  observation
- its model has an attestation, which may have been published with the model
- a sweep confirmed its recipe on fresh seeds, and the runs that led to the choice belong to that evidence

A governed run is a record, so it is removed only if the user names it. Every run is first renamed into a directory that
no reader looks at, and that directory is then deleted: a crash leaves a run whole or gone, and the next pruning deletes
the rest. Links are not followed.

States that shorter runs left for longer ones (`_trunks`) go as well, where no run is left to begin with them.
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
from explorer.sweep.trunks import tidy, unused

TRASH = ".pruned"


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """A superseded run that is not removed."""

    directory: Path
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruning:
    """The superseded runs of a sweep that pruning removes, and those that it keeps."""

    directory: Path  # of the sweep
    removable: tuple[Path, ...]
    kept: tuple[Kept, ...]


def plan_pruning(runs: Path, sweep: str, *, named: Iterable[str] = ()) -> Pruning:
    """Return the runs of a sweep in `runs` that can be removed, without changing anything.

    `named` limits it to these runs, and is the only way to remove a governed one. Raises `SweepError` for an unknown
    sweep, and for a name that is none of its superseded runs.
    """
    directory = _sweep(runs, sweep)
    plan = read_plan(directory)
    left = superseded(directory, plan)
    chosen, known = set(named), {path.name for path in left}
    for name in sorted(chosen - known):
        raise SweepError(f"{directory}: {unknown('superseded run', name, known)}")
    if not left:
        return Pruning(directory=directory, removable=(), kept=())
    dependents = _Dependents(runs, sweep)
    judged = [
        (path, dependents.of(path, plan=plan) or _recorded(path, named=path.name in chosen))
        for path in left
        if not chosen or path.name in chosen
    ]
    return Pruning(
        directory=directory,
        removable=tuple(path for path, reason in judged if not reason),
        kept=tuple(Kept(directory=path, reason=reason) for path, reason in judged if reason),
    )


def prune(runs: Path, sweep: str, *, named: Iterable[str] = ()) -> Pruning:
    """Remove the runs that `plan_pruning` lists at this moment, and return what was removed and kept.

    Raises `SweepError` as `plan_pruning` does, and `RunError` while the sweep is executed or where the disk refuses.
    """
    directory = _sweep(runs, sweep)
    read_plan(directory)  # a damaged plan is reported before anything is locked
    with rundir.locked(directory, what=f"sweep {sweep!r}", patience=0.0):
        _empty(directory / TRASH)
        pruning = plan_pruning(runs, sweep, named=named)
        removed, kept = [], list(pruning.kept)
        for path in pruning.removable:
            # A run has a lock of its own: `explorer run` and replays do not hold that of the sweep.
            try:
                with rundir.locked(path, what=f"run {path.name}", patience=0.0):
                    _discard(path, directory / TRASH)
                removed.append(path)
            except RunError as fault:
                kept.append(Kept(directory=path, reason=str(fault)))
        _empty(directory / TRASH)
        for trunk in _unused_trunks(directory):
            tidy(trunk, ())
    return Pruning(directory=directory, removable=tuple(removed), kept=tuple(kept))


def _unused_trunks(directory: Path) -> list[Path]:
    """Return the trunks of the sweep that no run of its plan will begin with."""
    plan = read_plan(directory)
    left = [entry for entry in plan["runs"] if not (directory / str(entry["run_id"]) / rundir.RESULT).exists()]
    # Controls that wait for a profile are runs of any recipe's baseline.
    return [] if plan.get("waiting") else unused(directory, ((str(e.get("recipe_digest")), e["seed"]) for e in left))


def size_of(directory: Path) -> int:
    """Return the bytes of the files below a directory; links are not followed."""
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):  # removed since it was listed
                total += (Path(place) / name).lstat().st_size
    return total


def _sweep(runs: Path, sweep: str) -> Path:
    """Return the directory of a sweep, which lies in `runs` itself."""
    known = [path.parent.name for path in runs.glob(f"*/{rundir.SWEEP}") if not path.parent.is_symlink()]
    if sweep not in known:
        raise SweepError(f"{runs}: {unknown('sweep', sweep, known)}")
    return runs / sweep


def _recorded(run: Path, *, named: bool) -> str:
    """Return why a run is kept if it is a governed one that the user did not name; otherwise nothing."""
    governed = next((name for name in (rundir.LEDGER, rundir.GOVERNANCE, rundir.PRIVATE) if _is_kept(run, name)), None)
    if governed is None or named:
        return ""
    return "governed: its ledger is a record; to remove it, name the run"


def _is_kept(run: Path, name: str) -> bool:
    """Return True if the run has this part of a governed run."""
    # The private directory of an ungoverned run holds only checkpoints, so its secrets are what counts.
    path = run / (rundir.SECRETS if name == rundir.PRIVATE else name)
    return path.exists() or path.is_symlink()


class _Dependents:
    """Everything that depends on runs of a sweep, looked up once."""

    def __init__(self, runs: Path, sweep: str) -> None:
        self._sweep = sweep
        self._confirmed = _confirmed(runs, sweep)
        self._runs, self._unread = dict[str, str](), ""
        try:
            for name, words in _named(runs):
                self._runs.setdefault(name, words)
        except ExplorerError as fault:
            self._unread = f"what depends on it is unknown: {fault}"

    def of(self, run: Path, *, plan: Mapping[str, Any]) -> str:
        """Return the reason to keep a run; empty if nothing depends on it."""
        described = describe(run)
        if rundir.is_locked(run):
            return "it is being trained"
        if described is None:
            return "its run.json cannot be read"
        if described.control == "rescaled-baseline" and plan.get("waiting", 0):
            return "its budget follows from a profile that is not measured yet"
        if run.name in self._runs:
            return self._runs[run.name]
        # A ledger that cannot be read may name any governed run, so all of them are kept.
        if self._unread and (run / rundir.LEDGER).exists():
            return self._unread
        if (run / rundir.MODEL / ATTESTATION).exists():
            return "an attestation vouches for its model"
        if described.recipe_digest in self._confirmed:
            return f"the sweep {self._confirmed[described.recipe_digest]} confirmed its recipe"
        return ""


def _named(runs: Path) -> Iterator[tuple[str, str]]:
    """Yield the runs that ledgers and deletions name, with the reason. A ledger's origin ends in the run's id."""
    for recorded in read_project(runs):
        for state in (getattr(recorded.entry, name, None) for name in ("ledger", "result")):
            if state is not None:
                yield _run_of(state.origin), f"entry {recorded.index} of {runs.name}/_audit is about its ledger"
    for sweep in sorted(path for path in runs.iterdir() if path.is_dir() and not path.is_symlink()):
        for run in rundir.run_directories(sweep) if sweep.name[0] not in "_." else ():
            if (origin := read_origin(run)) is not None:
                yield origin.run, f"the deletion {sweep.name}/{run.name} continued from it"
            if (run / rundir.LEDGER).is_dir() and _has_entries(run):
                for parent in RunLedger(run).genesis.parents:
                    yield _run_of(parent.ledger.origin), f"the ledger of {sweep.name}/{run.name} names it as a parent"


def _has_entries(run: Path) -> bool:
    """Return True if the ledger has entries: a run that was killed at once has none, and its genesis cannot be read."""
    try:
        return LedgerDirectory(run / rundir.LEDGER).checkpoint().size > 0
    except LedgerError:  # an empty directory has no entries; in any other, the damage has to be reported
        return any((run / rundir.LEDGER).iterdir())


def _run_of(origin: str) -> str:
    return origin.rpartition("/")[2]


def _confirmed(runs: Path, sweep: str) -> dict[str, str]:
    """Return the digests of recipes that another sweep confirms, each with that sweep's name.

    A sweep confirms this one if it has exactly two recipes, and both have been recipes of this sweep at some time.
    """
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
    """Move a run out of sight, in one step."""
    # The new name is flushed before the old one goes, so that a crash cannot lose both.
    try:
        trash.mkdir(exist_ok=True)
        run.rename(trash / run.name)
        rundir.flush_directory(trash)
        rundir.flush_directory(run.parent)
    except OSError as error:
        raise RunError(f"cannot remove {run}: {error.strerror or error}") from error


def _empty(trash: Path) -> None:
    """Delete the runs that were moved out of sight. A link among them is removed, and its target is left untouched."""
    if trash.is_symlink() or (trash.exists() and not trash.is_dir()):
        raise RunError(f"{trash}: found a link or a file; expected a directory from an earlier pruning; remove it")
    if not trash.exists():
        return
    try:
        shutil.rmtree(trash)
    except OSError as error:
        raise RunError(f"cannot remove {error.filename or trash}: {error.strerror or error}") from error
