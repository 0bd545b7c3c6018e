"""Deleting a target from a run: make the run that never had it out of the run that did.

The new run is the counterfactual (runlog/target.py): the same plan, with the target's places in the batches empty. Its
ledger begins with the state that was taken over and names the old one. There are two routes:

    replay (G3)       The run continues from the newest state of the old run that the target had no influence on, and is
                      trained to its end as any run is, so it may be interrupted and resumed.
    structure (G2)    Everything that the target moved lies in sealed regions of its own, so nothing is trained. The run
                      that never had it ends with the same tensors except for those regions, and the old ledger lists
                      all tensors one by one: the new ledger begins where the old one ended, with the kept tensors, and
                      ends there. State of methods about classes is left out. The model is the old file without the
                      regions, byte for byte; measurements are the old ones without the training loss, to which the
                      target contributed.

Other data, documents, machine, versions or code than the old run's would give another run, and are refused.

`train_counterfactual` checks a deletion by brute force: it trains the counterfactual from its first step, on this
machine and from this data, and compares every tensor that the new run ended with, by name and bit for bit. Faults of
the training code are in both runs, so this training does not rely on it (`Reference`). Nothing that it writes is kept.
"""

import json
import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from safetensors.torch import load_file

from explorer import run_files, rundir
from explorer.canonical import digest
from explorer.engine.checkpoint import load_checkpoint, save_checkpoint
from explorer.engine.fit import MODEL, Fitted, metrics_bytes, model_digest
from explorer.engine.loop import Loop
from explorer.entries.fields import LedgerState, read_float
from explorer.entries.kinds import End, State, TrainingState
from explorer.errors import LedgerError, RunError
from explorer.governance.journal import Journal
from explorer.governance.recorder import tensors_of, training_state
from explorer.governance.shared_state import Session
from explorer.governance.writer import History
from explorer.ledger.storage import CHECKPOINT, write_blob
from explorer.provenance.trust import parse_trust
from explorer.run_files import LoopRecord, Plan, ResultRecord, RunRecord, Timings, plan_file, read_plan
from explorer.runlog.anchor import DELEGATION
from explorer.runlog.documents import (
    MAX_QUARANTINE,
    TRUST_FILE,
    Documents,
    keep,
    read_policy,
)
from explorer.runlog.forecast import NO_CODE, Route, kept, stopped_early
from explorer.runlog.influence import read_record
from explorer.runlog.model_file import CARD, ModelFile, differences, read_card, write_card
from explorer.runlog.model_file import MODEL as WEIGHTS
from explorer.runlog.run_ledger import Placed, RunLedger
from explorer.runlog.target import Origin, Target, counterfactual, read_origin, write_origin
from explorer.runlog.tensors import Tensors, owner_of, read_ended, without_bookkeeping
from explorer.training.govern import OwnLoop, Reference, blank, run_documents, train_without, trained_without
from explorer.training.ledgered import keep_environment, parent_of, recording, signer_of
from explorer.training.replay import Elsewhere, elsewhere
from explorer.training.run import build_loop, documents_in, execute, result_of
from explorer.training.run_plan import recipe_of
from explorer.training.start import keep_start, kept_in, start_in

IMMATERIAL = ("platform",)  # an update of the operating system changes no bit


