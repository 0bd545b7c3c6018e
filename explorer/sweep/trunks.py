"""Trunks of a sweep: which runs begin with the steps of shorter ones, and the states that are left for them.

The runs of a recipe and seed that can branch are a ladder: each leaves a state where its own decay begins, and the next
longer one begins there. Waiting for that state is never slower than training up to it, since the shorter run is at
least as far as the longer one would be. A run that failed leaves none, and the next one trains what is missing.
"""

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from explorer import rundir
from explorer.engine.checkpoint import checkpoints, name_of, remove_checkpoint, step_in
from explorer.errors import CheckpointError, RunError
from explorer.run_files import RunRecord
from explorer.training.branching import trunk_name


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """The place of a missing run on the trunk of its recipe and seed."""

    trunk: Path  # the directory of its states
    step: int  # how many of its first steps the run shares with longer ones
    start: int  # how many of them others will have made when it begins
    after: str | None  # the run that leaves that state; None: it is there, or there is none
    longer: tuple[int, ...]  # steps of the missing runs that can use its own state

    @property
    def awaited(self) -> Path:
        """The file that is there as soon as the run can begin."""
        return self.trunk / name_of(self.start)


def places(
    directory: Path, missing: Iterable[RunRecord], *, step_of: Callable[[RunRecord], int | None]
) -> dict[str, Place]:
    """Return the places of missing runs by run id; runs that share no step with another one have none.

    `step_of` gives how many of its first steps a run shares with longer ones.
    """
    ladders: dict[str, list[tuple[int, RunRecord]]] = {}
    for record in missing:
        if (step := step_of(record)) is not None:
            ladders.setdefault(trunk_name(record.recipe_digest, record.seed), []).append((step, record))
    chosen: dict[str, Place] = {}
    for name, ladder in ladders.items():
        trunk = directory / rundir.TRUNKS / name
        left: dict[int, str | None] = dict.fromkeys(_steps_in(trunk))  # by step: the run that will leave a state there
        ladder.sort(key=lambda rung: (rung[1].steps, rung[1].run_id))
        for at, (step, record) in enumerate(ladder):
            start = max((other for other in left if other <= step), default=0)
            longer = tuple(dict.fromkeys(record.steps for _, record in ladder[at + 1 :]))
            if start or longer:
                chosen[record.run_id] = Place(trunk=trunk, step=step, start=start, after=left.get(start), longer=longer)
            if longer:
                left.setdefault(step, record.run_id)
    return chosen


def tidy(trunk: Path, needed: Sequence[int]) -> None:
    """Remove the states of a trunk that no run will begin with. `needed` are the shared steps of the runs to come.

    Raises `RunError` where the disk refuses.
    """
    try:
        if not needed:
            if trunk.is_dir():
                shutil.rmtree(trunk)
            if trunk.parent.name == rundir.TRUNKS and trunk.parent.is_dir() and not any(trunk.parent.iterdir()):
                trunk.parent.rmdir()
            return
        steps = _steps_in(trunk)
        used = {max((step for step in steps if step <= limit), default=None) for limit in needed}
        for path in checkpoints(trunk):
            if path.name not in {name_of(step) for step in used if step is not None}:
                remove_checkpoint(path)
    except OSError as error:
        raise RunError(f"cannot remove {error.filename or trunk}: {error.strerror or error}") from error


def unused(directory: Path, unfinished: Iterable[tuple[str, int]]) -> list[Path]:
    """Return the trunks of a sweep of which no run is left; `unfinished` runs are recipe digests and seeds."""
    needed = {trunk_name(*run) for run in unfinished}
    trunks = directory / rundir.TRUNKS
    if trunks.is_symlink() or not trunks.is_dir():
        return []
    return sorted(path for path in trunks.iterdir() if path.name not in needed and not path.is_symlink())


def _steps_in(trunk: Path) -> list[int]:
    """Return the steps of the states that are there, as their names say."""
    steps = []
    for path in checkpoints(trunk):
        try:
            steps.append(step_in(path))
        except CheckpointError:  # a file that is none of ours; who reads it says so
            continue
    return steps
