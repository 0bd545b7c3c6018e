"""Forensics: the classes that took part in the updates of a layer in some steps, their shares, and their examples.

Admitted classes and participating examples are exact: both are in the ledger (`participants` lists the examples).
Shares are sums of the spool; they are recomputed from the blobs that the ledger names where the steps are few, or on
request. A parameter is traced through its layer: numbers are recorded by layer, and the answer states the cost of
replaying the numbers of a single parameter.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from explorer import run_files, rundir
from explorer.audit.history import DepthProfile, depth_profiles
from explorer.audit.shares import Shares, sums
from explorer.audit.typed import class_of_rows, leaves_of
from explorer.entries.fields import read_float
from explorer.entries.kinds import Decision
from explorer.entries.numbers import share_terms
from explorer.entries.slots import RULE, decode_chosen, slots_root
from explorer.errors import LedgerError, unknown
from explorer.provenance.regions import ADAPTER
from explorer.provenance.tag_attestation import Absent, VerifiedTags
from explorer.provenance.tags_file import TagFile
from explorer.run_files import ResultRecord
from explorer.runlog.admission_tables import InForce, first_admitted, tables_in_force
from explorer.runlog.documents import TABLE_FILE, read_basis, read_verified_tags
from explorer.runlog.influence import recorded_plan
from explorer.runlog.run_ledger import Missing, RunLedger, Segment
from explorer.runlog.segments import SegmentNumbers, missing_words, read_numbers, read_rows
from explorer.runlog.target import ROUTING, left_out
from explorer.store.spool_reader import ALL, segment_sums

# --- sums of the spool, recomputed from the ledger ---

COLUMNS = ("steps", "examples", "share_num", "share_den", "update_num", "update_sq", "exact_num")
OF_ONE = 2  # the first of these need only the class itself
TOLERANCE = 1e-6  # of the sum of absolute terms: the spool's terms are rounded to single precision
MAX_DIFFERENCES = 20  # that are listed

Sums = dict[tuple[str, str], np.ndarray]  # by layer and class: the columns
Spooled = dict[tuple[str, str], list[float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """Result of comparing sums with the ledger."""

    segments: int  # recomputed
    of: int  # segments that have some of the steps
    differences: tuple[str, ...]  # the first ones
    unread: tuple[str, ...]  # segments with missing numbers, and the reasons
    spooled: bool = True  # False: there is no spool, and sums come from the ledger itself

    @property
    def agrees(self) -> bool:
        """Return whether all recomputed sums are equal."""
        return not self.differences

    def __str__(self) -> str:
        if not self.spooled:
            return "there is no spool to compare them with"
        if not self.segments:
            return f"not compared with the ledger: none of {self.of} segments was recomputed"
        if self.differences:
            return f"NOT what the ledger says: {self.differences[0]}"
        return f"recomputed from the ledger: {self.segments} of {self.of} segments, and equal"


def unchecked(segments: int) -> Check:
    """Return the result where none of so many segments was recomputed."""
    return Check(segments=0, of=segments, differences=(), unread=())


def check_sums(run: RunLedger, segments: Sequence[Segment]) -> Check:
    """Recompute the sums of whole segments. Raises `LedgerError` for a damaged ledger, `StoreError` for a damaged
    spool."""
    if not (run.run / rundir.CONTRIBUTIONS).is_dir():
        return Check(segments=0, of=len(segments), differences=(), unread=(), spooled=False)
    differences: list[str] = []
    unread: list[str] = []
    spooled = _spooled(run, segments)
    for segment in segments:
        steps = f"steps {segment.first} to {segment.stop - 1}"
        numbers = read_numbers(run, segment)
        if numbers.missing or numbers.joint is None:
            unread.append(f"{steps}: {missing_words(numbers.missing) or 'nothing was measured'}")
            continue
        totals, scales = _sums(run, segment)
        mine = spooled.get(segment.first, {})
        # In a run with confidential classes the spool has only the columns that need a single class, and no rows of
        # confidential classes: the rest is not compared.
        if run.is_sealed(segment.state, "joint"):
            own = [key for key in totals if not run.is_sealed(segment.state, f"numbers/{key[1]}")]
            totals = {key: totals[key][:OF_ONE] for key in own}
            scales = {key: value[:OF_ONE] for key, value in scales.items()}
            mine = {key: value[:OF_ONE] for key, value in mine.items()}
        for key in sorted(totals.keys() | mine.keys()):
            fault = _difference(totals.get(key), mine.get(key), scales.get(key))
            if fault and len(differences) < MAX_DIFFERENCES:
                differences.append(f"{steps}: {key[1]} in {key[0]}: {fault}")
    return Check(
        segments=len(segments) - len(unread),
        of=len(segments),
        differences=tuple(differences),
        unread=tuple(unread),
    )


def _spooled(run: RunLedger, segments: Sequence[Segment]) -> dict[int, Spooled]:
    """Return the sums of the spool, by the first step of their segment."""
    if not segments:
        return {}
    steps = range(segments[0].first, segments[-1].stop)
    # A segment may be in several files of the spool: their sums add up.
    firsts = np.array([segment.first for segment in segments])
    spooled: dict[int, Spooled] = {}
    for first, _, layer, class_, *totals in segment_sums(run.run, steps):
        segment = int(firsts[np.searchsorted(firsts, first, side="right") - 1])
        values = [math.nan if value is None else float(value) for value in totals]
        held = spooled.setdefault(segment, {}).setdefault((layer, class_), [0.0] * len(COLUMNS))
        spooled[segment][layer, class_] = [a + b for a, b in zip(held, values, strict=True)]
    return spooled


def _sums(run: RunLedger, segment: Segment) -> tuple[Sums, Sums]:
    """Return the sums of a segment from the ledger, and the sums of the terms' absolute values."""
    classes, layers = run.genesis.classes, run.genesis.layers
    total = np.zeros((len(classes), len(layers), len(COLUMNS)))
    scale = np.zeros_like(total)
    seen = np.zeros(len(classes), bool)
    for placed, numbers in read_numbers(run, segment).by_step():
        here = list(numbers.classes)
        shares, whole = share_terms(numbers.gram)
        examples = np.array([placed.entry.examples[index] for index in here], float)
        exact = np.full_like(shares, np.nan) if numbers.exact is None else numbers.exact
        terms = (1.0, examples[:, None], shares, whole, numbers.dots, numbers.updates, exact)
        stacked = np.stack([np.broadcast_to(term, shares.shape) for term in terms], axis=-1).astype(np.float64)
        total[here] += stacked
        scale[here] += np.abs(stacked)
        seen[here] = True
    keys = [(place, at) for place in np.flatnonzero(seen) for at in range(len(layers))]
    return (
        {(layers[at], classes[place]): total[place, at] for place, at in keys},
        {(layers[at], classes[place]): scale[place, at] for place, at in keys},
    )


