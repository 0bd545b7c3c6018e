"""Deletion by structure: the run without its target, out of what the old run left and without training anything.

All that the target moved lies in sealed regions of its own. So the run that never had it ends with the same tensors but
for those, which the old ledger lists one by one: the new ledger begins where the old one ended, with the kept tensors,
and ends there. What the methods remember about the classes is no part of it. The model is the old file without the
regions, byte for byte; the measurements are the old ones but for the training loss, which is the target's as well.
"""

import datetime
import hashlib
import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.torch import load_file

from explorer import records, rundir
from explorer.canonical import digest
from explorer.engine.fit import MODEL, model_digest
from explorer.entries.fields import read_float
from explorer.entries.run import End, TrainingState
from explorer.errors import RunError
from explorer.governance.documents import TRUST, Documents, keep
from explorer.governance.history import History
from explorer.governance.journal import Journal
from explorer.ledger.blobs import write_blob
from explorer.ledger.read import CHECKPOINT
from explorer.provenance.trust import parse_trust
from explorer.recipes.ledger import parent_of, signer_of
from explorer.records import Plan, ResultRecord, RunRecord, Timings, plan_file
from explorer.runlog.model_file import CARD, ModelFile, differences, read_card, write_card
from explorer.runlog.model_file import MODEL as WEIGHTS
from explorer.runlog.origin import Origin, write_origin
from explorer.runlog.papers import MAX_QUARANTINE, read_policy
from explorer.runlog.run_ledger import Placed, RunLedger
from explorer.runlog.tensors import Tensors, owner_of, read_ended, without_bookkeeping

TRAIN_LOSS = "train_loss"


def drop(
    old: RunLedger, to: Path, record: Plan, origin: Origin, documents: Documents, *, dropped: Collection[str]
) -> None:
    """Write the run without these regions into its directory, its record, its ledger and a recipe's result last.

    Raises `RunError` for a model that is not the one that the old ledger ends with.
    """
    ended = read_ended(old)
    policy = read_policy(old)
    sealed = () if policy is None else policy.sealed
    state_of_training = without_bookkeeping(ended.tensors, old.genesis)
    kept = state_of_training.kept(lambda name: owner_of(name, sealed) not in dropped)
    parameters, buffers, optimizer = kept.roots
    end = ended.end.entry
    state = TrainingState(parameters=parameters, buffers=buffers, optimizer=optimizer, random=end.state.random)
    keep(documents, to)
    rundir.write_bytes(to / rundir.ENVIRONMENT, (old.run / rundir.ENVIRONMENT).read_bytes())
    if (old.run / rundir.METRICS).exists():  # a loop of one's own measures by itself
        rundir.write_bytes(to / rundir.METRICS, _metrics(old.run / rundir.METRICS))
    _write_model(old.run, to, record, kept, sealed_gone=dropped)
    write_origin(to, replace(origin, state=state))
    records.write(to / plan_file(record), record)
    _write_ledger(old, to, record, replace(origin, state=state), documents, end=end, kept=kept)
    if isinstance(record, RunRecord):
        records.write(to / rundir.RESULT, _result(to, record, end))


def is_whole(to: Path, record: Plan) -> bool:
    """Whether all of a run that a deletion makes was written."""
    if isinstance(record, RunRecord):
        return (to / rundir.RESULT).exists()
    return (to / rundir.LEDGER / CHECKPOINT).exists() and History(to / rundir.LEDGER).ended()


def _write_model(old: Path, to: Path, record: Plan, kept: Tensors, *, sealed_gone: Collection[str]) -> None:
    expected = kept.parameters | kept.buffers
    model = ModelFile(old / rundir.MODEL / WEIGHTS)
    model.write_without(model.entries.keys() - expected.keys(), to / rundir.MODEL / WEIGHTS)
    written = ModelFile(to / rundir.MODEL / WEIGHTS)
    if fault := next(differences(written.leaves(), expected), None):
        raise RunError(f"{model.path}: not the model that the ledger ends with: {fault}")
    card = read_card(old / rundir.MODEL / CARD)
    sealed = tuple(region for region in card.sealed if region.name not in sealed_gone)
    gone = (region for region in card.sealed if region.name in sealed_gone and region.module)
    absent = (*card.absent, *gone)  # an adapter that is not in the card is not built; a module is the model's own
    write_card(to / rundir.MODEL / CARD, replace(card, run=record.run_id, sealed=sealed, absent=absent))


def _write_ledger(
    old: RunLedger, to: Path, record: Plan, origin: Origin, documents: Documents, *, end: End, kept: Tensors
) -> None:
    """The genesis, which begins where the old run ended, and the end."""
    assert origin.state is not None
    genesis = replace(
        old.genesis,
        run=record.run_id,
        recipe=digest(record.identity),
        begins=origin.begins,
        start=origin.state,
        parents=(*(each for each in old.genesis.parents if each.kind == "model"), parent_of(origin)),
    )
    trust = parse_trust(documents.trust, where=str(documents.where / TRUST))
    signer = signer_of(record.run_id, documents, trust)
    with Journal.open(to, genesis=genesis, signer=signer, leaves=np.empty((0, 32), np.uint8)) as journal:
        for name in genesis.blobs:
            content = old.blob(Placed(index=0, entry=old.genesis), name, max_bytes=MAX_QUARANTINE)
            if content is not None:
                write_blob(journal.directory, content)
        journal.begin(origin.begins, origin.state)
        metrics = {name: read_float(value) for name, value in end.metrics.items()}
        journal.end(origin.begins, origin.state, tensors=kept, metrics=metrics)


def _metrics(path: Path) -> bytes:
    """The lines of `metrics.jsonl` but for those of the training loss. Raises `RunError` for what is none."""
    lines = path.read_bytes().splitlines(keepends=True)
    try:
        return b"".join(line for line in lines if json.loads(line)["metric"] != TRAIN_LOSS)
    except (ValueError, TypeError, KeyError) as error:
        raise RunError(f"{path}: damaged: not a line a measurement ({error})") from error


def _result(to: Path, record: RunRecord, end: End) -> ResultRecord:
    """Nothing was trained and nothing timed: no measure of cost."""
    tensors = load_file(to / rundir.MODEL / WEIGHTS)
    return ResultRecord(
        run_id=record.run_id,
        metrics={name: read_float(value) for name, value in end.metrics.items()},
        steps=record.steps,
        examples=record.steps * record.batch_size,
        timings=Timings(),
        timed_steps=0,
        contended=True,
        resumed=0,
        state_digest=model_digest({MODEL + name: tensor for name, tensor in tensors.items()}),
        files={
            name: hashlib.sha256((to / name).read_bytes()).hexdigest()
            for name in (rundir.RUN, rundir.ENVIRONMENT, rundir.METRICS)
        },
        finished_at=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
