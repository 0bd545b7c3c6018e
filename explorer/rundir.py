"""The run directory: its file names, and writing them whole.

This is the seam between training and reading. Layout:

    runs/_audit/                         the project's ledger: grants, reads, deletions, erasures, observations
    runs/_profiles/<key>.json            step times measured on other machines, and imported
    runs/_probes/<name>.json             what `explorer probe --json` printed on other machines
    runs/prices.csv                      the user's own prices
    runs/<sweep>/sweep.json              the plan: recipes, run ids in order
    runs/<sweep>/until.json              how many seeds a sweep with `until` adds, decided once
    runs/<sweep>/.lock                   held by the process that executes the sweep
    runs/<sweep>/.permit-<id>            while workers elsewhere may execute its runs: removed, it stops them
    runs/<sweep>/_profiles/<key>.json    uncontended step times of a recipe
    runs/<sweep>/_trunks/<recipe>-s<seed>/   states that shorter runs leave, until no longer one can begin with them
    runs/<sweep>/<run_id>/run.json       what the run is, written before it starts
                          loop.json      in place of run.json, of a run of `explorer.govern`
                          branch.json    of a run that shares its first steps: the lengths of the longer ones
                          environment.json
                          metrics.jsonl  one line per measurement
                          notebook.ipynb the executed notebook
                          ledger/        of a governed run: entries, numbers, signed checkpoints
                          governance/    the signed documents that the run was governed by
                          private/       only for the owner: secrets, and states of training, which hold everything that
                                         was learned, and the memories that methods have of single classes
                              secrets    of a governed run's classes
                              checkpoint/    the newest state to resume from
                              admission/     states to keep: each before the first step in which some class may train
                          contributions/ segment-<first step>.parquet: which class moved which layer, step by step
                          entropy/       step-<step>.parquet: the profiles of the layers
                          model/         of a recorded run: the trained model, and its attestation
                          grants/        keys to numbers, each wrapped for one reader
                          origin.json    of a run that a deletion made: the run it continues
                          failure.json   why the last attempt failed; removed when a later one succeeds
                          result.json    written last: without it the run is not finished
                          .lock          held while the run trains
                          .begun-<id>    names the worker that executes the run; a worker that dies leaves it

Locks are advisory `flock`s: the kernel releases them when their holder dies, however it dies, so a killed process
never leaves a run that looks alive. They need a local disk.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from explorer.errors import ExplorerError, RunError

RUN = "run.json"
LOOP = "loop.json"
RESULT = "result.json"
FAILURE = "failure.json"
ENVIRONMENT = "environment.json"
METRICS = "metrics.jsonl"
TIMELINE = "timeline.json"
NOTEBOOK = "notebook.ipynb"
CHECKPOINT = "private/checkpoint"
KEPT = "private/admission"
LEDGER = "ledger"
GOVERNANCE = "governance"
PRIVATE = "private"
SECRETS = "private/secrets"
CONTRIBUTIONS = "contributions"
ENTROPY = "entropy"
MODEL = "model"
GRANTS = "grants"
ORIGIN = "origin.json"
PROFILES = "_profiles"
PROBES = "_probes"
TRUNKS = "_trunks"
BRANCH = "branch.json"
SWEEP = "sweep.json"
UNTIL = "until.json"
IMPORTED = "imported.jsonl"
LOCK = ".lock"
PERMIT = ".permit-"  # before an id
BEGUN = ".begun-"  # before an id

MAX_JSON_BYTES = 16 * 2**20  # of any JSON file in a run directory


def write_bytes(path: Path, content: bytes) -> None:
    """Write `path` whole or not at all: a temporary file next to it, flushed to the disk, renamed over it.

    Raises `RunError` if the disk refuses; then the file is as it was before.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        make_directory(path.parent)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # The content is on the disk before the name is: a power failure leaves the old file or the new one.
        temporary.replace(path)
        flush_directory(path.parent)
    except OSError as error:
        _discard(temporary)
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error