def _difference(expected: np.ndarray | None, spooled: list[float] | None, scale: np.ndarray | None) -> str | None:
    """Return the first column that differs, in words; None: all agree."""
    if expected is None or scale is None:
        return "in the spool, and not in the ledger"
    if spooled is None:
        return "in the ledger, and not in the spool"
    # Terms of both signs may cancel, so rounding errors are relative to the sum of absolute terms, not to the sum.
    close = np.isclose(spooled, expected, rtol=0, atol=TOLERANCE * np.nan_to_num(scale) + 1e-30, equal_nan=True)
    close |= ~np.isfinite(expected) & ~np.isfinite(spooled)
    if close.all():
        return None
    at = int(np.flatnonzero(~close)[0])
    return f"{COLUMNS[at]} is {spooled[at]:.6g} in the spool, and {expected[at]:.6g} in the ledger"


# --- the answer ---

RECOMPUTED = 1_000  # up to so many steps, sums are recomputed without a request
BINS = 10  # parts of the steps for which shares are shown


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One class in one layer."""

    class_: str
    layer: str
    admitted: bool  # in any of these steps
    steps: int  # in which the class has numbers
    examples: int  # in these steps
    share: float | None  # of the summed gradient; None: nothing was recorded, or not finite
    projection: float | None  # of the class's gradient on the update
    exact: float | None  # of the update itself; None without exact mode
    over_time: tuple[float | None, ...]  # the share in each part of the steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Participants:
    """The examples of one class that took part."""

    class_: str
    steps: int  # in which any took part
    slots: int  # in which they took part
    examples: tuple[int, ...]  # their rows in the tag table, ascending
    sources: dict[str, int]  # source in the tag table -> number of these examples, the most first
    sealed: bool = False  # the choice among its examples is confidential and does not open: nothing is listed


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterNote:
    """The layer of a parameter, and the cost of replaying its own numbers."""

    parameter: str
    layer: str
    replay_from: int  # the kept checkpoint at or before the first step
    replay_steps: int
    replay_seconds: float | None  # by the run's own step time; None: it is not known


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """The answer to a question about some steps, by class and layer."""

    run: str
    steps: tuple[int, int]
    layer: str | None
    class_: str | None
    parameter: ParameterNote | None
    rows: tuple[Row, ...]
    edges: tuple[int, ...]  # of the parts of `over_time`
    first_admitted: dict[str, int | None]  # by class, in the whole run: the first step in which a layer admits it
    separable: tuple[DepthProfile, ...]  # chi of the layers in question, each time it was measured
    check: Check  # how the sums were compared with the ledger
    entries: tuple[int, int]  # of the ledger: numbers of steps and of states behind these rows
    participants: tuple[Participants, ...] | None = None  # by `with_examples`, which is slow for very many steps


def trace(
    run: RunLedger,
    *,
    layer: str | None = None,
    class_: str | None = None,
    parameter: str | None = None,
    steps: range | None = None,
    check: bool = False,
) -> Trace:
    """Trace one layer, one class or one parameter.

    Args:
        run: the run.
        layer, class_, parameter: name to trace; without any, all layers and classes.
        steps: steps to trace; by default all on record.
        check: recompute the sums from the ledger, however many steps there are.

    Raises `LedgerError` for a name that the run does not have and for a damaged ledger, `StoreError` for a damaged
    spool.
    """
    steps = run.range_of(None, None) if steps is None else steps
    note = None if parameter is None else _parameter(run, parameter, steps)
    layer = note.layer if note else layer
    layers = [run.layer(layer)] if layer is not None else list(range(len(run.genesis.layers)))
    classes = [run.class_(class_)] if class_ is not None else list(range(len(run.genesis.classes)))
    # One query for both views: the parts over time add up to the whole.
    summed = sums(run, steps, bins=BINS, layer=layer)
    whole, parts = summed.whole().shares(), summed.shares()
    spans = run.spans(steps)
    few = check or sum(map(len, spans)) <= RECOMPUTED
    names = {run.genesis.layers[at] for at in layers}
    admitted = first_admitted(run)
    return Trace(
        run=run.genesis.run,
        steps=(steps.start, steps.stop),
        layer=layer,
        class_=class_,
        parameter=note,
        rows=tuple(_row(run, whole, parts, place, at) for at in layers for place in classes),
        edges=parts.edges,
        first_admitted={run.genesis.classes[at]: admitted[run.genesis.classes[at]] for at in classes},
        separable=tuple(
            profile
            for profile in depth_profiles(run)
            if profile.class_ == ALL and profile.layer in names and profile.chi is not None
        ),
        check=check_sums(run, list(run.segments(steps)))
        if few
        else Check(segments=0, of=len(spans), differences=(), unread=()),
        entries=(len(steps), len(spans)),
    )


def _row(run: RunLedger, whole: Shares, parts: Shares, place: int, at: int) -> Row:
    return Row(
        class_=run.genesis.classes[place],
        layer=run.genesis.layers[at],
        admitted=bool(whole.admitted[0, place, at]),
        steps=int(whole.steps[0, place, at]),
        examples=int(whole.examples[0, place, at]),
        share=_number(whole.share[0, place, at]),
        projection=_number(whole.projection[0, place, at]),
        exact=None if whole.exact is None else _number(whole.exact[0, place, at]),
        over_time=tuple(_number(value) for value in parts.share[:, place, at]),
    )


def _parameter(run: RunLedger, parameter: str, steps: range) -> ParameterNote:
    """Return the layer of a parameter, and the cost of replaying the parameter's own numbers."""
    layer = _layer_of(run, parameter)
    start = max(step for step in _kept(run) if step <= steps.start)
    seconds = _step_seconds(run)
    return ParameterNote(
        parameter=parameter,
        layer=layer,
        replay_from=start,
        replay_steps=steps.stop - start,
        replay_seconds=None if seconds is None else seconds * (steps.stop - start),
    )


