"""Trunks: the first steps of a run, which longer runs of the same recipe and seed share with it, bit for bit.

Where a schedule decays only at its end and no method looks at the length, a run of 100 steps and one of 200 make the
same first 80 steps. The first of them leaves a checkpoint of its state there, and the other one begins with it. The
checkpoint also has what the steps measured: the loss and the rate of each, and evaluations at the places of the longer
runs. So the records of a run that began with it are those of one that makes all its steps. Of a run that keeps a
ledger, the checkpoint names that ledger as it was then: it has the entries of these steps, which the other run takes
over.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from explorer.engine.checkpoint import Checkpoint, checkpoints, load_checkpoint, step_in
from explorer.entries.fields import LedgerState
from explorer.errors import CheckpointError
from explorer.schema import from_json, record

CHUNK = 1000  # losses that are put together: many small tensors would fill the memory of a device
LOSSES, RATES = "trunk/losses", "trunk/rates"  # names of its tensors in a checkpoint

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shared:
    """The place of a run on the trunk of its recipe and seed."""

    place: Path  # the directory of the trunk's checkpoints
    key: str  # digest of what its runs have in common: recipe, seed and code
    step: int  # how many of its first steps this run shares with longer ones
    longer: tuple[int, ...]  # steps of the longer runs that are still to come; none: it leaves no checkpoint
    record: "Record | None" = None  # of its steps; None: it keeps no ledger


@record
class Evaluation:
    """The metrics after so many steps."""

    step: int
    metrics: dict[str, float]


@record
class Left:
    """The part of a trunk's checkpoint that is no tensor."""

    run: str  # that left it
    state: str  # digest of parameters and buffers
    evaluations: tuple[Evaluation, ...]
    ledger: LedgerState | None = None  # of that run, with the entries of all these steps; None: it keeps none


class Record(Protocol):
    """The ledger of a run that shares steps."""

    @property
    def head(self) -> LedgerState:
        """The ledger as far as it is durable."""
        ...

    def take_over(self, checkpoint: Checkpoint, left: Left) -> None:
        """Record the steps of a trunk, from the ledger of the run that made them. Raises `CheckpointError`, before
        anything is recorded, where that ledger cannot be used."""
        ...


@dataclass(kw_only=True, slots=True)
class Measured:
    """Measurements of the steps of a trunk, from the first one on."""

    evaluations: list[Evaluation] = field(default_factory=list)
    _losses: list[Tensor] = field(default_factory=list)  # each of many steps
    _recent: list[Tensor] = field(default_factory=list)  # each of one step, on the device
    _rates: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self._rates)

    def add(self, loss: Tensor, rate: float) -> None:
        """Take the loss and the learning rate of the next step."""
        self._recent.append(loss)
        self._rates.append(rate)
        if len(self._recent) == CHUNK:
            self._put_together()

    def steps(self) -> Iterator[tuple[int, float, float]]:
        """Yield every step with its loss and its learning rate."""
        tensors = self.tensors()
        losses, rates = tensors[LOSSES].tolist(), tensors[RATES].tolist()
        yield from ((at + 1, loss, rate) for at, (loss, rate) in enumerate(zip(losses, rates, strict=True)))

    def tensors(self) -> dict[str, Tensor]:
        """Return them as tensors of a checkpoint: `float64` holds each of them exactly."""
        self._put_together()
        losses = torch.cat([torch.empty(0, dtype=torch.float64), *(part.cpu() for part in self._losses)])
        return {LOSSES: losses, RATES: torch.tensor(self._rates, dtype=torch.float64)}

    def _put_together(self) -> None:
        if self._recent:
            self._losses.append(torch.stack(self._recent).double())
            self._recent.clear()


def measured_in(checkpoint: Checkpoint, evaluations: tuple[Evaluation, ...]) -> Measured:
    """Return the measurements of a trunk in a checkpoint; none if it is of no trunk.

    Raises `CheckpointError` unless they are those of all its steps.
    """
    losses, rates = (checkpoint.tensors.get(name, torch.empty(0, dtype=torch.float64)) for name in (LOSSES, RATES))
    expected = (checkpoint.step,) if LOSSES in checkpoint.tensors else (0,)
    for name, tensor in ((LOSSES, losses), (RATES, rates)):
        if tuple(tensor.shape) != expected or tensor.dtype != torch.float64:
            raise CheckpointError(
                f"checkpoint of step {checkpoint.step}: {name}: found {tensor.dtype} {tuple(tensor.shape)},"
                f" expected torch.float64 {expected}"
            )
    return Measured(evaluations=list(evaluations), _losses=[losses], _rates=rates.tolist())


def longest(
    shared: Shared, *, digest_of: Callable[[dict[str, Tensor]], str]
) -> tuple[Checkpoint, Left, Measured] | None:
    """Return the checkpoint that spares a run most steps; None if none is usable. A damaged one is logged and skipped:
    its steps are trained again, with the same result.

    `digest_of` gives the digest of a state, which has to be the one that the checkpoint names.
    """
    for path in checkpoints(shared.place):
        try:
            if (step := step_in(path)) > shared.step:
                continue
            checkpoint = load_checkpoint(path, run_id=shared.key)
            left = from_json(Left, checkpoint.plain, where=f"checkpoint {path}", error=CheckpointError)
            for what, there, expected in (
                ("step", checkpoint.step, step),
                ("digest", digest_of(checkpoint.tensors), left.state),
            ):
                if there != expected:
                    raise CheckpointError(f"checkpoint {path}: damaged: {what} {there}, expected {expected}")
            measured = measured_in(checkpoint, left.evaluations)
            if shared.record is not None:
                shared.record.take_over(checkpoint, left)
            return checkpoint, left, measured
        except CheckpointError as error:
            log.warning("%s; falling back to the checkpoint before it, or to the start", error)
    return None
