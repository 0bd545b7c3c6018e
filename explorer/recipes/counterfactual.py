"""The counterfactual itself: the run that never had the target, trained from its first step, and what it ends with.

A deletion claims to have arrived at it by a shorter way. Here it is gone the long way, on this machine and from this
data, and every tensor that the new run ended with is compared with the one that comes out, by name and bit for bit.
What governed methods remember about classes is no state of the model, and is left out. Nothing is written that stays.

A fault in the code that trains may be in both runs, which then agree. So this one does not trust that code with three
things (`Reference`). The target's rows are blank, so that code which reads them anyhow arrives elsewhere. A region to
which a step admits nobody has no optimiser step at all, and a tensor to which it admits nobody has no gradient, not
even one of zeros, under which decay and momentum go on. Around each optimiser step such tensors, and what the optimiser
remembers for them, are compared bit for bit.
"""

import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from explorer.data.dataset import Dataset, Split
from explorer.engine.guard import same_bits
from explorer.engine.loop import Loop
from explorer.engine.state import Region
from explorer.errors import LedgerError, RunError
from explorer.governance.digests import tensors_of
from explorer.governance.documents import Documents
from explorer.governance.session import Session
from explorer.recipes.ledger import keep_environment, recording
from explorer.recipes.replay import Elsewhere, elsewhere
from explorer.recipes.run import build_loop, documents_in, recipe_of
from explorer.recorded.model_file import differences
from explorer.recorded.obstacles import NO_CODE
from explorer.recorded.presence import read_record
from explorer.recorded.run_ledger import RunLedger
from explorer.recorded.tensors import Tensors, read_ended, without_bookkeeping
from explorer.records import RunRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """What came of it."""

    run: str
    steps: int  # trained
    tensors: int  # compared
    differing: tuple[str, ...]  # names, with what is wrong
    steps_watched: int = 0  # optimiser steps around which what nobody was admitted to was compared

    @property
    def equal(self) -> bool:
        """Whether the new run ended with what the counterfactual ends with, all of it."""
        return not self.differing


def train_counterfactual(
    new: Path,
    *,
    dropped: Collection[str] = (),
    data: Path | None = None,
    private: Path | None = None,
    on_environment: Callable[[tuple[Elsewhere, ...]], None] = lambda found: None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Compared:
    """Train the plan of the run in this directory from step 0, and compare. `dropped` are the tensors that a deletion
    by structure took out, which the counterfactual has untrained.

    `private` is where the salts of the tags are now, if not where the run had them. Raises `RunError` for a run without
    a plan or without this data, `LedgerError` for one that has not ended. That something differs is no error.
    """
    ledger = RunLedger(new)
    record, expected = read_record(ledger), read_ended(ledger).tensors
    if not isinstance(record, RunRecord):
        raise RunError(f"run {record.run_id}: {NO_CODE}")
    documents = documents_in(new, record)
    if documents is None:
        raise LedgerError(f"run {record.run_id}: governed by no documents: nothing can have been left out of it")
    if private is not None:
        documents = replace(documents, private=private.resolve())
    environment = elsewhere(new, record)
    on_environment(environment)
    loop = build_loop(record, data=data, documents=documents, elsewhere=bool(environment))
    reference = Reference(loop)
    with tempfile.TemporaryDirectory(prefix="explorer-") as scratch:
        found = _trained(loop, record, documents, Path(scratch), data=data, on_progress=on_progress)
    states = [without_bookkeeping(each, ledger.genesis) for each in (found, expected)]
    mine, theirs = ({**each.parameters, **each.buffers, **each.optimizer} for each in states)
    mine = {name: leaf for name, leaf in mine.items() if name in theirs or name not in dropped}
    return Compared(
        run=record.run_id,
        steps=record.steps,
        tensors=len(theirs),
        differing=(*reference.moved, *differences(theirs, mine)),
        steps_watched=reference.watched,
    )


class Reference:
    """A loop that is not trusted to keep the target out: see above."""

    def __init__(self, loop: Loop) -> None:
        """Changes the loop in place; it is at step 0."""
        self.moved: list[str] = []  # what moved in a step that admitted nobody to it, in words
        self.watched = 0
        self._state = loop.state
        batches, gone = loop.setting.batches, loop.state.resource(Session).gone
        if gone is not None:
            batches.dataset = blank(batches.dataset, gone)
        for region in loop.state.regions.values():
            for optimizer in region.optimizers:
                optimizer.step = partial(self._step, region, optimizer, optimizer.step)  # pyright: ignore[reportAttributeAccessIssue]

    def _step(self, region: Region, optimizer: Optimizer, step: Callable[[], None]) -> None:
        admitted = {name for share in self._state.shares if len(share.slots) for name in share.parameters}
        closed = {name: each for name, each in region.parameters.items() if name not in admitted}
        for parameter in closed.values():
            parameter.grad = None
        if len(closed) == len(region.parameters):
            return
        before = {name: _seen(optimizer, each) for name, each in closed.items()}
        step()
        self.watched += bool(closed)
        for name, parameter in closed.items():
            if not _same(before[name], _seen(optimizer, parameter)):
                self.moved.append(
                    f"{name}: moved in step {self._state.step}, or what the optimiser remembers for it did, and nobody"
                    " in the batch was admitted to it"
                )


def blank(dataset: Dataset, gone: NDArray[np.bool_]) -> Dataset:
    """The dataset with zeros in place of these training examples."""
    rows = torch.from_numpy(gone)
    sides = [tensor.clone() for tensor in (dataset.train.inputs, dataset.train.labels)]
    for each in sides:
        each[rows] = 0
    return replace(dataset, train=Split(inputs=sides[0], labels=sides[1]))


def _seen(optimizer: Optimizer, parameter: Tensor) -> dict[str, Any]:
    """A parameter and what the optimiser remembers for it."""
    state = {
        key: each.clone() if isinstance(each, Tensor) else each
        for key, each in optimizer.state.get(parameter, {}).items()
    }
    return {"": parameter.detach().clone(), **state}


def _same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    return before.keys() == after.keys() and all(
        same_bits(value, after[key]) if isinstance(value, Tensor) else value == after[key]
        for key, value in before.items()
    )


def _trained(
    loop: Loop,
    record: RunRecord,
    documents: Documents,
    scratch: Path,
    *,
    data: Path | None,
    on_progress: Callable[[int, int], None],
) -> Tensors:
    """What the loop comes to at its end; its ledger goes into the scratch directory, signed by nobody."""
    keep_environment(scratch, recorded=False)
    with recording(loop, record, recipe_of(record), scratch, documents, data=data, rehearsal=True):
        loop.call("before_fit")
        while loop.state.step < loop.state.total_steps:
            loop.step()
            on_progress(loop.state.step, loop.state.total_steps)
        loop.call("after_fit")
        loop.evaluate()
        return tensors_of(loop.state)