def cache_directory() -> Path:
    """Return the directory for files that can be made again: `EXPLORER_CACHE`, else `explorer` in the user's caches."""
    if chosen := os.environ.get("EXPLORER_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "explorer"


def make_directory(directory: Path) -> None:
    """Make a directory and those above it, each name durable in its parent. Raises `OSError`."""
    # From the lowest missing one upwards, then made from the top, because a name needs its parent.
    missing = []
    while not directory.exists():
        missing.append(directory)
        directory = directory.parent
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        flush_directory(directory.parent)


def flush_directory(directory: Path) -> None:
    """Make the names in a directory survive a power failure. Raises `OSError`."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, whole or not at all. NaN and infinity are refused."""
    write_bytes(path, (json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode())


def read_bytes(path: Path, *, max_bytes: int, error: type[ExplorerError]) -> bytes:
    """Return the content of a file of unknown origin.

    Raises `error` if it cannot be read or is larger than `max_bytes`.
    """
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as fault:
        raise error(f"cannot read {path}: {fault.strerror or fault}") from fault
    if len(content) > max_bytes:
        raise error(f"{path}: too large: at most {max_bytes} bytes are read")
    return content


def read_json(path: Path) -> Any:
    """Read a JSON file of bounded size. Raises `RunError` that names the file and the fault."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise RunError(f"{path}: too large: {path.stat().st_size} bytes, at most {MAX_JSON_BYTES} are read")
        return json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path}: damaged: not JSON ({error})") from error


def run_directories(sweep_directory: Path, *, loops: bool = False) -> list[Path]:
    """Return the run directories of a sweep, by name; with `loops` also those of users' own training loops.

    Names with `_` or `.` in front and links are not runs.
    """
    records = (RUN, LOOP) if loops else (RUN,)
    if not sweep_directory.is_dir():
        return []
    return sorted(
        path
        for path in sweep_directory.iterdir()
        if path.is_dir() and not path.is_symlink() and path.name[0] not in "_."
        if any((path / name).exists() for name in records)
    )


@contextmanager
def locked(directory: Path, *, what: str, patience: float = 1.0) -> Iterator[None]:
    """Hold the directory's lock. Raises `RunError` if another process still holds it after `patience` seconds.

    `what` is the subject of the message, such as "sweep 'digits'". Some patience is needed: `is_locked` takes the lock
    for a moment, and the notebook kernel of a killed worker takes about a second to notice that its parent is gone.
    """
    with _open_lock(directory) as file:
        deadline = time.monotonic() + patience
        while not _try_lock(file, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                file.seek(0)
                holder = file.read(100).strip() or "another process"
                raise RunError(f"{what} is in use by {holder}: wait for it or stop it first ({directory})")
            time.sleep(0.02)
        _name_holder(file, directory)
        yield


def is_locked(directory: Path) -> bool:
    """Return whether some process holds the directory's lock now. Works on a read-only directory too."""
    try:
        file = (directory / LOCK).open("r")
    except OSError:
        return False
    with file:
        return not _try_lock(file, fcntl.LOCK_SH)


def _try_lock(file: IO[str], mode: int) -> bool:
    try:
        fcntl.flock(file, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open_lock(directory: Path) -> IO[str]:
    try:
        make_directory(directory)
        return (directory / LOCK).open("a+")
    except OSError as error:
        raise RunError(f"cannot lock {directory}: {error.strerror or error}") from error


def _name_holder(file: IO[str], directory: Path) -> None:
    """Write the name of the lock's holder into its file."""
    # Past Python's buffer, which would be written once more when the file is closed.
    try:
        os.ftruncate(file.fileno(), 0)
        os.write(file.fileno(), f"process {os.getpid()}".encode())
    except OSError as error:
        raise RunError(f"cannot lock {directory}: {error.strerror or error}") from error


def _discard(temporary: Path) -> None:
    try:
        temporary.unlink(missing_ok=True)
    except OSError:
        return  # the disk that refused the write refuses this too; the first error is the one to show


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