def delete(
    old: Path,
    target: Target,
    *,
    route: Route,
    to: Path,
    data: Path | None = None,
    private: Path | None = None,
    ranks: int | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    loop: OwnLoop | None = None,
) -> Path:
    """Make the run without the target in a directory of its own, and return that; a deletion begun there is continued.

    Args:
        old: the directory of the run.
        target: what to leave out.
        route: how: by structure, or by replay from a step (`runlog.forecast`).
        to: the parent of the new directory.
        data: the directory of data sets.
        private: where the salts and the trainer's key are now, if not where the run had them.
        ranks: how many processes train the new run; None: as many as the old one was planned for.
        on_progress: gets steps done and steps in all.
        loop: the function that trains, for the run of a custom loop (govern.py).

    Raises `RunError` for a run that did not end, and for other data, documents, machine, versions or code;
    `ProvenanceError` for documents that cannot be trusted; KeyboardInterrupt as `execute` does.
    """
    # --- the old run, which has to be finished ---
    ledger = RunLedger(old)
    record = read_record(ledger)
    if ledger.outline.end is None:
        raise RunError(f"run {record.run_id}: unfinished: its ledger has no end; let it end first")
    if stopped := stopped_early(ledger):
        raise RunError(f"run {record.run_id}: {stopped}")
    # --- the new one: its plan, its directory, and where it begins ---
    new = counterfactual(record, target)
    documents = run_documents(ledger, private)
    if Path(new.run_id).name != new.run_id:  # a record may be forged: "../.." must not lead elsewhere
        raise RunError(f"run {record.run_id!r:.200}: no name of a directory")
    directory = to / new.run_id
    checkpoint = ledger.ledger.checkpoint()
    origin = Origin(
        level=route.level,
        run=record.run_id,
        ledger=LedgerState(origin=checkpoint.origin, size=checkpoint.size, root=checkpoint.root.hex()),
        target=target,
        begins=route.start,
        state=None,
    )
    # --- by structure: nothing is trained ---
    if route.level == "G2":
        with rundir.locked(directory, what=f"run {new.run_id}"):
            if not _begun(directory, origin) or not is_whole(directory, new):
                drop(ledger, directory, new, origin, documents, dropped=route.dropped)
        return directory
    # --- by replay, of a custom loop: from its first step ---
    if not isinstance(new, RunRecord) or not isinstance(record, RunRecord):
        assert isinstance(new, LoopRecord)
        if loop is None:
            raise RunError(f"run {record.run_id}: {NO_CODE}")
        with rundir.locked(directory, what=f"run {new.run_id}"):
            if not _begun(directory, origin) or not is_whole(directory, new):
                refuse_elsewhere(old, record)
                train_without(directory, new, loop, documents, origin)
        return directory
    # --- by replay, of a recipe: from the newest state without influence ---
    if not _begun(directory, origin):
        refuse_elsewhere(old, record)
        built = build_loop(new, data=data, documents=documents)
        state = _state_at(ledger, built, run_id=record.run_id, step=route.start)
        with rundir.locked(directory, what=f"run {new.run_id}"):
            if not _begun(directory, origin):  # by another process, while the data was read
                start = start_in(new)
                if start is not None:
                    keep_start(kept_in(documents, start), start, directory)
                # The plan is the last file: until it is there a crash leaves a directory that is begun again, and
                # from then on `execute` can finish the run.
                keep(documents, directory)
                _take_over(old, directory, old_id=record.run_id, new_id=new.run_id, step=route.start)
                write_origin(directory, replace(origin, state=state))
                run_files.write(directory / rundir.RUN, new)
    execute(directory, data=data, ranks=ranks, on_progress=on_progress)
    return directory


def refuse_elsewhere(old: Path, record: Plan) -> None:
    """Raise `RunError` with every difference between here and where the run was trained that may change its bits."""
    differing = [difference for difference in elsewhere(old, record) if difference.what not in IMMATERIAL]
    if differing:
        listed = "; ".join(
            f"{difference.what}: {difference.recorded} then, {difference.here} here" for difference in differing
        )
        raise RunError(f"run {record.run_id} was trained elsewhere, and a replay here gives other bits: {listed}")


def _begun(directory: Path, origin: Origin) -> bool:
    """Return whether this deletion was begun in the directory. Raises `RunError` where something else was."""
    if read_plan(directory) is None:
        return False
    begun = read_origin(directory)
    if begun is None:
        raise RunError(f"{directory}: holds a run of its own: give another directory with --out")
    if replace(begun, state=None) != origin:
        raise RunError(
            f"{directory}: begun as another deletion, {begun.level} from step {begun.begins} of"
            f" {begun.run}, whose ledger had {begun.ledger.size} entries: move it away to start over"
        )
    return True