def _layer_of(run: RunLedger, parameter: str) -> str:
    """Return the layer of a parameter: `mlp.up` of `mlp.up.weight`, the adapter `head@region` of
    `head.@region.down.weight`."""
    module, _, _ = parameter.rpartition(".")
    shared, adapter, inner = module.partition(f".{ADAPTER}")
    layer = f"{shared}{ADAPTER}{inner.partition('.')[0]}" if adapter else module
    if layer not in run.genesis.layers:
        raise LedgerError(unknown("parameter", parameter, (f"{name}.weight" for name in run.genesis.layers)))
    return layer


def _kept(run: RunLedger) -> list[int]:
    """Return the steps at which a checkpoint is kept, and 0 for the initial state, which needs none."""
    names = (path.stem.removeprefix("step-") for path in (run.run / rundir.KEPT).glob("step-*.json"))
    return [0, *(int(name) for name in names if name.isascii() and name.isdigit())]


def _step_seconds(run: RunLedger) -> float | None:
    """Return the mean step time in the run's result; None: not known."""
    path = run.run / rundir.RESULT
    if not path.exists():
        return None
    result = run_files.read(ResultRecord, path)
    return result.timings.training() / result.timed_steps if result.timed_steps else None


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


# --- examples ---

MAX_LOSSES = 2**24  # bytes of the losses behind a choice


