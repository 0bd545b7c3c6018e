"""The files of a command or notebook that travel to a place, and the task that a worker makes of them.

They are those of the identity: what the command names, what Python imports from its folder, and `files`. The software
does not travel. A worker that lacks the program, a version of a package or the value of a variable claims no run.
"""

import os
from dataclasses import replace
from pathlib import Path

from explorer import rundir
from explorer.errors import PlaceError, RunError, SpecError
from explorer.place.published_sweep import MAX_TASK, MAX_TASK_FILES, Published, TaskAt, inside, sha256
from explorer.run_files import RunRecord
from explorer.sweep.commands.command_record import digest_of, recorded_recipe
from explorer.sweep.commands.command_task import CommandRecipe, CommandTask
from explorer.sweep.commands.tracked import read_tracked


def carried(task: CommandTask, record: RunRecord, *, where: str) -> tuple[TaskAt, list[bytes]]:
    """Return the task of a planned run for its place, and the contents of its files.

    Raises `SpecError` for files that have changed since the plan, are too large or too many, or have names that other
    systems do not take.
    """
    files, programs, contents, room = {}, [], [], MAX_TASK
    if len(record.identity["data"]) > MAX_TASK_FILES:
        raise SpecError(f"{where}: task.files: {len(record.identity['data'])} files; {SHARED}")
    for name, planned in record.identity["data"].items():
        path = task.directory / name
        try:
            inside(task.directory, name)
            if (room := room - path.stat().st_size) < 0:
                raise SpecError(f"{where}: task.files: more than {MAX_TASK >> 20} MiB with {name}; {SHARED}")
            content = path.read_bytes()
        except (PlaceError, OSError) as error:
            raise SpecError(f"{where}: task.files: {path}: {error}") from error
        if digest_of(path, content, where=where) != planned:
            raise SpecError(f"{where}: {path} has changed since the plan: start again")
        files[name] = sha256(content)
        contents.append(content)
        if os.access(path, os.X_OK):
            programs.append(name)
    at = TaskAt(
        directory=str(task.directory.resolve()),
        files=files,
        programs=tuple(programs),
        named=task.files,
        env=task.env,
        timeout=task.timeout,
    )
    return at, contents


SHARED = (
    f"expected at most {MAX_TASK_FILES} files and {MAX_TASK >> 20} MiB at a place: keep large data where all workers"
    " find it, with its path in a variable under `env`"
)


def unpack(published: Published, task: TaskAt, record: RunRecord, scratch: Path) -> CommandRecipe:
    """Write the files of a run's command below `scratch`, and return its recipe, which works on them.

    Raises `PlaceError` for what is damaged or no task.
    """
    where = f"{published.objects.url}/runs/{record.run_id}.json"
    directory, described = scratch / "files", scratch / "described"
    try:
        published.give_task(task, directory)
        directory.mkdir(parents=True, exist_ok=True)
        rest = {"files": list(task.named), "env": list(task.env), "timeout": task.timeout}
        rundir.write_json(described / rundir.ENVIRONMENT, {"directory": str(directory), "task": rest})
        recipe = recorded_recipe(described, record)
    except (RunError, OSError) as error:
        raise PlaceError(f"{where}: {error}") from error
    return replace(recipe, task=replace(recipe.task, home=Path(task.directory)))


def checkpoints(directory: Path) -> int:
    """Return the number of checkpoints that the command of a run has reported; -1: none."""
    return read_tracked(directory).checkpoints or -1
