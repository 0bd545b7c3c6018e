"""The counterfactual itself: the run that never had the target, trained from its first step, and what it ends with.

A deletion claims to have arrived at it by a shorter way. Here it is gone the long way, on this machine and from this
data, and every tensor that the new run ended with is compared with the one that comes out, by name and bit for bit.
What governed methods remember about classes is no state of the model, and is left out. Nothing is written that stays.
Faults of the code that trains are in both, so this run is one that does not trust it (reference.py).
"""

import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from explorer.engine.loop import Loop
from explorer.errors import LedgerError, RunError
from explorer.governance.digests import tensors_of
from explorer.governance.documents import Documents
from explorer.governance.session import Session
from explorer.recipes.ledger import keep_environment, recording
from explorer.recipes.own_replay import OwnLoop, trained_without
from explorer.recipes.reference import Reference, blank
from explorer.recipes.replay import Elsewhere, elsewhere
from explorer.recipes.run import build_loop, documents_in, recipe_of
from explorer.records import LoopRecord, RunRecord
from explorer.runlog.model_file import differences
from explorer.runlog.obstacles import NO_CODE
from explorer.runlog.presence import read_record
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.tensors import Tensors, read_ended, without_bookkeeping


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
    loop: OwnLoop | None = None,
) -> Compared:
    """Train the plan of the run in this directory from step 0, and compare. `dropped` are the tensors that a deletion
    by structure took out, which the counterfactual has untrained. `loop` trains a loop of one's own (own_replay.py).

    `private` is where the salts of the tags are now, if not where the run had them. Raises `RunError` for a run without
    a plan or without this data, `LedgerError` for one that has not ended. That something differs is no error.
    """
    ledger = RunLedger(new)
    record, expected = read_record(ledger), read_ended(ledger).tensors
    if isinstance(record, LoopRecord):
        if loop is None:
            raise RunError(f"run {record.run_id}: {NO_CODE}")
        environment = elsewhere(new, record)
        on_environment(environment)
        with tempfile.TemporaryDirectory(prefix="explorer-") as scratch:
            found, reference = trained_without(new, record, loop, private=private, scratch=Path(scratch))
        return _compared(ledger, found, expected, reference, dropped=dropped)
    documents = documents_in(new, record)
    if documents is None:
        raise LedgerError(f"run {record.run_id}: governed by no documents: nothing can have been left out of it")
    if private is not None:
        documents = replace(documents, private=private.resolve())
    environment = elsewhere(new, record)
    on_environment(environment)
    built = build_loop(record, data=data, documents=documents, elsewhere=bool(environment))
    reference = Reference(built.state)
    batches, gone = built.setting.batches, built.state.resource(Session).gone
    if gone is not None:
        batches.dataset = replace(batches.dataset, train=blank(batches.dataset.train, gone))
    with tempfile.TemporaryDirectory(prefix="explorer-") as scratch:
        found = _trained(built, record, documents, Path(scratch), data=data, on_progress=on_progress)
    return _compared(ledger, found, expected, reference, dropped=dropped)


def _compared(
    new: RunLedger, found: Tensors, expected: Tensors, reference: Reference, *, dropped: Collection[str]
) -> Compared:
    states = [without_bookkeeping(each, new.genesis) for each in (found, expected)]
    mine, theirs = ({**each.parameters, **each.buffers, **each.optimizer} for each in states)
    mine = {name: leaf for name, leaf in mine.items() if name in theirs or name not in dropped}
    return Compared(
        run=new.genesis.run,
        steps=new.steps,
        tensors=len(theirs),
        differing=(*reference.moved, *differences(theirs, mine)),
        steps_watched=reference.watched,
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