def with_examples(run: RunLedger, answer: Trace) -> Trace:
    """Add the examples that took part to an answer. Raises the errors of `participants`."""
    classes = range(len(run.genesis.classes)) if answer.class_ is None else [run.class_(answer.class_)]
    layers = range(len(run.genesis.layers)) if answer.layer is None else [run.layer(answer.layer)]
    those = participants(run, range(*answer.steps), classes=list(classes), layers=list(layers))
    return replace(answer, participants=those)


def participants(
    run: RunLedger, steps: range, *, classes: Sequence[int], layers: Sequence[int]
) -> tuple[Participants, ...]:
    """List the examples of these classes that moved any of these layers in these steps.

    Raises `LedgerError` where the ledger's slots or choices are missing, and where its slots do not lead to its roots.
    """
    # Rows of the tag table: their class, their leaf, and whether the plan leaves them out.
    tags = read_verified_tags(run.run, run.genesis, read_basis(run.run, run.genesis))
    kinds, leaves = class_of_rows(run, tags), leaves_of(run, tags)
    absent = absent_rows(run, tags)
    in_force, (chosen, missing) = tables_in_force(run), chosen_places(run, steps, layers)
    for (step, index), why in missing.items():
        if why is Missing.NOT_HERE and index in classes:
            path = run.genesis.classes[index]
            raise LedgerError(f"step {step}: the choice among the examples of {path} is missing")
    sealed = {index for (_, index), why in missing.items() if why is Missing.SEALED}

    # Step by step: the rows in its slots, less those left out and those not chosen. Slots are checked against the root
    # in the step's entry, so the list is as trustworthy as the ledger.
    taken: dict[int, list[NDArray[np.int64]]] = {index: [] for index in classes}
    for segment in run.segments(steps):
        numbers = read_numbers(run, segment)
        rows = read_rows(run, segment, numbers.steps)
        if rows is None:
            raise LedgerError(f"steps {segment.first} to {segment.stop - 1}: the list of their examples is missing")
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
                    taken[index].append(here[places])

    # Sources are read in one pass over the table, for the rows that took part.
    sources = _sources(
        run.run / rundir.GOVERNANCE / TABLE_FILE,
        {row for batches in taken.values() for batch in batches for row in batch},
    )
    return tuple(
        _sealed(run.genesis.classes[index])
        if index in sealed
        else _summed(run.genesis.classes[index], batches, sources)
        for index, batches in taken.items()
    )


