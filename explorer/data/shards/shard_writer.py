"""Writing shards: one pass over the examples, in threads, which continues after an interruption where it was.

    PLACE/plan.json            what is being written, until the index is there
    PLACE/train/000012.json    the line of the index of a shard that is finished

Examples of one provenance class are gathered until they fill a shard. Which shard has which examples depends only on
their order and sizes, never on threads or interruptions, so a pass that was interrupted ends with the same bytes as one
that was not. The index is written last: without it there is nothing to be read.
"""

import hashlib
import re
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from explorer import canonical
from explorer.data.dataset import Modality, TaskName
from explorer.data.local import MAX_NAMES, Fault
from explorer.data.shards import shard_index, shard_table
from explorer.data.shards.shard_index import Index, Inputs, Labels, Origin, Passed, Shard, Side, SideName, Tokeniser
from explorer.errors import DataError
from explorer.objects import Missing, Objects
from explorer.schema import from_json, parse_json, record, to_json

PLAN = "plan.json"
PART = re.compile(r"(train|test)/\d+\.json")
MAX_PART = 2**24
WAITING = 64  # examples that are read ahead for each thread
AHEAD = 2**26  # bytes of them, where they are large
SIDES: tuple[SideName, SideName] = ("train", "test")

Place = tuple[int, int]
"""Where a row ends in the pass: the number of an item, and a place in the item. Rows of a class ascend."""
Stream = tuple[SideName, str | None]
"""The rows of one class on one side."""

Item = TypeVar("Item")
Made = TypeVar("Made")


# --- what is written -------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """An example to write."""

    slot: int  # its number in the source
    name: str  # for messages
    side: SideName
    tag: str | None
    label: Any  # a number, or a function to the bytes of an array, called in a thread; None: inputs have their own
    read: Callable[[], bytes | Fault]  # the input; called in a thread
    end: Place | None = None  # None: its number among the rows
    text: int = 0  # bytes of text that its labels stand for


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Material:
    """Examples to write, and what the index says about them."""

    modality: Modality
    task: TaskName
    inputs: Inputs
    labels: Labels
    classes: int
    origin: Origin
    # In the order in which they are written. Those up to the given places are in finished shards: they may be left out.
    rows: Callable[[Mapping[Stream, Place]], Iterator[Row]]
    count: int | None  # of rows, for the progress; None: not known yet
    names: tuple[str, ...] = ()
    simulated: bool = False
    centre: float = 0.0
    scale: float = 1.0
    tokeniser: Callable[[Mapping[SideName, int]], Tokeniser | None] = lambda text: None  # given the bytes of text
    files: Mapping[str, bytes] = field(default_factory=dict)  # next to the index
    trained: bool = False  # the tokeniser among these files, on the examples
    skipped: tuple[Passed, ...] = ()  # that are not among the rows

    def counts(self, labels: Sequence[Any]) -> np.ndarray:
        """Return how many of these labels, or of their pixels, are of each class; nothing where labels are no classes.

        Raises `DataError` for one outside the classes.
        """
        if self.task not in ("classification", "segmentation"):
            return np.empty(0, np.int64)
        values = np.frombuffer(b"".join(labels), self.labels.dtype) if self.labels.shape else np.array(labels)
        if values.min() < 0 or values.max() >= self.classes:
            raise DataError(
                f"found a label {values.max() if values.min() >= 0 else values.min()}: expected 0 to {self.classes - 1}"
            )
        return np.bincount(values, minlength=self.classes)


# --- what is finished ------------------------------------------------------------------------------------------------


@record
class Plan:
    """The pass that is being written: an interrupted pass is continued only by the same one."""

    origin: Origin
    inputs: Inputs
    labels: Labels
    shard_bytes: int
    files: dict[str, str] = field(default_factory=dict)  # SHA-256
    trained: bool = False  # the tokeniser among these files


@record
class Skip:
    """A row of the source that is in no shard."""

    name: str
    reason: str


@record
class Part:
    """A finished shard: its line of the index, and what is needed to continue behind it."""

    shard: Shard
    end: Place  # of its last row
    text: int  # bytes that the labels stand for
    labels: tuple[tuple[int, int], ...]  # number of rows with each label
    skips: tuple[Skip, ...]  # since the shard before it of the same class


