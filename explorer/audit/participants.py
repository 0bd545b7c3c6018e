"""The examples that took part in updates, exactly: out of the slots of the steps, held against their roots."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from explorer import rundir
from explorer.audit.trace import Participants, Trace
from explorer.audit.typed import class_of_rows, leaves_of
from explorer.entries.chosen import RULE, decode_chosen
from explorer.entries.fields import read_float
from explorer.entries.run import Decision
from explorer.entries.slots import slots_root
from explorer.errors import LedgerError
from explorer.provenance.tag_attestation import Absent, VerifiedTags
from explorer.provenance.tags_file import TagFile
from explorer.runlog.admission_tables import InForce, tables_in_force
from explorer.runlog.documents import TABLE_FILE, read_basis, read_verified_tags
from explorer.runlog.influence import recorded_plan
from explorer.runlog.run_ledger import Missing, RunLedger, Segment
from explorer.runlog.segments import SegmentNumbers, read_numbers, read_rows
from explorer.runlog.target import ROUTING, left_out

MAX_LOSSES = 2**24  # bytes of the losses that a choice was made by


def with_examples(run: RunLedger, answer: Trace) -> Trace:
    """The answer with the examples that took part. Raises as `participants` does."""
    classes = range(len(run.genesis.classes)) if answer.class_ is None else [run.class_(answer.class_)]
    layers = range(len(run.genesis.layers)) if answer.layer is None else [run.layer(answer.layer)]
    found = participants(run, range(*answer.steps), classes=list(classes), layers=list(layers))
    return replace(answer, participants=found)


def participants(
    run: RunLedger, steps: range, *, classes: Sequence[int], layers: Sequence[int]
) -> tuple[Participants, ...]:
    """Which examples of these classes moved any of these layers in these steps.

    Raises `LedgerError` where the ledger does not say so any more, and where its slots do not lead to its roots.
    """
    tags = read_verified_tags(run.run, run.genesis, read_basis(run.run, run.genesis))
    kinds, leaves = class_of_rows(run, tags), leaves_of(run, tags)
    absent = absent_rows(run, tags)
    in_force, (chosen, missing) = tables_in_force(run), chosen_places(run, steps, layers)
    for (step, index), why in missing.items():
        if why is Missing.NOT_HERE and index in classes:
            path = run.genesis.classes[index]
            raise LedgerError(f"step {step}: which examples of {path} were chosen is not here any more")
    sealed = {index for (_, index), why in missing.items() if why is Missing.SEALED}
    found: dict[int, list[NDArray[np.int64]]] = {index: [] for index in classes}
    for segment in run.segments(steps):
        numbers = read_numbers(run, segment)
        rows = read_rows(run, segment, numbers.steps)
        if rows is None:
            raise LedgerError(f"steps {segment.first} to {segment.stop - 1}: which examples they had is not here")
        moved = {index: moved_in(run, segment, numbers, in_force, index, layers) for index in classes}
        for placed, mine in zip(numbers.steps, rows, strict=True):
            step = placed.entry
            if step.step not in steps:
                continue
            if slots_root(mine, leaves).hex() != step.slots:
                raise LedgerError(f"entry {placed.index}: the examples of step {step.step} do not lead to its root")
            for index in classes:
                if step.step in moved[index]:
                    here = mine[(kinds[mine] == index) & ~absent[mine]]
                    places = chosen.get((step.step, index), np.arange(len(here)))
                    if len(places) and places[-1] >= len(here):
                        raise LedgerError(f"entry {placed.index}: more losses than examples to choose from")
                    found[index].append(here[places])
    sources = _sources(
        run.run / rundir.GOVERNANCE / TABLE_FILE, {row for each in found.values() for r in each for row in r}
    )
    return tuple(
        _sealed(run.genesis.classes[index]) if index in sealed else _summed(run.genesis.classes[index], each, sources)
        for index, each in found.items()
    )


def absent_rows(run: RunLedger, tags: VerifiedTags) -> NDArray[np.bool_]:
    """Of every row whether the run's plan leaves it out: its slots stay, and are empty. Where the plan that the genesis
    names is not here, none is: every slot then counts, and never too few."""
    plan, absent = recorded_plan(run), Absent()
    if plan is not None and ROUTING in plan.methods:
        found = left_out(plan)
        absent = Absent(classes=found.classes, authorities=found.authorities, records=found.records)
    return absent.examples(tags, count=len(class_of_rows(run, tags)))


def chosen_places(
    run: RunLedger, steps: range, layers: Sequence[int]
) -> tuple[dict[tuple[int, int], NDArray[np.int64]], dict[tuple[int, int], Missing]]:
    """The places among a class's examples of a step that a decision chose to train, where one did, by step and class;
    and why, where that cannot be read.

    The decision has their losses, in the order of the slots: the largest trained, so large a share of them as it says.
    Where the policy tells examples apart it has the passes that they were in, each with its layers; what is chosen by
    losses as well is in no pass.
    """
    outline = run.outline
    last = outline.steps[steps.stop - 1]
    first = outline.steps[steps.start - 1] if steps.start else 0
    indices = [each for each in outline.decisions if first < each < last and each not in outline.superseded]
    found: dict[tuple[int, int], NDArray[np.int64]] = {}
    missing: dict[tuple[int, int], Missing] = {}
    for placed in run.read(indices, Decision):
        decision = placed.entry
        for path in decision.subjects if decision.action == "selection" else ():
            content = run.find(placed, f"evidence/{path}", max_bytes=MAX_LOSSES)
            if isinstance(content, Missing):
                missing[decision.step, run.class_(path)] = content
            elif decision.rule == RULE:
                chosen = decode_chosen(content, layers=len(run.genesis.layers))
                found[decision.step, run.class_(path)] = np.flatnonzero(chosen.reached(list(layers)))
            else:
                places = _hardest(decision, content, f"entry {placed.index}")
                found.setdefault((decision.step, run.class_(path)), places)
    return found, missing


def _sealed(path: str) -> Participants:
    return Participants(class_=path, steps=0, slots=0, examples=(), sources={}, sealed=True)


def _hardest(decision: Decision, content: bytes, where: str) -> NDArray[np.int64]:
    """The places of the largest losses, ascending; of equals the first, and NaN is the largest."""
    try:
        losses = np.nan_to_num(np.frombuffer(content, "<f4"), nan=np.inf)
        count = max(1, math.ceil(read_float(decision.parameters["keep"]) * len(losses)))
    except (KeyError, ValueError, OverflowError) as error:
        raise LedgerError(f"{where}: not a selection by losses: {error}") from error
    return np.sort(np.argsort(-losses, kind="stable")[:count])


def moved_in(
    run: RunLedger,
    segment: Segment,
    numbers: SegmentNumbers,
    in_force: Sequence[InForce],
    index: int,
    layers: Sequence[int],
) -> set[int]:
    """The steps in which a class moved one of the layers: by its weights there or, where these are not here, by what
    it was admitted to."""
    mine = numbers.of_class(index)
    if mine or not any(placed.entry.numbers[index] for placed in numbers.steps):
        moved = {step for step, columns in mine.items() if columns[layers, 0].any()}
        if moved or any(placed.entry.joint is not None for placed in numbers.steps):
            return moved
    return {
        step
        for table in in_force
        if table.weights[index, layers].any()
        for step in range(max(table.first, segment.first), min(table.stop, segment.stop))
    }


def _summed(path: str, rows: list[NDArray[np.int64]], sources: dict[int, str]) -> Participants:
    every = np.concatenate(rows) if rows else np.array([], np.int64)
    examples = np.unique(every).tolist()
    counts: dict[str, int] = {}
    for row in examples:
        counts[sources.get(row, "")] = counts.get(sources.get(row, ""), 0) + 1
    return Participants(
        class_=path,
        steps=sum(len(each) > 0 for each in rows),
        slots=len(every),
        examples=tuple(examples),
        sources=dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
    )


def _sources(table: Path, rows: set[int]) -> dict[int, str]:
    """Where these rows came from."""
    found: dict[int, str] = {}
    wanted = np.array(sorted(rows), np.int64)
    with TagFile(table) as file:
        for batch in file.batches():
            here = wanted[(wanted >= batch.first) & (wanted < batch.first + len(batch.sources.index))]
            index = batch.sources.index[here - batch.first]
            found |= {row: batch.sources.values[at] for row, at in zip(here.tolist(), index.tolist(), strict=True)}
    return found
