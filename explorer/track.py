"""`explorer.track`: three calls by which any training program reports to the sweep that started it.

    from explorer import track

    for step in range(1, 1001):
        ...
        track.log(step=step, train_loss=0.41, seconds=12.3)
        track.checkpoint("model.bin")
    track.done(accuracy=0.93, examples=50_000)

One file of the standard library, so that it can be copied next to a program whose Python has no Explorer. Programs in
other languages print the same records, a line of JSON each, and flush:

    {"explorer": "log", "step": 100, "train_loss": 0.41, "seconds": 12.3}
    {"explorer": "checkpoint", "path": "model.bin"}
    {"explorer": "done", "accuracy": 0.93, "examples": 50000}

**What survives.** A record is written with one system call before `log` returns: it survives the end of the process
by any signal, kill -9 among them. It is not flushed to the disk, so a power failure may lose the last seconds of
records. A checkpoint is flushed before `checkpoint` returns.

In a program that no sweep started, `explorer.begin` begins a run, and the calls report to that. Without it every call
does nothing, after one line of notice on standard error.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable

PLACE = "EXPLORER_TRACK"  # the variable with the directory of the run
RESUME = "EXPLORER_RESUME"  # the variable with the checkpoint to continue from; absent in a first attempt
FILE = "tracked.jsonl"
KEPT = os.path.join("private", "checkpoint")
KIND = "explorer"  # the key of a record's kind
RESERVED = (KIND, "at", "path")

# `float` reads the scalars of NumPy, PyTorch and JAX. One encoder for all records: `json.dumps` would make one a call.
_encode = json.JSONEncoder(default=float, separators=(",", ":")).encode
_descriptor: int | None = None
_begun: "Receiver | None" = None
_notified = False


class Receiver:
    """The run that `explorer.begin` began in this process."""

    # A dataclass would cost half as much to import as everything else here.
    def __init__(self, place: str, *, resume: str | None, receive: Callable[[bytes], None]) -> None:
        self.place = place  # the directory of the run
        self.resume = resume  # the checkpoint to continue from
        self.receive = receive  # takes each record, a line of JSON


def log(*, step: int, seconds: float | None = None, **metrics: float) -> None:
    """Report measurements after `step` steps of training.

    step      steps so far, from the beginning of training: a resumed program counts on
    seconds   of training since this process began, without evaluation; without them the run is timed by the clock
    metrics   numbers by name, such as `train_loss=0.41`

    Raises `ValueError` for a step or seconds that cannot be, and `OSError` if the disk refuses.
    """
    if step < 0:
        raise ValueError(f"track.log: step: found {step!r}, expected a whole number from 0")
    _write("log", {"step": int(step)}, seconds, metrics)


def done(
    *, steps: int | None = None, examples: int | None = None, seconds: float | None = None, **metrics: float
) -> None:
    """Report the end of training with the final metrics, which the specification declares.

    steps      of the whole training; without it, the last step that was logged
    examples   that were trained on, counted with repetition
    seconds    as of `log`
    """
    known = {"steps": steps, "examples": examples}
    _write("done", {name: int(value) for name, value in known.items() if value is not None}, seconds, metrics)


def checkpoint(path: str | os.PathLike[str]) -> None:
    """Keep a copy of a file or directory, to resume from it. It takes the place of the last one.

    What was logged up to now belongs to it; what is logged later is dropped if a later attempt resumes here.
    """
    place = _place()
    if place is not None:
        _write("checkpoint", {"path": keep(place, os.fspath(path))}, None, {})


def resume() -> str | None:
    """Return the path of the checkpoint to continue from; None in a first attempt, and outside a sweep."""
    return os.environ.get(RESUME) if _begun is None else _begun.resume


def report_to(receiver: Receiver | None) -> None:
    """Hand every record to this receiver from now on; None: what is reported is not recorded any more."""
    global _begun, _notified
    _begun, _notified = receiver, receiver is None


def keep(place: str, path: str) -> str:
    """Copy a checkpoint into the run directory `place`, whole or not at all, and return the name that it has there."""
    directory = os.path.join(place, KEPT)
    os.makedirs(directory, exist_ok=True)
    earlier = os.listdir(directory)
    name = f"{time.time_ns()}-{os.path.basename(os.path.normpath(path))}"
    fresh = os.path.join(directory, f".{name}")
    if os.path.isdir(path):
        shutil.copytree(path, fresh)
    else:
        shutil.copyfile(path, fresh)
        with open(fresh, "rb") as file:
            os.fsync(file.fileno())
    os.rename(fresh, os.path.join(directory, name))
    for old in earlier:  # only now: a crash before leaves the last one
        old = os.path.join(directory, old)
        shutil.rmtree(old) if os.path.isdir(old) else os.unlink(old)
    return name


def _write(kind: str, fields: dict[str, object], seconds: float | None, metrics: dict[str, float]) -> None:
    """Append one record with one system call."""
    global _descriptor
    for name in RESERVED:
        if name in metrics:
            raise ValueError(f"track.{kind}: {name!r} cannot name a metric; it is a field of every record")
    if seconds is not None and not seconds >= 0:
        raise ValueError(f"track.{kind}: seconds: found {seconds!r}, expected a number from 0")
    if _begun is None and _descriptor is None:
        place = _place()
        if place is None:
            return
        _descriptor = os.open(
            os.path.join(place, FILE),
            os.O_WRONLY | os.O_APPEND | os.O_CREAT,
            0o666,
        )
    timed = {} if seconds is None else {"seconds": float(seconds)}
    record = {KIND: kind, "at": time.time(), **fields, **timed, **metrics}
    line = (_encode(record) + "\n").encode()
    if _begun is not None:
        _begun.receive(line)
    elif _descriptor is not None:
        os.write(_descriptor, line)


def _place() -> str | None:
    """Return the directory of the run; None outside a sweep, with a notice the first time."""
    global _notified
    place = os.environ.get(PLACE) if _begun is None else _begun.place
    if place is None and not _notified:
        _notified = True
        print("explorer.track: outside a sweep, so nothing is recorded without explorer.begin", file=sys.stderr)
    return place