def _state_at(ledger: RunLedger, loop: Loop, *, run_id: str, step: int) -> TrainingState | None:
    """Return the state of the checkpoint after this many steps; None for the initial one.

    Raises `RunError` for a checkpoint whose state is not the one in the ledger: nothing else vouches for it.
    """
    if not step:
        return None
    checkpoint = load_checkpoint(_kept_at(ledger.run, step), run_id=run_id)
    loop.restore(checkpoint.tensors, step=checkpoint.step)
    state, recorded = training_state(loop.state, step=step), ledger.genesis.start if step == ledger.begins else None
    for placed in ledger.read([index for at, index in ledger.outline.states if at == step], State):
        recorded = placed.entry.state
    if state != recorded:
        raise RunError(f"{_kept_at(ledger.run, step)}: not the state that the ledger has on record after {step} steps")
    return state


def _take_over(old: Path, directory: Path, *, old_id: str, new_id: str, step: int) -> None:
    """Copy the old run's kept checkpoints and measurements up to this step, as the new run's own; times start at
    zero."""
    (directory / rundir.PRIVATE).mkdir(mode=0o700, exist_ok=True)
    for number in (kept_step for kept_step in kept(old) if kept_step <= step):
        checkpoint = load_checkpoint(_kept_at(old, number), run_id=old_id)
        head = metrics_bytes(checkpoint)
        mine = replace(checkpoint, plain={"offset": head})
        save_checkpoint(directory / rundir.KEPT, mine, run_id=new_id, keep=None)
        if number == step:  # the checkpoint that `execute` resumes from, and the measurements that belong to it
            rundir.write_bytes(directory / rundir.METRICS, (old / rundir.METRICS).read_bytes()[:head])
            save_checkpoint(directory / rundir.CHECKPOINT, mine, run_id=new_id)


def _kept_at(run: Path, step: int) -> Path:
    return run / rundir.KEPT / f"step-{step:08d}.json"


# --- by structure ---

TRAIN_LOSS = "train_loss"


def drop(
    old: RunLedger, to: Path, record: Plan, origin: Origin, documents: Documents, *, dropped: Collection[str]
) -> None:
    """Write the run without these regions into its directory.

    Args:
        old: the ledger of the old run, which has ended.
        to: the new directory.
        record: the plan of the new run.
        origin: where it comes from, but for the state.
        documents: govern it; the directory gets copies.
        dropped: names of the sealed regions to leave out.

    Raises `RunError` for a model that is not the one that the old ledger ends with.
    """
    # --- the state that is kept ---
    ended = read_ended(old)
    policy = read_policy(old)
    sealed = () if policy is None else policy.sealed
    state_of_training = without_bookkeeping(ended.tensors, old.genesis)
    kept = state_of_training.kept(lambda name: owner_of(name, sealed) not in dropped)
    parameters, buffers, optimizer = kept.roots
    end = ended.end.entry
    state = TrainingState(parameters=parameters, buffers=buffers, optimizer=optimizer, random=end.state.random)
    # --- its files; the ledger and a recipe's result last, since `is_whole` goes by them ---
    keep(documents, to)
    rundir.write_bytes(to / rundir.ENVIRONMENT, (old.run / rundir.ENVIRONMENT).read_bytes())
    if (old.run / rundir.METRICS).exists():  # a custom loop has none: it measures for itself
        rundir.write_bytes(to / rundir.METRICS, _metrics(old.run / rundir.METRICS))
    _write_model(old.run, to, record, kept, sealed_gone=dropped)
    write_origin(to, replace(origin, state=state))
    run_files.write(to / plan_file(record), record)
    _write_ledger(old, to, record, replace(origin, state=state), documents, end=end, kept=kept)
    if isinstance(record, RunRecord):
        run_files.write(to / rundir.RESULT, _result(to, record, end))


