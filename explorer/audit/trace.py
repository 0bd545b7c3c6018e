"""Forensics: which classes took part in the updates of a layer in these steps, how strongly, and with which examples.

Which examples took part is exact, and so is which classes were admitted: both stand in the ledger (`participants` lists
the examples). How strongly they did comes from the spool, summed; it is held against the blobs that the ledger names
where these are few, or where that is asked for. A parameter is traced through its layer: numbers are recorded by layer,
and what a parameter's own would take is said.
"""

import math
from dataclasses import dataclass

from explorer import records, rundir
from explorer.audit.checking import Check, check_sums
from explorer.audit.profiles import DepthProfile, depth_profiles
from explorer.audit.shares import Shares, sums
from explorer.errors import LedgerError, unknown
from explorer.provenance.regions import ADAPTER
from explorer.records import ResultRecord
from explorer.runlog.admission_tables import first_admitted
from explorer.runlog.run_ledger import RunLedger
from explorer.store.spool import ALL

RECOMPUTED = 1_000  # steps up to which sums are recomputed without being asked
BINS = 10  # parts of the steps in which shares are shown


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
    steps: int  # in which any did
    slots: int  # how often any did
    examples: tuple[int, ...]  # their rows in the tag table, ascending
    sources: dict[str, int]  # where they came from, as the tag table says: how many of them, the most first
    sealed: bool = False  # which of its examples were chosen is confidential and does not open: nothing is listed


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterNote:
    """What can be said of a parameter alone."""

    parameter: str
    layer: str
    replay_from: int  # the kept checkpoint at or before the first step
    replay_steps: int
    replay_seconds: float | None  # by the run's own step time; None: it is not known


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """The answer. Classes, layers and steps are those of the question."""

    run: str
    steps: tuple[int, int]
    layer: str | None
    class_: str | None
    parameter: ParameterNote | None
    rows: tuple[Row, ...]
    edges: tuple[int, ...]  # of the parts of `over_time`
    first_admitted: dict[str, int | None]  # by class, in the whole run: the first step in which a layer admits it
    separable: tuple[DepthProfile, ...]  # chi of the layers in question, each time it was measured
    check: Check  # how the sums were held against the ledger
    entries: tuple[int, int]  # of the ledger: the number of steps and of states behind these rows
    participants: tuple[Participants, ...] | None = None  # by `with_examples`, which is not for very many steps


def trace(
    run: RunLedger,
    *,
    layer: str | None = None,
    class_: str | None = None,
    parameter: str | None = None,
    steps: range | None = None,
    check: bool = False,
) -> Trace:
    """Trace one layer, one class or one parameter. Raises `LedgerError` for what the run does not have, and as reading
    a damaged spool or ledger does."""
    steps = run.range_of(None, None) if steps is None else steps
    note = None if parameter is None else _parameter(run, parameter, steps)
    layer = note.layer if note else layer
    layers = [run.layer(layer)] if layer is not None else list(range(len(run.genesis.layers)))
    classes = [run.class_(class_)] if class_ is not None else list(range(len(run.genesis.classes)))
    found = sums(run, steps, bins=BINS, layer=layer)
    whole, parts = found.whole().shares(), found.shares()
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
            each for each in depth_profiles(run) if each.class_ == ALL and each.layer in names and each.chi is not None
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
    """The layer of a parameter, and what it would take to know the parameter's own numbers."""
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
    """`mlp.up.weight` is of the layer `mlp.up`, `head.@region.down.weight` of the adapter `head@region`."""
    module, _, _ = parameter.rpartition(".")
    shared, adapter, inner = module.partition(f".{ADAPTER}")
    layer = f"{shared}{ADAPTER}{inner.partition('.')[0]}" if adapter else module
    if layer not in run.genesis.layers:
        raise LedgerError(f"{unknown('parameter', parameter, (f'{each}.weight' for each in run.genesis.layers))}")
    return layer


def _kept(run: RunLedger) -> list[int]:
    """The steps at which a checkpoint is kept; at 0 there is the initial state."""
    names = (path.stem.removeprefix("step-") for path in (run.run / rundir.KEPT).glob("step-*.json"))
    return [0, *(int(name) for name in names if name.isascii() and name.isdigit())]


def _step_seconds(run: RunLedger) -> float | None:
    """The time of a step, as the run's result says."""
    path = run.run / rundir.RESULT
    if not path.exists():
        return None
    result = records.read(ResultRecord, path)
    return result.timings.training() / result.timed_steps if result.timed_steps else None


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
