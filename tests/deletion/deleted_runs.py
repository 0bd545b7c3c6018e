"""Runs and what deletions made of them, without training: a class in a region of its own (G2), and one that is
admitted late (G3). Everything beside the numbers is real: documents, ledgers, model files, plans."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from explorer import run_files, rundir
from explorer.canonical import digest
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Genesis, Parent, TrainingState
from explorer.governance.journal import Journal
from explorer.ledger.storage import LedgerDirectory
from explorer.provenance.policy import RoutingPolicy, Rule
from explorer.provenance.regions import SealedRegion, depths_of, with_adapters
from explorer.provenance.routing_weights import Admissions, bind
from explorer.run_files import RunRecord
from explorer.runlog.documents import read_basis, read_verified_tags
from explorer.runlog.model_file import MODEL, ModelFile
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Origin, Target, counterfactual, write_origin
from explorer.runlog.tensors import Tensors, owner_of, read_ended, without_bookkeeping
from tests import tensors_for_tests as models
from tests.audit.governed_run import (
    CLASSES,
    LAYERS,
    NEWS,
    SLOTS,
    USUAL,
    counts_of,
    numbers_of,
    policy,
    rows_of,
    signer,
    sketches_of,
    write_documents,
)
from tests.builders import run_record, with_identity
from tests.provenance.tables import TAXONOMY

STEPS, EVERY, FIRST = 12, 5, 5  # FIRST: the first step that `licensed/news` may train in, where it comes late
REGION = SealedRegion(name="news", branch=NEWS, layers=("body.*",), rank=2)
SEALED = replace(policy(Rule(classes=("open",), weight=1.0)), name="sealed", sealed=(REGION,))
TARGET = Target(classes=(NEWS,))
REMEMBERED = {"recorder/admitted": "7" * 64}  # what a governed method remembers about the classes


def record_of(policy: RoutingPolicy, **without: Any) -> RunRecord:
    """The record of a run under a policy."""
    nothing: dict[str, Any] = {"without": [], "without_authorities": [], "without_records": []}
    methods = [{"routing": {"policy": policy.name, **nothing, **without}}, {"recorder": {"every": EVERY}}]
    recipe = {"task": {"dataset": {"source": {}}, "model": models.BUILT}, "train": {}, "methods": methods}
    identity = {"recipe": recipe, "data": "a" * 64, "ssr": 1.0, "seed": 0}
    made = run_record(recipe="governed", full_steps=STEPS, methods=("routing", "recorder"))
    run_id = f"{made.run_id[:-8]}{digest(identity)[:8]}"
    return replace(with_identity(made, identity), run_id=run_id, batch_size=SLOTS)


def layers_of(policy: RoutingPolicy) -> tuple[str, ...]:
    return tuple(layer.name for layer in with_adapters(policy.sealed, depths_of(LAYERS)))


def write_old(runs: Path, policy: RoutingPolicy, *, parents: tuple[Parent, ...] = ()) -> Path:
    """The run that had the target."""
    record = record_of(policy)
    run = runs / "digits" / record.run_id
    run_files.write(run / rundir.RUN, record)
    genesis, leaves = write_documents(run, policy)
    layers = layers_of(policy)
    genesis = replace(genesis, recipe=digest(record.identity), layers=layers, parents=parents)
    with Journal.open(run, genesis=genesis, signer=signer(run), leaves=leaves) as journal:
        journal.begin(0, models.state(layers, 0))
        train(journal, policy, range(STEPS), without=())
        end(journal, run, models.tensors(layers, STEPS), policy)
    models.write_model(run, layers, STEPS, sealed=policy.sealed)
    (run / rundir.METRICS).write_text("{}\n")
    return run


def structural(old: Path, *, target: Target = TARGET, begins: int = STEPS) -> Path:
    """What a deletion by structure makes of it; where it begins earlier, somebody trained a little more."""
    was = RunLedger(old)
    ended = read_ended(was)
    regions = SEALED.sealed
    gone = {name for name in ended.tensors.parameters if owner_of(name, regions)}
    kept = without_bookkeeping(ended.tensors, was.genesis).kept(lambda name: owner_of(name, regions) is None)
    state = replace(ended.end.entry.state, **dict(zip(("parameters", "buffers", "optimizer"), kept.roots, strict=True)))
    new, genesis, leaves = begun(old, target, level="G2", begins=begins, start=state)
    with Journal.open(new, genesis=genesis, signer=signer(new), leaves=leaves) as journal:
        journal.begin(begins, state)
        if begins < STEPS:
            train(journal, SEALED, range(begins, STEPS), without=(NEWS,))
            journal.segment(STEPS, state)
        journal.end(STEPS, state, tensors=kept, metrics={"accuracy": 0.5})
    ModelFile(old / rundir.MODEL / MODEL).write_without(gone, new / rundir.MODEL / MODEL)
    return new


def replayed(old: Path, *, target: Target = TARGET, begins: int = FIRST, without: Sequence[str] = (NEWS,)) -> Path:
    """What a deletion by replay makes of it. `without`: the classes of which no numbers are recorded any more."""
    layers = layers_of(USUAL)
    start = models.state(layers, begins) if begins else None
    new, genesis, leaves = begun(old, target, level="G3", begins=begins, start=start)
    with Journal.open(new, genesis=genesis, signer=signer(new), leaves=leaves) as journal:
        journal.begin(begins, start or models.state(layers, 0))
        train(journal, USUAL, range(begins, STEPS), without=without)
        end(journal, new, models.tensors(layers, STEPS + 100), USUAL)
    models.write_model(new, layers, STEPS + 100)
    return new


def begun(
    old: Path, target: Target, *, level: Any, begins: int, start: TrainingState | None
) -> tuple[Path, Genesis, Any]:
    """The directory of a run without the target, and its first entry."""
    was, checkpoint = RunLedger(old), LedgerDirectory(old / rundir.LEDGER).checkpoint()
    record = counterfactual(run_files.read(RunRecord, old / rundir.RUN), target)
    new = old.parent.parent / record.sweep / record.run_id
    shutil.copytree(old / rundir.GOVERNANCE, new / rundir.GOVERNANCE)
    run_files.write(new / rundir.RUN, record)
    state = LedgerState(origin=checkpoint.origin, size=checkpoint.size, root=checkpoint.root.hex())
    write_origin(
        new,
        Origin(level=level, run=was.genesis.run, ledger=state, target=target, begins=begins, state=start),
    )
    parent = Parent(kind="deletion", ledger=state, model=None, attestation=None, admitted={})
    genesis = replace(
        was.genesis,
        run=record.run_id,
        recipe=digest(record.identity),
        begins=begins,
        start=start,
        parents=(*was.genesis.parents, parent),
    )
    return new, genesis, read_verified_tags(new, was.genesis, read_basis(new, was.genesis)).tags.leaves


def train(journal: Journal, policy: RoutingPolicy, steps: range, *, without: Sequence[str]) -> None:
    """Steps of a run; classes in `without` have examples and no numbers."""
    layers = with_adapters(policy.sealed, depths_of(LAYERS))
    tables = Admissions(bind(policy, TAXONOMY, where="policy"), classes=CLASSES, layers=layers)
    for step in steps:
        admission, rows = tables.at(step / STEPS), rows_of(step)
        weights = admission.weights.copy()
        weights[[CLASSES.index(path) for path in without]] = 0
        numbers = numbers_of(step, replace(admission, weights=weights), exact=False) if weights.any() else None
        examples, quarantined = counts_of(rows)
        journal.step(
            step,
            rows=rows,
            examples=examples,
            quarantined=quarantined,
            updated=[False] * len(layers) if numbers is None else [bool(each.any()) for each in numbers.weights.T],
            admission=admission,
            numbers=numbers,
            sketches=None if numbers is None else sketches_of(numbers),
        )
        if (step + 1) % EVERY == 0:
            journal.segment(step + 1, models.state([layer.name for layer in layers], step + 1))


def end(journal: Journal, run: Path, tensors: Tensors, policy: RoutingPolicy) -> None:
    tensors = replace(tensors, optimizer={**tensors.optimizer, **REMEMBERED})
    parameters, buffers, optimizer = tensors.roots
    random = digest({"seed": 0, "step": STEPS})
    state = TrainingState(parameters=parameters, buffers=buffers, optimizer=optimizer, random=random)
    if not journal.settled:
        journal.segment(STEPS, state)
    journal.end(STEPS, state, tensors=tensors, metrics={"accuracy": 0.5})
