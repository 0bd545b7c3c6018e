"""Checkpoints: tensors as safetensors, the rest as JSON, and nothing that could execute code.

A checkpoint is two files in `checkpoint/`: first `step-00000042.safetensors`, then `step-00000042.json`, which holds
the digest of the first and of itself. Without its JSON a checkpoint does not exist. The newest two are kept, so that a
damaged file costs only time.

While a run trains, its checkpoints are written by a second thread from a copy of the state (`Background`).
"""

import dataclasses
import hashlib
import logging
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from explorer import run_files, rundir
from explorer.canonical import digest
from explorer.errors import CheckpointError, ExplorerError

KEEP = 2

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """The state of a run between two steps: `tensors` by unique name, `plain` JSON values."""

    step: int
    tensors: dict[str, Tensor]
    plain: dict[str, Any]


@run_files.record
class _Record:
    """The JSON file."""

    format: Literal[1] = 1
    run_id: str
    step: int
    sha256: str  # of the file of tensors
    plain: dict[str, Any]
    digest: str = ""  # of this record without the digest

    def sealed(self) -> "_Record":
        """Return the record with its own digest."""
        return dataclasses.replace(self, digest=digest({**dataclasses.asdict(self), "digest": ""}))


def save_checkpoint(directory: Path, checkpoint: Checkpoint, *, run_id: str, keep: int | None = KEEP) -> None:
    """Write the checkpoint whole or not at all, then delete all but the newest `keep` up to its step; None keeps
    all."""
    # Tensors first: a crash between the two writes leaves a file without JSON, which no reader takes for a checkpoint.
    content = save({name: tensor.contiguous() for name, tensor in checkpoint.tensors.items()})
    name = directory / Path(name_of(checkpoint.step)).stem
    rundir.write_bytes(name.with_suffix(".safetensors"), content)
    record = _Record(
        run_id=run_id,
        step=checkpoint.step,
        sha256=hashlib.sha256(content).hexdigest(),
        plain=checkpoint.plain,
    )
    run_files.write(name.with_suffix(".json"), record.sealed())
    if keep is None:
        return
    # A checkpoint of a later step is there only because it could not be used: the run resumed from an earlier one.
    kept = [path for path in checkpoints(directory) if path.stem <= name.name][:keep]
    for path in set(checkpoints(directory)) - set(kept):
        remove_checkpoint(path)


class Background:
    """Writing of checkpoints while training continues, one at a time. Use as a context manager: at its end everything
    is written, and an error of the writing is raised."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._last: Future[None] | None = None

    def save(self, directory: Path, checkpoint: Checkpoint, *, run_id: str, keep: int | None = KEEP) -> None:
        """Copy the state, and let it be written by `save_checkpoint`. Raises the error of the checkpoint before."""
        self.wait()
        copies = {name: tensor.to("cpu", copy=True) for name, tensor in checkpoint.tensors.items()}
        copied = dataclasses.replace(checkpoint, tensors=copies)
        self._last = self._thread.submit(save_checkpoint, directory, copied, run_id=run_id, keep=keep)

    def wait(self) -> None:
        """Wait until the last one is written. Raises its error."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._thread.shutdown()  # waits
        if kind is None or kind is KeyboardInterrupt:  # an error of the run is the first one, and stays
            self.wait()


def load_newest(directory: Path, *, run_id: str) -> Checkpoint | None:
    """Return the newest intact checkpoint, or None if there is none. A damaged one is logged and skipped: the steps
    since the checkpoint before it are trained again, with the same result."""
    for record in checkpoints(directory):
        try:
            return load_checkpoint(record, run_id=run_id)
        except CheckpointError as error:
            log.warning("%s; falling back to the checkpoint before it, or to the start", error)
    return None


def load_checkpoint(record: Path, *, run_id: str) -> Checkpoint:
    """Read one checkpoint by its JSON file. Raises `CheckpointError` if it is damaged or of another run."""
    try:
        stored = run_files.read(_Record, record)
        whole = stored == stored.sealed()
        content = record.with_suffix(".safetensors").read_bytes()
    except (ExplorerError, OSError) as error:
        raise CheckpointError(f"checkpoint {record.stem}: {error}") from error
    if not whole:
        raise CheckpointError(f"checkpoint {record}: damaged: it does not have the digest that it names")
    # Run directories get copied: the checkpoint of another run would load, and train on without a sign of it.
    if stored.run_id != run_id:
        raise CheckpointError(f"checkpoint {record}: of run {stored.run_id}, not of {run_id}")
    if hashlib.sha256(content).hexdigest() != stored.sha256:
        raise CheckpointError(f"checkpoint {record}: damaged: its tensors do not have the recorded digest")
    try:
        return Checkpoint(step=stored.step, tensors=load(content), plain=stored.plain)
    except SafetensorError as error:
        raise CheckpointError(f"checkpoint {record}: damaged: {error}") from error


def remove_checkpoint(record: Path) -> None:
    """Delete a checkpoint, its JSON first: a crash in between leaves no half of it that readers would accept."""
    record.unlink(missing_ok=True)
    record.with_suffix(".safetensors").unlink(missing_ok=True)


def remove_all(directory: Path) -> None:
    """Delete every checkpoint of a finished run, and the directory if nothing else is in it."""
    for record in checkpoints(directory):
        remove_checkpoint(record)
    if directory.is_dir():
        for rest in [*directory.glob("step-*.safetensors"), *directory.glob(".step-*.tmp")]:
            rest.unlink()
        if not any(directory.iterdir()):
            directory.rmdir()


def checkpoints(directory: Path) -> list[Path]:
    """Return the JSON files of all checkpoints, newest first."""
    return sorted(directory.glob("step-*.json"), reverse=True)


def name_of(step: int) -> str:
    """Return the name of a checkpoint's JSON file."""
    return f"step-{step:08d}.json"


def step_in(record: Path) -> int:
    """Return the step that the name of a checkpoint's JSON file says. Raises `CheckpointError` for another name."""
    digits = record.stem.removeprefix("step-")
    if not digits.isdecimal():
        raise CheckpointError(f"checkpoint {record}: expected a name such as {name_of(42)}")
    return int(digits)