@dataclass(kw_only=True, slots=True)
class Gathered:
    """Rows of one class on one side that fill the next shard."""

    side: SideName
    tag: str | None
    rows: list[tuple[Row, bytes]] = field(default_factory=list)
    bytes: int = 0
    end: Place | None = None
    skipped: Place = (-1, 0)  # the last row that is in no shard
    skips: list[Skip] = field(default_factory=list)


# --- writing ---------------------------------------------------------------------------------------------------------


def write_shards(
    material: Material,
    objects: Objects,
    *,
    shard_bytes: int,
    threads: int,
    watch: Callable[[Iterable[Row]], Iterable[Row]] = lambda rows: rows,
) -> Index:
    """Write the shards and their index at a place; return the index.

    Args:
        material: what to write.
        objects: the place.
        shard_bytes: of the inputs of a shard, at least; the last one of each class has fewer.
        threads: that read, check and write.
        watch: wraps the rows, to show progress.

    Raises `DataError` where the place has other shards, or a side would be empty or lack a class; `PlaceError`.
    """
    plan = Plan(
        origin=material.origin,
        inputs=material.inputs,
        labels=material.labels,
        shard_bytes=shard_bytes,
        files={name: hashlib.sha256(content).hexdigest() for name, content in material.files.items()},
        trained=material.trained,
    )
    if not _begin(plan, objects):
        _clean(objects)
        return shard_index.parse(shard_index.read_content(objects), where=f"{objects.url}/{shard_index.FILE}")
    # The first of all, so that a pass that continues this one finds the tokeniser.
    for name, content in material.files.items():
        objects.put(name, content)
    # Warnings about doubtful images are left out here and not where they arise: filters are those of all threads.
    with warnings.catch_warnings(), ThreadPoolExecutor(threads, thread_name_prefix="shards") as pool:
        warnings.simplefilter("ignore")
        pass_ = _Pass(material, objects, pool, shard_bytes)
        waiting = threads * max(1, min(WAITING, AHEAD // material.inputs.bytes))
        rows = enumerate(watch(material.rows(pass_.finished)))
        for row, end, content in ahead(pool, pass_.take, rows, waiting):
            pass_.add(row, end, content)
        parts = pass_.finish()
    try:
        index = _index(material, parts, pass_.leftover)
    except DataError:
        for side in SIDES:
            for part in parts[side]:
                objects.remove(part.shard.name)
        for name in material.files:
            objects.remove(name)
        _clean(objects)
        raise
    objects.put(shard_index.FILE, shard_index.content_of(index))
    _clean(objects)
    return index


def _begin(plan: Plan, objects: Objects) -> bool:
    """Begin, or continue what was begun with the same plan; return whether shards are still to be written.

    Raises `DataError` where the place has other shards, whole or begun.
    """
    written = _is_there(shard_index.FILE, objects)
    if written and not _is_there(PLAN, objects):
        raise DataError(f"{objects.url}: there are shards already: choose another place, or remove them")
    if not objects.create(PLAN, canonical.canonical(to_json(plan))):
        other = _read(Plan, PLAN, objects)
        different = [name for name in Plan.__dataclass_fields__ if getattr(other, name) != getattr(plan, name)]
        raise DataError(
            f"{objects.url}: other shards were begun here (different: {', '.join(different)}): choose another place, or"
            " remove them"
        )
    return not written


def begun(objects: Objects) -> Plan | None:
    """Return what an interrupted pass was to write at a place; None without one."""
    return _read(Plan, PLAN, objects) if _is_there(PLAN, objects) else None


def _is_there(key: str, objects: Objects) -> bool:
    try:
        objects.read(key, max_bytes=shard_index.MAX_BYTES)
    except Missing:
        return False
    return True


def _clean(objects: Objects) -> None:
    """Remove what only the pass needed, the plan at the end: until then the same pass cleans up again."""
    for side in SIDES:
        for key in [listed.key for listed in objects.list(f"{side}/")]:
            if PART.fullmatch(key):
                objects.remove(key)
        objects.remove_drafts(f"{side}/")
    objects.remove(PLAN)


class _Pass:
    """One pass over the rows."""

    def __init__(self, material: Material, objects: Objects, pool: ThreadPoolExecutor, shard_bytes: int) -> None:
        self._material, self._objects, self._pool, self._shard_bytes = material, objects, pool, shard_bytes
        self._parts: dict[SideName, list[Part | Future[Part]]] = {side: _finished(objects, side) for side in SIDES}
        self._gathered: dict[Stream, Gathered] = {}
        self.leftover: list[Skip] = []  # rows without a shard behind them
        self.finished: Mapping[Stream, Place] = {  # the last part of each decides
            (side, part.shard.tag): part.end for side in SIDES for part in self._parts[side] if isinstance(part, Part)
        }

    def _gather(self, side: SideName, tag: str | None) -> Gathered:
        return self._gathered.setdefault((side, tag), Gathered(side=side, tag=tag))

    def take(self, numbered: tuple[int, Row]) -> tuple[Row, Place, bytes | Fault | None]:
        """Read a row that ends at a place; None for one that is in a finished shard. Called in a thread."""
        number, row = numbered
        end = (number, 0) if row.end is None else row.end
        if self._is_done(row.side, row.tag, end):
            return row, end, None
        return (row._replace(label=row.label()) if callable(row.label) else row), end, row.read()

    def _is_done(self, side: SideName, tag: str | None, end: Place) -> bool:
        after = self.finished.get((side, self._tag(side, tag)))
        return after is not None and end <= after

    @staticmethod
    def _tag(side: SideName, tag: str | None) -> str | None:
        return tag if side == "train" else None  # nothing is trained on the test side

    def add(self, row: Row, end: Place, content: bytes | Fault | None) -> None:
        """Add the next row to its shard, and write the shard if it is full."""
        if content is None:
            return
        gathered = self._gather(row.side, self._tag(row.side, row.tag))
        if isinstance(content, Fault):
            gathered.skips.append(Skip(name=row.name, reason=content.value))
            gathered.skipped = end
            return
        gathered.rows.append((row, content))
        gathered.bytes += len(content)
        gathered.end = end
        if gathered.bytes >= self._shard_bytes or len(gathered.rows) == shard_index.MAX_ROWS:
            self._write(gathered)

    def _write(self, gathered: Gathered) -> None:
        number = len(self._parts[gathered.side])
        waiting = [part for part in self._parts[gathered.side][-8:] if isinstance(part, Future)]
        if len(waiting) == 8:  # so that memory stays bounded where the place is slow
            waiting[0].result()
        assert gathered.end is not None  # it has rows
        args = (number, gathered.side, gathered.tag, gathered.rows, gathered.end, tuple(gathered.skips))
        self._parts[gathered.side].append(self._pool.submit(self._written, *args))
        gathered.rows, gathered.bytes, gathered.skips = [], 0, []

    def _written(
        self,
        number: int,
        side: SideName,
        tag: str | None,
        rows: Sequence[tuple[Row, bytes]],
        end: Place,
        skips: tuple[Skip, ...],
    ) -> Part:
        """Write a shard, and then its part. Called in a thread."""
        table = _table(rows, self._material.labels, tag)
        content = shard_table.encode(table)
        name = shard_index.name_of(side, number)
        counts = self._material.counts([row.label for row, _ in rows])
        values = np.flatnonzero(counts)
        part = Part(
            shard=Shard(
                name=name,
                rows=len(rows),
                bytes=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
                root=shard_table.root_of(table),
                tag=tag,
            ),
            end=end,
            text=sum(row.text for row, _ in rows),
            labels=tuple(zip(values.tolist(), counts[values].tolist(), strict=True)),
            skips=skips,
        )
        self._objects.put(name, content)
        self._objects.put(_part(side, number), canonical.canonical(to_json(part)))
        return part

    def finish(self) -> dict[SideName, list[Part]]:
        """Write what is left of each class; return all parts."""
        for (side, tag), gathered in sorted(self._gathered.items(), key=lambda item: (item[0][0], item[0][1] or "")):
            if gathered.rows:
                assert gathered.end is not None
                # Its part lists what was skipped behind its rows too.
                gathered.end = max(gathered.end, gathered.skipped)
                self._write(gathered)
            self.leftover += self._gathered[side, tag].skips
        return {
            side: [part if isinstance(part, Part) else part.result() for part in self._parts[side]] for side in SIDES
        }


def _table(rows: Sequence[tuple[Row, bytes]], labels: Labels, tag: str | None) -> pa.Table:
    columns: dict[str, pa.Array] = {"input": pa.array([content for _, content in rows], pa.binary())}
    if rows[0][0].label is not None:
        kind = pa.binary() if labels.shape else pa.from_numpy_dtype(np.dtype(labels.dtype))
        columns["label"] = pa.array([row.label for row, _ in rows], kind)
    columns["slot"] = pa.array([row.slot for row, _ in rows], pa.int64())
    columns["tag"] = pa.array([tag or ""] * len(rows), pa.string())
    return pa.table(columns)


def _finished(objects: Objects, side: SideName) -> list[Part | Future[Part]]:
    """Return the parts of an interrupted pass up to the first one that is missing."""
    there = {listed.key for listed in objects.list(f"{side}/")}
    parts: list[Part | Future[Part]] = []
    while (key := _part(side, len(parts))) in there:
        parts.append(_read(Part, key, objects))
    return parts


def _read(kind: type[Made], key: str, objects: Objects) -> Made:
    """Return what a file of the pass says. Raises `DataError` for a damaged one."""
    where = f"{objects.url}/{key}"
    content = objects.read(key, max_bytes=MAX_PART)
    return from_json(
        kind, parse_json(content, where=where, error=DataError, max_bytes=MAX_PART), where=where, error=DataError
    )


def _part(side: SideName, number: int) -> str:
    return f"{side}/{number:06d}.json"


def ahead(
    pool: ThreadPoolExecutor, make: Callable[[Item], Made], items: Iterable[Item], waiting: int
) -> Iterator[Made]:
    """Yield what `make` returns of each item, in order; threads work on the next ones meanwhile."""
    queue: deque[Future[Made]] = deque()
    for item in items:
        queue.append(pool.submit(make, item))
        if len(queue) >= waiting:
            yield queue.popleft().result()
    while queue:
        yield queue.popleft().result()


# --- the index -------------------------------------------------------------------------------------------------------


def _index(material: Material, parts: dict[SideName, list[Part]], leftover: Sequence[Skip]) -> Index:
    """Return the index. Raises `DataError` for a side without examples, or without those of a class."""
    sides: dict[SideName, Side] = {}
    skips = [*leftover, *(skip for side in SIDES for part in parts[side] for skip in part.skips)]
    example = f" ({len(skips)} skipped, such as {skips[0].name}: {skips[0].reason})" if skips else ""
    for side in SIDES:
        if not parts[side]:
            raise DataError(f"no example on the {side} side{example}: expected some on both")
        counts = np.zeros(material.classes if any(part.labels for part in parts[side]) else 0, np.int64)
        for part in parts[side]:
            for label, count in part.labels:
                counts[label] += count
        if material.task == "classification" and (missing := np.flatnonzero(counts == 0)).size:
            name = material.names[missing[0]] if material.names else str(missing[0])
            raise DataError(f"class {name!r} has no example on the {side} side{example}: expected one")
        sides[side] = Side(shards=tuple(part.shard for part in parts[side]), labels=tuple(counts.tolist()))
    reasons = sorted({skip.reason for skip in skips})
    passed = [
        Passed(
            reason=reason,
            count=sum(skip.reason == reason for skip in skips),
            names=tuple([skip.name for skip in skips if skip.reason == reason][:MAX_NAMES]),
        )
        for reason in reasons
    ]
    return Index(
        format=shard_index.FORMAT,
        modality=material.modality,
        task=material.task,
        inputs=material.inputs,
        labels=material.labels,
        classes=material.classes,
        names=material.names,
        train=sides["train"],
        test=sides["test"],
        origin=material.origin,
        simulated=material.simulated,
        centre=material.centre,
        scale=material.scale,
        tokeniser=material.tokeniser({side: sum(part.text for part in parts[side]) for side in SIDES}),
        skipped=(*material.skipped, *passed),
    )