def is_whole(to: Path, record: Plan) -> bool:
    """Return whether a run that a deletion makes was written completely."""
    if isinstance(record, RunRecord):
        return (to / rundir.RESULT).exists()
    return (to / rundir.LEDGER / CHECKPOINT).exists() and History(to / rundir.LEDGER).ended()


def _write_model(old: Path, to: Path, record: Plan, kept: Tensors, *, sealed_gone: Collection[str]) -> None:
    """Write the model without these regions. Raises `RunError` unless it has exactly the kept tensors."""
    expected = kept.parameters | kept.buffers
    model = ModelFile(old / rundir.MODEL / WEIGHTS)
    model.write_without(model.entries.keys() - expected.keys(), to / rundir.MODEL / WEIGHTS)
    written = ModelFile(to / rundir.MODEL / WEIGHTS)
    if fault := next(differences(written.leaves(chunk=kept.chunk), expected), None):
        raise RunError(f"{model.path}: not the model that the ledger ends with: {fault}")
    card = read_card(old / rundir.MODEL / CARD)
    sealed = tuple(region for region in card.sealed if region.name not in sealed_gone)
    # An adapter that is not in the card is not built. A sealed module is part of the model's own structure, so the card
    # lists it as absent.
    gone = (region for region in card.sealed if region.name in sealed_gone and region.module)
    absent = (*card.absent, *gone)
    write_card(to / rundir.MODEL / CARD, replace(card, run=record.run_id, sealed=sealed, absent=absent))


def _write_ledger(
    old: RunLedger, to: Path, record: Plan, origin: Origin, documents: Documents, *, end: End, kept: Tensors
) -> None:
    """Write the genesis, which begins where the old run ended, and the end."""
    assert origin.state is not None
    genesis = replace(
        old.genesis,
        run=record.run_id,
        recipe=digest(record.identity),
        begins=origin.begins,
        start=origin.state,
        blobs={name: blob for name, blob in old.genesis.blobs.items() if name != DELEGATION},
        delegation=None,  # which was to the key of the old run
        parents=(*(parent for parent in old.genesis.parents if parent.kind == "model"), parent_of(origin)),
    )
    trust = parse_trust(documents.trust, where=str(documents.where / TRUST_FILE))
    signer = signer_of(record, documents, trust, now=int(time.time()))
    with Journal.open(to, genesis=genesis, signer=signer, leaves=np.empty((0, 32), np.uint8)) as journal:
        for name in genesis.blobs:
            content = old.blob(Placed(index=0, entry=old.genesis), name, max_bytes=MAX_QUARANTINE)
            if content is not None:
                write_blob(journal.directory, content)
        journal.begin(origin.begins, origin.state)
        metrics = {name: read_float(value) for name, value in end.metrics.items()}
        journal.end(origin.begins, origin.state, tensors=kept, metrics=metrics)


def _metrics(path: Path) -> bytes:
    """Return the lines of `metrics.jsonl` except for those of the training loss. Raises `RunError` for a damaged
    file."""
    lines = path.read_bytes().splitlines(keepends=True)
    try:
        return b"".join(line for line in lines if json.loads(line)["metric"] != TRAIN_LOSS)
    except (ValueError, TypeError, KeyError) as error:
        raise RunError(f"{path}: damaged: not a line a measurement ({error})") from error


def _result(to: Path, record: RunRecord, end: End) -> ResultRecord:
    """Return the result of a run that a deletion wrote. Nothing was trained and nothing timed: it measures no cost."""
    tensors = load_file(to / rundir.MODEL / WEIGHTS)
    ended = Fitted(
        metrics={name: read_float(value) for name, value in end.metrics.items()},
        timings=Timings(),
        timed_steps=0,
        resumed=0,
        state_digest=model_digest({MODEL + name: tensor for name, tensor in tensors.items()}),
    )
    return result_of(to, record, ended, examples=record.steps * record.batch_size, contended=True)


