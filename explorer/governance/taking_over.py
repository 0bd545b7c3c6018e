"""Taking over the steps of a trunk: a governed run that begins with another one's state records that run's steps.

Two runs of a recipe and seed that differ in their length make the same first steps (engine/trunk.py). What their
ledgers say of them is the same too, but no entry of one could be in the other: commitments are salted with the secrets
of each run, and a ledger's hashes hang on its first entry. So the contents are read from the ledger of the run that
made the steps, each checked against its digest and its commitment, and recorded again: the same segments with the same
numbers, under the secrets of this run, and after them an entry that names the other run. The new ledger is whole: it
stays what it is when the other one is erased or removed.

Nothing is recorded before everything was checked. A ledger that cannot be used (removed, erased, of other documents,
altered) costs only time: the run makes the steps itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from explorer.engine.checkpoint import Checkpoint
from explorer.engine.state import State
from explorer.engine.trunk import Left
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Decision
from explorer.entries.numbers import Floats, StepNumbers, decode_sketches, sketch_bytes
from explorer.errors import CheckpointError, ExplorerError, LedgerError
from explorer.governance.journal import Journal
from explorer.governance.recorder import tensor_leaf
from explorer.governance.routing import Router
from explorer.governance.shared_state import Session
from explorer.provenance.routing_weights import Admission
from explorer.runlog.run_keys import NoKeys, own_keys
from explorer.runlog.run_ledger import Placed, RunLedger, Segment
from explorer.runlog.same_steps import open_named, unequal_beginnings, unlike_plans
from explorer.runlog.segments import (
    SegmentNumbers,
    missing_words,
    open_commitments,
    open_sketches,
    read_numbers,
    read_rows,
)
from explorer.runlog.tensors import BLOB, MAX_BYTES, Tensors, check_roots, parse_tensors

PREFIXES = ("model/", "memory/")  # of names in a checkpoint, which a ledger lists without them


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Contents:
    """Everything that the entries of a segment are made of."""

    segment: Segment
    numbers: SegmentNumbers
    rows: list[NDArray[np.int64]]  # of the tag table, by step
    by_step: dict[int, StepNumbers]
    sketches: dict[int, Floats]  # by class
    tensors: Tensors


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedRecord:
    """The ledger of a run that shares steps with other runs of its recipe and seed: an `engine.trunk.Record`."""

    state: State  # of the run's loop
    runs: Path  # the directory of all of them

    @property
    def head(self) -> LedgerState:
        return _journal(self.state).head

    def take_over(self, checkpoint: Checkpoint, left: Left) -> None:
        journal, router = _journal(self.state), self.state.resources.get(Router)
        admission = None if router is None else router.at(0.0, frozenset()).admission
        where = f"checkpoint of step {checkpoint.step} that {left.run} left"
        if left.ledger is None:
            raise CheckpointError(f"{where}: names no ledger that has its steps")
        try:
            other = open_named(self.runs, left.run, left.ledger)
            mine = journal.genesis
            unlike = chain(unequal_beginnings(mine, other.genesis), unlike_plans(mine, other.genesis, runs=self.runs))
            for words in unlike:
                raise LedgerError(words)
            last = None
            for last in _contents(other, checkpoint.step):
                _check_steps(last, admission)
            if last is None or last.segment.stop != checkpoint.step:
                raise LedgerError(f"no state after {checkpoint.step} steps is on record there")
            _check_state(checkpoint, last)
        except ExplorerError as error:
            raise CheckpointError(f"{where}: the ledger of {left.run}: {error}") from error
        journal.begin(0, None)
        for contents in _contents(other, checkpoint.step):
            _record(journal, contents, admission)
        journal.trunk(checkpoint.step, run=left.run, ledger=left.ledger, state=last.segment.state.entry.state)


def _journal(state: State) -> Journal:
    journal = state.resource(Session).journal
    assert journal is not None  # it is opened before the loop runs
    return journal


# --- the other ledger ---


def _contents(run: RunLedger, steps: int) -> Iterator[Contents]:
    """Yield the segments of the first steps with all that they hold. Raises `LedgerError` for one that is not whole."""
    outline = run.outline
    decided = [
        placed.index for placed in run.read(outline.decisions, Decision) if placed.entry.action != "re-execution"
    ]
    if strange := [*outline.profiles, *decided]:
        raise LedgerError(f"entry {min(strange)} is no step: only steps are taken over")
    # A commitment opens only with the secret of its class; without one the class is being erased, or was.
    keys = own_keys(run.run, run.genesis)
    if gone := sorted(run.genesis.classes if isinstance(keys, NoKeys) else keys.erased):
        raise LedgerError(f"the secret of {gone[0]} is not here")
    for segment in run.segments(range(steps)):
        where = f"entry {segment.state.index}"
        numbers = read_numbers(run, segment)
        rows, sketches = read_rows(run, segment, numbers.steps), _sketches(run, segment)
        tensors = run.blob(segment.state, BLOB, max_bytes=MAX_BYTES)
        if numbers.missing:
            raise LedgerError(f"{where}: {missing_words(numbers.missing)}")
        if rows is None or tensors is None:
            raise LedgerError(f"{where}: the blob of its {'slots' if rows is None else BLOB} is not here")
        for index, path, committed, opened in (
            *open_commitments(numbers, keys),
            *open_sketches(run, segment, keys),
        ):
            if committed != opened:
                raise LedgerError(f"entry {index}: the numbers of {path} are not those that it commits to")
        yield Contents(
            segment=segment,
            numbers=numbers,
            rows=rows,
            by_step={placed.entry.step: number for placed, number in numbers.by_step()},
            sketches=sketches,
            tensors=parse_tensors(tensors, where=f"{where}: {BLOB}"),
        )


def _sketches(run: RunLedger, segment: Segment) -> dict[int, Floats]:
    layers, sketches = len(run.genesis.layers), dict[int, Floats]()
    for index, path in enumerate(run.genesis.classes):
        if (name := f"sketches/{path}") in segment.state.entry.blobs:
            content = run.find(segment.state, name, max_bytes=sketch_bytes(layers))
            if not isinstance(content, bytes):
                raise LedgerError(f"entry {segment.state.index}: {content}: {name}")
            sketches[index] = decode_sketches(content, layers=layers)
    return sketches


def _check_steps(contents: Contents, admission: Admission | None) -> None:
    """Check that the steps were made under the table of weights that this run has."""
    expected = None if admission is None else (admission.digest, str(admission.phase))
    for placed in contents.numbers.steps:
        step = placed.entry
        if (expected is not None and (step.weights, step.phase) != expected) or (expected is None and step.weights):
            raise LedgerError(f"entry {placed.index}: step {step.step} was made under another table of weights")


def _check_state(checkpoint: Checkpoint, last: Contents) -> None:
    """Check that the tensors of a checkpoint are those of the state on record, each of them."""
    state, tensors = last.segment.state, last.tensors
    check_roots(tensors, state.entry.state, where=f"entry {state.index}: {BLOB}")
    expected = tensors.parameters | tensors.buffers | tensors.optimizer
    leaves: dict[str, str] = {}
    for name, tensor in checkpoint.tensors.items():
        plain = next((name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix)), name)
        if not name.startswith("trunk/"):
            leaves[plain] = tensor_leaf(plain, tensor, chunk=tensors.chunk)
    if wrong := sorted(name for name in leaves.keys() | expected.keys() if leaves.get(name) != expected.get(name)):
        raise LedgerError(f"entry {state.index}: {wrong[0]} is not the tensor that the checkpoint has")


# --- this run's ledger ---


def _record(journal: Journal, contents: Contents, admission: Admission | None) -> None:
    """Record a segment as the run does that makes its steps."""
    for placed, rows in zip(contents.numbers.steps, contents.rows, strict=True):
        _step(journal, placed, rows, contents.by_step.get(placed.entry.step), admission)
    journal.sum_sketches(contents.sketches)
    state = contents.segment.state.entry
    journal.segment(state.step, state.state, tensors=contents.tensors)


def _step(
    journal: Journal,
    placed: Placed,
    rows: NDArray[np.int64],
    numbers: StepNumbers | None,
    admission: Admission | None,
) -> None:
    step = placed.entry
    journal.step(
        step.step,
        rows=rows,
        examples=step.examples,
        quarantined=step.quarantined,
        updated=[flag == "1" for flag in step.updated],
        admission=admission,
        numbers=numbers,
        estimated=step.estimated,
    )