def absent_rows(run: RunLedger, tags: VerifiedTags) -> NDArray[np.bool_]:
    """Return for every row whether the run's plan leaves it out; the slots of such rows stay, and are empty."""
    # Without the plan that the genesis names no row counts as left out: the counts are then too high, never too low.
    plan, absent = recorded_plan(run), Absent()
    if plan is not None and ROUTING in plan.methods:
        out = left_out(plan)
        absent = Absent(classes=out.classes, authorities=out.authorities, records=out.records)
    return absent.examples(tags, count=len(class_of_rows(run, tags)))


def chosen_places(
    run: RunLedger, steps: range, layers: Sequence[int]
) -> tuple[dict[tuple[int, int], NDArray[np.int64]], dict[tuple[int, int], Missing]]:
    """Return the places of the chosen examples among a class's examples in a step, by step and class, and the reasons
    why other choices cannot be read. Steps without a choice are in neither.

    A selection by losses records the losses in the order of the slots; the largest trained, in the share that it
    states. Where the policy tells examples apart, the decision records their passes, each with its layers; examples
    that a selection by losses dropped are then in no pass.
    """
    # Decisions are between the entries of the steps that they precede.
    outline = run.outline
    last = outline.steps[steps.stop - 1]
    first = outline.steps[steps.start - 1] if steps.start else 0
    indices = [index for index in outline.decisions if first < index < last and index not in outline.superseded]
    chosen: dict[tuple[int, int], NDArray[np.int64]] = {}
    missing: dict[tuple[int, int], Missing] = {}
    for placed in run.read(indices, Decision):
        decision = placed.entry
        for path in decision.subjects if decision.action == "selection" else ():
            content = run.find(placed, f"evidence/{path}", max_bytes=MAX_LOSSES)
            if isinstance(content, Missing):
                missing[decision.step, run.class_(path)] = content
            elif decision.rule == RULE:
                passes = decode_chosen(content, layers=len(run.genesis.layers))
                chosen[decision.step, run.class_(path)] = np.flatnonzero(passes.reached(list(layers)))
            else:
                # Passes, which respect both choices, take precedence over losses.
                places = _hardest(decision, content, f"entry {placed.index}")
                chosen.setdefault((decision.step, run.class_(path)), places)
    return chosen, missing


def _sealed(path: str) -> Participants:
    return Participants(class_=path, steps=0, slots=0, examples=(), sources={}, sealed=True)


def _hardest(decision: Decision, content: bytes, where: str) -> NDArray[np.int64]:
    """Return the places of the largest losses, ascending. Ties go to the first, and NaN counts as the largest."""
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
    """Return the steps in which a class moved one of the layers.

    Args:
        run, segment, numbers: the segment and its numbers.
        in_force: all tables of the run.
        index: of the class.
        layers: indices of the layers.
    """
    # By its weights there, if they can be read or the class has none.
    mine = numbers.of_class(index)
    if mine or not any(placed.entry.numbers[index] for placed in numbers.steps):
        moved = {step for step, columns in mine.items() if columns[layers, 0].any()}
        if moved or any(placed.entry.joint is not None for placed in numbers.steps):
            return moved
    # Otherwise by admission, which can only list too many steps.
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
        steps=sum(len(batch) > 0 for batch in rows),
        slots=len(every),
        examples=tuple(examples),
        sources=dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
    )


def _sources(table: Path, rows: set[int]) -> dict[int, str]:
    """Return the sources of these rows, by row."""
    with TagFile(table) as file:
        return {number: row.source for number, row in file.rows_at(rows)}