# --- the counterfactual ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """Comparison of a run that a deletion made with its counterfactual."""

    run: str
    steps: int  # trained
    tensors: int  # compared
    differing: tuple[str, ...]  # names of tensors, with the difference
    steps_watched: int = 0  # optimiser steps around which tensors that admitted no class were compared

    @property
    def equal(self) -> bool:
        """Return whether the new run ended with exactly the tensors that the counterfactual ends with."""
        return not self.differing


def train_counterfactual(
    new: Path,
    *,
    dropped: Collection[str] = (),
    data: Path | None = None,
    private: Path | None = None,
    on_environment: Callable[[tuple[Elsewhere, ...]], None] = lambda environment: None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    loop: OwnLoop | None = None,
) -> Compared:
    """Train the plan of the run in this directory from step 0, and compare.

    Args:
        new: the directory of the run that a deletion made.
        dropped: tensors that a deletion by structure took out; the counterfactual still has them, untrained.
        data: the directory of data sets.
        private: where the salts of the tags are now, if not where the run had them.
        on_environment: gets the differences in machine and software before anything is trained.
        on_progress: gets steps done and steps in all.
        loop: the function that trains, for the run of a custom loop (govern.py).

    Raises `RunError` for a run without a plan or without this data, `LedgerError` for one that has not ended. A
    difference is no error.
    """
    ledger = RunLedger(new)
    record, expected = read_record(ledger), read_ended(ledger).tensors
    # --- a custom loop: its owner's function trains ---
    if isinstance(record, LoopRecord):
        if loop is None:
            raise RunError(f"run {record.run_id}: {NO_CODE}")
        environment = elsewhere(new, record)
        on_environment(environment)
        with tempfile.TemporaryDirectory(prefix="explorer-") as scratch:
            trained, reference = trained_without(new, record, loop, private=private, scratch=Path(scratch))
        return _compared(ledger, trained, expected, reference, dropped=dropped)
    # --- a recipe: its loop, with blank rows and guarded optimisers ---
    documents = documents_in(new, record, private=private)
    if documents is None:
        raise LedgerError(f"run {record.run_id}: governed by no documents: nothing can have been left out of it")
    environment = elsewhere(new, record)
    on_environment(environment)
    built = build_loop(record, data=data, documents=documents, elsewhere=bool(environment))
    reference = Reference(built.state)
    batches, gone = built.setting.batches, built.state.resource(Session).gone
    if gone is not None:
        batches.dataset = replace(batches.dataset, train=blank(batches.dataset.train, gone))
    with tempfile.TemporaryDirectory(prefix="explorer-") as scratch:
        trained = _trained(built, record, documents, Path(scratch), data=data, on_progress=on_progress)
    return _compared(ledger, trained, expected, reference, dropped=dropped)


def _compared(
    new: RunLedger, trained: Tensors, expected: Tensors, reference: Reference, *, dropped: Collection[str]
) -> Compared:
    """Compare the tensors, without the state that methods keep about classes, one of which the old run had."""
    states = [without_bookkeeping(tensors, new.genesis) for tensors in (trained, expected)]
    mine, theirs = ({**state.parameters, **state.buffers, **state.optimizer} for state in states)
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
    """Train the loop to its end and return its tensors; its ledger goes into the scratch directory, signed by a
    throw-away key."""
    keep_environment(scratch, recorded=False)
    with recording(loop, record, recipe_of(record), scratch, documents, data=data, rehearsal=True):
        loop.call("before_fit")
        while loop.state.step < loop.state.total_steps:
            loop.step()
            on_progress(loop.state.step, loop.state.total_steps)
        loop.call("after_fit")
        loop.evaluate()
        return tensors_of(loop.state)
